//! Hints for the vault: its file, its history, imports, captures and exports.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use avfs_hostfs::cause::Cause;
use avfs_types::diagnose::shell_word;
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_vault::backend::{ApprovalState, BackendError};
use avfs_vault::capture::CaptureError;
use avfs_vault::export::ExportError;
use avfs_vault::ignore::{FILE_NAME, line_for};
use avfs_vault::import::ImportError;
use avfs_vault::{VaultError, transfer};

use super::types::for_range;
use crate::hint;

/// The hint for a full disk, if no verb of avfs can free space.
pub const DISK_FULL: &str = "free some space, then try again; nothing was changed";

/// Whether a vault has a reserve, without which no verb works on a full disk.
fn has_reserve(vault: &Path) -> bool {
    let vault = vault.canonicalize().unwrap_or_else(|_| vault.to_owned());
    Path::new(&[vault.as_os_str(), OsStr::new("-reserve")].into_iter().collect::<OsString>()).exists()
}

hint!(BackendError, |error, avfs| {
    let word = |path: &Path| shell_word(path.as_os_str());
    Some(match error {
        Self::NotFound { path } if path.is_symlink() => {
            format!("it is a dangling symlink: check its target with: ls -l {}", word(path))
        }
        Self::NotFound { .. } => "create one with: avfs init, or name one with --vault".into(),
        Self::Exists { .. } => "use the existing one, or choose another place with --vault".into(),
        Self::Foreign { .. } => "name another file with --vault, or move this one away".into(),
        Self::ForeignObject { .. } => {
            "do not use this file: the object was added to run code inside avfs; check the origin of the vault"
                .into()
        }
        Self::Newer { .. } => "use the avfs version that created it, or a newer one".into(),
        Self::Corrupt { path, .. } => {
            format!("check the damage with: avfs fsck --vault {}", word(path))
        }
        Self::RolledBack { path, .. } => format!(
            "restore the vault and its log from a backup, or accept the loss; then continue with: rm {}-head",
            word(path)
        ),
        Self::ReadOnly { path } | Self::NoPermission { path } => {
            // The files next to the vault need write access to its directory.
            let of_the_file = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err();
            match path.parent().filter(|_| !of_the_file) {
                Some(dir) => format!("check with: ls -ld {}", word(dir)),
                None => format!("check with: ls -l {}", word(path)),
            }
        }
        Self::NoPlace { at, .. } => format!(
            "check with: ls -ld {}, or keep the vault elsewhere: avfs init --vault NAME|PATH",
            word(at)
        ),
        Self::Busy { path, .. } => {
            format!("try again, or list the processes that use it with: fuser -v {}", word(path))
        }
        Self::Unsteady { .. } => {
            "try again: without permission to write, the vault is read without locking out writers".into()
        }
        Self::DiskFull { path } if has_reserve(path) => format!(
            "{DISK_FULL}. On a full disk these still work: {avfs} discard, {avfs} fork delete, {avfs} prune, and \
             {avfs} gc, which frees the space"
        ),
        Self::DiskFull { .. } => DISK_FULL.into(),
        Self::Linked { path } => {
            let vault = word(path);
            format!(
                "make it a separate file with: cp {vault} {vault}.copy && mv {vault}.copy {vault}, or remove the other hard link"
            )
        }
        Self::Journal { journal, .. } => format!(
            "find out which program wrote it, then move it away: mv {0} {0}.moved",
            word(journal)
        ),
        Self::LocksUnsupported { .. } => "put the vault on a local disk with: avfs init --vault PATH".into(),
        Self::Io { source, path, .. } => match Errno::from_io_error(source) {
            Some(Errno::NAMETOOLONG) => "choose a shorter name".into(),
            Some(Errno::LOOP) => format!("check its target with: ls -l {}", word(path)),
            Some(Errno::MFILE | Errno::NFILE) => {
                "raise the limit on open files with: ulimit -n 1024, then try again".into()
            }
            _ => return None,
        },
        Self::Sqlite { .. } | Self::Injected { .. } => return None,
    })
});

hint!(transfer::Error, |error, avfs| match error {
    Self::Vault(error) => error.hint(avfs),
    Self::Import(error) => error.hint(avfs),
    Self::Capture(error) => error.hint(avfs),
    Self::Export(error) => error.hint(avfs),
});

hint!(VaultError, |error, avfs| Some(match error {
    Self::Backend(error) => return error.hint(avfs),
    Self::Path(error) => return error.hint(avfs),
    Self::Interrupted => return None,
    Self::BadRef(error) => return error.hint(avfs),
    Self::BadName(error) => return error.hint(avfs),
    Self::InFile { .. } => format!(
        "repair from a directory that has the content with: {avfs} fsck --heal DIR; export the rest with: \
                 {avfs} export --keep-going"
    ),
    Self::MissingObject { .. } | Self::DamagedObject { .. } => format!(
        "check for more damage with: {avfs} fsck; repair from a directory that has the content with: \
                 {avfs} fsck --heal DIR"
    ),
    Self::UnknownRef { reference } if reference.starts_with("run:") || reference == "last" => {
        format!("list runs with: {avfs} runs list")
    }
    Self::UnknownRef { reference } if reference.contains("..") => return for_range(reference, avfs),
    Self::UnknownRef { .. } => format!(
        "list forks with: {avfs} fork list, versions with: {avfs} log; the id of a version needs at least four digits"
    ),
    Self::AmbiguousRef { .. } => "give more digits of the version".into(),
    Self::BeforeFirst { .. } => format!("list the versions with: {avfs} log"),
    Self::Pruned { .. } => "list versions with: avfs log, and choose one that is not pruned".into(),
    Self::Partial { .. } => format!(
        "import the directory before the run with: {avfs} import, and run the command with --base auto; \
         the changes of the run itself can be shown and applied"
    ),
    Self::NoFork { name } if name.as_str() == "last" => {
        format!("last is a run: list runs and their forks with: {avfs} runs list")
    }
    Self::NoFork { name } if name.check_new().is_err() => format!("list forks with: {avfs} fork list"),
    Self::NoFork { name } => {
        format!("list forks with: {avfs} fork list, or create it with: {avfs} fork create {name}")
    }
    Self::ForkExists { name } if *name == ForkName::main() => {
        "choose another name: main always exists".into()
    }
    Self::ForkExists { name } => format!("choose another name, or: {avfs} fork delete {name}"),
    Self::MainFork { .. } => format!("delete the whole vault with: {avfs} vault delete"),
    Self::ForkHasCheckpoints { name, .. } => {
        format!("delete the fork and its checkpoints with: {avfs} fork delete --force {name}")
    }
    Self::PersistentFork { name } if *name == ForkName::main() => {
        format!("revert its last version with: {avfs} undo main")
    }
    Self::PersistentFork { name } => {
        format!(
            "delete it with: {avfs} fork delete {name}, or revert its last version with: {avfs} undo {name}"
        )
    }
    Self::ForkMoved { .. } => "check the new state and try again".into(),
    Self::NothingToUndo { fork } => format!(
        "list its versions with: {avfs} log {fork}; restore one with: {avfs} restore REF --fork {fork}"
    ),
    Self::NothingToRedo { fork } => format!(
        "only an undo on the fork can be redone, until the fork changes again; if the undo removed applied changes, \
                 write them with: {avfs} apply RUN; restore a version with: {avfs} restore REF --fork {fork}"
    ),
    Self::NoCheckpoint { fork, .. } => {
        format!("list checkpoints with: {avfs} checkpoint list --fork {fork}")
    }
    Self::CheckpointExists { .. } => "choose another name, or delete that one first".into(),
    Self::Moved { path } => format!("move it back to {}", path.display()),
    Self::NoRun { .. } => format!("list runs with: {avfs} runs list"),
    Self::NotRelated { .. } | Self::NothingToJoin => "join versions with a common ancestor".into(),
    Self::NoBatch { .. } => format!("list batches with: {avfs} batch --list"),
    Self::AmbiguousBatch { .. } => "give more digits of the batch's id".into(),
    Self::AmbiguousRun { .. } => "give more digits of the run's id".into(),
    Self::RunCaptured { id } | Self::RunWithoutVersion { id, .. } => {
        format!("show it with: {avfs} runs show {id}")
    }
    Self::NoApproval { .. } => format!("list approvals with: {avfs} approvals list"),
    Self::AmbiguousApproval { .. } => "give more digits of the approval's id".into(),
    Self::ApprovalSettled { id, state: ApprovalState::Approved } => {
        format!("to change its network, first: {avfs} approvals deny {id}")
    }
    Self::ApprovalSettled { id, .. } => {
        format!("show it with: {avfs} approvals show {id}")
    }
    Self::ApprovalExpired { .. } => "run the command again to request a new approval".into(),
    Self::NoRecording { .. } => format!("list recordings with: {avfs} record list"),
    Self::RecordingExists { name } => {
        format!("choose another name, or: {avfs} record delete {name}")
    }
    Self::RecordingStopped { name } => {
        format!("export it with: {avfs} record export {name} > list.jsonl")
    }
    Self::NotRecording => format!("start one with: {avfs} record start"),
    Self::SeveralRecordings { .. } => {
        format!("choose one: {avfs} record stop NAME")
    }
    Self::NoPath { .. } => format!("list the files with: {avfs} ls REF"),
    Self::NotADirectory { .. } | Self::PathExists { .. } | Self::OwnPath { .. } => {
        "choose another path".into()
    }
    Self::IsADirectory { path } | Self::PathCycle { from: path, .. } if path.is_root() => {
        format!("name the entries in it; list them with: {avfs} ls REF")
    }
    Self::IsADirectory { .. } => "name a file in it, or use -r with rm or cp for the whole directory".into(),
    Self::NotAFile { path, .. } => {
        let path = shell_word(OsStr::from_bytes(path.as_bytes()));
        format!("list it with: {avfs} ls -l REF {path}")
    }
    Self::PathCycle { from, to } if from == to => "choose another target".into(),
    Self::PathCycle { .. } => "choose a target outside the directory".into(),
    Self::TooManyEntries { .. } | Self::TooDeep { .. } => {
        "exclude files that need no versions with lines in .avfsignore".into()
    }
    Self::SharedTooOften { .. } => format!(
        "if you did not create the vault, do not use it; otherwise export the files you need with: {avfs} export"
    ),
    Self::FileTooLarge { .. } => "exclude it with a line in .avfsignore".into(),
    Self::Quota { what: "files", .. } => {
        format!("remove some with: {avfs} rm, or raise the limit with: {avfs} quota set --files N")
    }
    Self::Quota { what: "versions", limit: 0..2, .. } => {
        format!("raise the limit with: {avfs} quota set --versions N")
    }
    // Keep one version less than the limit, to leave room for a new one.
    Self::Quota { what: "versions", limit, .. } => format!(
        "free some with: {avfs} prune --keep-last {} && {avfs} gc, or raise the limit with: \
                 {avfs} quota set --versions N",
        (limit - 1).min(10)
    ),
    Self::Quota { .. } => format!(
        "remove large files with: {avfs} rm PATH, free the space of older versions with: \
                 {avfs} prune --keep-last 1 && {avfs} gc, or raise the limit with: {avfs} quota set --bytes N"
    ),
    Self::Threads(_) => {
        "end some processes, or raise the limit on them (ulimit -u); then try again".into()
    }
    Self::Input(_) | Self::Temporary(_) | Self::Output(_) => return None,
}));

fn is_ignore_file(path: &TreePath) -> bool {
    path.split().is_some_and(|(_, name)| name == FILE_NAME)
}

hint!(ImportError, |error, avfs| Some(match error {
    Self::NotADirectory { .. } | Self::NoDirectory { .. } => {
        format!("name a directory: {avfs} import DIR")
    }
    Self::NoPermission { path } if is_ignore_file(path) => {
        "make it readable: otherwise the files it excludes would be stored".into()
    }
    Self::NoPermission { path } => match line_for(path) {
        Some(line) => format!("make it readable, or exclude it with a line in .avfsignore: {line}"),
        None => "make it readable".into(),
    },
    Self::Torn { path } if is_ignore_file(path) => "import again when the file no longer changes".into(),
    Self::Vanished { .. } | Self::Torn { .. } => format!(
        "import again when nothing changes, or import the readable files with: {avfs} import --keep-going"
    ),
    Self::TooLarge { path, .. } => match line_for(path) {
        Some(line) => format!("exclude it with a line in .avfsignore: {line}"),
        None => "exclude it with a line in .avfsignore".into(),
    },
    Self::TooDeep { .. } => "exclude it with a line in .avfsignore".into(),
    Self::BadIgnore { .. } | Self::BadExclude { .. } => "use the pattern syntax of gitignore(5)".into(),
    Self::Io { path, source, .. } if Cause::of(source) == Cause::Unreadable && !is_ignore_file(path) => {
        format!("import the readable files with: {avfs} import --keep-going")
    }
    Self::Io { .. } | Self::Interrupted => return None,
}));

hint!(CaptureError, |error, avfs| match error {
    Self::NotQuiet { .. } =>
        Some(format!("stop the processes that still write there, then run: {avfs} recover")),
    Self::BadExclude { .. } => Some("use the pattern syntax of gitignore(5)".into()),
    Self::Interrupted => Some(format!("the upper is kept; finish with: {avfs} recover")),
    Self::Io { .. } | Self::Journal { .. } => None,
});

hint!(ExportError, |error, _| {
    let hint = match error {
        Self::Exists { .. } | Self::Appeared { .. } => {
            "choose an empty directory, or replace files there with: --overwrite"
        }
        Self::NotADirectory { .. } | Self::NoPermission { .. } => "choose another directory",
        Self::Symlink { real, .. } => {
            return Some(format!("name the real path: {}", shell_word(real.as_os_str())));
        }
        Self::InTheWay { .. } => "move it away, then try again; nothing was changed",
        Self::Io { source, .. } | Self::Host { source, .. } if Cause::of(source) == Cause::DiskFull => {
            "free some space, then try again; nothing was left behind"
        }
        Self::Io { .. } | Self::Host { .. } => {
            "choose another directory, or check its permissions with: ls -ld DIR"
        }
    };
    Some(hint.into())
});
