//! The output streams of a command, and its /proc.

use avfs_types::words;

words!(
    /// Whether the command has a /proc.
    ProcMode, "/proc mode", {
        /// A private one, which shows only the processes of the sandbox.
        Private = "private",
        /// No /proc, if the host does not allow one.
        Absent = "absent",
    }
);

/// What happens to the output if both streams go to the same pipe or terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergedOutput {
    /// Neither stream is kept.
    Passed,
    /// Both are kept as one stream.
    Kept,
}

/// What happens to the output of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// It goes to the output of avfs-run.
    Passed,
    /// It is kept, up to this many bytes of each stream.
    Captured { bytes_max: usize },
    /// Both. If both streams go to one terminal, pipe or file, keeping their order is more important than separating
    /// them.
    Teed { bytes_max: usize, merged: MergedOutput },
}
