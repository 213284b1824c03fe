//! Why a sandbox or a command in it could not be started, with the remedies.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use rustix::io::Errno;

use avfs_engine::{LaunchError, Refused};
use avfs_types::diagnose::Diagnose;
use avfs_types::exit_code;

use crate::confine::LandlockGap;
use crate::idmap::MapError;
use crate::limits::LimitError;
use crate::remedy::{self, Piece};

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("{text:?} contains a NUL byte")]
    Nul { text: String },
    #[error("cannot show {} inside the sandbox", path.display())]
    Source {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} was moved or replaced after the policy check", path.display())]
    Replaced { path: PathBuf },
    #[error("cannot create the sandbox's namespaces")]
    Namespaces(#[source] std::io::Error),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("{what}")]
    Setup {
        piece: Piece,
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("Landlock is required, but {}", match gap {
        LandlockGap::Missing => "this kernel does not support it, or it is not enabled",
        LandlockGap::TooOld => "this kernel's version of it would forbid moving files between directories",
    })]
    Landlock { gap: LandlockGap },
    #[error("{command} was not found")]
    NotFound {
        command: String,
        /// The `PATH` that the request gave the command, if it is not the caller's.
        path: Option<OsString>,
    },
    #[error("{command} cannot be executed")]
    NotExecutable {
        command: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{command} cannot be executed: {}", match interpreter {
        Interpreter::Missing => "its interpreter was not found",
        Interpreter::CarriageReturn => "its first line ends with a carriage return, which is part of the interpreter's name",
    })]
    NoInterpreter { command: String, interpreter: Interpreter },
    #[error("the working directory {} does not exist inside the sandbox", cwd.display())]
    NoCwd { cwd: PathBuf },
    #[error("the sandbox's first process ended before the command began")]
    Vanished,
    #[error("interrupted before the command began")]
    Interrupted { signal: i32 },
    #[error("cannot {operation}")]
    Host {
        operation: &'static str,
        #[source]
        source: std::io::Error,
    },
}

/// Why a program has no interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpreter {
    Missing,
    CarriageReturn,
}

impl SandboxError {
    pub fn host(operation: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Host { operation, source: errno.into() }
    }
}

impl Diagnose for SandboxError {
    fn code(&self) -> &'static str {
        match self {
            Self::Nul { .. } => "request.nul",
            Self::Source { .. } => "sandbox.source",
            Self::Replaced { .. } => "sandbox.replaced",
            Self::Namespaces(_) => "sandbox.namespaces",
            Self::Map(_) => "sandbox.id_map",
            Self::Limit(error) => error.code(),
            Self::Setup { piece, .. } => piece.code(),
            Self::Landlock { .. } => "sandbox.landlock",
            Self::NotFound { .. } | Self::NoInterpreter { .. } => "command.not_found",
            Self::NotExecutable { .. } => "command.not_executable",
            Self::NoCwd { .. } => "command.no_cwd",
            Self::Vanished => "sandbox.vanished",
            Self::Interrupted { .. } => "interrupted",
            Self::Host { .. } => "run.host",
        }
    }
}

impl SandboxError {
    /// What the administrator of the host can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Namespaces(_) | Self::Map(_) => Some(remedy::for_namespaces()),
            Self::Limit(error) => error.remedy(),
            Self::Setup { piece, source, .. } => piece.remedy(source),
            Self::Landlock { .. } => Some(
                "use --landlock auto, or Linux 5.19 or later with landlock in the lsm= boot parameter (see: avfs doctor)"
                    .into(),
            ),
            Self::NotFound { command, path } => Some(match path.as_deref().and_then(|path| left_out(command, path)) {
                Some(dir) => format!("the given PATH does not contain it: add {}, or omit PATH", dir.display()),
                None => hint_for_missing(command).into(),
            }),
            Self::NotExecutable { source, .. } if source.raw_os_error() == Some(libc::ENOEXEC) => {
                Some("it is built for another architecture, or damaged: use one built for this machine".into())
            }
            Self::NotExecutable { .. } => Some("make it executable, or run it with its interpreter".into()),
            Self::NoInterpreter { command, interpreter } => Some(match interpreter {
                Interpreter::Missing => {
                    "only the system and toolchains on PATH are visible inside: show it with --ro PATH".into()
                }
                Interpreter::CarriageReturn => {
                    format!("it has the line ends of Windows, convert them: sed -i 's/\\r$//' {command}")
                }
            }),
            Self::NoCwd { .. } => Some("choose another one with: --cwd DIR".into()),
            Self::Replaced { .. } => Some("if the replacement was intended, run the command again".into()),
            Self::Source { .. } => Some("omit it, or make it readable".into()),
            Self::Vanished => {
                Some("if there is a memory limit, raise it: a number without a unit is in bytes, so 512 is not 512MiB".into())
            }
            Self::Nul { .. } | Self::Interrupted { .. } | Self::Host { .. } => None,
        }
    }

    /// The refused feature, if there may be an alternative to it.
    fn refused(&self) -> Refused {
        if let Self::Limit(error) = self {
            return error.lacking().map_or(Refused::Other, Refused::Limit);
        }
        let Self::Setup { piece, .. } = self else { return Refused::Other };
        match piece {
            Piece::Overlay => Refused::Overlay,
            Piece::Memory => Refused::Memory,
            Piece::Proc => Refused::Proc,
            Piece::Shown => Refused::Shown,
            Piece::Mounts
            | Piece::Layers
            | Piece::Net
            | Piece::Process
            | Piece::Userns
            | Piece::Landlock
            | Piece::Seccomp => Refused::Other,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NoInterpreter { .. } => exit_code::RUN_NOT_FOUND,
            Self::NotExecutable { .. } => exit_code::RUN_NOT_EXECUTABLE,
            Self::Nul { .. } | Self::NoCwd { .. } | Self::Host { .. } => exit_code::RUN_OWN,
            Self::Interrupted { signal } => {
                exit_code::RUN_SIGNALLED.saturating_add(u8::try_from(*signal).unwrap_or(0))
            }
            Self::Source { .. }
            | Self::Replaced { .. }
            | Self::Namespaces(_)
            | Self::Map(_)
            | Self::Limit(_)
            | Self::Setup { .. }
            | Self::Landlock { .. }
            | Self::Vanished => exit_code::RUN_SETUP,
        }
    }
}

impl From<SandboxError> for LaunchError {
    fn from(error: SandboxError) -> Self {
        Self {
            refused: error.refused(),
            exit_code: error.exit_code(),
            remedy: error.remedy(),
            error: Box::new(error),
        }
    }
}

/// Builtins that exist only in a shell, not as programs.
const BUILTINS: [&str; 12] =
    [".", "alias", "cd", "eval", "exec", "export", "set", "shift", "source", "trap", "ulimit", "unset"];

/// What the caller of a missing command may have intended.
fn hint_for_missing(command: &str) -> &'static str {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if command.split_once('=').is_some_and(|(name, _)| is_name(name)) {
        "set a variable for the command with: --env NAME=VALUE"
    } else if BUILTINS.contains(&command) || command.contains(|c: char| " \t\n|&;<>()$`".contains(c)) {
        "run a shell line with: avfs-run --shell 'LINE'"
    } else if is_on_host(command) {
        "it exists on the host, but only the system and toolchains on PATH are visible inside: show it with --ro PATH"
    } else if command.parse::<avfs_request::FixedClock>().is_ok() {
        "write the value of an option with an equals sign: --clock-fixed=TIME"
    } else if command.contains('/') {
        "there is no such file in the sandbox, nor on the host: check the path"
    } else {
        "it is not on this host's PATH either: check the spelling"
    }
}

/// The directory of a program that is on the caller's `PATH` and not on the one given to the command.
fn left_out(command: &str, given: &OsStr) -> Option<PathBuf> {
    let has = |dir: &PathBuf| dir.join(command).is_file();
    if command.contains('/') || std::env::split_paths(given).any(|dir| has(&dir)) {
        return None;
    }
    std::env::split_paths(&std::env::var_os("PATH")?).find(has)
}

/// True if the program exists on the host.
fn is_on_host(command: &str) -> bool {
    if command.contains('/') {
        return std::path::Path::new(command).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(command).is_file())
}
