//! Hints for finding a vault, for runs, their approvals and their recovery.

use std::path::Path;

use avfs_engine::{
    CacheCareError, ExecuteError, GroundError, LaunchError, LocateError, MemoError, RecoverError,
    RememberError, SessionError, TrustError, UnreadableFile, Unsafe, WorkspaceError,
};
use avfs_types::diagnose::shell_word;

use super::Hint;
use crate::hint;

hint!(LocateError, |error, avfs| Some(match error {
    Self::NoneNear { .. } => "make one with: avfs init, or name one with --vault".into(),
    Self::NoneNamed { name } => {
        format!("make it with: avfs init --vault {name}, or list them with: avfs vault list")
    }
    Self::NoneAt { typed, is_dir, .. } => {
        let option = if *is_dir { "" } else { "--vault " };
        let word = shell_word(typed);
        format!("make it with: avfs init {option}{word}, or name another with --vault")
    }
    Self::Ambiguous { name, named } => {
        format!("say which: ./{name} for the directory's, {} for the other", named.display())
    }
    Self::AroundHome { .. } => {
        "go to the directory of a project first; if every file below is meant: avfs init".into()
    }
    Self::Trust(error) => return error.hint(avfs),
    Self::Name(error) => return error.hint(avfs),
    Self::NoHome { variable: "XDG_DATA_HOME" } => {
        "set HOME, or name the vault by its path with --vault".into()
    }
    Self::NoHome { variable } => format!("set HOME or {variable}"),
}));

hint!(TrustError, |error, _| {
    let word = |path: &Path| shell_word(path.as_os_str());
    Some(match error {
        Self::Unknown { vault } => {
            let dir = vault.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
            format!(
                "if you know where it comes from, use it from now on with: avfs vault trust {}",
                word(dir)
            )
        }
        Self::Unsafe { reason: Unsafe::WorldWritable, path, .. } => {
            format!("run: chmod o-w {}, or name the vault with --vault", word(path))
        }
        Self::Unsafe { reason: Unsafe::Symlink, .. } => "name the vault with --vault".into(),
        Self::Hidden { vault } => {
            format!("see who may with: ls -ld {}", word(vault.parent().unwrap_or(vault)))
        }
        Self::List { .. } => "name the vault with --vault, which needs no list".into(),
    })
});

hint!(UnreadableFile, |_, _| Some("make it readable, or remove it".into()));

hint!(WorkspaceError, |error, avfs| match error {
    Self::Unbound { .. } => Some(format!("name the directory: {avfs} import DIR")),
    Self::Vault(error) => error.hint(avfs),
});

hint!(ExecuteError, |error, avfs| {
    let after = |source: &dyn Hint, then: String| match source.hint(avfs) {
        Some(first) => format!("{first}; then {then}"),
        None => then,
    };
    match error {
        Self::Request(error) => error.hint(avfs),
        Self::Ground(error) => error.hint(avfs),
        Self::Session(error) => error.hint(avfs),
        Self::Vault(error) => error.hint(avfs),
        Self::Memo(error) => error.hint(avfs),
        Self::Launch(error) => error.hint(avfs),
        Self::Interrupted { .. } => None,
        Self::CaptureInterrupted { id, .. } => Some(format!("finish it with: {avfs} recover {id}")),
        Self::CaptureFailed { id, source, .. } => {
            Some(after(&**source, format!("finish it with: {avfs} recover {id}")))
        }
        Self::CaptureLost { source, .. } => source.hint(avfs),
        Self::NotApplied { id, source } => {
            Some(after(&**source, format!("try again with: {avfs} apply run:{id}")))
        }
    }
});

hint!(LaunchError, |error, _| error.remedy.clone());

hint!(GroundError, |error, _| match error {
    Self::BadPlace { .. } => Some("choose a path such as /srv/project".into()),
    Self::CwdOutside { .. } => Some("name a directory of the workspace: --cwd src".into()),
    Self::NotLive { .. } | Self::NothingLive => Some("leave out --base live".into()),
    Self::Io { .. } => None,
});

hint!(SessionError, |error, _| match error {
    Self::Host { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
        Some("free some space in the cache directory, or set XDG_CACHE_HOME".into())
    }
    Self::Host { .. } => Some("set XDG_CACHE_HOME to a directory you can write".into()),
    Self::State { .. } => None,
    Self::BadRecord { id, .. } => {
        Some(format!("remove run/{id} from the cache directory to give it up"))
    }
});

hint!(MemoError, |error, avfs| match error {
    Self::Input { .. } | Self::OddInput { .. } => {
        Some("name files that you can read with --input, or leave --cache out".into())
    }
    Self::Ground(error) => error.hint(avfs),
    Self::Vault(error) => error.hint(avfs),
});

hint!(RememberError, |error, avfs| {
    let once = |id| format!("approve it this once with: {avfs} approvals approve {id}");
    match error {
        Self::NoPrefix { id, .. } => Some(once(id)),
        Self::OtherPrefix { .. } => Some("give words that one of its commands begins with".into()),
        Self::StillAsked { id, instead: Some(instead), .. } => Some(format!("{instead}, or {}", once(id))),
        Self::StillAsked { .. } => Some(format!("see who asks with: {avfs} policy explain -- COMMAND")),
        Self::Changed { .. } => Some(format!("look at it, then answer again with: {avfs} approvals")),
        Self::NoHome => Some("set HOME".into()),
        Self::BadRequest { .. } | Self::Write { .. } => None,
        Self::Unreadable(error) => error.hint(avfs),
        Self::Policy(error) => error.hint(avfs),
    }
});

hint!(RecoverError, |error, avfs| Some(match error {
    Self::None { .. } => format!("see what can be recovered with: {avfs} recover --list"),
    Self::Ambiguous { .. } => "give more digits".into(),
    Self::Restarted { id } => {
        format!("take it as it is with: {avfs} recover --force {id}, or give it up with: --discard")
    }
    Self::NoDirectory { id } => {
        format!("give the changes up with: {avfs} recover --discard {id}")
    }
    Self::SecretsUnknown { id, names } => {
        let values: String = names.iter().map(|name| format!("{name}=… ")).collect();
        format!(
            "leave out the files that hold them with: {values}{avfs} recover {id}, or keep every file with: \
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
