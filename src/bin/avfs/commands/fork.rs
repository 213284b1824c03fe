//! `avfs fork create|list|tree|delete`

use std::collections::HashMap;

use avfs::backend::{ForkRecord, Life, Reader};
use avfs::ids::ForkName;
use avfs::runtime::Span;
use avfs::runtime::envelope::{ForkList, ForkObject, ForkOne, ForkTree, ForkTreeNode};
use avfs::vault::fork::Deletion;
use avfs::vault::version::{History, Reference};
use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::ui::{Failure, Out, Outcome, Tone};
use crate::view::{local_time, plural};

/// Create, list and delete forks: named heads that move from version to version
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
    /// List the forks
    #[command(after_help = "\
Examples:
  avfs fork list
  avfs fork list --json")]
    List,
    /// Show which fork came from which
    #[command(after_help = "\
Examples:
  avfs fork tree")]
    Tree,
    Delete(DeleteArgs),
}

/// Make a fork of a version
///
/// It costs the same whatever the size of the version: nothing is copied.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fork create experiment
  avfs fork create retry --from main~2
  avfs fork create scratch --expires 7d")]
struct CreateArgs {
    /// The new fork's name
    name: ForkName,
    /// The version it begins at
    #[arg(long, value_name = "REF", default_value = "main")]
    from: Reference,
    /// Let `avfs gc` delete it after so long (90s, 12h, 7d, 2w) [default: it stays]
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
}

/// Delete a fork and its checkpoints
///
/// The space comes back with the next `avfs gc`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fork delete experiment
  avfs fork delete experiment --force")]
struct DeleteArgs {
    /// The fork
    name: ForkName,
    /// Also when checkpoints saved by hand go with it
    #[arg(long)]
    force: bool,
}

pub fn run(ctx: &CommandContext, args: &ForkArgs) -> Outcome {
    match &args.action {
        ForkAction::Create(args) => create(ctx, args),
        ForkAction::List => list(ctx),
        ForkAction::Tree => tree(ctx),
        ForkAction::Delete(args) => delete(ctx, args),
    }
}

fn create(ctx: &CommandContext, args: &CreateArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let life = match args.expires {
        None => Life::Persistent,
        Some(Span(seconds)) => Life::Ephemeral { expires_at: vault.now().plus_seconds(seconds) },
    };
    let fork = vault.create_fork(&args.name, &args.from, life)?;
    ctx.ui.answer(&ForkOne { fork: ForkObject::from(&fork) }, |out| {
        let (name, id) = (out.paint(Tone::Name, &fork.name), out.paint(Tone::Id, fork.head.short()));
        out.line(format_args!("fork {name} at version {id}"))
    })
}

fn list(ctx: &CommandContext) -> Outcome {
    let vault = ctx.open_vault()?;
    let forks = vault.forks()?;
    let result = ForkList { forks: forks.iter().map(ForkObject::from).collect() };
    ctx.ui.answer(&result, |out| {
        let width = forks.iter().map(|fork| fork.name.as_str().len()).max().unwrap_or(0);
        for fork in &forks {
            let name = out.paint(Tone::Name, format_args!("{:<width$}", fork.name.as_str()));
            let id = out.paint(Tone::Id, fork.head.short());
            out.line(format_args!("{name}  {id}  {}", remarks(out, fork)))?;
        }
        Ok(())
    })
}

/// Where a fork came from and when it ends.
fn remarks(out: &Out, fork: &ForkRecord) -> String {
    let from = fork.parent.as_ref().map(|parent| format!(" from {parent}")).unwrap_or_default();
    let ends = match fork.life {
        Life::Persistent => String::new(),
        Life::Ephemeral { expires_at } => format!(", expires {}", local_time(expires_at)),
    };
    out.paint(Tone::Dim, format_args!("{}{from}{ends}", local_time(fork.created_at)))
}

fn tree(ctx: &CommandContext) -> Outcome {
    let vault = ctx.open_vault()?;
    let reader = vault.read()?;
    let nodes = in_tree_order(&*reader)?;
    let result = ForkTree {
        forks: nodes
            .iter()
            .map(|(fork, depth, versions_ahead)| ForkTreeNode {
                fork: ForkObject::from(fork),
                depth: *depth,
                versions_ahead: *versions_ahead,
            })
            .collect(),
    };
    ctx.ui.answer(&result, |out| {
        for (fork, depth, ahead) in &nodes {
            let indent = "  ".repeat(usize::try_from(*depth).unwrap_or(0));
            let (name, id) = (out.paint(Tone::Name, &fork.name), out.paint(Tone::Id, fork.head.short()));
            let ahead = plural(*ahead, "version", "versions");
            out.line(format_args!("{indent}{name}  {id}  {ahead} since it began"))?;
        }
        Ok(())
    })
}

/// Each fork after its parent, with its depth and the number of its own versions.
fn in_tree_order(reader: &dyn Reader) -> Result<Vec<(ForkRecord, u64, u64)>, Failure> {
    let forks = reader.forks()?;
    let names: Vec<ForkName> = forks.iter().map(|fork| fork.name.clone()).collect();
    let mut children: HashMap<Option<ForkName>, Vec<ForkRecord>> = HashMap::new();
    for fork in forks {
        // A fork whose parent was deleted stands by itself.
        let parent = fork.parent.clone().filter(|parent| names.contains(parent) && *parent != fork.name);
        children.entry(parent).or_default().push(fork);
    }
    let mut waiting: Vec<(ForkRecord, u64)> =
        children.remove(&None).unwrap_or_default().into_iter().rev().map(|fork| (fork, 0)).collect();
    let mut ordered = Vec::new();
    while let Some((fork, depth)) = waiting.pop() {
        let beneath = children.remove(&Some(fork.name.clone())).unwrap_or_default();
        waiting.extend(beneath.into_iter().rev().map(|fork| (fork, depth + 1)));
        let ahead = versions_ahead(reader, &fork)?;
        ordered.push((fork, depth, ahead));
    }
    Ok(ordered)
}

fn versions_ahead(reader: &dyn Reader, fork: &ForkRecord) -> Result<u64, Failure> {
    let mut count = 0;
    for version in History::new(reader, fork.head) {
        if version?.id == fork.base {
            break;
        }
        count += 1;
    }
    Ok(count)
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let deletion = if args.force { Deletion::Forced } else { Deletion::Careful };
    let fork = vault.delete_fork(&args.name, deletion)?;
    ctx.ui.answer(&ForkOne { fork: ForkObject::from(&fork) }, |out| {
        let name = out.paint(Tone::Name, &fork.name);
        out.line(format_args!("deleted fork {name}; give its space back with: avfs gc"))
    })
}
