//! File names in patch headers, and names that git refuses in a patch.

use avfs_types::path::TreePath;

/// A name with its prefix, `a/` or `b/`, as patch(1) and git parse it: quoted like a C string where it would be
/// ambiguous.
pub fn prefixed(prefix: &str, path: &TreePath) -> String {
    let bytes = path.as_bytes();
    let is_special = |byte: u8| byte.is_ascii_control() || matches!(byte, b'"' | b'\\');
    if let Ok(text) = std::str::from_utf8(bytes)
        && !bytes.iter().copied().any(is_special)
    {
        return format!("{prefix}{text}");
    }
    let mut quoted = format!("\"{prefix}");
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '"' | '\\' => quoted.extend(['\\', char]),
                _ if char.is_ascii_control() => quoted.push_str(&format!("\\{:03o}", u32::from(char))),
                _ => quoted.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| quoted.push_str(&format!("\\{byte:03o}")));
    }
    quoted.push('"');
    quoted
}

/// A name for a line that starts with `---` or `+++`. A tab ends a name that contains a space, unless the name
/// is quoted.
pub fn ended(name: &str) -> String {
    let tab = if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
    format!("{name}{tab}")
}

/// True for a path that `git apply` refuses: the `.git` directory, including its spellings on other file systems.
pub fn is_refused(path: &TreePath, is_symlink: bool) -> bool {
    path.as_bytes().split(|byte| matches!(byte, b'/' | b'\\')).any(|part| {
        let part = part.split(|byte| *byte == b':').next().unwrap_or(part);
        let ends = |byte: &u8| !matches!(byte, b' ' | b'.');
        let length = part.iter().rposition(ends).map_or(0, |last| last + 1);
        let part = part[..length].to_ascii_lowercase();
        let modules = part == b".gitmodules" || (part.starts_with(b"gi") && part.contains(&b'~'));
        part == b".git" || part == b"git~1" || is_symlink && modules
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_names_are_quoted() {
        let name = |bytes: &[u8]| prefixed("b/", &TreePath::parse(bytes).unwrap());
        assert_eq!(name(b"a b/\xc3\xa4'"), "b/a b/\u{e4}'");
        assert_eq!(name(b"a\tb\n\"\\\x01"), r#""b/a\tb\n\"\\\001""#);
        assert_eq!(name(b"\xc3\xa4\xff"), "\"b/\u{e4}\\377\"");
    }

    #[test]
    fn paths_in_a_repository_directory_are_refused() {
        let refused = |path: &str| is_refused(&TreePath::parse(path.as_bytes()).unwrap(), false);
        for path in [".git", "a/.git/config", ".GIT/x", "sub/.git. ", "git~1/x", "a\\.git\\x", ".git:x"] {
            assert!(refused(path), "{path}");
        }
        for path in [".gitignore", "git", "a.git/x", ".github/x", ".gitmodules", "gitx~1"] {
            assert!(!refused(path), "{path}");
        }
        assert!(is_refused(&TreePath::parse(b".gitmodules").unwrap(), true));
    }
}
