//! Reads configuration files of git. Reads files only, in bounded amounts, and never starts git.

use std::path::{Path, PathBuf};

use super::read_small;

/// A larger configuration is not read.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// How deep `include.path` is followed, as in git.
const INCLUDE_DEPTH_MAX: usize = 10;
/// Maximum files to read: files can include one another many times.
const FILES_MAX: usize = 100;

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `section` in lower case, or `section.subsection`.
    pub section: String,
    /// In lower case.
    pub key: String,
    /// `None` for a key without `=`, which means true.
    pub value: Option<String>,
}

impl Entry {
    #[must_use]
    pub fn is(&self, section: &str, key: &str) -> bool {
        self.section == section && self.key == key
    }

    /// The value as a boolean; `None` for any other value.
    #[must_use]
    pub fn truth(&self) -> Option<bool> {
        let Some(value) = &self.value else { return Some(true) };
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        match () {
            () if is(&["true", "yes", "on"]) => Some(true),
            () if is(&["false", "no", "off", ""]) => Some(false),
            () => value.parse::<i64>().ok().map(|number| number != 0),
        }
    }
}

/// Which files a reader may read.
pub struct Sources<'a> {
    /// Replaces `~/` in `include.path`.
    pub home: Option<&'a Path>,
    pub may_read: &'a dyn Fn(&Path) -> bool,
}

impl Sources<'_> {
    /// The settings of the files, with included files in place, in the order in which git reads them: the last one
    /// wins. `includeIf` is not followed.
    #[must_use]
    pub fn entries(&self, files: &[PathBuf]) -> Vec<Entry> {
        let (mut found, mut files_left) = (Vec::new(), FILES_MAX);
        for file in files {
            self.read(file, 0, &mut files_left, &mut found);
        }
        found
    }

    fn read(&self, file: &Path, depth: usize, files_left: &mut usize, found: &mut Vec<Entry>) {
        if *files_left == 0 || !(self.may_read)(file) {
            return;
        }
        *files_left -= 1;
        let Some(text) = read_small(file, CONFIG_BYTES_MAX) else { return };
        for entry in Entries::of(&text) {
            match &entry.value {
                Some(path) if entry.is("include", "path") && depth < INCLUDE_DEPTH_MAX => {
                    if let Some(included) = in_home(path, self.home) {
                        let included = file.parent().unwrap_or(Path::new("/")).join(included);
                        self.read(&included, depth + 1, files_left, found);
                    }
                }
                Some(_) | None => found.push(entry),
            }
        }
    }
}

/// A path of a configuration, in which `~/` is the home; `None` if the home is not known.
#[must_use]
pub fn in_home(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(below) => Some(home?.join(below)),
        None => Some(PathBuf::from(path)),
    }
}

/// The settings of the text of a configuration file. Stops at a syntax error.
pub struct Entries<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    section: String,
}

impl<'t> Entries<'t> {
    pub fn of(text: &'t str) -> Self {
        Self {
            rest: text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable(),
            section: String::new(),
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(character) = self.rest.next_if(|character| wanted(*character)) {
            taken.push(character);
        }
        taken
    }

    /// `[section]`, `[section "subsection"]`, or `[section.subsection]`, which is the same in lower case.
    fn header(&mut self) -> Option<()> {
        self.section = self.take_while(|c| c.is_alphanumeric() || "-.".contains(c)).to_lowercase();
        self.take_while(|c| c == ' ' || c == '\t');
        if self.rest.next_if_eq(&'"').is_some() {
            self.section.push('.');
            loop {
                match self.rest.next()? {
                    '"' => break,
                    '\n' => return None,
                    '\\' => self.section.push(self.rest.next()?),
                    character => self.section.push(character),
                }
            }
        }
        (self.rest.next()? == ']').then_some(())
    }

    /// The rest of a line after `=`, with quotes, escapes and continued lines resolved.
    fn value(&mut self) -> Option<String> {
        self.take_while(|c| c == ' ' || c == '\t');
        let (mut value, mut length, mut is_quoted) = (String::new(), 0, false);
        loop {
            match self.rest.next() {
                None | Some('\n') if is_quoted => return None,
                None | Some('\n') => break,
                Some('"') => is_quoted = !is_quoted,
                Some('\\') => match self.rest.next()? {
                    '\n' => {}
                    'n' => value.push('\n'),
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    escaped @ ('"' | '\\') => value.push(escaped),
                    _ => return None,
                },
                Some('#' | ';') if !is_quoted => {
                    self.take_while(|c| c != '\n');
                }
                Some('\r') if self.rest.peek() == Some(&'\n') => {}
                Some(character) => value.push(character),
            }
            if is_quoted || !value.ends_with([' ', '\t']) {
                length = value.len();
            }
        }
        value.truncate(length);
        Some(value)
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.take_while(char::is_whitespace);
            match *self.rest.peek()? {
                '#' | ';' => {
                    self.take_while(|c| c != '\n');
                }
                '[' => {
                    self.rest.next();
                    self.header()?;
                }
                _ => {
                    let key = self.take_while(|c| c.is_alphanumeric() || c == '-').to_lowercase();
                    self.take_while(|c| c == ' ' || c == '\t');
                    if key.is_empty() {
                        return None;
                    }
                    let value = match self.rest.next_if_eq(&'=') {
                        Some(_) => Some(self.value()?),
                        None => {
                            self.take_while(|c| c != '\n');
                            None
                        }
                    };
                    return Some(Entry { section: self.section.clone(), key, value });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        Entries::of(text)
            .map(|entry| format!("{}.{}={:?}", entry.section, entry.key, entry.truth()))
            .collect()
    }

    #[test]
    fn subsections_and_booleans() {
        assert_eq!(
            names(
                "[Core]\n\tBare\n[filter \"a \\\"b\"] clean = x\n[Filter.LFS]\nrequired = On\n[a]b=0\nc=2\nd=\n"
            ),
            [
                "core.bare=Some(true)",
                "filter.a \"b.clean=None",
                "filter.lfs.required=Some(true)",
                "a.b=Some(false)",
                "a.c=Some(true)",
                "a.d=Some(false)"
            ]
        );
        assert_eq!(names("[filter \"open\n] clean = x\n"), [""; 0]);
    }

    #[test]
    fn files_that_include_themselves_many_times_are_read_in_bounded_time() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, "[include]\npath = config\n".repeat(1000) + "[a]\nb = c\n").unwrap();
        let sources = Sources { home: None, may_read: &|_| true };
        let entries = sources.entries(std::slice::from_ref(&file));
        assert!(
            !entries.is_empty() && entries.iter().filter(|entry| entry.is("a", "b")).count() <= FILES_MAX
        );
        let none = Sources { home: None, may_read: &|_| false };
        assert_eq!(none.entries(&[file]), []);
    }
}
