//! The steps inside the sandbox that can fail, as they cross the pipe: eight bytes, a step and an errno.

use rustix::io::Errno;

/// Where the new processes have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the supervisor to write the id maps.
    Start,
    /// The host's name inside.
    Hostname,
    /// Making all mounts private to the new namespace.
    Private,
    /// The file system in memory that takes what the command writes.
    Memory,
    /// Opening the layers of the workspace.
    Layers,
    /// The empty file system that becomes the root.
    Root,
    /// A step of the view, by its place in the list.
    View(u16),
    /// Making the new root the root.
    Pivot,
    /// Raising the loopback interface.
    Loopback,
    /// Opening a pseudo terminal.
    Terminal,
    /// Showing the supervisor who is inside.
    Limits,
    /// Making the command's process.
    Fork,
    /// A session, its terminal and its streams.
    Session,
    /// Dropping keys, capabilities and descriptors.
    Confine,
    /// Allowing no user namespaces in the new one.
    Userns,
    /// Landlock's rules.
    Landlock,
    /// The filter of system calls.
    Seccomp,
    /// Entering the working directory.
    Cwd,
    /// Becoming the command.
    Exec,
    /// Listening inside for the proxy.
    Listener,
}

/// What went wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub stage: Stage,
    pub errno: Errno,
}

/// A step of the view met another file than the one that was judged.
pub const REPLACED: Errno = Errno::STALE;

pub const REPORT_BYTES: usize = 8;

impl Failed {
    #[must_use]
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (kind, index): (u16, u16) = match self.stage {
            Stage::Start => (0, 0),
            Stage::Private => (1, 0),
            Stage::Memory => (2, 0),
            Stage::Layers => (3, 0),
            Stage::Root => (4, 0),
            Stage::View(index) => (5, index),
            Stage::Pivot => (6, 0),
            Stage::Loopback => (7, 0),
            Stage::Terminal => (8, 0),
            Stage::Fork => (9, 0),
            Stage::Session => (10, 0),
            Stage::Confine => (11, 0),
            Stage::Cwd => (12, 0),
            Stage::Exec => (13, 0),
            Stage::Userns => (14, 0),
            Stage::Landlock => (15, 0),
            Stage::Seccomp => (16, 0),
            Stage::Listener => (17, 0),
            Stage::Limits => (18, 0),
            Stage::Hostname => (19, 0),
        };
        let mut bytes = [0; REPORT_BYTES];
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&index.to_le_bytes());
        bytes[4..].copy_from_slice(&self.errno.raw_os_error().to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn from_bytes(bytes: [u8; REPORT_BYTES]) -> Option<Self> {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let stage = match number(0) {
            0 => Stage::Start,
            1 => Stage::Private,
            2 => Stage::Memory,
            3 => Stage::Layers,
            4 => Stage::Root,
            5 => Stage::View(number(2)),
            6 => Stage::Pivot,
            7 => Stage::Loopback,
            8 => Stage::Terminal,
            9 => Stage::Fork,
            10 => Stage::Session,
            11 => Stage::Confine,
            12 => Stage::Cwd,
            13 => Stage::Exec,
            14 => Stage::Userns,
            15 => Stage::Landlock,
            16 => Stage::Seccomp,
            17 => Stage::Listener,
            18 => Stage::Limits,
            19 => Stage::Hostname,
            _ => return None,
        };
        let errno = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Some(Self { stage, errno: Errno::from_raw_os_error(errno) })
    }
}

/// Names the stage a call of the kernel belongs to.
pub trait At<T> {
    fn at(self, stage: Stage) -> Result<T, Failed>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, stage: Stage) -> Result<T, Failed> {
        self.map_err(|errno| Failed { stage, errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_crosses_the_pipe() {
        for stage in [Stage::Start, Stage::View(513), Stage::Pivot, Stage::Exec, Stage::Hostname] {
            let failed = Failed { stage, errno: Errno::PERM };
            assert_eq!(Failed::from_bytes(failed.to_bytes()), Some(failed));
        }
        assert_eq!(Failed::from_bytes([255; REPORT_BYTES]), None);
    }
}
