//! `.avfsignore` files: patterns of unversioned paths, in gitignore syntax, in any directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use avfs_hostfs::beneath;
use avfs_types::glob;
use avfs_types::glob::Token;
use avfs_types::path::TreePath;

use crate::content::WHOLE_BYTES_MAX;
use crate::ingest::read_full;

/// The name of an ignore file.
pub const FILE_NAME: &[u8] = b".avfsignore";
const TEXT_BYTES_MAX: usize = WHOLE_BYTES_MAX;
/// All patterns of a layer are compiled into one automaton, whose size is limited.
const LAYER_LINES_MAX: usize = 1000;
/// The vault's own directory, never part of a workspace.
pub(crate) const OWN_DIR: &[u8] = b".avfs";

/// The content of an ignore file.
#[derive(PartialEq, Eq)]
pub(crate) enum Text {
    None,
    /// Larger than any sensible ignore file: a sparse file can have any size.
    TooLong,
    Read(Vec<u8>),
}

impl Text {
    /// True if the file is empty, as every file is at the start of being rewritten.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Read(text) if text.is_empty())
    }
}

/// Reads the ignore file of a directory, which must have one.
pub(crate) fn read(dir: BorrowedFd<'_>) -> std::io::Result<Text> {
    let mut text = vec![0; TEXT_BYTES_MAX + 1];
    let mut file = File::from(beneath::open(dir, FILE_NAME, beneath::READ)?);
    beneath::outlast_write(file.as_fd());
    file.rewind()?;
    let length = read_full(&mut file, &mut text)?;
    text.truncate(length);
    Ok(if length > TEXT_BYTES_MAX { Text::TooLong } else { Text::Read(text) })
}

pub(crate) fn too_long() -> ignore::Error {
    ignore::Error::Glob { glob: None, err: format!("it has more than {TEXT_BYTES_MAX} bytes") }
}

/// The ignore file line that matches only this path, for the ignore file of the root. `None` if no line can express the
/// path.
#[must_use]
pub fn line_for(path: &TreePath) -> Option<String> {
    let text = std::str::from_utf8(path.as_bytes()).ok()?;
    if path.is_root() || text.chars().any(char::is_control) {
        return None;
    }
    let mut line = "/".to_owned();
    for char in text.chars() {
        if "\\*?[]{}".contains(char) {
            line.push('\\');
        }
        line.push(char);
    }
    if line.ends_with(' ') {
        line.insert(line.len() - 1, '\\');
    }
    Some(line)
}

/// The ignore rules of a directory: its own, then those of the directories above.
#[derive(Clone, Default)]
pub struct Rules {
    layer: Option<Arc<Layer>>,
}

/// Some lines of one ignore file. Later lines of the file form a separate layer with higher precedence.
struct Layer {
    dir: TreePath,
    rules: Gitignore,
    above: Rules,
}

impl Rules {
    /// The rules inside `dir`, whose ignore file has this text.
    pub fn with(&self, dir: &TreePath, text: &[u8]) -> Result<Self, ignore::Error> {
        let lines: Vec<&[u8]> = lines(text).collect();
        lines.chunks(LAYER_LINES_MAX).try_fold(self.clone(), |rules, lines| rules.with_lines(dir, lines))
    }

    /// Like [`Rules::with`], but skips invalid patterns. Also returns false if a pattern was skipped.
    #[must_use]
    pub fn with_readable(&self, dir: &TreePath, text: &[u8]) -> (Self, bool) {
        let (mut rules, mut all) = (self.clone(), true);
        let lines: Vec<&[u8]> = lines(text).collect();
        for some in lines.chunks(LAYER_LINES_MAX) {
            if let Ok(more) = rules.with_lines(dir, some) {
                rules = more;
                continue;
            }
            for line in some {
                match rules.with_lines(dir, &[line]) {
                    Ok(more) => rules = more,
                    Err(_) => all = false,
                }
            }
        }
        (rules, all)
    }

    fn with_lines(&self, dir: &TreePath, lines: &[&[u8]]) -> Result<Self, ignore::Error> {
        let mut builder = GitignoreBuilder::new("");
        for line in lines {
            builder.add_line(None, &as_git_reads(readable(line)?)?)?;
        }
        let layer = Layer { dir: dir.clone(), rules: builder.build()?, above: self.clone() };
        Ok(Self { layer: Some(Arc::new(layer)) })
    }

    /// The rules of these lines, relative to the root.
    pub(crate) fn excluding(lines: &[String]) -> Result<Self, ignore::Error> {
        if lines.is_empty() {
            Ok(Self::default())
        } else {
            Self::default().with(&TreePath::root(), lines.join("\n").as_bytes())
        }
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.layer.is_none()
    }

    /// True if the path is ignored. The rule nearest to the path decides, as in git.
    #[must_use]
    pub fn ignores(&self, path: &TreePath, is_dir: bool) -> bool {
        let mut rules = self;
        while let Some(layer) = &rules.layer {
            if let Some(below) = path.below(&layer.dir) {
                let matched = layer.rules.matched(Path::new(OsStr::from_bytes(below.as_bytes())), is_dir);
                if matched.is_ignore() {
                    return true;
                }
                if matched.is_whitelist() {
                    return false;
                }
            }
            rules = &layer.above;
        }
        false
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// A line as text. A line in another encoding is an error: it would match nothing, and the paths it should exclude
/// would be versioned silently.
fn readable(line: &[u8]) -> Result<&str, ignore::Error> {
    if line.starts_with(b"#") {
        return Ok("");
    }
    std::str::from_utf8(line).map_err(|_| ignore::Error::Glob {
        glob: Some(String::from_utf8_lossy(line).into_owned()),
        err: "it is not UTF-8".to_owned(),
    })
}

/// Translates a gitignore line so that the `ignore` crate treats it like git: the anchoring is explicit, braces are
/// literal, and stars and classes have git's meaning. A line without a pattern becomes an empty line.
fn as_git_reads(line: &str) -> Result<String, ignore::Error> {
    let bad = |why: &str| ignore::Error::Glob { glob: Some(line.to_owned()), err: why.to_owned() };
    let (keeps, pattern) = line.strip_prefix('!').map_or(("", line), |pattern| ("!", pattern));
    let pattern = without_blanks(pattern);
    let (pattern, end) = pattern.strip_suffix('/').map_or((pattern, ""), |pattern| (pattern, "/"));
    let is_anchored = pattern.contains('/');
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    // No path ends in a slash.
    if pattern.is_empty() || pattern.ends_with('/') {
        return Ok(String::new());
    }
    let mut read = format!("{keeps}{}", if is_anchored { "/" } else { "**/" });
    let mut tokens = glob::tokens(pattern).peekable();
    let mut begins = true;
    while let Some(token) = tokens.next() {
        let ends = matches!(tokens.peek(), None | Some(Token::Char('/') | Token::Escaped(Some('/'))));
        match token {
            Token::Class(class) => read.push_str(&class.text()),
            Token::BadClass(why) => return Err(bad(why)),
            Token::Escaped(None) => return Err(bad("it ends in a backslash")),
            Token::Stars(2..) if is_anchored && begins && ends => read.push_str("**"),
            Token::Stars(_) => read.push('*'),
            // Whitespace at the end would be stripped.
            Token::Escaped(Some(char)) | Token::Char(char) if char.is_whitespace() => {
                read.extend(['[', char, ']']);
            }
            Token::Escaped(Some(char)) | Token::Char(char @ ('{' | '}')) => read.extend(['\\', char]),
            Token::Char(char) => read.push(char),
        }
        begins = read.ends_with('/');
    }
    read.push_str(end);
    Ok(read)
}

/// Strips trailing blanks, except an escaped one.
fn without_blanks(line: &str) -> &str {
    let cut = line.trim_end_matches(' ');
    let backslashes = cut.len() - cut.trim_end_matches('\\').len();
    if backslashes % 2 == 1 && cut.len() < line.len() { &line[..=cut.len()] } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_pattern_does_not_disable_other_lines() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let text = b"*.log\r\n[z-a]\n# gr\xfc\xdfe\ngr\xfc\xdfe\n/out\n";
        assert!(Rules::default().with(&TreePath::root(), b"# gr\xfc\xdfe\n").is_ok());
        assert!(Rules::default().with(&TreePath::root(), b"gr\xfc\xdfe\n").is_err());
        assert!(Rules::default().with(&TreePath::root(), text).is_err());
        let (rules, good) = Rules::default().with_readable(&TreePath::root(), text);
        assert!(!good);
        assert!(rules.ignores(&path("a.log"), false));
        assert!(rules.ignores(&path("out"), true));
        assert!(!rules.ignores(&path("in"), true));
    }

    #[test]
    fn files_with_more_lines_than_a_layer_work_like_short_ones() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let many: String = (0..LAYER_LINES_MAX * 2).map(|n| format!("a{n}?*\n")).collect();
        let text = format!("/secret\n*.log\n{many}!keep.log\n[z-a]\n/out\n");
        let (rules, all) = Rules::default().with_readable(&TreePath::root(), text.as_bytes());
        let whole = Rules::default().with(&TreePath::root(), text.replace("[z-a]\n", "").as_bytes()).unwrap();
        assert!(!all);
        for rules in [rules, whole] {
            for name in ["secret", "b.log", "a7xyz", "a1999x", "out"] {
                assert!(rules.ignores(&path(name), false), "{name}");
            }
            assert!(!rules.ignores(&path("keep.log"), false) && !rules.ignores(&path("a"), false));
        }
    }

    #[test]
    fn a_line_for_a_path_matches_only_that_path() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let names =
            ["*", "[id]/page.tsx", "a?", "{x,y}", "#x", "!x", "back\\slash", "ends ", " begins", "d/e f"];
        for name in names {
            let line = line_for(&path(name)).unwrap();
            let rules = Rules::default().with(&TreePath::root(), format!("{line}\n").as_bytes()).unwrap();
            assert!(rules.ignores(&path(name), false), "{line} for {name}");
            for other in names.iter().chain(&["plain", "i/page.tsx", "ab", "x", "ends", "sub/*"]) {
                assert!(*other == name || !rules.ignores(&path(other), false), "{line} for {name}: {other}");
            }
        }
        assert_eq!(line_for(&TreePath::root()), None);
        for unnameable in [&b"x\xffy"[..], b"a\nb", b"tab\t", b"return\r"] {
            assert_eq!(line_for(&TreePath::parse(unnameable).unwrap()), None);
        }
    }

    #[test]
    fn patterns_match_as_in_git() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let ignores = |lines: &str, name: &str| {
            Rules::default().with(&TreePath::root(), lines.as_bytes()).unwrap().ignores(&path(name), false)
        };
        assert!(ignores("{a,b}.txt", "{a,b}.txt") && !ignores("{a,b}.txt", "a.txt"));
        assert!(ignores("\\{a}", "{a}") && ignores("[{}]", "{") && !ignores("[{}]", "a"));
        assert!(ignores("[[:digit:]]*.log", "1.log") && !ignores("[[:digit:]]*.log", "a.log"));
        assert!(ignores("[![:digit:]]x", "ax") && !ignores("[![:digit:]]x", "1x"));
        assert!(ignores("[]x]", "]") && ignores("[]x]", "x"));
        assert!(ignores("secret\n!\n", "secret"));
        assert!(!ignores("test[^s]*", "test/a") && ignores("test[^s]*", "d/testa"));
        assert!(ignores("x[a/b]y", "xay") && !ignores("x[a/b]y", "d/xay") && !ignores("x[a/b]y", "x/y"));
        assert!(ignores("[\\]]", "]") && ignores("[\\*]x", "*x") && !ignores("[\\*]x", "\\x"));
        for name in ["a", "p/a", "p/q/a"] {
            assert!(ignores("***/a", name) && ignores("**/a", name), "{name}");
        }
        assert!(ignores("p/**", "p/q/a") && ignores("p/***", "p/q/a") && !ignores("p/**", "p"));
        assert!(ignores("p/a**b", "p/axb") && !ignores("p/a**b", "p/a/b") && ignores("a**", "p/ab"));
        assert!(ignores("tab\t", "tab\t") && !ignores("tab\t", "tab") && ignores("tab\t\r\n", "tab\t"));
        assert!(
            ignores("blank  ", "blank") && ignores("blank\\  ", "blank ") && !ignores("blank\\ ", "blank")
        );
        assert!(
            ignores("a\\\\ ", "a\\") && !ignores("/", "a") && !ignores("**//", "a/b") && !ignores("!", "a")
        );
        assert!(
            !ignores("*.log\n!keep[^0-9].log", "d/keep_.log")
                && ignores("*.log\n!keep[^0-9].log", "keep0.log")
        );
        for refused in ["a[", "a\\", "[[:nothing:]]"] {
            assert!(Rules::default().with(&TreePath::root(), refused.as_bytes()).is_err(), "{refused}");
        }
        assert!(ignores("\u{feff}secret\n", "secret"));
    }

    #[test]
    fn nearer_rules_win_and_apply_only_beneath_their_directory() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let top = Rules::default().with(&TreePath::root(), b"*.log\n/target\n!keep.log\n# note\n").unwrap();
        assert!(top.ignores(&path("a/b.log"), false));
        assert!(!top.ignores(&path("a/keep.log"), false));
        assert!(top.ignores(&path("target"), true));
        assert!(!top.ignores(&path("a/target"), true));
        let sub = top.with(&path("a"), b"!b.log\n/out/\n").unwrap();
        assert!(!sub.ignores(&path("a/b.log"), false));
        assert!(sub.ignores(&path("a/out"), true));
        assert!(!sub.ignores(&path("a/out"), false));
        assert!(sub.ignores(&path("a/c.log"), false));
    }
}
