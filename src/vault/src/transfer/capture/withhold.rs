//! Finds files of an upper that contain the value of a secret, before any of their content is stored.
//!
//! Content that is already in the vault is allowed: it existed before the secret was passed to a command. If the run
//! has no secrets, nothing is searched.

use std::fs::File;
use std::os::fd::AsFd;

use avfs_hostfs::beneath;
use avfs_hostfs::xattr::Xattrs;
use avfs_types::path::TreePath;
use avfs_types::secrets::Secrets;

use super::LeftOutReason;
use super::upper::Upper;
use crate::chunk::BLOCK_BYTES;
use crate::ingest::{Block, Blocks};
use crate::page::FileContent;
use crate::transfer::scan::{FileBlocks, ImportError, Shared};
use crate::transfer::{Error, Result};
use crate::{VaultError, content, ingest};

impl Upper<'_> {
    /// The name of a secret whose value is in this path, but not in the path of its parent directory.
    pub(crate) fn secret_in_name(&self, dir: &TreePath, path: &TreePath) -> Option<String> {
        let held = self.secrets.held_by(path.as_bytes())?;
        self.secrets.held_by(dir.as_bytes()).is_none().then(|| held.to_owned())
    }
}

impl<'a> Shared<'_, Upper<'a>> {
    fn searched_upper(&self) -> Option<&Upper<'a>> {
        Some(&self.source).filter(|upper| !upper.secrets.is_empty())
    }

    /// True if a file must not be stored. The file is then recorded as left out.
    pub(super) fn withholds_bytes(&self, path: &TreePath, bytes: &[u8], xattrs: &Xattrs) -> Result<bool> {
        let Some(upper) = self.searched_upper() else { return Ok(false) };
        let Some(secret) = upper.secrets.held_by(bytes).or_else(|| in_attributes(upper.secrets, xattrs))
        else {
            return Ok(false);
        };
        let content = FileContent::Whole(content::id_of(bytes));
        self.withhold_unless_known(upper, path, secret, content, xattrs)
    }

    /// Like [`Self::withholds_bytes`], for a file that is read in blocks.
    pub(super) fn withholds_file(&self, path: &TreePath, file: &File) -> Result<bool> {
        let Some(upper) = self.searched_upper() else { return Ok(false) };
        let io = |source| ImportError::Io { operation: "read", path: path.clone(), source };
        let size = beneath::fstat(file.as_fd()).map_err(io)?.size;
        let (xattrs, _) = self.read_xattrs(file.as_fd(), || path.clone()).map_err(io)?;
        let blocks = || FileBlocks::new(file, size, self.meter);
        let in_content = held_by_blocks(upper.secrets, &mut blocks())
            .map_err(|error| if self.meter.stopped() { ImportError::Interrupted } else { io(error) })?;
        let Some(secret) = in_content.or_else(|| in_attributes(upper.secrets, &xattrs)) else {
            return Ok(false);
        };
        let content = ingest::identify(&mut blocks()).map_err(|error| {
            if let VaultError::Input(source) = error { Error::from(io(source)) } else { error.into() }
        })?;
        self.withhold_unless_known(upper, path, secret, content.content, &xattrs)
    }

    fn withhold_unless_known(
        &self,
        upper: &Upper<'_>,
        path: &TreePath,
        secret: &str,
        content: FileContent,
        xattrs: &Xattrs,
    ) -> Result<bool> {
        let reader = self.vault.read()?;
        // By content, not by path: a file that was only moved must not be lost.
        let known = reader.has_blob(content.id())?
            && match content::encode_xattrs(xattrs) {
                Some(attributes) => reader.has_blob(&attributes.id)?,
                None => true,
            };
        if !known {
            upper.leave_out(path.clone(), LeftOutReason::Secret(secret.to_owned()));
        }
        Ok(!known)
    }

    /// Removes attributes that contain a secret from those of a directory; the directory itself is kept.
    pub(super) fn without_secrets(&self, path: &TreePath, mut xattrs: Xattrs) -> Xattrs {
        let Some(upper) = self.searched_upper() else { return xattrs };
        while let Some(secret) = in_attributes(upper.secrets, &xattrs) {
            upper.leave_out(path.clone(), LeftOutReason::SecretAttribute(secret.to_owned()));
            xattrs.retain(|(name, value)| {
                upper.secrets.held_by(name).is_none() && upper.secrets.held_by(value).is_none()
            });
        }
        xattrs
    }
}

fn in_attributes<'s>(secrets: &'s Secrets, xattrs: &Xattrs) -> Option<&'s str> {
    xattrs.iter().find_map(|(name, value)| secrets.held_by(name).or_else(|| secrets.held_by(value)))
}

fn held_by_blocks<'s>(secrets: &'s Secrets, blocks: &mut dyn Blocks) -> std::io::Result<Option<&'s str>> {
    let mut watch = secrets.watch();
    let mut buffer = vec![0; BLOCK_BYTES];
    while watch.found().is_none() {
        match blocks.next(&mut buffer)? {
            Block::Data(length) => watch.take(&buffer[..length]),
            Block::Hole(length) => watch.take_zeros(length),
            Block::End => break,
        }
    }
    Ok(watch.finish())
}
