//! `avfs fork create|list|tree|delete`

use clap::{Args, Subcommand};

use avfs_ops::{Deletion, OpError, Sizes, quoted};
use avfs_terminal::{Painted, Tone};
use avfs_types::ids::ForkName;
use avfs_types::reference::Reference;
use avfs_types::{Span, show_bytes_size};
use avfs_wire::ForkUseObject;

use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{command_line, local_time_of, plural, short};

/// Create, list and delete forks
///
/// A fork is a named head that moves from version to version.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fork create experiment
  avfs fork list
  avfs fork tree
  avfs fork delete experiment")]
pub struct ForkArgs {
    #[command(subcommand)]
    action: ForkAction,
}

#[derive(Debug, Subcommand)]
enum ForkAction {
    Create(CreateArgs),
    /// List forks, oldest first, with their expiry and last run
    #[command(after_help = "\
Examples:
  avfs fork list
  avfs fork list --size
  avfs fork list --json | jq -r '.result.forks[] | select(.last_run == null) | .name'")]
    List(UseArgs),
    /// Show the forks as a tree of their origins
    #[command(after_help = "\
Examples:
  avfs fork tree
  avfs fork tree --size")]
    Tree(UseArgs),
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct UseArgs {
    /// Also count the bytes that deleting each fork and running gc would free; reads all stored versions
    #[arg(long)]
    size: bool,
}

impl UseArgs {
    fn sizes(&self) -> Sizes {
        if self.size { Sizes::Counted } else { Sizes::LeftOut }
    }
}

/// Create a fork of a version
///
/// Copies nothing: the cost does not depend on the size of the version.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fork create experiment
  avfs fork create retry --from main~2
  avfs fork create scratch --expires 7d")]
struct CreateArgs {
    /// The name of the new fork
    name: ForkName,
    /// Start the fork at this version
    #[arg(long, value_name = "REF", default_value = "main")]
    from: Reference,
    /// Let the next run or `avfs gc` delete the fork after this time (90s, 12h, 7d, 2w) [default: never]
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
}

/// Delete a fork and its checkpoints
///
/// The next `avfs gc` frees the space.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fork delete experiment
  avfs fork delete experiment --force")]
struct DeleteArgs {
    /// The fork to delete
    name: ForkName,
    /// Delete the fork even if it has checkpoints that were saved by hand
    #[arg(long)]
    force: bool,
}

pub fn run(ctx: &CommandContext, args: &ForkArgs) -> Outcome {
    match &args.action {
        ForkAction::Create(args) => create(ctx, args),
        ForkAction::List(args) => list(ctx, args),
        ForkAction::Tree(args) => tree(ctx, args),
        ForkAction::Delete(args) => delete(ctx, args),
    }
}

fn create(ctx: &CommandContext, args: &CreateArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let result = avfs_ops::create_fork(&workplace, &args.name, &args.from, args.expires)?;
    ctx.ui.answer(&result, |out| {
        let fork = &result.fork;
        let (name, id) = (out.paint(Tone::Name, &fork.name), out.paint(Tone::Id, short(&fork.head)));
        out.line(format_args!("fork {name} at version {id}"))
    })
}

fn list(ctx: &CommandContext, args: &UseArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    if let (Format::Human, Sizes::LeftOut) = (ctx.ui.format, args.sizes()) {
        let (mut out, mut number) = (ctx.ui.out(), 0);
        avfs_ops::each_fork(&workplace, &mut |row| {
            show_fork(&mut out, number, row.name_bytes_max, &row.fork)?;
            number += 1;
            Ok(())
        })?;
        out.flush()?;
        return ctx.ui.answer(&(), |_| Ok(()));
    }
    let result = avfs_ops::forks(&workplace, args.sizes())?;
    ctx.ui.answer(&result, |out| {
        let width = result.forks.iter().map(|used| used.fork.name.len()).max().unwrap_or(0);
        (0..).zip(&result.forks).try_for_each(|(number, used)| show_fork(out, number, width, used))
    })
}

fn show_fork(out: &mut Out, number: usize, width: usize, used: &ForkUseObject) -> Result<(), OpError> {
    let fork = &used.fork;
    let name = out.paint(Tone::Name, format_args!("{:<width$}", fork.name));
    let id = out.paint(Tone::Id, short(&fork.head));
    let from = fork.parent.as_ref().map(|parent| format!(" from {parent}")).unwrap_or_default();
    let made = out.paint(Tone::Dim, format_args!("{}{from}", local_time_of(&fork.created_at)));
    let remarks = remarks(out, used);
    out.list_line(number, format_args!("{name}  {id}  {made}{remarks}"))
}

/// The expiry of a fork, the bytes that only it holds, and its last run.
fn remarks(out: &Out, used: &ForkUseObject) -> Painted {
    let mut text = match &used.fork.expires_at {
        None => String::new(),
        Some(expires_at) => format!(", expires {}", local_time_of(expires_at)),
    };
    if let Some(bytes) = used.held_bytes {
        text.push_str(&format!(", holds {}", show_bytes_size(bytes)));
    }
    let shown = out.paint(Tone::Dim, text);
    let Some(run) = &used.last_run else { return shown };
    let id = Painted::plain("  ").then(out.paint(Tone::Id, format_args!("run:{}", run.id)));
    let (at, command) = (local_time_of(&run.started_at), quoted(run.command.as_ref()));
    shown.then(id).then(Painted::plain(format_args!(" {at}  {}", command_line(&command))))
}

fn tree(ctx: &CommandContext, args: &UseArgs) -> Outcome {
    let result = avfs_ops::fork_tree(&ctx.client.open()?, args.sizes())?;
    ctx.ui.answer(&result, |out| {
        for used in &result.forks {
            let fork = &used.fork;
            let indent = "  ".repeat(usize::try_from(used.depth).unwrap_or(0));
            let (name, id) = (out.paint(Tone::Name, &fork.name), out.paint(Tone::Id, short(&fork.head)));
            let ahead = plural(used.versions_ahead, "version", "versions");
            out.line(format_args!("{indent}{name}  {id}  {ahead} since it began{}", remarks(out, used)))?;
        }
        Ok(())
    })
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let deletion = if args.force { Deletion::Forced } else { Deletion::Careful };
    let result = avfs_ops::delete_fork(&ctx.client, &args.name, deletion)?;
    ctx.ui.answer(&result, |out| {
        let name = out.paint(Tone::Name, &result.fork.name);
        out.line(format_args!("deleted fork {name}; free its space with: {} gc", ctx.ui.avfs))
    })
}
