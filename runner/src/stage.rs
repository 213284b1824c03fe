//! The steps inside the sandbox that can fail, as sent over the pipe: eight bytes, a step and an errno.

use rustix::io::Errno;

/// The step that the new processes have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the supervisor to write the id maps.
    Start,
    /// Setting the host name.
    Hostname,
    /// Making all mounts private to the new namespace.
    Private,
    /// Mounting the file system in memory for the command's writes.
    Memory,
    /// Opening the layers of the workspace.
    Layers,
    /// Mounting the empty file system that becomes the root.
    Root,
    /// A step of the view, by its index.
    View(u16),
    /// Switching to the new root (pivot_root).
    Pivot,
    /// Bringing up the loopback interface.
    Loopback,
    /// Opening a pseudo terminal.
    Terminal,
    /// Giving the supervisor access to the processes inside.
    Limits,
    /// Creating the command's process.
    Fork,
    /// Setting up a session, its terminal and its streams.
    Session,
    /// Dropping keys, capabilities and descriptors.
    Confine,
    /// Forbidding user namespaces in the new one.
    Userns,
    /// Applying the Landlock rules.
    Landlock,
    /// Installing the seccomp filter.
    Seccomp,
    /// Entering the working directory.
    Cwd,
    /// Executing the command.
    Exec,
    /// Listening inside for the proxy.
    Listener,
}

/// A failed step and its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub stage: Stage,
    pub errno: Errno,
}

/// A step of the view found a different file from the one that the policy checked.
pub const REPLACED: Errno = Errno::STALE;

/// The program exists, but not its interpreter.
pub const NO_INTERPRETER: Errno = Errno::LIBACC;
/// The same, and the name of the interpreter ends with a carriage return.
pub const CARRIAGE_RETURN: Errno = Errno::LIBBAD;

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

/// Names the stage that a system call belongs to.
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
    fn failures_are_decoded_from_their_bytes() {
        for stage in [Stage::Start, Stage::View(513), Stage::Pivot, Stage::Exec, Stage::Hostname] {
            let failed = Failed { stage, errno: Errno::PERM };
            assert_eq!(Failed::from_bytes(failed.to_bytes()), Some(failed));
        }
        assert_eq!(Failed::from_bytes([255; REPORT_BYTES]), None);
    }
}
