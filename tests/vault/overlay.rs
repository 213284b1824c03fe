//! Real overlays, mounted by a child in its own namespaces, and the commands that run in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::support;
use crate::support::Scratch;

const STEPS: &str = "AVFS_TEST_STEPS";

/// Why no overlay can be mounted here without privileges; `None` if one can.
fn obstacle() -> Option<&'static str> {
    static TRIED: OnceLock<bool> = OnceLock::new();
    let works = *TRIED.get_or_init(|| {
        let scratch = Scratch::new();
        let lower = scratch.dir("lower");
        std::fs::create_dir(lower.join("d")).unwrap();
        let upper = scratch.dir("upper");
        // A recreated directory shows whether the upper supports the overlay attributes.
        let run = overlay(&scratch, &[lower], &upper, "rmdir d && mkdir d", None);
        let mut value = [0; 1];
        run.is_ok() && rustix::fs::getxattr(upper.join("d"), "user.overlay.opaque", &mut value).is_ok()
    });
    (!works).then_some("no overlay can be mounted without privileges")
}

/// True if overlays work here; otherwise the test is skipped.
pub fn works(test: &str) -> bool {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(reason) = obstacle() else { return true };
    // A property test checks this for every case.
    if REPORTED.lock().unwrap().insert(test.to_owned()) {
        support::skip(test, reason);
    }
    false
}

fn run(script: &str, settings: &[(&str, OsString)]) -> Result<(), String> {
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-euc", script]).env("SELF", std::env::current_exe().unwrap());
    command.env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs a script in a plain directory, as the same user as in the overlay.
#[track_caller]
pub fn in_dir(dir: &Path, script: &str) {
    run("cd \"$DIR\"; umask 022; eval \"$SCRIPT\"", &[("DIR", dir.into()), ("SCRIPT", script.into())])
        .unwrap();
}

/// Runs a script in an overlay of `upper` over these layers, topmost first. Copies the resulting merged directory to
/// `copy`.
pub fn overlay(
    scratch: &Scratch,
    lowers: &[PathBuf],
    upper: &Path,
    script: &str,
    copy: Option<&Path>,
) -> Result<(), String> {
    let work = tempfile::Builder::new().prefix("work-").tempdir_in(scratch.path()).unwrap().keep();
    std::fs::create_dir(work.join("work")).unwrap();
    std::fs::create_dir(work.join("merged")).unwrap();
    let mut layers = OsString::new();
    for lower in lowers {
        if !layers.is_empty() {
            layers.push(":");
        }
        layers.push(lower);
    }
    let settings = [
        ("LOWERS", layers),
        ("UPPER", upper.into()),
        ("WORK", work.clone().into()),
        ("SCRIPT", script.into()),
        ("COPY", copy.map(OsString::from).unwrap_or_default()),
    ];
    run(
        "mount -t overlay overlay -o \
             lowerdir=\"$LOWERS\",upperdir=\"$UPPER\",workdir=\"$WORK/work\",userxattr,volatile \"$WORK/merged\"
         (cd \"$WORK/merged\"; umask 022; eval \"$SCRIPT\")
         [ -z \"$COPY\" ] || cp -a \"$WORK/merged\" \"$COPY\"
         umount \"$WORK/merged\"
         rm -rf \"$WORK\"",
        &settings,
    )
}

/// Copies the merged view of these layers alone, topmost first, to `copy`.
#[track_caller]
pub fn show(scratch: &Scratch, dirs: &[PathBuf], copy: &Path) {
    // An overlay without an upper needs at least two layers.
    let bottom = tempfile::Builder::new().prefix("bottom-").tempdir_in(scratch.path()).unwrap().keep();
    let merged = tempfile::Builder::new().prefix("merged-").tempdir_in(scratch.path()).unwrap().keep();
    let mut layers = OsString::new();
    for dir in dirs {
        layers.push(dir);
        layers.push(":");
    }
    layers.push(bottom);
    let settings = [("LOWERS", layers), ("MERGED", merged.into()), ("COPY", copy.into())];
    let script = "mount -t overlay overlay -o lowerdir=\"$LOWERS\",userxattr \"$MERGED\"
        cp -a \"$MERGED\" \"$COPY\"";
    run(script, &settings).unwrap();
}

/// A script that makes this executable perform `steps` in its working directory.
pub fn script_of(scratch: &Scratch, steps: &[Step]) -> String {
    let file = scratch.join("steps");
    let lines: Vec<String> = steps.iter().map(Step::line).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let harness = "--exact overlay::hands --nocapture --test-threads=1";
    format!("{STEPS}={} \"$SELF\" {harness} >/dev/null", file.display())
}

/// One step of a command; paths are relative, and a step that fails must fail on both sides.
#[derive(Clone, Debug)]
pub enum Step {
    Write(String, u64, usize),
    Append(String, u64),
    Truncate(String, u64),
    Chmod(String, u32),
    Mkdir(String),
    Remove(String),
    Rename(String, String),
    Symlink(String, String),
    Link(String, String),
    Fifo(String),
    Xattr(String, String, u64),
    Unxattr(String, String),
    Time(String, i64),
    /// Opened for writing but not written: a copy-up without a change.
    Touch(String),
}

impl Step {
    fn line(&self) -> String {
        match self {
            Self::Write(path, seed, length) => format!("write {path} {seed} {length}"),
            Self::Append(path, seed) => format!("append {path} {seed}"),
            Self::Truncate(path, length) => format!("truncate {path} {length}"),
            Self::Chmod(path, mode) => format!("chmod {path} {mode}"),
            Self::Mkdir(path) => format!("mkdir {path}"),
            Self::Remove(path) => format!("remove {path}"),
            Self::Rename(from, to) => format!("rename {from} {to}"),
            Self::Symlink(path, target) => format!("symlink {path} {target}"),
            Self::Link(from, to) => format!("link {from} {to}"),
            Self::Fifo(path) => format!("fifo {path}"),
            Self::Xattr(path, name, seed) => format!("xattr {path} {name} {seed}"),
            Self::Unxattr(path, name) => format!("unxattr {path} {name}"),
            Self::Time(path, seconds) => format!("time {path} {seconds}"),
            Self::Touch(path) => format!("touch {path}"),
        }
    }
}

fn perform(line: &str) -> std::io::Result<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let path = Path::new(words[1]);
    match words[0] {
        "write" => {
            let length = usize::try_from(number(3)).unwrap();
            // A FIFO would block, and a symlink may point anywhere.
            if path.symlink_metadata().is_ok_and(|meta| !meta.is_file()) {
                return Ok(());
            }
            std::fs::write(path, support::noise(number(2), length))
        }
        "append" | "touch" => {
            if !path.symlink_metadata()?.is_file() {
                return Ok(());
            }
            let mut file = std::fs::File::options().append(true).open(path)?;
            if words[0] == "append" {
                std::io::Write::write_all(&mut file, &support::noise(number(2), 100))?;
            }
            Ok(())
        }
        "truncate" => {
            if !path.symlink_metadata()?.is_file() {
                return Ok(());
            }
            std::fs::File::options().write(true).open(path)?.set_len(number(2))
        }
        "chmod" => {
            let meta = path.symlink_metadata()?;
            if meta.is_symlink() {
                return Ok(());
            }
            // The plain directory is imported, and an import does not change modes to get access.
            let open = if meta.is_dir() { 0o700 } else { 0 };
            let mode = Mode::from_raw_mode(u32::try_from(number(2)).unwrap() | open);
            Ok(rustix::fs::chmod(path, mode)?)
        }
        "mkdir" => std::fs::create_dir(path),
        "remove" if path.symlink_metadata()?.is_dir() => std::fs::remove_dir_all(path),
        "remove" => std::fs::remove_file(path),
        "rename" => {
            // overlayfs refuses to rename a directory of the base, and mv copies it instead; the result
            // differs only in times.
            if path.symlink_metadata()?.is_dir() {
                return Ok(());
            }
            std::fs::rename(path, words[2])
        }
        "symlink" => std::os::unix::fs::symlink(words[2], path),
        "link" => Ok(rustix::fs::linkat(CWD, path, CWD, words[2], AtFlags::empty())?),
        "fifo" => Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o640), 0)?),
        "xattr" => {
            let value = support::noise(number(3), 8);
            Ok(rustix::fs::lsetxattr(path, words[2], &value, XattrFlags::empty())?)
        }
        "unxattr" => Ok(rustix::fs::lremovexattr(path, words[2])?),
        "time" => {
            let time = Timespec { tv_sec: words[2].parse().unwrap(), tv_nsec: 5 };
            let times = Timestamps { last_access: time, last_modification: time };
            Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
        }
        other => panic!("{other}?"),
    }
}

/// Not a test: run by [`script_of`].
#[test]
fn hands() {
    let Some(file) = std::env::var_os(STEPS) else { return };
    for line in std::fs::read_to_string(file).unwrap().lines() {
        // A step that fails must fail on both sides; the later comparison shows if it does not.
        let _ = perform(line);
    }
}
