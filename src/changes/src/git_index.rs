//! Reads git's index to distinguish a refresh from a change.
//!
//! `git status` rewrites the index to cache the times and inodes of files. A refresh does not change entries,
//! modes, ids or flags. Untrusted input: parsing is bounded by the file's size, and anything unexpected counts
//! as a change. So does a split index, whose entries are in another file.

use avfs_types::path::TreePath;
use avfs_vault::backend::Reader;
use avfs_vault::page::FileNode;
use avfs_vault::{VaultError, read_content};

/// A larger index is compared byte by byte.
pub const INDEX_BYTES_MAX: u64 = 64 << 20;

const SIGNATURE: &[u8] = b"DIRC";
/// Times, device, inode, mode, owner and size, 4 bytes each; the object id and the flags follow.
const STAT_BYTES: usize = 40;
const MODE_AT: usize = 24;
/// The size of an object id, and of the checksum at the end: SHA-1 or SHA-256. The file does not name it.
const ID_SIZES: [usize; 2] = [20, 32];
const ID_BYTES_MAX: usize = 32;
/// Set if a second word of flags follows.
const EXTENDED: u16 = 0x4000;

/// The meaning of an entry: mode, object id, flags and name.
type Entry = (u32, [u8; ID_BYTES_MAX], [u16; 2], Vec<u8>);

/// True for the index of a repository, a worktree or a submodule.
#[must_use]
pub fn is_index(path: &TreePath) -> bool {
    let parts: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
    let Some((&b"index", dirs)) = parts.split_last() else { return false };
    match dirs {
        [.., b".git"] => true,
        _ => {
            let git = dirs.iter().position(|dir| *dir == b".git");
            let kind = git.and_then(|at| dirs.get(at + 1));
            kind.is_some_and(|kind| [&b"modules"[..], b"worktrees"].contains(kind))
        }
    }
}

/// True if two index files have the same entries, modes, ids and flags; false if either cannot be parsed.
#[must_use]
pub fn same_entries(one: &[u8], other: &[u8]) -> bool {
    match (entries(one), entries(other)) {
        (Some(one), Some(other)) => one == other,
        (_, _) => false,
    }
}

/// True if a path is an index, and both versions of it have the same entries.
pub fn is_refresh(
    reader: &dyn Reader,
    path: &TreePath,
    [one, other]: [&FileNode; 2],
) -> Result<bool, VaultError> {
    Ok(may_be_refresh(path, one, other)
        && same_entries(&read_content(reader, one)?, &read_content(reader, other)?))
}

/// True if the path is an index, and its two versions differ at most in content of a bounded size.
pub fn may_be_refresh(path: &TreePath, one: &FileNode, other: &FileNode) -> bool {
    is_index(path)
        && one.size.max(other.size) <= INDEX_BYTES_MAX
        && (one.mode, one.xattrs) == (other.mode, other.xattrs)
}

/// The entries and the size of the ids; `None` if the file can be parsed with neither size, or with both.
fn entries(text: &[u8]) -> Option<(usize, Vec<Entry>)> {
    match ID_SIZES.map(|id_bytes| (id_bytes, entries_of(text, id_bytes))) {
        [(id_bytes, Some(entries)), (_, None)] | [(_, None), (id_bytes, Some(entries))] => {
            Some((id_bytes, entries))
        }
        [_, _] => None,
    }
}

fn entries_of(text: &[u8], id_bytes: usize) -> Option<Vec<Entry>> {
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
    if text.get(..4)? != SIGNATURE {
        return None;
    }
    let version = number(text.get(4..8)?)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = usize::try_from(number(text.get(8..12)?)?).ok()?;
    let body = text.get(..text.len().checked_sub(id_bytes)?)?;
    let mut at = 12;
    let mut found: Vec<Entry> = Vec::new();
    for _ in 0..count {
        let begun = at;
        let fixed = body.get(at..at + STAT_BYTES + id_bytes + 2)?;
        let mode = number(&fixed[MODE_AT..MODE_AT + 4])?;
        let mut id = [0; ID_BYTES_MAX];
        id[..id_bytes].copy_from_slice(&fixed[STAT_BYTES..STAT_BYTES + id_bytes]);
        let mut flags = [u16::from_be_bytes(fixed[STAT_BYTES + id_bytes..].try_into().ok()?), 0];
        at += fixed.len();
        if flags[0] & EXTENDED != 0 {
            flags[1] = u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?);
            at += 2;
        }
        let name = if version == 4 {
            // The previous name without its last bytes, then a new suffix.
            let dropped = varint(body, &mut at)?;
            let before = found.last().map_or(&[][..], |entry| entry.3.as_slice());
            let kept = before.len().checked_sub(dropped)?;
            [&before[..kept], until_nul(body, &mut at)?].concat()
        } else {
            let name = until_nul(body, &mut at)?.to_vec();
            // Padded with NULs to a multiple of eight, at least one.
            at = begun + (at - begun).next_multiple_of(8);
            name
        };
        found.push((mode, id, flags, name));
    }
    // Extensions in lower case, such as a split index, change the meaning of the entries.
    while at < body.len() {
        let head = body.get(at..at + 8)?;
        if !head[0].is_ascii_uppercase() {
            return None;
        }
        at = at.checked_add(8)?.checked_add(usize::try_from(number(&head[4..])?).ok()?)?;
    }
    (at == body.len()).then_some(found)
}

fn until_nul<'t>(text: &'t [u8], at: &mut usize) -> Option<&'t [u8]> {
    let rest = text.get(*at..)?;
    let end = memchr::memchr(0, rest)?;
    *at += end + 1;
    Some(&rest[..end])
}

/// Git's offset encoding: seven bits per byte, most significant first, with an implied +1 for every continuation.
fn varint(text: &[u8], at: &mut usize) -> Option<usize> {
    let mut value: usize = 0;
    loop {
        let byte = *text.get(*at)?;
        *at += 1;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn git(dir: &Path, words: &[&str]) {
        let mut command = Command::new("git");
        let settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
        command.current_dir(dir).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", dir);
        let done = command.args(settings).args(words).output().unwrap();
        assert!(done.status.success(), "git {words:?}: {done:?}");
    }

    #[test]
    fn refresh_is_not_a_change_in_any_index_version() {
        for (version, format) in ["2", "3", "4"].into_iter().flat_map(|v| [(v, "sha1"), (v, "sha256")]) {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path();
            git(at, &["init", "-q", "--object-format", format]);
            for name in ["a", "dir/one", "dir/other", "dir/z"] {
                std::fs::create_dir_all(at.join("dir")).unwrap();
                std::fs::write(at.join(name), name).unwrap();
            }
            git(at, &["add", "."]);
            git(at, &["commit", "-qm", "x"]);
            git(at, &["update-index", "--index-version", version]);
            if version == "3" {
                git(at, &["update-index", "--skip-worktree", "a"]);
            }
            let index = || std::fs::read(at.join(".git/index")).unwrap();
            let before = index();
            assert_eq!(entries(&before).unwrap().1.len(), 4, "version {version}, {format}");
            let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
            let file = std::fs::File::options().write(true).open(at.join("dir/one")).unwrap();
            file.set_times(times).unwrap();
            git(at, &["update-index", "--refresh"]);
            assert_ne!(before, index());
            assert!(same_entries(&before, &index()), "version {version}, {format}");
            let refreshed = index();
            std::fs::write(at.join("dir/one"), "changed").unwrap();
            git(at, &["add", "dir/one"]);
            assert!(!same_entries(&refreshed, &index()), "version {version}");
            let staged = index();
            git(at, &["update-index", "--assume-unchanged", "dir/z"]);
            assert!(!same_entries(&staged, &index()), "a flag is a change");
        }
    }

    #[test]
    fn an_index_that_could_have_either_size_of_ids_is_never_equal() {
        // Without entries, an extension covers the difference of the checksums.
        let mut text = b"DIRC\0\0\0\x02\0\0\0\0".to_vec();
        text.extend(b"ABCD\0\0\0\x04....");
        text.extend([0; 20]);
        assert!(ID_SIZES.iter().all(|size| entries_of(&text, *size).is_some()));
        assert!(!same_entries(&text, &text));
    }

    #[test]
    fn malformed_indexes_are_never_equal() {
        for text in [&b""[..], b"DIRC", b"DIRC\0\0\0\x02\xff\xff\xff\xff", &[0xff; 100]] {
            assert!(!same_entries(text, text), "{text:?}");
        }
    }

    #[test]
    fn index_paths() {
        let is = |path: &str| is_index(&TreePath::parse(path.as_bytes()).unwrap());
        assert!(is(".git/index") && is("sub/.git/index") && is(".git/modules/a/b/index"));
        assert!(is(".git/worktrees/w/index"));
        assert!(!is("index") && !is(".git/indexes") && !is("git/index") && !is(".git/hooks/index"));
    }
}
