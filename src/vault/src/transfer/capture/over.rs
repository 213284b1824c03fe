//! The place of a directory of an upper over its base.

use super::LeftOutReason;
use crate::page::DirRef;

/// The base beneath a directory of an upper.
#[derive(Clone, Default)]
pub(crate) struct Over {
    /// The base's directory at the same path, visible or not.
    pub(crate) base: Option<DirRef>,
    /// The directory, or one above it, is opaque: nothing of the base is visible.
    pub(crate) hides_base: bool,
    /// A file was copied up into it; only determined if the base has hard links.
    pub(crate) holds_copies: bool,
    /// The reason why all entries that the base does not have are left out.
    pub(crate) ignored: Option<LeftOutReason>,
}
