//! Hints for locating a vault, for runs, their approvals and their recovery.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use avfs_engine::{
    CacheCareError, ExecuteError, LaunchError, LocateError, MemoError, RecoverError, RememberError,
    SessionError, TrustError, UnreadableFile, Unsafe, WorkspaceError, WorkspaceRootError,
};
use avfs_policy::NoRule;
use avfs_types::VAULT_DIR;
use avfs_types::diagnose::{Diagnose, shell_word};
use avfs_vault::{VaultError, transfer};

use super::Hint;
use crate::hint;

hint!(LocateError, |error, avfs| Some(match error {
    Self::NoneNear { .. } => "create one with: avfs init, or name one with --vault".into(),
    Self::NoneNamed { name } => {
        format!("create it with: avfs init --vault {name}, or list vaults with: avfs vault list")
    }
    Self::NoneAt { typed, is_dir, .. } => {
        let option = if *is_dir { "" } else { "--vault " };
        let word = shell_word(typed);
        format!("create it with: avfs init {option}{word}, or name another with --vault")
    }
    Self::Ambiguous { name, named } => {
        format!("choose one: ./{name} for the directory's, {} for the other", named.display())
    }
    Self::AroundHome { .. } => {
        "change to the directory of a project first; to use all files here: avfs init".into()
    }
    Self::Trust(error) => return error.hint(avfs),
    Self::Name(error) => return error.hint(avfs),
    Self::NoHome { variable: "XDG_DATA_HOME" } => {
        "set HOME, or name the vault by its path with --vault".into()
    }
    Self::NoHome { variable } => format!("set HOME or {variable}"),
}));

/// What works in a directory that every user can write, if it has no vault.
const ELSEWHERE: &str = "keep its vault in your data directory with: AVFS_VAULT_PLACE=data, or in a place of your choice with: \
     avfs init --vault NAME|PATH";

/// Whether changing the mode of a path affects only the caller: not for `/tmp` or another sticky directory, nor for a
/// mount.
fn is_of_caller_alone(path: &Path) -> bool {
    let device = |path: &Path| path.symlink_metadata().map(|meta| meta.dev()).ok();
    path.symlink_metadata().is_ok_and(|meta| {
        let is_sticky = meta.mode() & 0o1000 != 0;
        let is_mount = meta.is_dir() && path.parent().and_then(device) != Some(meta.dev());
        meta.uid() == rustix::process::geteuid().as_raw() && !is_sticky && !is_mount
    })
}

/// The directory whose `.avfs` contains the vault.
fn directory_of(vault: &Path) -> &Path {
    vault.parent().and_then(Path::parent).unwrap_or(Path::new("/"))
}

hint!(TrustError, |error, _| {
    let word = |path: &Path| shell_word(path.as_os_str());
    Some(match error {
        Self::Unknown { vault, moved_from } => {
            let dir = word(directory_of(vault));
            match moved_from {
                Some(old) => format!(
                    "if you moved it from {}, trust it here with: avfs vault trust {dir}",
                    directory_of(old).display()
                ),
                None => format!("if you know its origin, trust it with: avfs vault trust {dir}"),
            }
        }
        Self::Replaced { vault } | Self::OtherFile { vault } => {
            let has_own_name = !vault.parent().is_some_and(|home| home.ends_with(VAULT_DIR));
            let place = word(if has_own_name { vault } else { directory_of(vault) });
            format!("if you put it there, trust it with: avfs vault trust {place}")
        }
        Self::Unsafe { reason: Unsafe::WorldWritable, path, vault } if is_of_caller_alone(path) => {
            let named = if vault.exists() { "name the vault with --vault" } else { ELSEWHERE };
            format!("run: chmod o-w {}, or {named}", word(path))
        }
        Self::Unsafe { reason: Unsafe::WorldWritable, vault, .. } if vault.exists() => {
            format!("use it anyway with: --vault {}", word(vault))
        }
        Self::Unsafe { reason: Unsafe::WorldWritable, .. } => {
            format!("work in a directory that only you can write, or {ELSEWHERE}")
        }
        Self::Unsafe { reason: Unsafe::Symlink, .. } => "name the vault with --vault".into(),
        Self::Hidden { vault } => {
            format!("check the permissions with: ls -ld {}", word(vault.parent().unwrap_or(vault)))
        }
        Self::Linked { path, link, real } => without_link("XDG_DATA_HOME", path, link, real),
        Self::List { .. } => "name the vault with --vault, which needs no list".into(),
    })
});

/// How to write a file of avfs in a directory that a variable names, if there is a symlink on the way.
fn without_link(variable: &str, path: &Path, link: &Path, real: &Path) -> String {
    let home = |path: &Path| path.parent().and_then(Path::parent).map(Path::to_owned);
    match home(path).zip(home(real)) {
        Some((named, real)) if named.starts_with(link) => {
            format!("name the real path: export {variable}={}", shell_word(real.as_os_str()))
        }
        Some(_) | None => {
            let word = |path: &Path| shell_word(path.as_os_str());
            format!("put the file or directory itself at {}: the real path is {}", word(link), word(real))
        }
    }
}

hint!(UnreadableFile, |_, _| Some("replace it with a file that you can read, or remove it".into()));

hint!(WorkspaceError, |error, avfs| match error {
    Self::Unbound { .. } => Some(format!("write a version to a directory with: {avfs} export REF DIR")),
    Self::Vault(error) => error.hint(avfs),
});

/// True if the vault was deleted, or moved with another one in its place.
fn is_vault_lost(error: &transfer::Error) -> bool {
    error.code() == "vault.not_found"
        || matches!(error, transfer::Error::Vault(VaultError::Moved { path }) if path.exists())
}

hint!(ExecuteError, |error, avfs| {
    let after = |source: &dyn Hint, then: String| match source.hint(avfs) {
        Some(first) => format!("{first}; then {then}"),
        None => then,
    };
    match error {
        Self::Request(error) => error.hint(avfs),
        Self::WorkspaceRoot(error) => error.hint(avfs),
        Self::Session(error) => error.hint(avfs),
        Self::Vault(error) => error.hint(avfs),
        Self::Memo(error) => error.hint(avfs),
        Self::Launch(error) => error.hint(avfs),
        Self::Interrupted { .. } => None,
        Self::CaptureInterrupted { id, .. } => Some(format!("finish it with: {avfs} recover {id}")),
        Self::CaptureFailed { id, dir, source, .. } if is_vault_lost(source) => Some(format!(
            "if the vault was moved, move it back, and finish the run with: {avfs} recover {id}; if it was deleted, \
                 no other vault can record the changes: copy them from {}, then free the space with: \
                 {avfs} clean --orphans",
            dir.display()
        )),
        Self::CaptureFailed { id, source, .. } => {
            Some(after(&**source, format!("finish it with: {avfs} recover {id}")))
        }
        Self::CaptureLost { source, .. } => source.hint(avfs),
        Self::ApplyInterrupted { id, .. } => Some(format!("apply them with: {avfs} apply run:{id}")),
        Self::NotApplied { id, source } => {
            Some(after(&**source, format!("try again with: {avfs} apply run:{id}")))
        }
    }
});

hint!(LaunchError, |error, _| error.remedy.clone());

hint!(WorkspaceRootError, |error, avfs| {
    match error {
    Self::BadPlace { .. } => Some("choose a path such as /srv/project".into()),
    Self::CwdOutside { .. } => Some("name a directory of the workspace: --cwd src".into()),
    Self::NotLive { .. } | Self::NothingLive => Some("omit --base live".into()),
    Self::Main => Some(
        "omit --fork (or AVFS_FORK) to start from the directory, or start a fork from main: --fork NAME --from main"
            .into(),
    ),
    Self::NoApplyDir => {
        Some(format!("omit --apply, and write the result to a directory with: {avfs} export last DIR"))
    }
    Self::Io { .. } => None,
}
});

hint!(SessionError, |error, _| match error {
    Self::Host { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
        Some("free some space in the cache directory, or set XDG_CACHE_HOME".into())
    }
    Self::Host { .. } => Some("set XDG_CACHE_HOME to a writable directory".into()),
    Self::State { .. } => None,
    Self::BadRecord { id, .. } => {
        Some(format!("to discard it, remove run/{id} from the cache directory"))
    }
});

hint!(MemoError, |error, avfs| match error {
    Self::Input { .. } | Self::OddInput { .. } => {
        Some("name readable files with --input, or omit --cache".into())
    }
    Self::WorkspaceRoot(error) => error.hint(avfs),
    Self::Vault(error) => error.hint(avfs),
});

/// What to do if no rule can stand for a command.
fn no_rule(why: &NoRule) -> Option<String> {
    let prefix = |words: &[String]| {
        let is_plain = words.iter().all(|word| !word.contains(char::is_whitespace));
        is_plain.then(|| format!("add --prefix {}", shell_word(OsStr::new(&words.join(" ")))))
    };
    match why {
        NoRule::Path { .. } => Some("run the program by its name".to_owned()),
        NoRule::OptionFirst { option, directory: Some(directory), words } => {
            let cwd = format!("run it with --cwd {} instead of {option}", shell_word(OsStr::new(directory)));
            Some(prefix(words).map_or(cwd.clone(), |prefix| format!("{cwd}, {prefix}")))
        }
        NoRule::OptionFirst { directory: None, words, .. } | NoRule::Short { words } => prefix(words),
        NoRule::Computed | NoRule::Replaceable { .. } | NoRule::Unlisted { .. } | NoRule::Directs { .. } => {
            None
        }
    }
}

hint!(RememberError, |error, avfs| {
    let once = |id| format!("approve it once with: {avfs} approvals approve {id}");
    match error {
        Self::NoPrefix { id, .. } => Some(once(id)),
        Self::NoRule { id, why } => Some(match no_rule(why) {
            Some(instead) => format!("{instead}, or {}", once(id)),
            None => once(id),
        }),
        Self::OtherPrefix { .. } => Some("give words that one of its commands begins with".into()),
        Self::StillAsked { id, instead: Some(instead), .. } => Some(format!("{instead}, or {}", once(id))),
        Self::StillAsked { .. } => Some(format!("see the rule with: {avfs} policy explain -- COMMAND")),
        Self::Changed { .. } => Some(format!("check it, then answer again with: {avfs} approvals")),
        Self::NoHome => Some("set HOME or XDG_CONFIG_HOME".into()),
        Self::Linked { path, link, real } => Some(without_link("XDG_CONFIG_HOME", path, link, real)),
        Self::BadRequest { .. } | Self::Write { .. } => None,
        Self::Unreadable(error) => error.hint(avfs),
        Self::Policy(error) => error.hint(avfs),
    }
});

hint!(RecoverError, |error, avfs| Some(match error {
    Self::None { .. } => format!("list recoverable runs with: {avfs} recover --list"),
    Self::Ambiguous { .. } => "give more digits".into(),
    Self::Restarted { id } => {
        format!("capture it anyway with: {avfs} recover --force {id}, or discard it with: --discard")
    }
    Self::NoDirectory { id } => {
        format!("discard the changes with: {avfs} recover --discard {id}")
    }
    Self::SecretsUnknown { id, names } => {
        let values: String = names.iter().map(|name| format!("{name}=… ")).collect();
        format!(
            "leave out the files that contain them with: {values}{avfs} recover {id}, or keep every file with: \
                     {avfs} recover --allow-secret-files {id}"
        )
    }
    Self::Session(error) => return error.hint(avfs),
    Self::Vault(error) => return error.hint(avfs),
}));

hint!(CacheCareError, |error, avfs| match error {
    Self::Host { .. } => None,
    Self::Vault(error) => error.hint(avfs),
    Self::Session(error) => error.hint(avfs),
});
