//! Estimates the cost of a first import: a short survey of a directory before it is imported into an empty vault.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use avfs_hostfs::foreign::Writable;
use avfs_hostfs::text::{Symlink, open_found};
use avfs_types::diagnose::shell_word;
use avfs_types::path::TreePath;
use avfs_types::{VAULT_DIR, show_bytes_size};
use avfs_vault::ignore::{FILE_NAME, Rules};
use avfs_vault::meter::Announcement;

/// Maximum duration of the survey. The rest of a directory that takes longer is counted by the import.
const LOOK_MAX: Duration = Duration::from_millis(300);
/// Number of entries between two reads of the clock; on a network file system each of them can take milliseconds.
const CLOCK_EVERY: u64 = 64;
/// Directories that tools can rebuild.
const MADE_AGAIN: [&str; 11] = [
    "node_modules",
    "target",
    ".venv",
    "venv",
    ".tox",
    ".gradle",
    ".next",
    "dist",
    "build",
    "__pycache__",
    ".cache",
];
/// Minimum size of a file to be listed.
const LARGE_FILE_BYTES: u64 = 50 << 20;
/// Larger ignore files are reported by the import.
const IGNORE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of suggestions.
const SUGGESTED_MAX: usize = 5;

/// The number of files or bytes above which a first import is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarnAbove {
    pub files: Option<u64>,
    pub bytes: Option<u64>,
}

impl WarnAbove {
    pub(crate) fn is_exceeded(self, files: u64, bytes: u64) -> bool {
        let exceeds = |count: u64, max: Option<u64>| max.is_some_and(|max| count > max);
        exceeds(files, self.files) || exceeds(bytes, self.bytes)
    }
}

/// The part of a directory seen by the survey.
#[derive(Debug, Default)]
struct Seen {
    files: u64,
    bytes: u64,
    /// True if the survey covered the whole directory.
    is_whole: bool,
    is_foreign: bool,
    /// Rebuildable directories and large files: a line for an ignore file, and the files and bytes it would exclude.
    heavy: Vec<(String, u64, u64)>,
}

/// Ways to run a command without the import, or without waiting for it.
pub(crate) const TOUCHED: &str = "do not import it:  --base touched (without --fork and --cache), which records only \
                                  the changes of the run";
pub(crate) const DISCARD: &str = "discard the changes of a run:  avfs-run --discard …";
pub(crate) const LIVE: &str =
    "import it while the command runs:  the default (--base live), without --fork and --cache";

/// The result of the survey before a first import.
#[derive(Debug)]
pub struct FirstLook {
    dir: PathBuf,
    /// The ignore file at the top of the directory, as a word of a shell in the caller's directory.
    ignore_file: String,
    above: WarnAbove,
    seen: Seen,
    /// True if some files have owners or ACLs that no sandbox of this user can map.
    pub(crate) is_foreign: bool,
}

/// Surveys a directory before its first import, for a caller in `cwd`.
pub fn first_look(dir: &Path, cwd: &Path, exclude: &[String], above: WarnAbove) -> FirstLook {
    let seen = look(dir, exclude);
    let name = OsStr::from_bytes(FILE_NAME);
    let ignore_file = if dir == cwd { name.to_owned() } else { dir.join(name).into_os_string() };
    FirstLook {
        dir: dir.to_owned(),
        ignore_file: shell_word(&ignore_file),
        above,
        is_foreign: seen.is_foreign,
        seen,
    }
}

impl FirstLook {
    /// The text about a large directory, with the ways around the import that the caller can take; `None` if the
    /// survey covered the whole directory and it is not large.
    #[must_use]
    pub fn announcement(self, ways: Vec<&'static str>) -> Option<Announcement> {
        let can_be_large = !self.seen.is_whole || self.above.is_exceeded(self.seen.files, self.seen.bytes);
        can_be_large.then(|| {
            // The import counts the files again.
            Announcement(Box::new(move |imported_files, imported_bytes| {
                let seen = &self.seen;
                let (files, bytes) = (imported_files.max(seen.files), imported_bytes.max(seen.bytes));
                self.above.is_exceeded(files, bytes).then(|| lines(&self, &ways, files, bytes))
            }))
        })
    }
}

fn lines(look: &FirstLook, ways: &[&str], files: u64, bytes: u64) -> Vec<String> {
    let FirstLook { dir, ignore_file, seen, .. } = look;
    let least = if seen.is_whole { "" } else { "at least " };
    let size = show_bytes_size(bytes);
    let mut lines = vec![
        format!("{} has {least}{files} files, {least}{size}", dir.display()),
        "  the first import reads all of it and stores it in the vault; later ones read only changed files"
            .to_owned(),
    ];
    for (line, files, bytes) in seen.heavy.iter().take(SUGGESTED_MAX) {
        let size = show_bytes_size(*bytes);
        let files = if *files == 1 { String::new() } else { format!("{files} files, ") };
        lines.push(format!("  exclude:  echo '{line}' >> {ignore_file}   ({files}{size})"));
    }
    lines.extend(ways.iter().map(|way| format!("  {way}")));
    lines
}

fn look(dir: &Path, exclude: &[String]) -> Seen {
    let begun = Instant::now();
    avfs_types::pause::point("survey");
    let mut entries = 0_u64;
    let root = TreePath::root();
    // Lines that are not patterns are reported by the import itself.
    let (excluded, _) = Rules::default().with_readable(&root, exclude.join("\n").as_bytes());
    let mut seen = Seen { is_whole: true, ..Seen::default() };
    let writable = Writable::here();
    let is_foreign = |path: &Path, meta: &Metadata| {
        !writable.has(meta.uid(), meta.gid()) || (!meta.is_symlink() && writable.lacks_listed_at(path))
    };
    seen.is_foreign = dir.metadata().is_ok_and(|meta| is_foreign(dir, &meta));
    let mut left = vec![(root, Rules::default())];
    while let Some((at, rules)) = left.pop() {
        let path = dir.join(OsStr::from_bytes(at.as_bytes()));
        let rules = with_ignore_file(&path, &at, rules);
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            entries += 1;
            if entries.is_multiple_of(CLOCK_EVERY) && begun.elapsed() > LOOK_MAX {
                seen.is_whole = false;
                left.clear();
                break;
            }
            let (name, is_dir) = (entry.file_name(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below = at.join(name.as_bytes());
            if name == VAULT_DIR || rules.ignores(&below, is_dir) || excluded.ignores(&below, is_dir) {
                continue;
            }
            let Ok(meta) = entry.metadata() else { continue };
            seen.is_foreign = seen.is_foreign || is_foreign(&entry.path(), &meta);
            if is_dir {
                left.push((below, rules.clone()));
                continue;
            }
            let bytes = meta.blocks().saturating_mul(512).min(meta.len());
            seen.files += 1;
            seen.bytes = seen.bytes.saturating_add(bytes);
            note_heavy(&mut seen.heavy, Path::new(OsStr::from_bytes(below.as_bytes())), bytes);
        }
    }
    seen.heavy.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    seen
}

/// The rules inside a directory. Only a file of a usual size is read.
fn with_ignore_file(path: &Path, at: &TreePath, above: Rules) -> Rules {
    let mut text = Vec::new();
    let file = open_found(&path.join(OsStr::from_bytes(FILE_NAME)), Symlink::Refuse);
    match file.and_then(|file| file.take(IGNORE_BYTES_MAX + 1).read_to_end(&mut text)) {
        Ok(bytes) if bytes as u64 <= IGNORE_BYTES_MAX => above.with_readable(at, &text).0,
        Ok(_) | Err(_) => above,
    }
}

/// Counts a file for the outermost rebuildable directory around it, or lists it separately if it is large.
fn note_heavy(heavy: &mut Vec<(String, u64, u64)>, path: &Path, bytes: u64) {
    let mut above = PathBuf::new();
    let parent = path.parent().unwrap_or(Path::new(""));
    let made_again = parent.components().find_map(|part| {
        above.push(part);
        let is_known = MADE_AGAIN.iter().any(|name| above.ends_with(name));
        is_known.then(|| format!("/{}/", above.display()))
    });
    let line = match made_again {
        Some(line) => line,
        None if bytes >= LARGE_FILE_BYTES => format!("/{}", path.display()),
        None => return,
    };
    // Do not suggest a name that a shell or an ignore file would interpret.
    if !line.chars().all(|c| c.is_alphanumeric() || "/._-+@".contains(c)) {
        return;
    }
    match heavy.iter_mut().find(|(known, _, _)| *known == line) {
        Some((_, files, sum)) => {
            *files += 1;
            *sum = sum.saturating_add(bytes);
        }
        None => heavy.push((line, 1, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, path: &str, bytes: usize) {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![b'x'; bytes]).unwrap();
    }

    #[test]
    fn ignored_files_are_not_counted_and_rebuildable_directories_are_suggested() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..5 {
            put(dir.path(), &format!("app/node_modules/m{n}/dist/index.js"), 5000);
            put(dir.path(), &format!("src/f{n}"), 10);
            put(dir.path(), &format!("logs/l{n}.log"), 10);
        }
        put(dir.path(), ".avfs/vault.db", 100_000);
        put(dir.path(), "it's/target/x", 9000);
        let above = WarnAbove { files: Some(10), bytes: None };
        let exclude = ["*.log".to_owned()];
        let announcement = |above| {
            let look = first_look(dir.path(), dir.path(), &exclude, above);
            let Announcement(lines) = look.announcement(vec![LIVE])?;
            lines(0, 0)
        };
        let printed = announcement(above).unwrap().join("\n");
        assert!(printed.contains(" has 11 files, "), "{printed}");
        assert!(printed.contains("echo '/app/node_modules/' >> .avfsignore   (5 files, "), "{printed}");
        assert!(!printed.contains("it's"), "{printed}");
        assert!(printed.contains(LIVE) && !printed.contains(DISCARD), "{printed}");
        put(dir.path(), ".avfsignore", 0);
        std::fs::write(dir.path().join(".avfsignore"), "/app/node_modules/\n").unwrap();
        assert_eq!(announcement(above), None);
        let above = WarnAbove { files: None, bytes: Some(1000) };
        assert!(announcement(above).is_some());
        assert_eq!(announcement(WarnAbove { files: None, bytes: None }), None);
    }

    #[test]
    fn suggested_command_writes_to_the_ignore_file_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("it's a project");
        put(&project, "src/main.c", 10);
        put(&project, "target/x", 10);
        let above = WarnAbove { files: Some(1), bytes: None };
        for cwd in ["", "src", "../elsewhere"] {
            let cwd = project.join(cwd);
            std::fs::create_dir_all(&cwd).unwrap();
            std::fs::write(project.join(".avfsignore"), "").unwrap();
            let Announcement(lines) =
                first_look(&project, &cwd, &[], above).announcement(Vec::new()).unwrap();
            let lines = lines(0, 0).unwrap();
            let line = lines.iter().find_map(|line| line.trim().strip_prefix("exclude:  ")).unwrap();
            let (command, _) = line.split_once("   (").unwrap();
            let ran = std::process::Command::new("sh").args(["-c", command]).current_dir(&cwd).status();
            assert!(ran.unwrap().success());
            assert_eq!(
                std::fs::read_to_string(project.join(".avfsignore")).unwrap(),
                "/target/\n",
                "{command}"
            );
        }
    }
}
