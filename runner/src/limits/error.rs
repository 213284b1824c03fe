//! Why a limit cannot be enforced on this host, and what its administrator can do about it.

use std::path::PathBuf;

use avfs_request::LimitKind;
use avfs_types::diagnose::Diagnose;

use super::choose::Unenforceable;
use super::group::GroupError;

/// How a user, or a container, gets a delegated control group.
const DELEGATED: &str = "run it in a separate control group: systemd-run --user --scope -p Delegate=yes avfs-run …; \
     in a container give it a writable /sys/fs/cgroup";

#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("no mechanism on this host can enforce --{} {}", kind.option(), kind.show(*value))]
    Unenforceable { kind: LimitKind, value: u64 },
    #[error("cannot put the command into its control group")]
    Group(#[from] GroupError),
    #[error("cannot set the limit --{} on the command", kind.option())]
    Process {
        kind: LimitKind,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot inspect {}", path.display())]
    Root {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl From<Unenforceable> for LimitError {
    fn from(lacking: Unenforceable) -> Self {
        Self::Unenforceable { kind: lacking.kind, value: lacking.value }
    }
}

impl LimitError {
    /// The limit that is not available, if the command can be run without it.
    #[must_use]
    pub const fn lacking(&self) -> Option<LimitKind> {
        match self {
            Self::Unenforceable { kind, .. } => Some(*kind),
            Self::Group(_) | Self::Process { .. } | Self::Root { .. } => None,
        }
    }

    /// What the administrator of the host can do about it.
    pub fn remedy(&self) -> Option<String> {
        let without = "or run without it: --allow-degraded";
        match self {
            Self::Unenforceable { kind: LimitKind::Cpus, .. } => {
                Some(format!("use a whole number of processors; or {DELEGATED}; {without}"))
            }
            Self::Unenforceable { kind, .. } => Some(match kind {
                LimitKind::Memory => {
                    format!("it needs a /proc inside, or a control group: {DELEGATED}; {without}")
                }
                LimitKind::Pids => format!("run it as a user other than root, or {DELEGATED}; {without}"),
                LimitKind::Cpus | LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => {
                    without.to_owned()
                }
            }),
            Self::Group(_) => Some(DELEGATED.to_owned()),
            Self::Process { .. } | Self::Root { .. } => None,
        }
    }
}

impl Diagnose for LimitError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unenforceable { .. } => "limits.unenforceable",
            Self::Group(_) => "limits.group",
            Self::Process { .. } => "limits.process",
            Self::Root { .. } => "limits.scratch",
        }
    }
}
