//! The fork of a chain: its head is the start version of the next item.

use avfs_types::ids::{ForkName, RunId, VersionId};
use avfs_types::reference::Reference;
use avfs_vault::backend::Life;
use avfs_vault::{Vault, VaultError, require_version};

use super::plan::Plan;
use crate::context::CommandContext;

pub struct Chain<'a> {
    ctx: &'a CommandContext,
    vault: &'a Vault,
    plan: &'a Plan,
    fork: &'a ForkName,
    /// The result of the item that ended last, which is not always the one with the highest number.
    at: VersionId,
    /// The run that ended last.
    last_run: Option<String>,
}

impl<'a> Chain<'a> {
    pub fn new(ctx: &'a CommandContext, vault: &'a Vault, plan: &'a Plan, fork: &'a ForkName) -> Self {
        Self { ctx, vault, plan, fork, at: plan.record.base, last_run: None }
    }

    /// Sets the start version of the next item; `None` keeps it.
    pub fn goes_on_from(&mut self, version: Option<VersionId>) {
        self.at = version.unwrap_or(self.at);
    }

    /// Records that a run has ended, successfully or not.
    pub fn ended(&mut self, run: Option<String>) {
        self.last_run = run;
    }

    /// Moves the fork to the result of the last item: the changes of an item that is run again are reverted.
    /// Changes by others to the fork are kept; they may have fixed the failure.
    pub fn prepare(&mut self) -> avfs_vault::Result<()> {
        let reference = |at: VersionId| Reference::parse(&at.to_hex());
        let (vault, fork) = (self.vault, self.fork);
        match vault.fork(fork) {
            Ok(known) if known.head == self.at => {}
            Ok(known) => match self.goes_back_to(&known.head)? {
                Some(at) => {
                    vault.restore(fork, &reference(at)?, None)?;
                }
                None => {
                    let head = known.head.short();
                    self.ctx.ui.note(format_args!(
                        "note: fork {fork} was moved by another command; continuing from {head}"
                    ));
                    self.at = known.head;
                }
            },
            Err(VaultError::NoFork { .. }) => {
                vault.create_fork(fork, &reference(self.at)?, Life::Persistent)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The version to restore if the head was made by a run of this batch, or by restoring one; `None` if
    /// others made it.
    fn goes_back_to(&self, head: &VersionId) -> avfs_vault::Result<Option<VersionId>> {
        let reader = self.vault.read()?;
        let head = require_version(&*reader, head)?;
        let at = require_version(&*reader, &self.at)?;
        let Some(run) = head.run.as_deref().and_then(|run| RunId::parse(run).ok()) else {
            return Ok((head.root == at.root).then_some(self.at));
        };
        if self.last_run.as_deref() == Some(run.as_str()) {
            // Changes that others made in the meantime are in its parent.
            return Ok(Some(head.parents.first().copied().unwrap_or(self.at)));
        }
        Ok(self.vault.is_of_batch(&self.plan.record.id, &run)?.then_some(self.at))
    }
}
