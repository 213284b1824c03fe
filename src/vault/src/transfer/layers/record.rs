//! Stack records: the small files that name the base and the layers of a tree. Also removes stale records and layers.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::PathBuf;

use avfs_types::ids::{TreeId, from_hex};

use super::host_base;
use crate::materialize::BaseCache;
use crate::shelf::host;
use crate::transfer::Result;

const STACK_FORMAT: &str = "avfs-stack 1";
const LAYER_FORMAT: &str = "avfs-layer 1";

/// Where the base of a stack comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaseOrigin {
    /// A base in the cache: the stack is removed with it.
    Cache,
    /// The host's directory. The stack is valid whenever that directory, or a base in the cache, has the same tree
    /// again.
    Host,
}

impl BaseOrigin {
    const fn word(self) -> &'static str {
        match self {
            Self::Cache => "base",
            Self::Host => "live",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StackRecord {
    pub(crate) tree: TreeId,
    pub(crate) base: TreeId,
    pub(crate) origin: BaseOrigin,
    /// Topmost first.
    pub(crate) layers: Vec<String>,
}

impl BaseCache {
    /// The first lines of the seal of each layer of this boot.
    pub(super) fn layer_head(&self) -> String {
        format!("{LAYER_FORMAT}\nboot {}\n", self.boot_id)
    }

    pub(super) fn stack_place(&self, tree: &TreeId) -> PathBuf {
        self.stacks.join(tree.to_hex())
    }

    pub(super) fn stack_text(&self, record: &StackRecord) -> String {
        let StackRecord { tree, base, origin, layers } = record;
        let (boot, word, count) = (&self.boot_id, origin.word(), layers.len());
        let mut text = format!("{STACK_FORMAT}\nboot {boot}\ntree {tree}\n{word} {base}\nlayers {count}\n");
        layers.iter().for_each(|name| text.push_str(&format!("layer {name}\n")));
        text
    }

    /// Reads the record of a stack. `None` if it does not exist or is of another boot or format.
    pub(super) fn read_stack(&self, tree: &TreeId) -> Result<Option<StackRecord>> {
        let place = self.stack_place(tree);
        match std::fs::read_to_string(&place) {
            Ok(text) => Ok(self.parse_stack(&text).filter(|record| record.tree == *tree)),
            Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidData].contains(&error.kind()) => Ok(None),
            Err(error) => Err(host("read", &place)(error)),
        }
    }

    fn parse_stack(&self, text: &str) -> Option<StackRecord> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let (format, boot) = (lines.next()?, lines.next()?.strip_prefix("boot ")?);
        if format != STACK_FORMAT || boot != self.boot_id {
            return None;
        }
        let tree_of = |text: &str| from_hex(text).and_then(|bytes| TreeId::from_slice(&bytes));
        let tree = tree_of(lines.next()?.strip_prefix("tree ")?)?;
        let (word, base) = lines.next()?.split_once(' ')?;
        let origin =
            [BaseOrigin::Cache, BaseOrigin::Host].into_iter().find(|origin| origin.word() == word)?;
        let base = tree_of(base)?;
        // A name with a slash could point outside the cache.
        let name = |line: &str| {
            let name = line.strip_prefix("layer ")?;
            from_hex(name).map(|_| name.to_owned())
        };
        let count: usize = lines.next()?.strip_prefix("layers ")?.parse().ok()?;
        let layers: Vec<String> = lines.map(name).collect::<Option<_>>()?;
        (layers.len() == count).then_some(StackRecord { tree, base, origin, layers })
    }

    pub(super) fn forget_stack(&self, tree: &TreeId) -> Result<()> {
        let place = self.stack_place(tree);
        match std::fs::remove_file(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(host("remove", &place)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes stacks with missing parts, and unused layers that no stack refers to. Returns the number of bytes of
    /// removed layers.
    pub(crate) fn drop_useless_layers(&self) -> Result<u64> {
        // List layers before stacks: a layer published in between is not in the list, and its stack is seen.
        let layers = self.layers.items()?;
        let mut named: HashSet<String> = HashSet::new();
        let listing = match std::fs::read_dir(&self.stacks) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other.map_err(host("list", &self.stacks))?),
        };
        for entry in listing.into_iter().flatten() {
            let place = entry.map_err(host("list", &self.stacks))?.path();
            if host_base::is_recent_count(&place) {
                continue;
            }
            let record = match std::fs::read_to_string(&place) {
                Ok(text) => self.parse_stack(&text),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) if error.kind() == ErrorKind::InvalidData => None,
                Err(error) => return Err(host("read", &place)(error)),
            };
            let whole = record.filter(|record| {
                (record.origin == BaseOrigin::Host || self.bases.place(&record.base.to_hex()).exists())
                    && record.layers.iter().all(|name| self.layers.place(name).exists())
            });
            match whole {
                Some(record) => named.extend(record.layers),
                None => match std::fs::remove_file(&place) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(host("remove", &place)(error));
                    }
                    Ok(()) | Err(_) => {}
                },
            }
        }
        let mut freed = 0;
        for layer in layers.iter().filter(|layer| !named.contains(&layer.name)) {
            if self.layers.evict(&layer.name)? {
                freed += layer.bytes;
            }
        }
        Ok(freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_stack_record_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let cache = BaseCache::new(dir.path(), "boot-1");
        let (tree, base) = (TreeId([1; 32]), TreeId([2; 32]));
        for origin in [BaseOrigin::Cache, BaseOrigin::Host] {
            let record = StackRecord { tree, base, origin, layers: vec!["0a".to_owned(), "0b".to_owned()] };
            let text = cache.stack_text(&record);
            assert_eq!(cache.parse_stack(&text), Some(record));
            assert_eq!(BaseCache::new(dir.path(), "boot-2").parse_stack(&text), None);
            assert_eq!(cache.parse_stack(&text.replace("layer 0a", "layer ../0a")), None);
            assert_eq!(cache.parse_stack(&text.replace("stack 1", "stack 2")), None);
            for cut in 0..text.len() {
                assert_eq!(cache.parse_stack(&text[..cut]), None, "cut at {cut}");
            }
        }
    }
}
