//! `avfs checkpoint save|list|info|restore|delete`

use avfs::backend::CheckpointRecord;
use avfs::ids::{CheckpointName, ForkName};
use avfs::runtime::envelope::{
    CheckpointInfo, CheckpointList, CheckpointObject, CheckpointOne, VersionObject,
};
use avfs::vault::checkpoint::Origin;
use avfs::vault::version::Reference;
use avfs::vault::{Vault, VaultError, require_version};
use clap::{Args, Subcommand};

use super::edited;
use crate::cli::{OnFork, remark};
use crate::context::CommandContext;
use crate::ui::{Failure, Outcome, Tone};
use crate::view::{local_time, one_line};

/// Save, list, restore and delete checkpoints: labels that pin a version of a fork
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

/// Label the head of a fork
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint save good
  avfs checkpoint save --fork experiment -m 'all green'")]
struct SaveArgs {
    /// The checkpoint's name [default: the next free cp-N]
    name: Option<CheckpointName>,
    #[command(flatten)]
    on: OnFork,
    /// A remark to keep with it
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
    /// Only those of this fork [default: all]
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
}

/// Describe a checkpoint and the version it pins
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint info good")]
struct InfoArgs {
    /// The checkpoint
    name: CheckpointName,
    #[command(flatten)]
    on: OnFork,
}

/// Bring a fork back to one of its checkpoints
///
/// A new version that equals the checkpoint's is added: nothing is lost, and `avfs restore main~1` undoes it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint restore good
  avfs checkpoint restore good --fork experiment")]
struct RestoreArgs {
    /// The checkpoint
    name: CheckpointName,
    #[command(flatten)]
    on: OnFork,
}

/// Delete a checkpoint; its version stays in the fork's history
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs checkpoint delete cp-1")]
struct DeleteArgs {
    /// The checkpoint
    name: CheckpointName,
    #[command(flatten)]
    on: OnFork,
}

pub fn run(ctx: &CommandContext, args: CheckpointArgs) -> Outcome {
    match args.action {
        CheckpointAction::Save(args) => save(ctx, args),
        CheckpointAction::List(args) => list(ctx, &args),
        CheckpointAction::Info(args) => info(ctx, &args),
        CheckpointAction::Restore(args) => restore(ctx, &args),
        CheckpointAction::Delete(args) => delete(ctx, &args),
    }
}

fn save(ctx: &CommandContext, args: SaveArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let saved = vault.save_checkpoint(&args.on.fork, args.name, &args.message, Origin::ByHand)?;
    ctx.ui.answer(&CheckpointOne { checkpoint: CheckpointObject::from(&saved) }, |out| {
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
        ctx.ui.note(format_args!("there are no checkpoints; save one with: avfs checkpoint save"));
    }
    let result = CheckpointList { checkpoints: checkpoints.iter().map(CheckpointObject::from).collect() };
    ctx.ui.answer(&result, |out| {
        for checkpoint in &checkpoints {
            let label = out.paint(Tone::Name, format_args!("{}@{}", checkpoint.fork, checkpoint.name));
            let id = out.paint(Tone::Id, checkpoint.version.short());
            let mark = if checkpoint.automatic { "  (automatic)" } else { "" };
            out.line(format_args!(
                "{id}  {}  {label}{mark}  {}",
                local_time(checkpoint.at),
                one_line(&checkpoint.message)
            ))?;
        }
        Ok(())
    })
}

fn find(vault: &Vault, fork: &ForkName, name: &CheckpointName) -> Result<CheckpointRecord, Failure> {
    vault.fork(fork)?;
    let found = vault.read()?.checkpoint(fork, name)?;
    Ok(found.ok_or_else(|| VaultError::NoCheckpoint { fork: fork.clone(), name: name.clone() })?)
}

fn info(ctx: &CommandContext, args: &InfoArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let checkpoint = find(&vault, &args.on.fork, &args.name)?;
    let version = require_version(&*vault.read()?, &checkpoint.version)?;
    let result = CheckpointInfo {
        checkpoint: CheckpointObject::from(&checkpoint),
        version: VersionObject::from(&version),
    };
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("checkpoint  {}@{}", checkpoint.fork, checkpoint.name))?;
        out.line(format_args!("version     {}", out.paint(Tone::Id, version.id)))?;
        out.line(format_args!("saved       {}", local_time(checkpoint.at)))?;
        out.line(format_args!("origin      {}", if checkpoint.automatic { "automatic" } else { "by hand" }))?;
        out.line(format_args!("message     {}", one_line(&checkpoint.message)))?;
        out.line(format_args!("of version  {}", one_line(&version.message)))
    })
}

fn restore(ctx: &CommandContext, args: &RestoreArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let reference = Reference::parse(&format!("{}@{}", args.on.fork, args.name))?;
    let committed = vault.restore(&args.on.fork, &reference, None)?;
    edited::answer(ctx, &args.on.fork, &committed)
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let deleted = vault.delete_checkpoint(&args.on.fork, &args.name)?;
    ctx.ui.answer(&CheckpointOne { checkpoint: CheckpointObject::from(&deleted) }, |out| {
        out.line(format_args!("deleted checkpoint {}@{}", deleted.fork, deleted.name))
    })
}
