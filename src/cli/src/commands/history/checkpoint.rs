//! `avfs checkpoint save|list|info|restore|delete`

use clap::{Args, Subcommand};

use avfs_ops::{OpError, VerbError};
use avfs_terminal::Tone;
use avfs_types::ids::{CheckpointName, ForkName, NameError};
use avfs_types::reference::Reference;
use avfs_vault::backend::CheckpointRecord;
use avfs_vault::checkpoint::Origin;
use avfs_vault::{Vault, VaultError, require_version};
use avfs_wire::{CheckpointInfo, CheckpointList, CheckpointOne};

use crate::cli::{OnFork, remark};
use crate::commands::edited;
use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::{first_line, local_time, message_line};

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
    let vault = ctx.open_vault()?;
    let saved = vault.save_checkpoint(&args.on.fork, args.name, &args.message, Origin::ByHand)?;
    ctx.ui.answer(&CheckpointOne { checkpoint: avfs_present::checkpoint(&saved) }, |out| {
        let label = out.paint(Tone::Name, format_args!("{}@{}", saved.fork, saved.name));
        out.line(format_args!("checkpoint {label} at version {}", out.paint(Tone::Id, saved.version.short())))
    })
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    if let Some(fork) = &args.fork {
        vault.fork(fork)?;
    }
    let mut checkpoints = vault.checkpoints()?;
    checkpoints.retain(|checkpoint| args.fork.as_ref().is_none_or(|fork| checkpoint.fork == *fork));
    if checkpoints.is_empty() {
        ctx.ui.note(format_args!("there are no checkpoints; save one with: {} checkpoint save", ctx.ui.avfs));
    }
    let result = CheckpointList { checkpoints: checkpoints.iter().map(avfs_present::checkpoint).collect() };
    ctx.ui.answer(&result, |out| {
        for checkpoint in &checkpoints {
            let label = out.paint(Tone::Name, format_args!("{}@{}", checkpoint.fork, checkpoint.name));
            let id = out.paint(Tone::Id, checkpoint.version.short());
            let mark = if checkpoint.automatic { "  (automatic)" } else { "" };
            out.line(format_args!(
                "{id}  {}  {label}{mark}  {}",
                local_time(checkpoint.at),
                first_line(&checkpoint.message)
            ))?;
        }
        Ok(())
    })
}

fn find(vault: &Vault, fork: &ForkName, name: &CheckpointName) -> Result<CheckpointRecord, OpError> {
    vault.fork(fork)?;
    let found = vault.read()?.checkpoint(fork, name)?;
    Ok(found.ok_or_else(|| VaultError::NoCheckpoint { fork: fork.clone(), name: name.clone() })?)
}

fn info(ctx: &CommandContext, args: InfoArgs) -> Outcome {
    let (fork, name) = args.which.find()?;
    let vault = ctx.open_vault()?;
    let checkpoint = find(&vault, &fork, &name)?;
    let version = require_version(&*vault.read()?, &checkpoint.version)?;
    let result = CheckpointInfo {
        checkpoint: avfs_present::checkpoint(&checkpoint),
        version: avfs_present::version(&version),
    };
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("checkpoint  {}@{}", checkpoint.fork, checkpoint.name))?;
        out.line(format_args!("version     {}", out.paint(Tone::Id, version.id)))?;
        out.line(format_args!("saved       {}", local_time(checkpoint.at)))?;
        out.line(format_args!("origin      {}", if checkpoint.automatic { "automatic" } else { "by hand" }))?;
        out.line(format_args!("message     {}", first_line(&checkpoint.message)))?;
        out.line(format_args!("of version  {}", message_line(&result.version)))
    })
}

fn restore(ctx: &CommandContext, args: RestoreArgs) -> Outcome {
    let (fork, name) = args.which.find()?;
    let vault = ctx.open_vault()?;
    let reference = Reference::parse(&format!("{fork}@{name}"))?;
    let committed = vault.restore(&fork, &reference, None)?;
    edited::answer(ctx, &vault, &fork, &committed)
}

fn delete(ctx: &CommandContext, args: DeleteArgs) -> Outcome {
    let (fork, name) = args.which.find()?;
    let vault = ctx.open_vault()?;
    let deleted = vault.delete_checkpoint(&fork, &name)?;
    ctx.ui.answer(&CheckpointOne { checkpoint: avfs_present::checkpoint(&deleted) }, |out| {
        out.line(format_args!("deleted checkpoint {}@{}", deleted.fork, deleted.name))
    })
}
