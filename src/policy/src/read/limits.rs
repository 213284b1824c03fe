//! Limits on the size of a command. Exceeding a limit is a doubt, never a guess.

/// The size of a shell text, and of all words of a command together.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// The nesting depth of lists in groups in substitutions in texts.
pub const NESTING_MAX: usize = 40;

/// The number of simple commands in one reading.
pub const COMMANDS_MAX: usize = 2_000;

/// The number of words that one pair of braces may expand to.
pub const BRACE_WORDS_MAX: usize = 64;

/// The length of a word in a message.
pub const SHOWN_CHARS_MAX: usize = 60;
