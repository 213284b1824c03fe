//! The sizes of the batches in which verbs that free space change the vault.
//!
//! On a disk that is short of space the write-ahead log must stay small: the first batch has a few rows, each further
//! one up to twice as many, and the log is checkpointed after each. A batch for which there is no room is repeated with
//! fewer rows. Elsewhere a batch is as large as a short transaction can be.

use crate::backend::{BackendError, next_rows};
use crate::{Result, Vault, VaultError};

/// The maximum number of rows in a batch.
pub(crate) const ROWS_MAX: usize = 500;
/// The rows of the first batch on a disk that is short of space.
const ROWS_FIRST: usize = 8;

pub(crate) struct Pace<'v> {
    vault: &'v Vault,
    rows: usize,
}

impl<'v> Pace<'v> {
    pub(crate) fn of(vault: &'v Vault) -> Self {
        let rows = if vault.backend().shortage().is_some() { ROWS_FIRST } else { ROWS_MAX };
        Self { vault, rows }
    }

    /// Makes one batch, a transaction that changes at most as many rows as its argument.
    pub(crate) fn batch<T>(&mut self, mut change: impl FnMut(usize) -> Result<T>) -> Result<T> {
        loop {
            let changed = match change(self.rows) {
                Err(VaultError::Backend(BackendError::DiskFull { .. })) if self.rows > 1 => {
                    self.rows = (self.rows / 4).max(1);
                    continue;
                }
                other => other?,
            };
            self.rows = next_rows(self.vault.backend(), self.rows, ROWS_MAX);
            if self.vault.backend().shortage().is_some() {
                self.settle()?;
            }
            return Ok(changed);
        }
    }

    fn settle(&self) -> Result<()> {
        match self.vault.backend().settle() {
            // The log has pages for which the file would have to grow; a later batch may remove them.
            Err(BackendError::DiskFull { .. }) => Ok(()),
            settled => Ok(settled?),
        }
    }
}
