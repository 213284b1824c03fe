//! The text of settings and policy files.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use avfs_types::diagnose::Diagnose;

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    Settings,
    Policy,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read the {} in {}", if *what == FileUse::Policy { "policy" } else { "settings" }, path.display())]
pub struct UnreadableFile {
    pub what: FileUse,
    pub path: PathBuf,
    #[source]
    pub source: Error,
}

impl Diagnose for UnreadableFile {
    fn code(&self) -> &'static str {
        match self.what {
            FileUse::Settings => "config.io",
            FileUse::Policy => "policy.io",
        }
    }
}

/// A file or the place for it; without text if the file does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    pub path: PathBuf,
    pub text: Option<String>,
}

impl FileText {
    pub fn read(what: FileUse, path: PathBuf) -> Result<Self, UnreadableFile> {
        let absent = |error: &Error| [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind());
        // A dangling symlink means a lost policy file, not an absent policy.
        let may_dangle = what == FileUse::Settings;
        match avfs_hostfs::text::read_found(&path) {
            Ok(text) => Ok(Self { path, text: Some(text) }),
            Err(error)
                if absent(&error) && (may_dangle || path.symlink_metadata().is_err_and(|e| absent(&e))) =>
            {
                Ok(Self { path, text: None })
            }
            Err(source) => Err(UnreadableFile { what, path, source }),
        }
    }
}
