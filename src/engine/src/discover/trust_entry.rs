//! An entry of the list of trusted vaults.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::identity::FileIdentity;

use super::trust::TrustOrigin;

/// A vault in the list: exactly this file at exactly this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) origin: TrustOrigin,
    pub(super) file: FileIdentity,
    pub(super) id: Option<String>,
    pub(super) path: PathBuf,
}

impl Entry {
    pub(super) fn of(vault: &Path, id: &str, origin: TrustOrigin) -> io::Result<Self> {
        let path = canonical(vault)?;
        Ok(Self { origin, file: FileIdentity::of(&path)?, id: Some(id.to_owned()), path })
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = self.origin.word().to_vec();
        let id = self.id.as_deref().unwrap_or("-");
        line.extend(format!(" {} {id} ", self.file).as_bytes());
        line.extend(self.path.as_os_str().as_bytes().escape_ascii());
        line.push(b'\n');
        line
    }

    /// Whether its file, now at `vault`, was moved by its owner: the recorded path is gone, and only the caller could
    /// have moved it here. That it is bound to the directory above it is checked when it is open.
    pub(super) fn keeps_trust_at(&self, vault: &Path) -> bool {
        let is_gone = self
            .path
            .symlink_metadata()
            .is_err_and(|error| [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()));
        let places = [vault, vault.parent().unwrap_or(vault), directory_of(vault)];
        let is_own = |path: &Path| {
            path.symlink_metadata().is_ok_and(|meta| {
                meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
            })
        };
        let has_one_name = vault.symlink_metadata().is_ok_and(|meta| meta.nlink() == 1);
        is_gone && has_one_name && places.into_iter().all(is_own)
    }

    /// `None` for a line that this version does not understand.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let start = line.windows(2).position(|pair| pair == b" /")?;
        let path = PathBuf::from(unescape(&line[start + 1..])?);
        let mut words = std::str::from_utf8(&line[..start]).ok()?.split(' ');
        let word = words.next()?;
        let origin = [TrustOrigin::Made, TrustOrigin::Chosen]
            .into_iter()
            .find(|origin| origin.word() == word.as_bytes())?;
        let words: Vec<&str> = words.collect();
        let (identity, id) = match words[..] {
            // Of an older avfs.
            [device, inode, birth] => ([device, inode, birth, "-"], "-"),
            [device, inode, birth, file_system, id] => ([device, inode, birth, file_system], id),
            _ => return None,
        };
        let file = FileIdentity::parse(&mut identity.into_iter())?;
        Some(Self { origin, file, id: Some(id.to_owned()).filter(|id| id != "-"), path })
    }
}

/// Reverses `escape_ascii`.
pub(super) fn unescape(text: &[u8]) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, if byte == b'\\' { rest.next()? } else { 0 }) {
            (b'\\', b't') => b'\t',
            (b'\\', b'n') => b'\n',
            (b'\\', b'r') => b'\r',
            (b'\\', b'x') => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            (b'\\', literal) => literal,
            (plain, _) => plain,
        });
    }
    Some(OsString::from_vec(bytes))
}

/// The real path of the directory, joined with the file name: a symlink in place of the file is not resolved.
pub(super) fn canonical(file: &Path) -> io::Result<PathBuf> {
    let dir = file.parent().unwrap_or(Path::new("/")).canonicalize()?;
    Ok(dir.join(file.file_name().unwrap_or(OsStr::new(""))))
}

/// The directory whose `.avfs` contains the vault.
pub(super) fn directory_of(vault: &Path) -> &Path {
    vault.parent().and_then(Path::parent).unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use avfs_hostfs::identity::FileSystemId;

    use super::*;

    const FILE: FileIdentity = FileIdentity { device: 7, inode: u64::MAX, birth: 9, file_system: None };

    #[test]
    fn written_lines_read_back_unchanged() {
        for path in ["/plain", "/with space", "/a /b", "/tab\tnew\nline", "/back\\slash'\"", "/\u{fc}ber"] {
            for (file_system, id) in [(Some(FileSystemId::Fsid(0x12)), Some("ab".to_owned())), (None, None)] {
                let file = FileIdentity { file_system, ..FILE };
                let entry = Entry { origin: TrustOrigin::Chosen, file, id, path: PathBuf::from(path) };
                let line = entry.line();
                assert_eq!(Entry::parse(&line[..line.len() - 1]), Some(entry));
            }
        }
        assert_eq!(Entry::parse(b"other 1 2 3 /x"), None);
        assert_eq!(Entry::parse(b"made 1 /x"), None);
        assert_eq!(Entry::parse(b"made 1 2 3 fsid:zz - /x"), None);
    }

    #[test]
    fn lines_of_an_older_avfs_are_read() {
        let path = PathBuf::from("/with space");
        let entry = Entry { origin: TrustOrigin::Made, file: FILE, id: None, path };
        assert_eq!(Entry::parse(b"made 7 18446744073709551615 9 /with space"), Some(entry));
    }
}
