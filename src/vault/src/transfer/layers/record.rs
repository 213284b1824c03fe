//! The small files that say which base and which layers show a tree; and what they no longer do.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::PathBuf;

use avfs_types::ids::{TreeId, from_hex};

use super::host_base;
use crate::Result;
use crate::materialize::BaseCache;
use crate::shelf::host;

const STACK_FORMAT: &str = "avfs-stack 1";
const LAYER_FORMAT: &str = "avfs-layer 1";

/// Where the base of a stack comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaseOrigin {
    /// It lay in the cache: the stack goes with it.
    Cache,
    /// It was the host's directory. The stack is good whenever that holds the same tree again, or the cache does.
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
    /// How the seal of every layer of this boot begins.
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

    /// What is written of a stack; nothing if there is none, or one of another boot or format.
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
        // A name with a slash would lead out of the cache.
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

    /// Removes stacks that cannot be shown any more, and layers that no stack has and nobody uses. Tells how
    /// many bytes of layers went.
    pub(crate) fn drop_useless_layers(&self) -> Result<u64> {
        // Layers before stacks: one that appears in between has a stack that is seen.
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
    fn a_stack_is_believed_only_as_it_was_written() {
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
