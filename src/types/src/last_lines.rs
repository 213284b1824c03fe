//! The end of a command's output, which usually shows why it failed.

/// The maximum number of lines shown of each stream of a failed command.
pub const LAST_LINES_MAX: usize = 10;
/// The maximum size of those lines, in bytes per stream.
pub const LAST_LINES_BYTES_MAX: usize = 4 * 1024;

/// The last lines of a text: at most [`LAST_LINES_MAX`] lines and [`LAST_LINES_BYTES_MAX`] bytes, without the final
/// line terminator. A line that does not fit is cut at its start.
#[must_use]
pub fn last_lines(text: &str) -> &str {
    let text = text.trim_end_matches(['\n', '\r']);
    let mut from = text.len().saturating_sub(LAST_LINES_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = text.get(from..).unwrap_or_default();
    match end.rmatch_indices('\n').nth(LAST_LINES_MAX - 1) {
        Some((line_end, _)) => end.get(line_end + 1..).unwrap_or_default(),
        None => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_bytes_are_bounded() {
        assert_eq!(last_lines(""), "");
        assert_eq!(last_lines("\n\n"), "");
        assert_eq!(last_lines("a\nb\n"), "a\nb");
        let many: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(last_lines(&many), "90\n91\n92\n93\n94\n95\n96\n97\n98\n99");
        let long = "ä".repeat(LAST_LINES_BYTES_MAX);
        assert_eq!(last_lines(&long), "ä".repeat(LAST_LINES_BYTES_MAX / 2));
        assert!(last_lines(&format!("x{long}")).len() <= LAST_LINES_BYTES_MAX);
    }
}
