//! How much of a command is read. Beyond a limit there is a doubt, never a guess.

/// Of a text for a shell, and of all words of a command together.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Lists in groups in substitutions in texts: how deep they may lie.
pub const NESTING_MAX: usize = 40;

/// Simple commands of one reading.
pub const COMMANDS_MAX: usize = 2_000;

/// What one pair of braces may become.
pub const BRACE_WORDS_MAX: usize = 64;

/// How much of a word is shown in a sentence.
pub const SHOWN_CHARS_MAX: usize = 60;
