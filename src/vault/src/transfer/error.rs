//! The error of a transfer: the vault's own, or that of an import, a capture or an export.

use avfs_types::diagnose::Diagnose;

use super::capture::CaptureError;
use super::export::ExportError;
use super::import::ImportError;
use crate::backend::BackendError;
use crate::error::VaultError;

/// The result of a transfer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a transfer between a vault and a directory failed. Implements [`Diagnose`]: each variant has a code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The vault failed, or the transfer was interrupted.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A directory cannot be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The upper directory of an overlay cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A version cannot be written to a directory.
    #[error(transparent)]
    Export(#[from] ExportError),
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        Self::Vault(error.into())
    }
}

impl Diagnose for Error {
    fn code(&self) -> &'static str {
        match self {
            Self::Vault(error) => error.code(),
            Self::Import(error) => error.code(),
            Self::Capture(error) => error.code(),
            Self::Export(error) => error.code(),
        }
    }
}
