//! `avfs show`

use clap::Args;

use avfs_ops::{OpError, ShowAnswer};
use avfs_terminal::Tone;
use avfs_types::clock::Timestamp;
use avfs_types::reference::Reference;
use avfs_types::show_bytes_size;
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
    let workplace = ctx.client.open()?;
    let ShowAnswer { show, lines } = avfs_ops::show(&workplace, &args.reference)?;
    ctx.ui.answer(&show, |out| {
        show_record(out, &show)?;
        match lines {
            Some(lines) => patch::show_summary(out, lines),
            None => out.line(format_args!("its changes are unknown: a prune removed the files")),
        }
    })
}

fn show_record(out: &mut Out, show: &Show) -> Result<(), OpError> {
    let version = &show.version;
    let names = [&show.forks[..], &show.checkpoints].concat().join(", ");
    out.line(format_args!("version  {} {names}", out.paint(Tone::Id, &version.id)))?;
    for parent in &version.parents {
        out.line(format_args!("parent   {parent}"))?;
    }
    out.line(format_args!("root     {}", version.root))?;
    out.line(format_args!("content  {}", version.content))?;
    out.line(format_args!("author   {}", first_line(&version.author)))?;
    out.line(format_args!("date     {}", local_time(Timestamp(version.at_ns))))?;
    if let Some(run) = &version.run {
        out.line(format_args!("run      {}", first_line(run)))?;
    }
    if version.partial {
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
