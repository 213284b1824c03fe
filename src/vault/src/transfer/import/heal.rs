//! Restores damaged or missing objects from a directory that still has their content.

use std::collections::HashSet;
use std::path::Path;
use std::sync::mpsc;

use avfs_types::ids::{BlobId, TreeId};

use super::{ImportOptions, host};
use crate::audit::Event;
use crate::backend::{BlobRecord, Durability};
use crate::fsck::{Broken, Report, Thoroughness};
use crate::transfer::scan::{CHANNEL_BATCHES, Keep, Outlet, Scan};
use crate::transfer::{Error, Result};
use crate::{Transaction, Vault, threads};

/// The restored objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Blobs that were missing or damaged.
    pub blobs: HashSet<BlobId>,
    /// Pages that were missing or damaged.
    pub trees: HashSet<TreeId>,
}

impl Vault {
    /// Checks the vault, and stores broken objects again if `dir` has their content. The report lists the remaining
    /// problems.
    ///
    /// An object is identified by its digest, so only identical content can replace it.
    pub fn heal(
        &self,
        how: Thoroughness,
        dir: &Path,
        options: &ImportOptions<'_>,
    ) -> Result<(Healed, Report)> {
        let mut healed = Healed::default();
        loop {
            let report = self.fsck(how, options.meter)?;
            let mut broken = report.broken.clone();
            // An object that is broken again after it was restored is not tried twice.
            broken.blobs.retain(|id| !healed.blobs.contains(id));
            broken.trees.retain(|id| !healed.trees.contains(id));
            if broken.is_empty() {
                return Ok((healed, report));
            }
            let more = self.put_back(&broken, dir, options)?;
            if more == Healed::default() {
                return Ok((healed, report));
            }
            // Objects beneath a broken tree are only found once the tree is restored.
            healed.blobs.extend(more.blobs);
            healed.trees.extend(more.trees);
        }
    }

    /// Reads every file of `dir` and stores the broken objects.
    fn put_back(&self, broken: &Broken, dir: &Path, options: &ImportOptions<'_>) -> Result<Healed> {
        let _pin = self.backend().pin()?;
        let (send, receive) = mpsc::sync_channel::<Vec<BlobRecord>>(CHANNEL_BATCHES);
        let (built, blobs) = std::thread::scope(|scope| {
            let storing = threads::spawn(scope, move || -> crate::Result<HashSet<BlobId>> {
                let mut stored = HashSet::new();
                for blobs in receive {
                    self.transact_with(Durability::Deferred, |transaction| {
                        Ok(transaction.writer.put_blobs(&blobs)?)
                    })?;
                    stored.extend(blobs.iter().map(|blob| blob.id));
                }
                Ok(stored)
            })?;
            let scan = host::scan(self, dir, None, options, Outlet::Channel(send)).map(|mut scan| {
                scan.shared.keep = Keep::Only(&broken.blobs);
                scan
            });
            let built = scan.and_then(Scan::build);
            // A failure to store also ends the scan; it is the cause to report.
            let stored = threads::join(storing)?;
            Ok::<_, Error>((built?, stored))
        })?;
        let mut pages = Vec::new();
        for page in built.new.all() {
            let (id, data) = page?;
            if broken.trees.contains(&id) {
                pages.push((id, data));
            }
        }
        let healed = Healed { blobs, trees: pages.iter().map(|(id, _)| *id).collect() };
        if healed != Healed::default() {
            self.transact(|transaction| {
                transaction.writer.put_trees(&pages)?;
                record(transaction, healed.blobs.len() as u64, healed.trees.len() as u64)
            })?;
        }
        Ok(healed)
    }
}

/// Records the number of restored objects in the audit log.
pub(super) fn record(transaction: &mut Transaction<'_>, blobs: u64, trees: u64) -> crate::Result<()> {
    let detail = format!("blobs={blobs} trees={trees}");
    transaction.record(&Event {
        action: "vault.heal",
        subject: "",
        before: None,
        after: None,
        detail: &detail,
    })
}
