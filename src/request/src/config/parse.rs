//! Parses TOML into settings: unknown keys and wrong types are errors, and every error names its line.

use std::path::Path;
use std::str::FromStr;

use toml::Spanned;
use toml::de::DeValue;

use avfs_types::toml_source::{Problem, Source, TomlValue, nearest};

use super::given::Given;
use super::{Config, ConfigError, Origin, Setting};

/// The sections, each with its keys.
fn sections() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for (section, key) in Config::KEYS.iter().filter_map(|key| key.split_once('.')) {
        match sections.iter_mut().find(|(known, _)| *known == section) {
            Some((_, keys)) => keys.push(key),
            None => sections.push((section, vec![key])),
        }
    }
    sections
}

pub fn lay_over(config: &mut Config, file: &Path, text: &str) -> Result<(), ConfigError> {
    let source = Source { file, text };
    let document = source.document()?;
    let sections = sections();
    for (name, section) in document.get_ref() {
        let name_text: &str = name.get_ref();
        let Some((_, keys)) = sections.iter().find(|(known, _)| *known == name_text) else {
            let known = sections.iter().map(|(name, _)| format!("[{name}]")).collect::<Vec<_>>().join(", ");
            return Err(unknown(&source, name.span().start, name_text, known));
        };
        let section = TomlValue { source: &source, key: name_text.to_owned(), value: section };
        for (key, value) in section.table()? {
            let (key_text, at): (&str, usize) = (key.get_ref(), key.span().start);
            let full = format!("{name_text}.{key_text}");
            if !keys.contains(&key_text) {
                return Err(unknown(&source, at, &full, keys.join(", ")));
            }
            config.set(&TomlValue { source: &source, key: full, value })?;
        }
    }
    Ok(())
}

/// Returns the key or section that an unknown name was probably meant to be.
pub(super) fn near(key: &str) -> Option<String> {
    let Some((_, name)) = key.split_once('.') else {
        return nearest(key, sections().into_iter().map(|(section, _)| section)).map(str::to_owned);
    };
    let elsewhere = Config::KEYS.iter().find(|known| known.split_once('.').is_some_and(|(_, it)| it == name));
    elsewhere.copied().or_else(|| nearest(key, Config::KEYS.iter().copied())).map(str::to_owned)
}

fn unknown(source: &Source<'_>, at: usize, key: &str, known: String) -> ConfigError {
    source.error(at, Problem::UnknownKey { key: key.to_owned(), near: near(key), known }).into()
}

/// Values as settings, which record their source.
trait Sourced<'a> {
    fn sourced<T>(&self, value: T, at: usize) -> Setting<T>;
    fn parsed<T: FromStr>(&self, text: &str, wanted: &'static str) -> Result<Setting<T>, ConfigError>;
    fn check(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        good: fn(&str) -> bool,
        wanted: &'static str,
    ) -> Result<Setting<String>, ConfigError>;
}

impl<'a> Sourced<'a> for TomlValue<'a> {
    fn sourced<T>(&self, value: T, at: usize) -> Setting<T> {
        let origin = Origin::File { path: self.source.file.to_owned(), line: self.source.line(at) };
        Setting { value, origin }
    }

    fn parsed<T: FromStr>(&self, text: &str, wanted: &'static str) -> Result<Setting<T>, ConfigError> {
        let value = text.parse().map_err(|_| self.bad(self.value, text, wanted))?;
        Ok(self.sourced(value, self.value.span().start))
    }

    fn check(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        good: fn(&str) -> bool,
        wanted: &'static str,
    ) -> Result<Setting<String>, ConfigError> {
        let text = self.text(value)?;
        if !good(text) {
            return Err(self.bad(value, text, wanted).into());
        }
        Ok(self.sourced(text.to_owned(), value.span().start))
    }
}

impl Given for TomlValue<'_> {
    type Error = ConfigError;

    fn key(&self) -> &str {
        &self.key
    }

    fn one<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, ConfigError> {
        self.parsed(self.text(self.value)?, wanted)
    }

    fn number<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, ConfigError> {
        let integer = self.value.get_ref().as_integer();
        let text = integer.ok_or_else(|| self.wrong_type(self.value, "a whole number"))?.to_string();
        self.parsed(&text, wanted)
    }

    fn amount<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, ConfigError> {
        let value = self.value.get_ref();
        let number = value.as_integer().map(ToString::to_string);
        match number.or_else(|| value.as_float().map(ToString::to_string)) {
            None => self.one(wanted),
            Some(text) => self.parsed(&text, wanted),
        }
    }

    fn list(
        &self,
        good: fn(&str) -> bool,
        wanted: &'static str,
    ) -> Result<Vec<Setting<String>>, ConfigError> {
        let items = self.items("a list of strings")?;
        items.iter().map(|item| self.check(item.value, good, wanted)).collect()
    }

    fn unread(&self) -> ConfigError {
        TomlValue::unread(self).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::NetMode;
    use crate::timeout::ExecutionTimeout;

    const USER: &str = "\
[capture]
exclude = [\"*.tmp\"]

[cache]
dirs = [\"target\", \"~/.cargo/registry\"]

[run]
timeout = \"10m\"
net = \"none\"
env = [\"CARGO_HOME\"]
";

    const PROJECT: &str = "\
run.timeout = \"none\"
capture.exclude = [
  '/out/',
]
[fork]
expires = \"2w\"
";

    #[test]
    fn later_files_win_key_by_key_and_lists_are_appended() {
        let (user, project) = (Path::new("/u.toml"), Path::new("/p.toml"));
        let config = Config::default().with(user, USER).unwrap().with(project, PROJECT).unwrap();
        assert_eq!(config.run_timeout.value, ExecutionTimeout::None);
        let line = |path: &Path, line| Origin::File { path: path.to_owned(), line };
        assert_eq!(config.run_timeout.origin, line(project, 1));
        assert_eq!((config.run_net.value, config.run_net.origin), (NetMode::None, line(user, 9)));
        assert_eq!(config.run_grace.origin, Origin::Default);
        let excluded: Vec<(&str, Origin)> =
            config.capture_exclude.iter().map(|set| (set.value.as_str(), set.origin.clone())).collect();
        assert_eq!(excluded, [("*.tmp", line(user, 2)), ("/out/", line(project, 3))]);
        assert_eq!(config.fork_expires.value, avfs_types::Span(14 * 24 * 60 * 60));
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let refused = |text: &str| {
            let error = Config::default().with(Path::new("/c.toml"), text).unwrap_err();
            (avfs_types::diagnose::Diagnose::code(&error), error.to_string())
        };
        for (text, code, message) in [
            (
                "[run]\n\ntiemout = \"5s\"",
                "config.unknown_key",
                "/c.toml:3: unknown key run.tiemout; did you mean run.timeout?",
            ),
            ("\n[rum]\nx = 1", "config.unknown_key", "/c.toml:2: unknown key rum; did you mean run?"),
            (
                "run.expires = 1",
                "config.unknown_key",
                "/c.toml:1: unknown key run.expires; did you mean fork.expires?",
            ),
            ("[colours]", "config.unknown_key", "/c.toml:1: unknown key colours"),
            ("[run]\ntimeout = 5", "config.wrong_type", "/c.toml:2: run.timeout takes a string, not integer"),
            ("run = 5", "config.wrong_type", "/c.toml:1: run takes a table, not integer"),
            (
                "[run]\nenv = \"X\"",
                "config.wrong_type",
                "/c.toml:2: run.env takes a list of strings, not string",
            ),
            (
                "[cache]\ndirs = [\n\"a\",\n7]",
                "config.wrong_type",
                "/c.toml:4: cache.dirs takes a string, not integer",
            ),
            (
                "checkpoint.keep = '9'",
                "config.wrong_type",
                "/c.toml:1: checkpoint.keep takes a whole number, not string",
            ),
            (
                "checkpoint.keep = 1",
                "config.bad_value",
                "/c.toml:1: checkpoint.keep: invalid value \"1\": expected a number of at least 2",
            ),
            (
                "[run]\nnet = \"all\"",
                "config.bad_value",
                "/c.toml:2: run.net: invalid value \"all\": expected none, host or allow=DOMAIN,…",
            ),
            (
                "[run]\nro = [\"x\"]",
                "config.bad_value",
                "/c.toml:2: run.ro: invalid value \"x\": expected an absolute path, or a path that starts with ~/",
            ),
            (
                "[cache]\ndirs = [\"../x\"]",
                "config.bad_value",
                "/c.toml:2: cache.dirs: invalid value \"../x\": expected a path without '..'",
            ),
        ] {
            assert_eq!(refused(text), (code, message.to_owned()));
        }
        let (code, message) = refused("[run]\ntimeout = \n");
        assert_eq!(code, "config.syntax");
        assert!(message.starts_with("/c.toml:2: "), "{message}");
        assert_eq!(refused("[run]\ntimeout = '5s'\ntimeout = '6s'").0, "config.syntax");
    }

    #[test]
    fn every_known_key_can_be_set() {
        let mut config = Config::default();
        for (section, keys) in sections() {
            for key in keys {
                let values = [
                    "\"data\"",
                    "5",
                    "\"auto\"",
                    "\"read\"",
                    "\"5s\"",
                    "\"none\"",
                    "\"strict\"",
                    "[\"node\"]",
                    "[\"/x\"]",
                    "[\"X\"]",
                ];
                let set = values.iter().any(|value| {
                    let text = format!("[{section}]\n{key} = {value}");
                    config.clone().with(Path::new("/c"), &text).map(|new| config = new).is_ok()
                });
                assert!(set, "no value was accepted for {section}.{key}");
            }
        }
        let shown: Vec<&str> = config.shown().iter().map(|shown| shown.key).collect();
        assert_eq!(shown, Config::KEYS);
        assert!(
            config.shown().iter().all(|shown| shown.values.iter().all(|set| set.origin != Origin::Default))
        );
    }
}
