//! `avfs checkpoint save|list|info|restore|delete`

use clap::{Args, Subcommand};

use avfs_ops::{OpError, VerbError};
use avfs_terminal::Tone;
use avfs_types::ids::{CheckpointName, ForkName, NameError};

use crate::cli::{OnFork, remark};
use crate::commands::edited;
use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::{first_line, local_time_of, message_line, short};

/// Save, list, restore and delete checkpoints
///
/// A checkpoint is a label that pins a version of a fork.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint save before-refactoring
  avfs checkpoint list
  avfs checkpoint restore before-refactoring")]
pub struct CheckpointArgs {
    #[command(subcommand)]
    action: CheckpointAction,
}

#[derive(Debug, Subcommand)]
enum CheckpointAction {
    Save(SaveArgs),
    List(ListArgs),
    Info(InfoArgs),
    Restore(RestoreArgs),
    Delete(DeleteArgs),
}

/// Save a checkpoint of a fork's head
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint save good
  avfs checkpoint save --fork experiment -m 'all green'")]
struct SaveArgs {
    /// Use this name [default: the next free cp-N]
    name: Option<CheckpointName>,
    #[command(flatten)]
    on: OnFork,
    /// Store this message with the checkpoint
    #[arg(short, long, value_name = "TEXT", default_value = "", value_parser = remark)]
    message: String,
}

/// List checkpoints, oldest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint list
  avfs checkpoint list --fork main")]
struct ListArgs {
    /// List only the checkpoints of this fork [default: all forks]
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
}

/// An existing checkpoint.
#[derive(Debug, Args)]
struct Which {
    /// The checkpoint, as `avfs checkpoint list` prints it, or its name alone
    #[arg(value_name = "[FORK@]NAME")]
    label: Label,
    /// The checkpoint's fork [default: main]
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
}

/// A label such as `good` or `main@good`.
#[derive(Clone, Debug)]
struct Label {
    fork: Option<ForkName>,
    name: CheckpointName,
}

impl std::str::FromStr for Label {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (fork, name) = text.split_once('@').map_or((None, text), |(fork, name)| (Some(fork), name));
        Ok(Self { fork: fork.map(ForkName::parse).transpose()?, name: CheckpointName::parse(name)? })
    }
}

impl Which {
    fn find(self) -> Result<(ForkName, CheckpointName), OpError> {
        let Label { fork: labelled, name } = self.label;
        match (labelled, self.fork) {
            (Some(one), Some(other)) if one != other => Err(VerbError::TwoForks { one, other }.into()),
            (one, other) => Ok((one.or(other).unwrap_or_else(ForkName::main), name)),
        }
    }
}

/// Show a checkpoint and the version it pins
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint info good
  avfs checkpoint info experiment@good")]
struct InfoArgs {
    #[command(flatten)]
    which: Which,
}

/// Restore a fork to one of its checkpoints
///
/// Adds a new version equal to the version of the checkpoint. The history stays, so `avfs undo FORK`
/// reverts it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint restore good
  avfs checkpoint restore good --fork experiment")]
struct RestoreArgs {
    #[command(flatten)]
    which: Which,
}

/// Delete a checkpoint
///
/// The version stays in the history of the fork.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint delete cp-1")]
struct DeleteArgs {
    #[command(flatten)]
    which: Which,
}

pub fn run(ctx: &CommandContext, args: CheckpointArgs) -> Outcome {
    match args.action {
        CheckpointAction::Save(args) => save(ctx, args),
        CheckpointAction::List(args) => list(ctx, &args),
        CheckpointAction::Info(args) => info(ctx, args),
        CheckpointAction::Restore(args) => restore(ctx, args),
        CheckpointAction::Delete(args) => delete(ctx, args),
    }
}

fn save(ctx: &CommandContext, args: SaveArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let result = avfs_ops::save_checkpoint(&workplace, &args.on.fork, args.name, &args.message)?;
    ctx.ui.answer(&result, |out| {
        let saved = &result.checkpoint;
        let label = out.paint(Tone::Name, format_args!("{}@{}", saved.fork, saved.name));
        let id = out.paint(Tone::Id, short(&saved.version));
        out.line(format_args!("checkpoint {label} at version {id}"))
    })
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let result = avfs_ops::checkpoints(&workplace, args.fork.as_ref())?;
    ctx.ui.answer(&result, |out| {
        for checkpoint in &result.checkpoints {
            let label = out.paint(Tone::Name, format_args!("{}@{}", checkpoint.fork, checkpoint.name));
            let id = out.paint(Tone::Id, short(&checkpoint.version));
            let mark = if checkpoint.automatic { "  (automatic)" } else { "" };
            let (at, message) = (local_time_of(&checkpoint.at), first_line(&checkpoint.message));
            out.line(format_args!("{id}  {at}  {label}{mark}  {message}"))?;
        }
        Ok(())
    })
}

fn info(ctx: &CommandContext, args: InfoArgs) -> Outcome {
    let (fork, name) = args.which.find()?;
    let workplace = ctx.client.open()?;
    let result = avfs_ops::checkpoint(&workplace, &fork, &name)?;
    ctx.ui.answer(&result, |out| {
        let (checkpoint, version) = (&result.checkpoint, &result.version);
        out.line(format_args!("checkpoint  {}@{}", checkpoint.fork, checkpoint.name))?;
        out.line(format_args!("version     {}", out.paint(Tone::Id, &version.id)))?;
        out.line(format_args!("saved       {}", local_time_of(&checkpoint.at)))?;
        out.line(format_args!("origin      {}", if checkpoint.automatic { "automatic" } else { "by hand" }))?;
        out.line(format_args!("message     {}", first_line(&checkpoint.message)))?;
        out.line(format_args!("of version  {}", message_line(version)))
    })
}

fn restore(ctx: &CommandContext, args: RestoreArgs) -> Outcome {
    let (fork, name) = args.which.find()?;
    let workplace = ctx.client.open()?;
    edited::answer(ctx, &avfs_ops::restore_checkpoint(&workplace, &fork, &name)?)
}

fn delete(ctx: &CommandContext, args: DeleteArgs) -> Outcome {
    let (fork, name) = args.which.find()?;
    let workplace = ctx.client.open()?;
    let result = avfs_ops::delete_checkpoint(&workplace, &fork, &name)?;
    ctx.ui.answer(&result, |out| {
        let deleted = &result.checkpoint;
        out.line(format_args!("deleted checkpoint {}@{}", deleted.fork, deleted.name))
    })
}
