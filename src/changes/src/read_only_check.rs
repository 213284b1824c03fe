//! Checks which paths a command changed that was classified read-only.

use std::borrow::Cow;

use avfs_types::path::TreePath;
use avfs_vault::Result;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind};

/// The changes of a command that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    first: Option<TreePath>,
    count: u64,
}

impl Touched {
    /// The changes that are not `ignored`. Directories of which only the time changed are always ignored: creating and
    /// removing a file in them has that effect.
    pub fn by(changes: &Changes, mut ignored: impl FnMut(&Change) -> Result<bool>) -> Result<Self> {
        let mut touched = Self::default();
        for change in changes {
            let change = change?;
            let time_only = change.kind == ChangeKind::Time && change.is_of_dir();
            if !time_only && !ignored(&change)? {
                touched.first.get_or_insert_with(|| Cow::into_owned(change).path);
                touched.count += 1;
            }
        }
        Ok(touched)
    }

    /// True if no file was touched.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.first.is_none()
    }

    /// Their paths, in a few words; `None` if no file was touched.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(match self.count {
            1 => first.to_string(),
            count => format!("{first} and {} more", count - 1),
        })
    }
}
