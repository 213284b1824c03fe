//! The order in which the changes of a run are listed: files that git ignores come last, or are folded.

use avfs_changes::{FOLDED_CHANGES_MAX, FoldedChanges, GitIgnored};
use avfs_engine::{Executed, ExecutionResult, Outcome};
use avfs_request::{ChangeForm, JsonForm};
use avfs_vault::diff::Change;
use avfs_vault::version::root_of_either;
use avfs_vault::{Vault, require_version};

use crate::command::args::Args;

/// The number of changes listed by name; the rest are counted.
pub const CHANGES_SHOWN: usize = 10;

/// The changes of a run to list.
#[derive(Default)]
pub struct Listed {
    /// The changes that a summary names, and whether git ignores them.
    pub first: Vec<(Change, bool)>,
    /// All changes by directory, for a compact envelope.
    pub folded: FoldedChanges,
}

impl Listed {
    /// Computes only the lists that the output format needs.
    pub fn of(args: &Args, vault: &Vault, executed: &Executed) -> Self {
        let Ok(Outcome::Ran(result)) = &executed.outcome else { return Self::default() };
        let listed = match args.json {
            Some(JsonForm::Full) => Ok(Self::default()),
            None if args.quiet || args.show.is_some_and(|form| form != ChangeForm::Summary) => {
                Ok(Self::default())
            }
            None | Some(JsonForm::Compact) => Self::look(args, vault, result),
        };
        // The run is already recorded: listing its changes in a different order is not a failure.
        listed.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot determine which files git ignores");
            let changes = &result.changes.changes;
            let folded = FoldedChanges {
                others: changes.first(FOLDED_CHANGES_MAX).to_vec(),
                others_count: changes.len() as u64,
                ..FoldedChanges::default()
            };
            let first = changes.first(CHANGES_SHOWN).iter().map(|change| (change.clone(), false));
            Self { first: first.collect(), folded }
        })
    }

    fn look(args: &Args, vault: &Vault, result: &ExecutionResult) -> avfs_vault::Result<Self> {
        let (Some(version), changes) = (result.version_after, &result.changes.changes) else {
            return Ok(Self::default());
        };
        let reader = vault.read()?;
        let mut ignored = GitIgnored::new(&*reader, root_of_either(&require_version(&*reader, &version)?)?);
        Ok(match args.json {
            Some(_) => Self { folded: ignored.fold(changes)?, ..Self::default() },
            None => Self { first: ignored.last_in(changes, CHANGES_SHOWN)?, ..Self::default() },
        })
    }
}
