//! The exit codes that scripts rely on (docs/CONTRACT.md).

/// `avfs` succeeded.
pub const OK: u8 = 0;
/// `avfs` failed, or its answer is "no": problems found, no match.
pub const FAILED: u8 = 1;
/// `avfs` was called with invalid arguments.
pub const USAGE: u8 = 2;
/// `avfs` was ended by a signal: the status that a shell reports for a program ended by ^C.
pub const INTERRUPTED: u8 = 130;

/// `avfs-run`, `avfs policy check`: approval is required.
pub const RUN_APPROVAL: u8 = 120;
/// `avfs-run`: the sandbox could not be set up.
pub const RUN_SETUP: u8 = 121;
/// `avfs-run`, `avfs policy check`: denied, by the policy or by a person.
pub const RUN_DENIED: u8 = 122;
/// `avfs-run`: the command ended, but its changes could not be captured.
pub const RUN_CAPTURE: u8 = 123;
/// `avfs-run`: the command exceeded its timeout.
pub const RUN_TIMED_OUT: u8 = 124;
/// `avfs-run`: an error in avfs-run itself, including invalid usage.
pub const RUN_OWN: u8 = 125;
/// `avfs-run`: the command exists, but cannot be executed.
pub const RUN_NOT_EXECUTABLE: u8 = 126;
/// `avfs-run`: the command was not found.
pub const RUN_NOT_FOUND: u8 = 127;
/// `avfs-run`: added to the number of the signal that killed the command.
pub const RUN_SIGNALLED: u8 = 128;
