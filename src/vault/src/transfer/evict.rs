//! What is in a cache of bases and layers, and what of it can go.
//!
//! Nothing that somebody has a lease on is removed, and nothing is removed that could not be made again from a vault.

use std::path::PathBuf;
use std::time::SystemTime;

use super::materialize::BaseCache;
use super::shelf::{Item, Shelf};
use crate::Result;

/// Which shelf of a cache something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheItemKind {
    /// A version as a directory.
    Base,
    /// What lies over a base.
    Layer,
}

/// A base or a layer in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheItem {
    /// Which of the two it is.
    pub kind: CacheItemKind,
    /// What it takes on the disk: its files, and a block for each entry.
    pub bytes: u64,
    /// When somebody last had a lease on it.
    pub last_used: SystemTime,
    /// The id of the vault that it was built from. Layers over a base of the cache have none: they go with it.
    pub vault: Option<String>,
    /// False for what nobody can use any more: it has no seal, or one from before the machine was last started.
    pub is_usable: bool,
    name: String,
}

impl BaseCache {
    fn shelf(&self, kind: CacheItemKind) -> &Shelf {
        match kind {
            CacheItemKind::Base => &self.bases,
            CacheItemKind::Layer => &self.layers,
        }
    }

    /// Every base and every layer, least recently used first.
    pub fn items(&self) -> Result<Vec<CacheItem>> {
        let boot = self.boot_line();
        let mut items = Vec::new();
        for kind in [CacheItemKind::Base, CacheItemKind::Layer] {
            for Item { name, bytes, last_used, sealed } in self.shelf(kind).items()? {
                let vault = std::fs::read_to_string(self.shelf(kind).place(&name).join("vault")).ok();
                let is_usable = sealed.contains(&boot);
                items.push(CacheItem { kind, bytes, last_used, vault, is_usable, name });
            }
        }
        items.sort_by_key(|item| item.last_used);
        Ok(items)
    }

    /// Removes a base or a layer unless it is in use; true if it is gone.
    pub fn remove(&self, item: &CacheItem) -> Result<bool> {
        self.shelf(item.kind).evict(&item.name)
    }

    /// True if somebody has a lease on it.
    #[must_use]
    pub fn is_in_use(&self, item: &CacheItem) -> bool {
        self.shelf(item.kind).is_in_use(&item.name)
    }

    /// What builders and evictions have not finished; of dead ones it is a leftover.
    pub fn unfinished(&self) -> Result<Vec<PathBuf>> {
        Ok([self.bases.unfinished()?, self.layers.unfinished()?].concat())
    }

    /// Removes what is left of dead builders and evictions, and layers that show nothing any more. Tells how many
    /// bytes of layers went.
    pub fn sweep(&self) -> Result<u64> {
        self.bases.sweep()?;
        self.layers.sweep()?;
        self.drop_useless_layers()
    }

    /// Sweeps, then removes bases and layers that nobody uses, least recently used first, until the rest is within
    /// `bytes_max`. Tells how many bytes of bases and layers went.
    pub fn evict(&self, bytes_max: u64) -> Result<u64> {
        let mut freed = self.sweep()?;
        let items = self.items()?;
        let mut total: u64 = items.iter().map(|item| item.bytes).sum();
        for item in items {
            if total <= bytes_max {
                break;
            }
            if self.remove(&item)? {
                total -= item.bytes;
                freed += item.bytes;
            }
        }
        // What lay over a base that has gone shows nothing any more.
        Ok(freed + self.drop_useless_layers()?)
    }
}
