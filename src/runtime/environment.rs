//! The environment a command gets: an allow-list of the caller's, what the caller added, and secrets that are
//! never written down.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Let through from the caller's environment.
const ALLOWED: [&str; 21] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "TZ",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "CI",
    "EDITOR",
    "PAGER",
    "COLUMNS",
    "LINES",
    "SOURCE_DATE_EPOCH",
    "RUSTUP_TOOLCHAIN",
];
/// And what begins like this.
const ALLOWED_PREFIX: &str = "LC_";
/// Set for every command.
const OWN: [(&str, &str); 2] = [("TMPDIR", "/tmp"), ("AVFS_SANDBOX", "1")];
const SCRUBBED: &[u8] = b"[secret]";
/// Shorter values would be found everywhere.
const SECRET_BYTES_MIN: usize = 4;

/// What the caller asked for beside the allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvChoice {
    /// The caller's own value, if it has one.
    Pass(OsString),
    /// The same, by the owner's own settings: no request asks for it.
    PassBySetting(OsString),
    Set(OsString, OsString),
    /// The caller's own value, never written down.
    Secret(OsString),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// Names of variables whose values are not to be shown.
    secrets: Vec<OsString>,
    /// Names of variables that a request takes out of the caller's environment, beside those everybody gets.
    taken: Vec<OsString>,
    /// Asked for, and not set outside.
    pub missing: Vec<OsString>,
}

impl Environment {
    /// Later choices win over earlier ones, and all of them over the allow-list.
    #[must_use]
    pub fn choose(outside: impl IntoIterator<Item = (OsString, OsString)>, choices: &[EnvChoice]) -> Self {
        let outside: BTreeMap<OsString, OsString> = outside.into_iter().collect();
        let passed = outside.iter().filter(|(name, _)| is_allowed(name));
        let mut chosen = Self {
            variables: passed.map(|(name, value)| (name.clone(), value.clone())).collect(),
            ..Self::default()
        };
        for (name, value) in OWN {
            chosen.variables.insert(name.into(), value.into());
        }
        let set_up = |name: &OsString| choices.contains(&EnvChoice::PassBySetting(name.clone()));
        for choice in choices {
            match choice {
                EnvChoice::Set(name, value) => drop(chosen.variables.insert(name.clone(), value.clone())),
                EnvChoice::Pass(name) | EnvChoice::PassBySetting(name) | EnvChoice::Secret(name) => {
                    match outside.get(name) {
                        Some(value) => drop(chosen.variables.insert(name.clone(), value.clone())),
                        None => chosen.missing.push(name.clone()),
                    }
                }
            }
            match choice {
                EnvChoice::Secret(name) => chosen.secrets.push(name.clone()),
                EnvChoice::Pass(name) if outside.contains_key(name) && !is_common(name) && !set_up(name) => {
                    chosen.taken.push(name.clone());
                }
                EnvChoice::Pass(_) | EnvChoice::PassBySetting(_) | EnvChoice::Set(..) => {}
            }
        }
        chosen
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    #[must_use]
    pub fn pairs(&self) -> Vec<(OsString, OsString)> {
        self.variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Names alone, for the record.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.variables.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[must_use]
    pub fn is_secret(&self, name: &OsStr) -> bool {
        self.secrets.iter().any(|secret| secret == name)
    }

    /// Names of the secrets that were asked for.
    #[must_use]
    pub fn secret_names(&self) -> Vec<String> {
        self.secrets.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Names of everything of the caller's own that a request hands over, called a secret or not: a value that
    /// is passed on without the care is no less of one.
    #[must_use]
    pub fn handed_over(&self) -> Vec<String> {
        self.secrets.iter().chain(&self.taken).map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// The text with every secret's value taken out.
    #[must_use]
    pub fn scrub(&self, text: Vec<u8>) -> Vec<u8> {
        let values = self.secrets.iter().filter_map(|name| self.variables.get(name));
        let mut values: Vec<&[u8]> =
            values.map(|value| value.as_bytes()).filter(|value| value.len() >= SECRET_BYTES_MIN).collect();
        // A secret that holds another one is taken out first.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().fold(text, |text, value| replace(&text, value, SCRUBBED))
    }

    /// The same for text that was cut off somewhere: the beginning of a secret at its end goes too.
    #[must_use]
    pub fn scrub_cut(&self, mut text: Vec<u8>) -> Vec<u8> {
        let values = self.secrets.iter().filter_map(|name| self.variables.get(name));
        let begun = values.filter_map(|value| {
            let value = value.as_bytes();
            (1..value.len()).rev().find(|length| text.ends_with(&value[..*length]))
        });
        text.truncate(text.len() - begun.max().unwrap_or(0));
        self.scrub(text)
    }
}

fn is_allowed(name: &OsStr) -> bool {
    ALLOWED.iter().any(|allowed| name == *allowed) || name.as_bytes().starts_with(ALLOWED_PREFIX.as_bytes())
}

/// True for what every command gets, asked for or not.
fn is_common(name: &OsStr) -> bool {
    is_allowed(name) || OWN.iter().any(|(own, _)| name == *own)
}

fn replace(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    for at in memchr::memmem::find_iter(text, what) {
        let before = text.len() - rest.len();
        replaced.extend_from_slice(&rest[..at - before]);
        replaced.extend_from_slice(with);
        rest = &text[at + what.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside() -> Vec<(OsString, OsString)> {
        [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_KEY", "abcd1234"), ("TOKEN", "abcd")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec()
    }

    #[test]
    fn only_what_is_allowed_or_asked_for_gets_in() {
        let chosen = Environment::choose(outside(), &[EnvChoice::Set("A".into(), "b".into())]);
        assert_eq!(chosen.names(), ["A", "AVFS_SANDBOX", "LC_ALL", "PATH", "TMPDIR"]);
        let choices = [EnvChoice::Pass("AWS_KEY".into()), EnvChoice::Pass("NONE".into())];
        let chosen = Environment::choose(outside(), &choices);
        assert_eq!(chosen.get("AWS_KEY"), Some(OsStr::new("abcd1234")));
        assert_eq!(chosen.missing, ["NONE"]);
    }

    #[test]
    fn what_a_request_takes_from_the_caller_is_handed_over_whatever_it_is_called() {
        let handed_over = |choices: &[EnvChoice]| Environment::choose(outside(), choices).handed_over();
        let pass = |name: &str| EnvChoice::Pass(name.into());
        assert_eq!(handed_over(&[EnvChoice::Secret("TOKEN".into()), pass("AWS_KEY")]), ["TOKEN", "AWS_KEY"]);
        // Not what everybody gets, what is not there, what the request brings itself, or what the settings let in.
        let set = EnvChoice::Set("TOKEN".into(), "x".into());
        let by_setting = EnvChoice::PassBySetting("AWS_KEY".into());
        assert_eq!(handed_over(&[pass("PATH"), pass("NONE"), set, by_setting, pass("AWS_KEY")]), [""; 0]);
    }

    #[test]
    fn secrets_are_taken_out_longest_first() {
        let choices = ["TOKEN", "AWS_KEY"].map(|name| EnvChoice::Secret(name.into()));
        let chosen = Environment::choose(outside(), &choices);
        let scrubbed = chosen.scrub(b"x abcd1234 y abcd abcdabcd".to_vec());
        assert_eq!(String::from_utf8(scrubbed).unwrap(), "x [secret] y [secret] [secret][secret]");
        for (cut, left) in [("x abcd12", "x "), ("x abcd1234", "x [secret]"), ("x ab", "x "), ("x y", "x y")]
        {
            assert_eq!(String::from_utf8(chosen.scrub_cut(cut.into())).unwrap(), left, "{cut}");
        }
    }
}
