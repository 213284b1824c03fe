//! `avfs fork create|list|tree|delete`

use clap::{Args, Subcommand};

use avfs_engine::ForkDirs;
use avfs_ops::{OpError, VerbError, WorkplaceError};
use avfs_terminal::{Painted, Tone};
use avfs_types::ids::ForkName;
use avfs_types::reference::Reference;
use avfs_types::{Span, show_bytes_size};
use avfs_vault::backend::Life;
use avfs_vault::fork::Deletion;
use avfs_vault::fork_use::{ForkUse, Sizes, fork_uses, last_run};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{ForkList, ForkOne, ForkTree};

use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{command_line, local_time, plural};

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
    let vault = ctx.open_vault()?;
    let life = match args.expires {
        None => Life::Persistent,
        Some(Span(seconds)) => Life::Ephemeral { expires_at: vault.now().plus_seconds(seconds) },
    };
    let fork = vault.create_fork(&args.name, &args.from, life)?;
    ctx.ui.answer(&ForkOne { fork: avfs_present::fork(&fork) }, |out| {
        let (name, id) = (out.paint(Tone::Name, &fork.name), out.paint(Tone::Id, fork.head.short()));
        out.line(format_args!("fork {name} at version {id}"))
    })
}

fn list(ctx: &CommandContext, args: &UseArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    if let (Format::Human, Sizes::LeftOut) = (ctx.ui.format, args.sizes()) {
        return list_at_once(ctx, &vault);
    }
    let mut forks = fork_uses(&*vault.read()?, args.sizes())?;
    forks.sort_by(|a, b| (a.fork.created_at, &a.fork.name).cmp(&(b.fork.created_at, &b.fork.name)));
    let result = ForkList { forks: forks.iter().map(avfs_present::fork_use).collect() };
    ctx.ui.answer(&result, |out| {
        let width = forks.iter().map(|used| used.fork.name.as_str().len()).max().unwrap_or(0);
        (0..).zip(&forks).try_for_each(|(number, used)| show_fork(out, number, width, used))
    })
}

/// Prints the list for people; looks up each fork only when it is printed.
fn list_at_once(ctx: &CommandContext, vault: &Vault) -> Outcome {
    let reader = vault.read()?;
    let mut forks = reader.forks().map_err(VaultError::from)?;
    forks.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
    let width = forks.iter().map(|fork| fork.name.as_str().len()).max().unwrap_or(0);
    let mut out = ctx.ui.out();
    for (number, fork) in forks.into_iter().enumerate() {
        let last_run = last_run(&*reader, &fork)?;
        let used = ForkUse { fork, depth: 0, versions_ahead: 0, last_run, held_bytes: None };
        show_fork(&mut out, number, width, &used)?;
    }
    out.flush()?;
    ctx.ui.answer(&(), |_| Ok(()))
}

fn show_fork(out: &mut Out, number: usize, width: usize, used: &ForkUse) -> Result<(), OpError> {
    let fork = &used.fork;
    let name = out.paint(Tone::Name, format_args!("{:<width$}", fork.name.as_str()));
    let id = out.paint(Tone::Id, fork.head.short());
    let from = fork.parent.as_ref().map(|parent| format!(" from {parent}")).unwrap_or_default();
    let made = out.paint(Tone::Dim, format_args!("{}{from}", local_time(fork.created_at)));
    let remarks = remarks(out, used);
    out.list_line(number, format_args!("{name}  {id}  {made}{remarks}"))
}

/// The expiry of a fork, the bytes that only it holds, and its last run.
fn remarks(out: &Out, used: &ForkUse) -> Painted {
    let mut text = match used.fork.life {
        Life::Persistent => String::new(),
        Life::Ephemeral { expires_at } => format!(", expires {}", local_time(expires_at)),
    };
    if let Some(bytes) = used.held_bytes {
        text.push_str(&format!(", holds {}", show_bytes_size(bytes)));
    }
    let shown = out.paint(Tone::Dim, text);
    let Some(run) = &used.last_run else { return shown };
    let id = Painted::plain("  ").then(out.paint(Tone::Id, format_args!("run:{}", run.id)));
    let (at, command) = (local_time(run.started_at), avfs_ops::command_text(run));
    shown.then(id).then(Painted::plain(format_args!(" {at}  {}", command_line(&command))))
}

fn tree(ctx: &CommandContext, args: &UseArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let forks = fork_uses(&*vault.read()?, args.sizes())?;
    let result = ForkTree { forks: forks.iter().map(avfs_present::fork_use).collect() };
    ctx.ui.answer(&result, |out| {
        for used in &forks {
            let indent = "  ".repeat(usize::try_from(used.depth).unwrap_or(0));
            let (name, id) =
                (out.paint(Tone::Name, &used.fork.name), out.paint(Tone::Id, used.fork.head.short()));
            let ahead = plural(used.versions_ahead, "version", "versions");
            out.line(format_args!("{indent}{name}  {id}  {ahead} since it began{}", remarks(out, used)))?;
        }
        Ok(())
    })
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let deletion = if args.force { Deletion::Forced } else { Deletion::Careful };
    let (fork, vault_id) = ctx.client.free_space(|| {
        let vault = ctx.open_vault()?;
        let fork = vault.delete_fork(&args.name, deletion).map_err(VerbError::of_old_fork)?;
        Ok((fork, vault.id()?))
    })?;
    // Without a cache directory the fork has no directories to remove.
    if let Ok(cache_dir) = ctx.client.surroundings.cache_dir() {
        let removed = ForkDirs::new(&cache_dir, &vault_id).remove(&fork.name);
        removed.map_err(WorkplaceError::host("remove the directories of the fork in", &cache_dir))?;
    }
    ctx.ui.answer(&ForkOne { fork: avfs_present::fork(&fork) }, |out| {
        let name = out.paint(Tone::Name, &fork.name);
        out.line(format_args!("deleted fork {name}; free its space with: {} gc", ctx.ui.avfs))
    })
}
