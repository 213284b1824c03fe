//! Materializes a version in the cache.

use avfs_engine::{CacheOwners, base_announcement, is_disk_full};
use avfs_types::Size;
use avfs_types::reference::Reference;
use avfs_vault::materialize::{Built, Trust};
use avfs_wire::Materialize;
use avfs_workplace::{OpError, Workplace};

use crate::view::View;

/// What to materialize.
pub struct MaterializeQuery {
    pub reference: Reference,
    /// Whether an existing base is compared with the version.
    pub trust: Trust,
    /// The limit of the cache; `None` for the setting.
    pub cache_max: Option<Size>,
}

/// Materializes a version, and evicts unused bases until the cache is within its limit.
pub fn materialize(workplace: &Workplace, query: &MaterializeQuery) -> Result<Materialize, OpError> {
    let Workplace { client, vault } = workplace;
    let keeper = client.cache_keeper()?;
    keeper.sweep_unfinished()?;
    let cache = &keeper.layers;
    let (id, root) = {
        let view = View::open(vault, &query.reference)?;
        (view.version.id, view.root)
    };
    let base = {
        let above = client.warn_above(&client.surroundings.cwd)?;
        let progress = client.observer.announced_operation("materializing", None)?;
        progress.meter.announce_if_expected(base_announcement(above));
        let materialize = || vault.materialize(&root, cache, query.trust, &progress.meter);
        match materialize() {
            Err(error) if is_disk_full(&error) && keeper.make_room()? > 0 => materialize()?,
            other => other?,
        }
    };
    CacheOwners::new(&keeper.dir).register(&vault.id()?, vault.path());
    // The base just materialized is leased, so it stays even if it alone exceeds the limit.
    let evicted = match query.cache_max.map(|max| max.0).or(keeper.bytes_max) {
        Some(bytes_max) => keeper.evict_to(bytes_max)?,
        None => None,
    };
    let built = match base.built {
        Built::Reused => "reused",
        Built::New => "new",
        Built::Rebuilt => "rebuilt",
    };
    Ok(Materialize {
        version: id.to_hex(),
        dir: base.root.to_string_lossy().into_owned(),
        built: built.to_owned(),
        evicted_bytes: evicted.map_or(0, |swept| swept.freed_bytes),
    })
}
