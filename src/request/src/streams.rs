//! What becomes of a command's output, and whether it has a /proc.

use avfs_types::words;

words!(
    /// Whether the command has a /proc.
    ProcMode, "/proc", {
        /// One of its own, which shows its own processes.
        Private = "private",
        /// None: where the host does not allow one.
        Absent = "absent",
    }
);

/// What becomes of the output if both streams go to the same pipe or terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergedOutput {
    /// Neither stream is kept.
    Passed,
    /// Both are kept as one.
    Kept,
}

/// What becomes of the command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// It goes where avfs-run's own goes.
    Passed,
    /// It is kept, up to this many bytes of each.
    Captured { bytes_max: usize },
    /// Both. Where both streams go to one terminal, pipe or file their order counts more than telling them apart.
    Teed { bytes_max: usize, merged: MergedOutput },
}
