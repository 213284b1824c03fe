//! The values a key may have, and how they are read and shown.

use avfs_types::Span;

/// A span in the largest unit that says it exactly.
pub fn span_text(Span(seconds): Span) -> String {
    for (unit, length) in [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60)] {
        if seconds != 0 && seconds % length == 0 {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

/// A pattern of gitignore that means something.
pub fn is_ignore_pattern(text: &str) -> bool {
    let meaningful = !text.trim().is_empty() && !text.contains('\n');
    meaningful && ignore::gitignore::GitignoreBuilder::new("").add_line(None, text).is_ok()
}

/// A name that an environment variable may have.
pub fn is_variable(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    text.bytes().next().is_some_and(first) && text.bytes().all(|b| first(b) || b.is_ascii_digit())
}

/// An absolute path, or one in the user's home.
pub fn is_absolute(text: &str) -> bool {
    is_path(text) && (text.starts_with('/') || text.starts_with("~/"))
}

/// A path that stays where it begins.
pub fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0') && text.split('/').all(|name| name != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_in_their_largest_unit() {
        assert_eq!(span_text(Span(7 * 24 * 60 * 60)), "7d");
        assert_eq!(span_text(Span(90)), "90s");
        assert_eq!(span_text(Span(0)), "0s");
    }

    #[test]
    fn names_and_paths_are_checked() {
        assert!(is_variable("CARGO_HOME") && is_variable("_x1"));
        assert!(!is_variable("") && !is_variable("1X") && !is_variable("A=B") && !is_variable("A B"));
        assert!(is_path("target") && is_path("a/b") && !is_path("") && !is_path("../up"));
        assert!(is_absolute("/opt/x") && is_absolute("~/.cargo/registry") && !is_absolute("opt"));
        assert!(is_ignore_pattern("*.tmp") && !is_ignore_pattern(" ") && !is_ignore_pattern("a\nb"));
    }
}
