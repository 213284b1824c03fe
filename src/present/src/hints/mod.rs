//! What to do about an error. The library returns codes and facts; every sentence and every command to call next is here,
//! or beside the errors of `avfs` and `avfs-run` themselves.
//!
//! Each error that a command can end with implements [`Hint`], by a match that names every variant: a variant without a
//! hint does not compile. Commands begin with `{avfs}`, an [`Avfs`], which names the vault that the user named; a word
//! that may hold anything goes through `shell_word`.

mod changes;
mod engine;
mod lists;
mod policy;
mod request;
mod types;
mod vault;

use std::ffi::{OsStr, OsString};
use std::fmt;

use avfs_types::diagnose::{Diagnose, shell_word, with_causes};
use avfs_wire::ErrorBody;

/// An error that knows what the user can do about it.
pub trait Hint: Diagnose {
    /// What to do next, with the exact command where there is one.
    fn hint(&self, avfs: &Avfs) -> Option<String>;
}

/// The hint of a type of errors: `hint!(SomeError, |error, avfs| match error { … })`, with `Self` for the type.
#[macro_export]
macro_rules! hint {
    ($error:ty, $hint:expr) => {
        impl $crate::Hint for $error {
            fn hint(&self, avfs: &$crate::Avfs) -> Option<String> {
                let hint: fn(&$error, &$crate::Avfs) -> Option<String> = $hint;
                hint(self, avfs)
            }
        }
    };
}

/// How `avfs` is called in hints: with the vault, if the user named one. Prints as `avfs`, or `avfs --vault WORD`.
#[derive(Clone, Debug, Default)]
pub struct Avfs {
    /// The value of `--vault`, as it was typed.
    pub vault: Option<OsString>,
}

impl Avfs {
    /// For commands that were called with this value of `--vault`.
    #[must_use]
    pub fn on(vault: Option<&OsStr>) -> Self {
        Self { vault: vault.map(OsStr::to_owned) }
    }
}

impl fmt::Display for Avfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("avfs")?;
        self.vault.iter().try_for_each(|vault| write!(f, " --vault {}", shell_word(vault)))
    }
}

/// An error as it is printed: its code, its message with the causes, and its hint.
#[must_use]
pub fn error_body(error: &dyn Hint, avfs: &Avfs) -> ErrorBody {
    ErrorBody { code: error.code().to_owned(), message: with_causes(error), hint: error.hint(avfs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_vault_that_was_named() {
        assert_eq!(Avfs::default().to_string(), "avfs");
        assert_eq!(Avfs::on(Some(OsStr::new("work"))).to_string(), "avfs --vault work");
        assert_eq!(Avfs::on(Some(OsStr::new("it's $x"))).to_string(), r"avfs --vault 'it'\''s $x'");
    }
}
