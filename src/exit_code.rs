//! The exit codes that scripts rely on (docs/CONTRACT.md).

/// `avfs` succeeded.
pub const OK: u8 = 0;
/// `avfs` failed, or its answer is "no": problems found, no match.
pub const FAILED: u8 = 1;
/// `avfs` was called wrongly.
pub const USAGE: u8 = 2;

/// `avfs-run`: the sandbox could not be set up.
pub const RUN_SETUP: u8 = 121;
/// `avfs-run`: its own error, bad usage included.
pub const RUN_OWN: u8 = 125;
