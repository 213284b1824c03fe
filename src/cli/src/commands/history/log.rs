//! `avfs log`

use clap::Args;

use avfs_ops::{GivenPath, LogQuery, OpError};
use avfs_terminal::Tone;
use avfs_types::clock::Timestamp;
use avfs_types::reference::Reference;
use avfs_wire::{Log, VersionObject};

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome};
use crate::view::{local_time, message_line, short};

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

pub fn run(ctx: &CommandContext, args: LogArgs) -> Outcome {
    let LogArgs { reference, limit, path } = args;
    let workplace = ctx.client.open()?;
    let (mut out, mut versions) = (ctx.ui.out(), Vec::new());
    let mut number = 0;
    let page = avfs_ops::log(&workplace, &LogQuery { reference, limit, path }, &mut |version, names| {
        match ctx.ui.format {
            Format::Json => versions.push(version),
            Format::Human => show_version(&mut out, number, &version, names)?,
        }
        number += 1;
        Ok(())
    })?;
    out.flush()?;
    drop(out);
    let result = Log { versions, more: page.more, pruned_skipped: page.pruned_skipped };
    ctx.ui.answer(&result, |_| Ok(()))
}

fn show_version(
    out: &mut Out,
    number: usize,
    version: &VersionObject,
    names: &[String],
) -> Result<(), OpError> {
    let id = out.paint(Tone::Id, short(&version.id));
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let names = out.paint(Tone::Name, names);
    let pruned = if version.pruned_at.is_some() { " [pruned]" } else { "" };
    let (at, message) = (local_time(Timestamp(version.at_ns)), message_line(version));
    out.list_line(number, format_args!("{id}  {at}  {message}{names}{pruned}"))
}
