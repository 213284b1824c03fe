//! `avfs log`

use std::collections::HashMap;

use clap::Args;

use avfs_types::ids::VersionId;
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::{Reader, VersionRecord};
use avfs_vault::page::Node;
use avfs_vault::version::{History, root_of};
use avfs_vault::{VaultError, tree};
use avfs_wire::Log;

use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::given_path::{GivenPath, tree_path};
use crate::ui::{Failure, Format, Out, Outcome, Tone};
use crate::view::{labels, local_time, message_line};

/// List the versions of a fork, newest first
///
/// With a path, list only versions that changed it; changes of modification times do not count.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs log
  avfs log experiment -n 5
  avfs log main -- src/main.rs")]
pub struct LogArgs {
    /// The fork, or a version to start at
    #[arg(value_name = "FORK", default_value = "main")]
    reference: Reference,
    /// List at most N versions [default: all]
    #[arg(short = 'n', long = "limit", value_name = "N")]
    limit: Option<usize>,
    /// List only versions that changed this path
    #[arg(last = true, value_parser = tree_path())]
    path: Option<GivenPath>,
}

/// Counts for a listing: shown versions, and versions that were not shown.
#[derive(Default)]
struct LogPage {
    shown: usize,
    more: bool,
    pruned_skipped: u64,
}

impl LogPage {
    /// True if no searched version contains the path. A pruned version may have contained it.
    fn is_nowhere(&self) -> bool {
        self.shown == 0 && !self.more && self.pruned_skipped == 0
    }
}

/// A callback that shows a version, given its number in the list.
type Show<'s> = dyn FnMut(usize, VersionRecord) -> Result<(), Failure> + 's;

pub fn run(ctx: &CommandContext, args: &LogArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let reader = vault.read()?;
    let (newest, _) = avfs_vault::version::resolve(&*reader, &args.reference)?;
    let path = args.path.as_ref().map(|path| path.within(&vault)).transpose()?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let history = History::new(&*reader, newest.id);
    let labels = labels(&*reader)?;
    let (mut out, mut versions) = (ctx.ui.out(), Vec::new());
    let show: &mut Show<'_> = match ctx.ui.format {
        Format::Json => &mut |_, version| {
            versions.push(avfs_present::version(&version));
            Ok(())
        },
        Format::Human => &mut |number, version| show_version(&mut out, number, &version, &labels),
    };
    let found = match &path {
        None => all(history, limit, show)?,
        Some(path) => touching(&*reader, history, path, limit, show)?,
    };
    out.flush()?;
    drop(out);
    if let Some(path) = &path
        && found.is_nowhere()
    {
        let error = VaultError::NoPath { path: path.clone() };
        return Err(EdgeError::in_version(&args.reference)(error));
    }
    if found.pruned_skipped > 0 {
        let count = found.pruned_skipped;
        ctx.ui.note(format_args!("note: {count} pruned versions could not be searched"));
    }
    let result = Log { versions, more: found.more, pruned_skipped: found.pruned_skipped };
    ctx.ui.answer(&result, |_| Ok(()))
}

fn show_version(
    out: &mut Out,
    number: usize,
    version: &VersionRecord,
    labels: &HashMap<VersionId, Vec<String>>,
) -> Result<(), Failure> {
    let id = out.paint(Tone::Id, version.id.short());
    let names = labels.get(&version.id).map(|names| format!(" ({})", names.join(", ")));
    let names = out.paint(Tone::Name, names.unwrap_or_default());
    let pruned = if version.pruned_at.is_some() { " [pruned]" } else { "" };
    let (at, message) = (local_time(version.at), message_line(version));
    out.list_line(number, format_args!("{id}  {at}  {message}{names}{pruned}"))
}

fn all(history: History<'_>, limit: usize, show: &mut Show<'_>) -> Result<LogPage, Failure> {
    let mut found = LogPage::default();
    for version in history {
        if found.shown == limit {
            found.more = true;
            break;
        }
        show(found.shown, version?)?;
        found.shown += 1;
    }
    Ok(found)
}

/// Compares each version with the next older one whose files are kept.
fn touching(
    reader: &dyn Reader,
    history: History<'_>,
    path: &TreePath,
    limit: usize,
    show: &mut Show<'_>,
) -> Result<LogPage, Failure> {
    let mut found = LogPage::default();
    let mut newer: Option<(VersionRecord, Option<Node>)> = None;
    for version in history {
        let version = version?;
        if version.pruned_at.is_some() {
            found.pruned_skipped += 1;
            continue;
        }
        let node = tree::lookup(&reader, &root_of(&version)?, path)?;
        if let Some((candidate, there)) = newer.take()
            && differ(there.as_ref(), node.as_ref())
        {
            if found.shown == limit {
                found.more = true;
                return Ok(found);
            }
            show(found.shown, candidate)?;
            found.shown += 1;
        }
        newer = Some((version, node));
    }
    match newer {
        Some((_, Some(_))) if found.shown == limit => found.more = true,
        Some((first, Some(_))) => {
            show(found.shown, first)?;
            found.shown += 1;
        }
        Some((_, None)) | None => {}
    }
    Ok(found)
}

/// Whether two nodes differ in anything except their times.
fn differ(a: Option<&Node>, b: Option<&Node>) -> bool {
    match (a, b) {
        (Some(Node::File(a)), Some(Node::File(b))) => {
            (a.content, a.mode, a.xattrs, a.link) != (b.content, b.mode, b.xattrs, b.link)
        }
        (Some(Node::Dir(a)), Some(Node::Dir(b))) => a.content != b.content,
        (Some(Node::Symlink(a)), Some(Node::Symlink(b))) => (&a.target, a.link) != (&b.target, b.link),
        (Some(Node::Fifo(a)), Some(Node::Fifo(b))) => (a.mode, a.link) != (b.mode, b.link),
        (None, None) => false,
        (Some(Node::File(_) | Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None, _) => true,
    }
}
