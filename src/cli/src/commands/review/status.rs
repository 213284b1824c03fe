//! `avfs status`

use clap::Args;

use avfs_changes::{ChangeSummary, Subject, inherited_changes};
use avfs_engine::require_bound_dir;
use avfs_terminal::Tone;
use avfs_types::ids::ForkName;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_vault::discard::ChangesOf;
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::require_version;
use avfs_vault::version::root_of;
use avfs_wire::Status;

use crate::cli::OnFork;
use crate::commands::apply::note_inherited;
use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Compare the bound directory with its fork
///
/// Shows the changes that `avfs import` would record, and stores nothing. Omits changes of modification times
/// alone, and setuid and setgid bits that the directory lacks because an apply strips them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs status
  avfs status --fork experiment
  avfs status --json")]
pub struct StatusArgs {
    #[command(flatten)]
    on: OnFork,
}

pub fn run(ctx: &CommandContext, args: &StatusArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let dir = require_bound_dir(&vault)?;
    let fork = vault.fork(&args.on.fork)?;
    let stat_cache = ctx.client.stat_cache(&vault, &dir)?;
    let exclude = ctx.client.exclude(&dir)?;
    let (root, new, scanned) = {
        let progress = ctx.client.observer.whole_operation("scanning");
        let options = ImportOptions {
            on_trouble: OnTrouble::KeepGoing,
            stat_cache: stat_cache.as_deref(),
            exclude: &exclude,
            meter: &progress.meter,
        };
        vault.survey(&dir, &fork.name, &options)?
    };
    let reader = vault.read()?;
    let reader = &*reader;
    let head = require_version(reader, &fork.head)?;
    let inherited = if fork.name == ForkName::main() {
        Vec::new()
    } else {
        let progress = ctx.client.observer.operation("comparing")?;
        match Subject::of(&vault, &ChangesOf::Fork(fork.name.clone())) {
            Ok(subject) => inherited_changes(&vault, &subject, &dir, &|_| true, &progress.meter)?,
            // The start of the fork is missing; its head can still be compared.
            Err(_) => Vec::new(),
        }
    };
    let pages = new.over(&reader);
    let is_shown = |change: &Change| change.kind != ChangeKind::Time && !change.is_stripped();
    let roots = (&root_of(&head)?, &root);
    let changes = Changes::between(&pages, roots, vault.temporary_dirs(), is_shown)?;
    let summary = ChangeSummary::of(changes)?;
    let result = Status {
        dir: dir.to_string_lossy().into_owned(),
        fork: fork.name.to_string(),
        version: head.id.to_hex(),
        clean: summary.changes.is_empty(),
        changes: avfs_present::change_list(&summary),
        change_counts: avfs_present::change_totals(&summary.counts),
        troubles: scanned.troubles.iter().map(avfs_present::trouble).collect(),
        inherited: avfs_present::inherited(&inherited),
    };
    note_inherited(ctx, &inherited);
    ctx.ui.answer(&result, |out| {
        let (name, id) = (out.paint(Tone::Name, &fork.name), out.paint(Tone::Id, head.id.short()));
        out.line(format_args!("{} against fork {name} at version {id}", dir.display()))?;
        if head.parents.is_empty() && head.entries == 0 && !result.clean {
            out.line(format_args!("the vault has no version of the directory yet: every path is new"))?;
        }
        for trouble in &scanned.troubles {
            out.line(format_args!("left out or inexact: {}: {}", trouble.path, trouble.reason))?;
        }
        patch::show_summary(out, &summary)
    })
}
