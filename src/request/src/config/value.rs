//! Checks of the values of settings.

use crate::preset::Preset;

/// True for a valid gitignore pattern that is not blank.
pub fn is_ignore_pattern(text: &str) -> bool {
    let meaningful = !text.trim().is_empty() && !text.contains('\n');
    meaningful && ignore::gitignore::GitignoreBuilder::new("").add_line(None, text).is_ok()
}

/// True for a valid name of an environment variable.
pub fn is_variable(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    text.bytes().next().is_some_and(first) && text.bytes().all(|b| first(b) || b.is_ascii_digit())
}

/// True for a variable name, or a prefix of one followed by `*`.
pub fn is_variable_pattern(text: &str) -> bool {
    is_variable(text.strip_suffix('*').unwrap_or(text))
}

/// True for an absolute path, or a path in the user's home.
pub fn is_absolute(text: &str) -> bool {
    is_path(text) && (text.starts_with('/') || text.starts_with("~/"))
}

/// True for the name of a preset.
pub fn is_preset(text: &str) -> bool {
    text.parse::<Preset>().is_ok()
}

/// True for a path without `..`.
pub fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0') && text.split('/').all(|name| name != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_checked() {
        assert!(is_variable("CARGO_HOME") && is_variable("_x1"));
        assert!(!is_variable("") && !is_variable("1X") && !is_variable("A=B") && !is_variable("A B"));
        assert!(is_variable_pattern("NPM_*") && is_variable_pattern("X") && !is_variable_pattern("*"));
        assert!(!is_variable_pattern("A*B") && !is_variable_pattern("A**"));
        assert!(is_path("target") && is_path("a/b") && !is_path("") && !is_path("../up"));
        assert!(is_absolute("/opt/x") && is_absolute("~/.cargo/registry") && !is_absolute("opt"));
        assert!(is_ignore_pattern("*.tmp") && !is_ignore_pattern(" ") && !is_ignore_pattern("a\nb"));
    }
}
