//! `avfs materialize`

use clap::Args;

use avfs_engine::{CacheOwners, base_announcement, is_disk_full};
use avfs_types::Size;
use avfs_types::reference::Reference;
use avfs_vault::materialize::{Built, Trust};
use avfs_wire::Materialize;

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::View;

/// Materialize a version in the cache, and print its path
///
/// The path is a directory that must only be read: runs use it as their base, so a write to it changes the
/// files that they see, until --check rebuilds it. To work on a copy, use avfs export. A version that is
/// already materialized is not written again. Unused bases are evicted, least recently used first, until the
/// cache is within its limit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ls \"$(avfs materialize main)\"
  avfs materialize main~2 --check
  avfs materialize main --cache-max 2GiB")]
pub struct MaterializeArgs {
    /// The version to materialize
    #[arg(value_name = "REF")]
    reference: Reference,
    /// Compare every file with the version, and rebuild the base if one differs
    #[arg(long)]
    check: bool,
    /// Limit the cache to SIZE [default: the setting cache.max]
    #[arg(long, value_name = "SIZE")]
    cache_max: Option<Size>,
}

pub fn run(ctx: &CommandContext, args: &MaterializeArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let keeper = ctx.client.cache_keeper()?;
    keeper.sweep_unfinished()?;
    let cache = &keeper.layers;
    let (id, root) = {
        let view = View::open(&vault, &args.reference)?;
        (view.version.id, view.root)
    };
    let trust = if args.check { Trust::Nothing } else { Trust::Seal };
    let base = {
        let above = ctx.client.warn_above(&ctx.client.surroundings.cwd)?;
        let progress = ctx.client.observer.announced_operation("materializing", None)?;
        progress.meter.announce_if_expected(base_announcement(above));
        let materialize = || vault.materialize(&root, cache, trust, &progress.meter);
        match materialize() {
            Err(error) if is_disk_full(&error) && keeper.make_room()? > 0 => materialize()?,
            other => other?,
        }
    };
    CacheOwners::new(&keeper.dir).register(&vault.id()?, vault.path());
    // The base just materialized is leased, so it stays even if it alone exceeds the limit.
    let evicted = match args.cache_max.map(|max| max.0).or(keeper.bytes_max) {
        Some(bytes_max) => keeper.evict_to(bytes_max)?,
        None => None,
    };
    let evicted_bytes = evicted.map_or(0, |swept| swept.freed_bytes);
    let built = match base.built {
        Built::Reused => "reused",
        Built::New => "new",
        Built::Rebuilt => "rebuilt",
    };
    let result = Materialize {
        version: id.to_hex(),
        dir: base.root.to_string_lossy().into_owned(),
        built: built.to_owned(),
        evicted_bytes,
    };
    ctx.ui.answer(&result, |out| out.line(format_args!("{}", base.root.display())))
}
