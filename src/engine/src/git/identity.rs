//! The identity of commits: `user.name` and `user.email` of the caller's global git configuration, and nothing else.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::config::{CONFIG_BYTES_MAX, Sources};
use crate::view::GIT_CONFIG;

/// The author of commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitIdentity {
    name: Option<String>,
    email: Option<String>,
}

impl GitIdentity {
    /// Reads the global configuration files in git's order; the last one that sets a value wins. `includeIf` is not
    /// followed.
    #[must_use]
    pub fn read(configs: &[PathBuf], home: Option<&Path>) -> Self {
        let mut identity = Self::default();
        for entry in (Sources { home, may_read: &|_| true }).entries(configs) {
            let field = match entry.key.as_str() {
                _ if entry.section != "user" => continue,
                "name" => &mut identity.name,
                "email" => &mut identity.email,
                _ => continue,
            };
            // A key without a value means true, which is not a name.
            *field = entry.value.or(field.take());
        }
        identity
    }

    /// A global configuration with only this identity; `None` if it is empty.
    #[must_use]
    pub fn as_config(&self) -> Option<Vec<u8>> {
        let set = [("name", &self.name), ("email", &self.email)];
        let lines: String = set
            .iter()
            .filter_map(|(key, value)| Some(format!("\t{key} = {}\n", quoted(value.as_deref()?))))
            .collect();
        (!lines.is_empty()).then(|| format!("[user]\n{lines}").into_bytes())
    }

    /// Removes the configuration that an earlier run found in a kept home, unless it is the one that this run gets.
    /// A file that the command changed stays.
    pub fn remove_other(home: &Path, wanted: Option<&[u8]>) -> io::Result<()> {
        let path = home.join(GIT_CONFIG);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if !file.metadata()?.is_file() {
            return Ok(());
        }
        let mut found = Vec::new();
        file.take(CONFIG_BYTES_MAX).read_to_end(&mut found)?;
        match is_generated(&found) && Some(found.as_slice()) != wanted {
            true => std::fs::remove_file(path),
            false => Ok(()),
        }
    }
}

/// Whether a configuration has the form of [`GitIdentity::as_config`]. Git itself does not quote a usual value.
fn is_generated(config: &[u8]) -> bool {
    let Some(lines) = config.strip_prefix(b"[user]\n").and_then(|lines| lines.strip_suffix(b"\n")) else {
        return false;
    };
    lines.split(|byte| *byte == b'\n').all(|line| {
        (line.starts_with(b"\tname = \"") || line.starts_with(b"\temail = \"")) && line.ends_with(b"\"")
    })
}

/// Quotes a value so that git reads it back unchanged.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            // Git does not accept other control characters in an identity either.
            _ if character.is_control() => {}
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> GitIdentity {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, text).unwrap();
        GitIdentity::read(&[file], None)
    }

    /// The value that git itself reads from the file.
    fn git(file: &Path, key: &str) -> Option<String> {
        let mut git = Command::new("git");
        git.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
        git.args(["config", "-z", "--includes", "--file"]).arg(file).args(["--get", key]);
        let done = git.output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        done.status.success().then(|| text.trim_end_matches('\0').to_owned())
    }

    #[test]
    fn values_equal_those_that_git_reads() {
        for text in [
            "[user]\n\tname = A B\n\temail = a@b\n",
            "[User]\nNAME=\"A  B\"  # comment\nemail = a@b ; other\n",
            "[user]\nname = A \\\"B\\\" \\\\ C\nemail = a\\\n@b\n",
            "[core]\nname = no\n[user \"x\"]\nname = no\n[user]\nname = yes\nname = last\n",
            "[user]\nname\nemail = \"a#b\" c\n[include]\n[other]\nx = y\n",
            "[user] name = same line\n",
            "[user]\r\n\tname = A\r\n\temail = b\r\n",
            "\u{feff}[user]\nname = \"  padded  \" \n",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("config");
            std::fs::write(&file, text).unwrap();
            let identity = GitIdentity::read(std::slice::from_ref(&file), None);
            let of_git = |key| git(&file, key).filter(|value| !value.is_empty());
            assert_eq!(identity.name, of_git("user.name"), "{text:?}");
            assert_eq!(identity.email, of_git("user.email"), "{text:?}");
        }
    }

    #[test]
    fn invalid_configuration_gives_no_identity() {
        for text in ["", "[user", "[user]\nname = \"open\n", "\0\u{1}", "[user]\nname = bad \\escape\n"] {
            assert_eq!(read(text).as_config(), None, "{text:?}");
        }
    }

    #[test]
    fn included_files_are_read_in_place_and_loops_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("config"), "[user]\nname = before\n[include]\npath = config\npath = ~/more\n")
            .unwrap();
        std::fs::write(at("more"), "[user]\nname = after\nemail = a@b\n").unwrap();
        let identity = GitIdentity::read(&[at("config"), at("missing")], Some(dir.path()));
        let expected = GitIdentity { name: Some("after".to_owned()), email: Some("a@b".to_owned()) };
        assert_eq!(identity, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn git_reads_back_written_values(name in "[^\\x00-\\x1f\\x7f-\\x9f]{1,40}") {
            let identity = GitIdentity { name: Some(name.clone()), email: None };
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("config");
            std::fs::write(&file, identity.as_config().unwrap()).unwrap();
            prop_assert_eq!(git(&file, "user.name"), Some(name));
            prop_assert_eq!(GitIdentity::read(&[file], None), identity);
        }
    }
}
