//! The fork of a chain: it stands where the next item begins.

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
    /// What the last item left, in the order in which they ended; not always the one with the highest number.
    at: VersionId,
    /// The run that ended last.
    last_run: Option<String>,
}

impl<'a> Chain<'a> {
    pub fn new(ctx: &'a CommandContext, vault: &'a Vault, plan: &'a Plan, fork: &'a ForkName) -> Self {
        Self { ctx, vault, plan, fork, at: plan.record.base, last_run: None }
    }

    /// What the next item begins from; nothing if that stays.
    pub fn goes_on_from(&mut self, version: Option<VersionId>) {
        self.at = version.unwrap_or(self.at);
    }

    /// A run is over, whatever came of it.
    pub fn ended(&mut self, run: Option<String>) {
        self.last_run = run;
    }

    /// Puts the fork to what the last item left: what one that is run again had made goes back. What somebody else made of
    /// the fork stays; they may have mended what failed.
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
                    self.ctx.ui.note(format_args!("note: others moved fork {fork}; going on from {head}"));
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

    /// Where to go back to from a head that a run of this batch made, or that put one back; nothing for the head of
    /// others.
    fn goes_back_to(&self, head: &VersionId) -> avfs_vault::Result<Option<VersionId>> {
        let reader = self.vault.read()?;
        let head = require_version(&*reader, head)?;
        let at = require_version(&*reader, &self.at)?;
        let Some(run) = head.run.as_deref().and_then(|run| RunId::parse(run).ok()) else {
            return Ok((head.root == at.root).then_some(self.at));
        };
        if self.last_run.as_deref() == Some(run.as_str()) {
            // What others made meanwhile lies beneath it.
            return Ok(Some(head.parents.first().copied().unwrap_or(self.at)));
        }
        Ok(self.vault.is_of_batch(&self.plan.record.id, &run)?.then_some(self.at))
    }
}
