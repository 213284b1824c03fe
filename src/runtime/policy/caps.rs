//! Caps: what no request may go beyond, whatever it runs. Those of all layers hold together.

use std::path::{Component, Path};

use crate::runtime::decision::Action;
use crate::runtime::launcher::NetMode;
use crate::runtime::timeout::ExecutionTimeout;
use crate::runtime::view::Profile;

use super::reading::Asked;
use super::rules::Pattern;
use super::verdict::{Place, Placed, Verdict};

/// The caps of one file; where it says nothing there is none.
#[derive(Clone, Debug, Default)]
pub struct Caps {
    pub net: Option<Placed<NetMode>>,
    /// Host paths that may be asked for with `--rw`.
    pub rw: Option<Placed<Vec<Pattern>>>,
    /// Names of secrets that may be given.
    pub secrets: Option<Placed<Vec<Pattern>>>,
    pub profile: Option<Placed<Profile>>,
    pub timeout: Option<Placed<ExecutionTimeout>>,
}

/// One cap as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// `caps.net`
    pub key: &'static str,
    pub value: String,
    pub place: Place,
    /// What is said of a request that goes beyond it.
    pub broken: Option<Verdict>,
}

impl Caps {
    /// Each cap there is, and whether the request goes beyond it.
    #[must_use]
    pub fn hold(&self, asked: &Asked<'_>) -> Vec<Cap> {
        let net = self.net.as_ref().map(|cap| {
            let beyond = match (cap.value, asked.net) {
                (NetMode::None, NetMode::Host) => Some(("network".to_owned(), "--net host".to_owned())),
                (NetMode::None, NetMode::None) | (NetMode::Host, NetMode::None | NetMode::Host) => None,
            };
            told("caps.net", cap.value.to_string(), &cap.place, beyond)
        });
        let profile = self.profile.as_ref().map(|cap| {
            let beyond = match (cap.value, asked.profile) {
                (Profile::Strict, Profile::Host) => {
                    Some(("view of the whole host".to_owned(), "--profile host".to_owned()))
                }
                (Profile::Strict, Profile::Strict) | (Profile::Host, Profile::Strict | Profile::Host) => None,
            };
            told("caps.profile", cap.value.to_string(), &cap.place, beyond)
        });
        let rw = self.rw.as_ref().map(|cap| {
            let bad = asked.rw.iter().find(|path| !is_within(path, &cap.value));
            let beyond = bad.map(|path| path.display());
            let beyond = beyond.map(|path| (format!("writing to {path}"), format!("--rw {path}")));
            told("caps.rw", list(&cap.value), &cap.place, beyond)
        });
        let secrets = self.secrets.as_ref().map(|cap| {
            let bad = asked.secrets.iter().find(|name| !cap.value.iter().any(|it| it.matches(name)));
            let beyond =
                bad.map(|name| (format!("the value of {name}"), format!("--secret {name} or --env {name}")));
            told("caps.secrets", list(&cap.value), &cap.place, beyond)
        });
        // A longer time is lowered, not refused.
        let timeout =
            self.timeout.as_ref().map(|cap| told("caps.timeout", cap.value.to_string(), &cap.place, None));
        [net, profile, rw, secrets, timeout].into_iter().flatten().collect()
    }
}

/// The shorter of two times.
#[must_use]
pub fn shorter(one: ExecutionTimeout, other: ExecutionTimeout) -> ExecutionTimeout {
    match (one.millis(), other.millis()) {
        (Some(one), Some(other)) => ExecutionTimeout::Millis(one.min(other)),
        (Some(millis), None) | (None, Some(millis)) => ExecutionTimeout::Millis(millis),
        (None, None) => ExecutionTimeout::None,
    }
}

/// A path that climbs is not where it seems to be.
fn is_within(path: &Path, patterns: &[Pattern]) -> bool {
    let plain = path.components().all(|part| part != Component::ParentDir);
    plain && patterns.iter().any(|pattern| pattern.matches(&path.to_string_lossy()))
}

fn list(patterns: &[Pattern]) -> String {
    let texts: Vec<&str> = patterns.iter().map(Pattern::text).collect();
    format!("[{}]", texts.join(", "))
}

fn told(key: &'static str, value: String, place: &Place, beyond: Option<(String, String)>) -> Cap {
    let broken = beyond.map(|(what, flag)| Verdict {
        action: Action::Deny,
        rule: key.to_owned(),
        reason: format!("{place} does not allow it: {what} ({key} is {value})"),
        hint: Some(format!("drop {flag}")),
    });
    Cap { key, value, place: place.clone(), broken }
}
