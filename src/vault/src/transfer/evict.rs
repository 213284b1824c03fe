//! Lists and evicts the bases and layers of a cache.
//!
//! Never removes an item that has a lease, nor anything that cannot be rebuilt from a vault.

use std::path::PathBuf;
use std::time::SystemTime;

use super::materialize::BaseCache;
use super::shelf::{Item, Shelf};
use crate::transfer::Result;

/// The shelf of a cache that an item is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheItemKind {
    /// A materialized version.
    Base,
    /// A layer over a base.
    Layer,
}

/// A base or a layer in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheItem {
    /// Base or layer.
    pub kind: CacheItemKind,
    /// Its size on disk: its files, plus one block per entry.
    pub bytes: u64,
    /// The time of the last lease.
    pub last_used: SystemTime,
    /// The id of the vault that it was built from. `None` for layers over a base of the cache: they are removed with
    /// it.
    pub vault: Option<String>,
    /// False if it can no longer be used: it has no seal, or one from an earlier boot.
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

    /// Removes a base or a layer unless it is in use. Returns true if it was removed.
    pub fn remove(&self, item: &CacheItem) -> Result<bool> {
        self.shelf(item.kind).evict(&item.name)
    }

    /// True if a process holds a lease on it.
    #[must_use]
    pub fn is_in_use(&self, item: &CacheItem) -> bool {
        self.shelf(item.kind).is_in_use(&item.name)
    }

    /// The directories of unfinished builds and evictions. Those of dead processes are leftovers.
    pub fn unfinished(&self) -> Result<Vec<PathBuf>> {
        Ok([self.bases.unfinished()?, self.layers.unfinished()?].concat())
    }

    /// Removes leftovers of dead builders and evictions, and layers that no stack can use. Returns the number of bytes
    /// of removed layers.
    pub fn sweep(&self) -> Result<u64> {
        self.bases.sweep()?;
        self.layers.sweep()?;
        self.drop_useless_layers()
    }

    /// Sweeps, then removes unused bases and layers, least recently used first, until the rest is within `bytes_max`.
    /// Returns the number of removed bytes.
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
        // Layers over a removed base are useless.
        Ok(freed + self.drop_useless_layers()?)
    }
}
