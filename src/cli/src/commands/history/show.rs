//! `avfs show`

use clap::Args;

use avfs_changes::{ChangeSummary, Shown};
use avfs_ops::{OpError, labels};
use avfs_terminal::Tone;
use avfs_types::reference::Reference;
use avfs_types::show_bytes_size;
use avfs_vault::backend::{Extent, Reader, VersionRecord};
use avfs_vault::tree::{Pages, StoppablePages};
use avfs_vault::version::roots_to_compare;
use avfs_vault::{Vault, require_version};
use avfs_wire::Show;

use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::{first_line, local_time, plural};

/// Show a version: its record, its parents and its changes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs show main
  avfs show main~2
  avfs show 3f9a --json")]
pub struct ShowArgs {
    /// The version to show
    #[arg(value_name = "REF")]
    reference: Reference,
}

pub fn run(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let reader = vault.read()?;
    let (version, _) = avfs_vault::version::resolve(&*reader, &args.reference)?;
    let names = labels(&*reader)?.remove(&version.id).unwrap_or_default();
    let (checkpoints, forks): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| name.contains('@'));
    let summary = changes_of(ctx, &vault, &*reader, &version)?;
    let result = Show {
        version: avfs_present::version(&version),
        forks,
        checkpoints,
        changes: summary.as_ref().map(avfs_present::change_list),
        change_counts: summary.as_ref().map(|summary| avfs_present::change_totals(&summary.counts)),
    };
    ctx.ui.answer(&result, |out| {
        show_record(out, &version, &names)?;
        match &summary {
            Some(summary) => patch::show_summary(out, summary),
            None => out.line(format_args!("its changes are unknown: a prune removed the files")),
        }
    })
}

fn show_record(out: &mut Out, version: &VersionRecord, names: &[String]) -> Result<(), OpError> {
    out.line(format_args!("version  {} {}", out.paint(Tone::Id, version.id), names.join(", ")))?;
    for parent in &version.parents {
        out.line(format_args!("parent   {parent}"))?;
    }
    out.line(format_args!("root     {}", version.root))?;
    out.line(format_args!("content  {}", version.content))?;
    out.line(format_args!("author   {}", first_line(&version.author)))?;
    out.line(format_args!("date     {}", local_time(version.at)))?;
    if let Some(run) = &version.run {
        out.line(format_args!("run      {}", first_line(run)))?;
    }
    if version.extent == Extent::Partial {
        out.line(format_args!("partial  only the paths that a run with --base touched changed"))?;
    }
    let entries = plural(version.entries, "entry", "entries");
    out.line(format_args!("size     {entries}, {}", show_bytes_size(version.bytes)))?;
    out.line(format_args!(""))?;
    for line in version.message.lines() {
        out.line(format_args!("    {line}"))?;
    }
    out.line(format_args!(""))
}

/// The changes of a version against its first parent. The first version has no parent, so its summary is
/// empty.
fn changes_of(
    ctx: &CommandContext,
    vault: &Vault,
    reader: &dyn Reader,
    version: &VersionRecord,
) -> Result<Option<ChangeSummary>, OpError> {
    let Some(parent) = version.parents.first() else { return Ok(Some(ChangeSummary::default())) };
    let parent = require_version(reader, parent)?;
    if parent.pruned_at.is_some() || version.pruned_at.is_some() {
        return Ok(None);
    }
    let [before, after] = roots_to_compare(reader, &parent, version)?;
    let progress = ctx.client.observer.unshown_operation()?;
    let pages: &dyn Pages = &reader;
    let pages = StoppablePages::new(pages, &progress.meter);
    Ok(Some(ChangeSummary::compare(vault, &pages, (&before, &after), &[], Shown::WithoutTimes)?))
}
