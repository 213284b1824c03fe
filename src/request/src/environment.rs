//! The environment of a command: an allow list of the caller's variables, the variables that the caller added, and
//! secrets, which are never stored.
//!
//! Never shows a value: traces and messages contain names only.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::preset::CI_VARIABLES;
use crate::reproducible::{FixedClock, Reproducible, seed};
use crate::secret::{SecretFile, file_variable, path_inside};

/// Passed from the caller's environment.
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
/// Variables with this prefix are also passed.
const ALLOWED_PREFIX: &str = "LC_";
/// Passed even to a reproducible run: without them few programs run.
const ALLOWED_ALWAYS: [&str; 2] = ["PATH", "HOME"];
/// Set for every command.
const OWN: [(&str, &str); 2] = [("TMPDIR", "/tmp"), ("AVFS_SANDBOX", "1")];

/// Variables that the caller asked for in addition to the allow list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvChoice {
    /// The caller's value, if the variable is set.
    Pass(OsString),
    /// The same, from the user's settings: no request asks for it.
    PassBySetting(OsString),
    Set(OsString, OsString),
    /// The same, from a file of variables, where people keep values that must not be stored.
    SetByFile(OsString, OsString),
    /// The caller's value, never stored.
    Secret(OsString),
    /// The same, as a file instead of the variable.
    SecretInFile(OsString),
    /// Bytes given by the caller, as a file.
    SecretFile(SecretFile),
}

impl EnvChoice {
    /// The variable that this choice is about.
    fn variable(&self) -> Option<&OsString> {
        match self {
            Self::Pass(name)
            | Self::PassBySetting(name)
            | Self::Set(name, _)
            | Self::SetByFile(name, _)
            | Self::Secret(name)
            | Self::SecretInFile(name) => Some(name),
            Self::SecretFile(_) => None,
        }
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// Names of variables whose values must not be shown.
    secrets: Vec<OsString>,
    /// Secrets passed as files, one for each name.
    secret_files: Vec<SecretFile>,
    /// Names of variables that the request takes from the caller's environment, in addition to the allow list.
    taken: Vec<OsString>,
    /// Names of variables whose values are part of the request.
    brought: Vec<OsString>,
    /// The caller's `PATH`, regardless of the value that the request sets.
    caller_path: OsString,
    /// Requested variables that the caller does not have.
    pub missing: Vec<OsString>,
    /// Missing patterns (`NAME*`) that match only variables that look like credentials, with one of these variables.
    pub only_credentials: Vec<(OsString, OsString)>,
    /// Variables of the caller that are not passed; recorded only if the command may use one of them.
    withheld: Vec<OsString>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Environment");
        shown.field("variables", &self.names()).field("secrets", &self.secret_names());
        shown.field("secret_files", &self.secret_files).field("missing", &self.missing).finish()
    }
}

impl Environment {
    /// Later choices override earlier ones, and all of them override the allow list.
    #[must_use]
    pub fn choose(outside: impl IntoIterator<Item = (OsString, OsString)>, choices: &[EnvChoice]) -> Self {
        Self::choose_over(outside, Reproducible::Off, None, choices)
    }

    /// As [`Environment::choose`]; a reproducible run gets almost no variable of the caller that is not named.
    #[must_use]
    pub fn choose_over(
        outside: impl IntoIterator<Item = (OsString, OsString)>,
        reproducible: Reproducible,
        clock: Option<FixedClock>,
        choices: &[EnvChoice],
    ) -> Self {
        let outside: BTreeMap<OsString, OsString> = outside.into_iter().collect();
        let passed = outside.iter().filter(|(name, _)| match reproducible {
            Reproducible::Off => is_allowed(name),
            Reproducible::On => ALLOWED_ALWAYS.iter().any(|allowed| *name == *allowed),
        });
        let mut chosen = Self {
            variables: passed.map(|(name, value)| (name.clone(), value.clone())).collect(),
            caller_path: outside.get(OsStr::new("PATH")).cloned().unwrap_or_default(),
            ..Self::default()
        };
        for (name, value) in OWN {
            chosen.variables.insert(name.into(), value.into());
        }
        chosen.variables.extend(seed(reproducible, clock));
        let set_up = |name: &OsString| choices.contains(&EnvChoice::PassBySetting(name.clone()));
        for choice in choices {
            match choice {
                EnvChoice::Set(name, value) | EnvChoice::SetByFile(name, value) => {
                    drop(chosen.variables.insert(name.clone(), value.clone()));
                }
                EnvChoice::Pass(name) | EnvChoice::PassBySetting(name) | EnvChoice::Secret(name) => {
                    match outside.get(name) {
                        Some(value) => drop(chosen.variables.insert(name.clone(), value.clone())),
                        None => chosen.missing.push(name.clone()),
                    }
                }
                EnvChoice::SecretInFile(name) => match outside.get(name) {
                    Some(value) => {
                        if !chosen.is_secret(name) {
                            chosen.variables.remove(name);
                        }
                        let bytes = value.as_bytes().to_vec();
                        chosen.give_file(SecretFile { name: name.clone(), bytes, source: None });
                    }
                    None => chosen.missing.push(name.clone()),
                },
                EnvChoice::SecretFile(file) => chosen.give_file(file.clone()),
            }
            chosen.brought.retain(|name| Some(name) != choice.variable());
            match choice {
                EnvChoice::Set(name, _) => chosen.brought.push(name.clone()),
                EnvChoice::Secret(name) => chosen.secrets.push(name.clone()),
                EnvChoice::Pass(name) if outside.contains_key(name) && !is_common(name) && !set_up(name) => {
                    chosen.taken.push(name.clone());
                }
                EnvChoice::Pass(_)
                | EnvChoice::PassBySetting(_)
                | EnvChoice::SetByFile(..)
                | EnvChoice::SecretInFile(_)
                | EnvChoice::SecretFile(_) => {}
            }
        }
        chosen
    }

    /// Records which of the caller's variables the command does not get. Only names are kept, no values.
    pub fn withhold<'a>(&mut self, outside: impl IntoIterator<Item = &'a OsString>) {
        let left = outside.into_iter().filter(|name| !self.variables.contains_key(*name));
        self.withheld = left.cloned().collect();
    }

    /// True if [`Environment::withhold`] recorded any name.
    #[must_use]
    pub fn has_withheld(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// True for a variable that the caller has and the command does not get, as far as recorded.
    #[must_use]
    pub fn is_withheld(&self, name: &str) -> bool {
        self.withheld.iter().any(|withheld| withheld == name)
    }

    /// Adds a file, and the variable that holds its path.
    fn give_file(&mut self, file: SecretFile) {
        self.variables.insert(file_variable(&file.name), path_inside(&file.name).into());
        self.secret_files.retain(|given| given.name != file.name);
        self.secret_files.push(file);
    }

    /// Takes the secrets that are files: the launcher passes them on.
    #[must_use]
    pub fn take_secret_files(&mut self) -> Vec<SecretFile> {
        std::mem::take(&mut self.secret_files)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    #[must_use]
    pub fn pairs(&self) -> Vec<(OsString, OsString)> {
        self.variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The names only, for the record.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.variables.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// The `PATH` in which the visible toolchains are found: a request cannot choose them with its own `PATH`.
    #[must_use]
    pub fn toolchain_path(&self) -> &OsStr {
        &self.caller_path
    }

    /// True for a variable that every command gets, or every command in CI.
    #[must_use]
    pub fn is_usual(name: &str) -> bool {
        is_common(OsStr::new(name)) || CI_VARIABLES.contains(&name)
    }

    /// The variables whose values are part of the request.
    pub fn brought(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let brought = self.brought.iter().filter(|name| !self.is_secret(name));
        brought.filter_map(|name| Some((name.as_os_str(), self.variables.get(name)?.as_os_str())))
    }

    #[must_use]
    pub fn is_secret(&self, name: &OsStr) -> bool {
        self.secrets.iter().any(|secret| secret == name)
    }

    /// Names of the requested secrets.
    #[must_use]
    pub fn secret_names(&self) -> Vec<String> {
        self.secrets.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Names of all variables of the caller that a request hands over, declared secret or not: a value that is passed
    /// without that protection may be a secret as well.
    #[must_use]
    pub fn handed_over(&self) -> Vec<String> {
        self.secrets.iter().chain(&self.taken).map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// The secrets passed as variables, with their values.
    pub fn secret_values(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.secrets.iter().filter_map(|name| Some((name.as_os_str(), self.variables.get(name)?.as_os_str())))
    }
}

fn is_allowed(name: &OsStr) -> bool {
    ALLOWED.iter().any(|allowed| name == *allowed) || name.as_bytes().starts_with(ALLOWED_PREFIX.as_bytes())
}

/// True for variables that every command gets, requested or not.
fn is_common(name: &OsStr) -> bool {
    is_allowed(name) || OWN.iter().any(|(own, _)| name == *own)
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
    fn only_allowed_or_requested_variables_are_passed() {
        let chosen = Environment::choose(outside(), &[EnvChoice::Set("A".into(), "b".into())]);
        assert_eq!(chosen.names(), ["A", "AVFS_SANDBOX", "LC_ALL", "PATH", "TMPDIR"]);
        let choices = [EnvChoice::Pass("AWS_KEY".into()), EnvChoice::Pass("NONE".into())];
        let chosen = Environment::choose(outside(), &choices);
        assert_eq!(chosen.get("AWS_KEY"), Some(OsStr::new("abcd1234")));
        assert_eq!(chosen.missing, ["NONE"]);
    }

    #[test]
    fn a_reproducible_run_has_a_fixed_environment() {
        let outside =
            || outside().into_iter().chain([("LANG".into(), "de".into()), ("HOME".into(), "/h".into())]);
        let choose = |choices: &[EnvChoice]| {
            Environment::choose_over(outside(), Reproducible::On, Some(FixedClock::DEFAULT), choices)
        };
        let names =
            "AVFS_SANDBOX HOME LANG LC_ALL PATH PERL_HASH_SEED PYTHONHASHSEED SOURCE_DATE_EPOCH TMPDIR TZ";
        assert_eq!(choose(&[]).names().join(" "), names);
        assert_eq!(choose(&[]).get("LANG"), Some(OsStr::new("C.UTF-8")));
        assert_eq!(choose(&[]).get("SOURCE_DATE_EPOCH"), Some(OsStr::new("315532800")));
        let asked = choose(&[EnvChoice::Pass("LANG".into()), EnvChoice::Set("TZ".into(), "CET".into())]);
        assert_eq!((asked.get("LANG"), asked.get("TZ")), (Some(OsStr::new("de")), Some(OsStr::new("CET"))));
        let brought: Vec<_> = asked.brought().collect();
        assert_eq!(brought, [(OsStr::new("TZ"), OsStr::new("CET"))]);
    }

    #[test]
    fn variables_taken_from_the_caller_are_handed_over_secret_or_not() {
        let handed_over = |choices: &[EnvChoice]| Environment::choose(outside(), choices).handed_over();
        let pass = |name: &str| EnvChoice::Pass(name.into());
        assert_eq!(handed_over(&[EnvChoice::Secret("TOKEN".into()), pass("AWS_KEY")]), ["TOKEN", "AWS_KEY"]);
        // Not variables that every command gets, unset ones, ones that the request sets, or ones from the settings.
        let set = EnvChoice::Set("TOKEN".into(), "x".into());
        let by_setting = EnvChoice::PassBySetting("AWS_KEY".into());
        assert_eq!(handed_over(&[pass("PATH"), pass("NONE"), set, by_setting, pass("AWS_KEY")]), [""; 0]);
    }

    #[test]
    fn a_secret_passed_as_a_file_is_not_a_variable() {
        let in_file = || EnvChoice::SecretInFile("TOKEN".into());
        let mut chosen = Environment::choose(outside(), &[EnvChoice::Pass("TOKEN".into()), in_file()]);
        assert_eq!(chosen.get("TOKEN"), None);
        assert_eq!(chosen.get("TOKEN_FILE"), Some(OsStr::new("/run/secrets/TOKEN")));
        let file = SecretFile { name: "TOKEN".into(), bytes: b"abcd".to_vec(), source: None };
        assert_eq!(chosen.take_secret_files(), [file]);
        // A secret requested as variable and file is passed as both; of two files the last one is used.
        let other = SecretFile { name: "TOKEN".into(), bytes: b"other".to_vec(), source: Some("/x".into()) };
        let choices = [EnvChoice::Secret("TOKEN".into()), in_file(), EnvChoice::SecretFile(other.clone())];
        let mut chosen = Environment::choose(outside(), &choices);
        assert_eq!(chosen.get("TOKEN"), Some(OsStr::new("abcd")));
        assert_eq!(chosen.take_secret_files(), [other]);
        let missing = Environment::choose(outside(), &[EnvChoice::SecretInFile("NONE".into())]);
        assert_eq!((missing.missing.as_slice(), missing.get("NONE_FILE")), (&["NONE".into()][..], None));
    }

    #[test]
    fn no_value_is_ever_printed() {
        let choices = [EnvChoice::Secret("AWS_KEY".into()), EnvChoice::SecretInFile("TOKEN".into())];
        let chosen = Environment::choose(outside(), &choices);
        assert!(!format!("{chosen:?}").contains("abcd"), "{chosen:?}");
        assert_eq!(chosen.secret_values().collect::<Vec<_>>(), [("AWS_KEY".as_ref(), "abcd1234".as_ref())]);
    }
}
