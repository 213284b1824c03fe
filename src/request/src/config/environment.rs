//! Settings from environment variables: `AVFS_` and the key in upper case, for keys with one value and lists of paths.
//!
//! Variables belong to the user, so unlike a directory's file they may loosen the sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use avfs_types::toml_source::Problem;

use super::given::Given;
use super::{Config, Origin, Setting, SettingsError, parse};

/// Keys that no variable can set: there is no customary separator for a list of patterns or names.
const NOT_BY_VARIABLE: [&str; 2] = ["capture.exclude", "run.env"];

/// The variable that sets a key.
fn variable_of(key: &str) -> String {
    format!("AVFS_{}", key.replace('.', "_").to_uppercase())
}

/// A variable that has the form of a setting and sets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    name: String,
    /// What to do instead.
    hint: Option<String>,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${} has no effect: no setting has this variable", self.name)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

/// The variables `AVFS_SECTION_…` that set nothing; an empty variable counts as unset.
pub fn unknown(variables: &BTreeMap<OsString, OsString>) -> Vec<UnknownVariable> {
    let set = variables.iter().filter(|(_, value)| !value.is_empty()).filter_map(|(name, _)| name.to_str());
    set.filter_map(|name| {
        let (section, rest) = name.strip_prefix("AVFS_")?.split_once('_')?;
        let key = format!("{}.{}", section.to_lowercase(), rest.to_lowercase());
        let is_section =
            Config::KEYS.iter().any(|known| known.starts_with(&format!("{}.", section.to_lowercase())));
        if !is_section {
            return None;
        }
        let hint = match Config::KEYS.iter().find(|known| **known == key) {
            Some(known) if !NOT_BY_VARIABLE.contains(known) && variable_of(known) == name => return None,
            Some(known) if NOT_BY_VARIABLE.contains(known) => Some(format!("set {known} in a settings file")),
            Some(known) => Some(format!("did you mean {}?", variable_of(known))),
            None => parse::near(&key).map(|near| format!("did you mean {}?", variable_of(&near))),
        };
        Some(UnknownVariable { name: name.to_owned(), hint })
    })
    .collect()
}

/// A variable that is set.
struct Variable<'a> {
    name: String,
    key: &'static str,
    text: &'a str,
}

/// Applies the variables on top of `config`; an empty variable counts as unset.
pub fn lay_over(config: &mut Config, variables: &BTreeMap<OsString, OsString>) -> Result<(), SettingsError> {
    for key in Config::KEYS.iter().filter(|key| !NOT_BY_VARIABLE.contains(key)) {
        let name = variable_of(key);
        let Some(value) = variables.get(std::ffi::OsStr::new(&name)).filter(|value| !value.is_empty()) else {
            continue;
        };
        // A value that is not UTF-8 fails below like any other invalid value.
        config.set(&Variable { name, key, text: &value.to_string_lossy() })?;
    }
    Ok(())
}

impl Variable<'_> {
    fn sourced<T>(&self, value: T) -> Setting<T> {
        Setting { value, origin: Origin::Variable { name: self.name.clone() } }
    }

    fn bad(&self, text: &str, wanted: &'static str) -> SettingsError {
        let value = text.chars().take(80).collect();
        let problem = Problem::BadValue { key: self.key.to_owned(), value, wanted };
        SettingsError::Variable { name: self.name.clone(), problem }
    }
}

/// All values are text.
impl Given for Variable<'_> {
    type Error = SettingsError;

    fn key(&self) -> &str {
        self.key
    }

    fn one<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, SettingsError> {
        self.text.parse().map(|value| self.sourced(value)).map_err(|_| self.bad(self.text, wanted))
    }

    fn number<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, SettingsError> {
        self.one(wanted)
    }

    fn amount<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, SettingsError> {
        self.one(wanted)
    }

    /// Splits at colons, as in `PATH`.
    fn list(
        &self,
        good: fn(&str) -> bool,
        wanted: &'static str,
    ) -> Result<Vec<Setting<String>>, SettingsError> {
        let check = |text: &str| match good(text) {
            true => Ok(self.sourced(text.to_owned())),
            false => Err(self.bad(text, wanted)),
        };
        self.text.split(':').map(check).collect()
    }

    fn unread(&self) -> SettingsError {
        self.bad(self.text, "a value of a known key")
    }
}

#[cfg(test)]
mod tests {
    use avfs_types::diagnose::Diagnose;

    use super::*;
    use crate::config::Arity;
    use crate::net::NetMode;

    fn with(name: &str, value: &str) -> Result<Config, SettingsError> {
        let mut config = Config::default();
        lay_over(&mut config, &BTreeMap::from([(name.into(), value.into())]))?;
        Ok(config)
    }

    #[test]
    fn every_key_with_one_value_can_be_set_by_a_variable() {
        for shown in Config::default().shown() {
            let name = variable_of(shown.key);
            let known = !NOT_BY_VARIABLE.contains(&shown.key);
            assert!(known || shown.arity == Arity::List, "{name} is not known");
            if !known {
                continue;
            }
            let set = ["data", "5", "auto", "read", "5s", "none", "strict", "node:go", "/x:/y"].iter().any(
                |value| {
                    with(&name, value).is_ok_and(|config| {
                        let all = config.shown();
                        let after = all.iter().find(|after| after.key == shown.key).unwrap();
                        after.values.iter().all(|set| matches!(set.origin, Origin::Variable { .. }))
                    })
                },
            );
            assert!(set, "no value was accepted for {name}");
        }
    }

    #[test]
    fn unknown_variables_of_settings_are_found() {
        let found = |name: &str, value: &str| {
            let found = unknown(&BTreeMap::from([(name.into(), value.into())]));
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let tail = "has no effect: no setting has this variable";
        for (name, hint) in [
            ("AVFS_RUN_TIMEOT", "; did you mean AVFS_RUN_TIMEOUT?"),
            ("AVFS_RUN_EXPIRES", "; did you mean AVFS_FORK_EXPIRES?"),
            ("AVFS_RUN_ENV", "; set run.env in a settings file"),
            ("AVFS_RUN_Net", "; did you mean AVFS_RUN_NET?"),
            ("AVFS_CACHE_UNHEARD_OF", ""),
        ] {
            assert_eq!(found(name, "x"), format!("${name} {tail}{hint}"));
        }
        let known =
            Config::KEYS.iter().filter(|key| !NOT_BY_VARIABLE.contains(key)).map(|key| variable_of(key));
        for name in known.chain(["AVFS_FORK", "AVFS_VAULT", "AVFS_LOG", "AVFS_TEST_PAUSE"].map(str::to_owned))
        {
            assert_eq!(found(&name, "x"), "");
        }
        assert_eq!(found("AVFS_RUN_TIMEOT", ""), "");
    }

    #[test]
    fn an_invalid_variable_is_rejected_by_name() {
        assert_eq!(with("AVFS_RUN_NET", "host").unwrap().run_net.value, NetMode::Host);
        assert_eq!(with("AVFS_RUN_NET", "").unwrap(), Config::default());
        let dirs = with("AVFS_CACHE_DIRS", "target:~/.cargo/registry").unwrap().cache_dirs;
        assert_eq!(
            dirs.iter().map(|dir| dir.value.as_str()).collect::<Vec<_>>(),
            ["target", "~/.cargo/registry"]
        );
        let error = with("AVFS_RUN_TIMEOUT", "soon").unwrap_err();
        assert_eq!(error.code(), "config.bad_value");
        assert_eq!(
            error.to_string(),
            "$AVFS_RUN_TIMEOUT: run.timeout: invalid value \"soon\": expected a duration such as 300s, or none"
        );
        assert!(with("AVFS_RUN_RO", "/a::/b").is_err(), "an empty path was accepted");
    }
}
