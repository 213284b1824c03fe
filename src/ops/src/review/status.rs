//! Compares the bound directory with its fork.

use avfs_changes::{ChangeSummary, Subject, inherited_changes};
use avfs_engine::require_bound_dir;
use avfs_types::ids::ForkName;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_vault::discard::ChangesOf;
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::require_version;
use avfs_vault::version::root_of;
use avfs_wire::Status;
use avfs_workplace::{OpError, Workplace};

use super::note_inherited;
use crate::changes::ChangeLines;

pub struct StatusAnswer {
    pub status: Status,
    pub lines: ChangeLines,
    /// The vault has no version of the directory yet.
    pub is_first: bool,
}

/// The changes that an import would record. Stores nothing.
pub fn status(workplace: &Workplace, fork: &ForkName) -> Result<StatusAnswer, OpError> {
    let Workplace { client, vault } = workplace;
    let dir = require_bound_dir(vault)?;
    let fork = vault.fork(fork)?;
    let stat_cache = client.stat_cache(vault, &dir)?;
    let exclude = client.exclude(&dir)?;
    let (root, new, scanned) = {
        let progress = client.observer.whole_operation("scanning");
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
        let progress = client.observer.operation("comparing")?;
        match Subject::of(vault, &ChangesOf::Fork(fork.name.clone())) {
            Ok(subject) => inherited_changes(vault, &subject, &dir, &|_| true, &progress.meter)?,
            // The start of the fork is missing; its head can still be compared.
            Err(_) => Vec::new(),
        }
    };
    let pages = new.over(&reader);
    let is_shown = |change: &Change| change.kind != ChangeKind::Time && !change.is_stripped();
    let roots = (&root_of(&head)?, &root);
    let summary = ChangeSummary::of(Changes::between(&pages, roots, vault.temporary_dirs(), is_shown)?)?;
    let lines = ChangeLines::from(&summary);
    note_inherited(workplace, &inherited);
    Ok(StatusAnswer {
        status: Status {
            dir: dir.to_string_lossy().into_owned(),
            fork: fork.name.to_string(),
            version: head.id.to_hex(),
            clean: lines.is_empty(),
            changes: avfs_present::change_list(&summary),
            change_counts: lines.counts,
            troubles: scanned.troubles.iter().map(avfs_present::trouble).collect(),
            inherited: avfs_present::inherited(&inherited),
        },
        lines,
        is_first: head.parents.is_empty() && head.entries == 0,
    })
}
