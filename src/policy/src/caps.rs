//! Caps: limits that no request may exceed, for any command. The caps of all layers apply together.

use std::path::{Component, Path};

use avfs_request::{
    ExecutionTimeout, LandlockMode, LimitKind, Limits, NestedUserns, NetMode, Profile, SeccompProfile,
};

use crate::decision::Action;
use crate::opening::{Opening, OpeningKind};
use crate::reading::Asked;
use crate::rules::Pattern;
use crate::verdict::{Placed, RulePlace, Verdict};

/// The caps of one file; a missing key sets no cap.
#[derive(Clone, Debug, Default)]
pub struct Caps {
    pub net: Option<Placed<NetMode>>,
    /// Host paths that may be requested with `--rw`.
    pub rw: Option<Placed<Vec<Pattern>>>,
    /// Names of secrets that may be passed.
    pub secrets: Option<Placed<Vec<Pattern>>>,
    pub profile: Option<Placed<Profile>>,
    pub timeout: Option<Placed<ExecutionTimeout>>,
    /// The weakest confinement that may be requested.
    pub seccomp: Option<Placed<SeccompProfile>>,
    pub landlock: Option<Placed<LandlockMode>>,
    pub userns: Option<Placed<NestedUserns>>,
    pub openings: Vec<(OpeningKind, Placed<OpeningCap>)>,
    /// The maximum resource limits, cpus in thousandths.
    pub limits: Vec<(LimitKind, Placed<u64>)>,
}

/// The limit on an opening.
#[derive(Clone, Debug)]
pub enum OpeningCap {
    Allowed(bool),
    /// Allowed for these paths.
    Paths(Vec<Pattern>),
}

impl OpeningCap {
    fn covers(&self, opening: &Opening) -> bool {
        match (self, opening.path()) {
            (Self::Allowed(allowed), _) => *allowed,
            (Self::Paths(patterns), Some(path)) => is_within(path, patterns),
            (Self::Paths(_), None) => false,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Allowed(allowed) => allowed.to_string(),
            Self::Paths(patterns) => list(patterns),
        }
    }
}

/// The key of an opening in the file.
#[must_use]
pub const fn opening_key(kind: OpeningKind) -> &'static str {
    match kind {
        OpeningKind::Vault => "caps.vault",
        OpeningKind::NewVault => "caps.new_vault",
        OpeningKind::Apply => "caps.apply",
        OpeningKind::Ro => "caps.ro",
        OpeningKind::EnvFile => "caps.env_file",
        OpeningKind::Input => "caps.input",
        OpeningKind::At => "caps.at",
        OpeningKind::Degraded => "caps.degraded",
        OpeningKind::Cover => "caps.cover",
        OpeningKind::Preset => "caps.preset",
        OpeningKind::Persist => "caps.persist",
    }
}

/// One cap, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// `caps.net`
    pub key: &'static str,
    pub value: String,
    pub place: RulePlace,
    /// The verdict, if the request exceeds the cap.
    pub broken: Option<Verdict>,
}

impl Caps {
    /// Each cap, and whether the request exceeds it.
    #[must_use]
    pub fn hold(&self, asked: &Asked<'_>) -> Vec<Cap> {
        let net = self.net.as_ref().map(|cap| {
            let beyond = (!cap.value.covers(asked.net)).then(|| network_beyond(&cap.value, asked.net));
            cap_row("caps.net", cap.value.to_string(), &cap.place, beyond)
        });
        let profile = self.profile.as_ref().map(|cap| {
            let beyond = match (cap.value, asked.profile) {
                (Profile::Strict, Profile::Host) => {
                    Some(("a view of the whole host".to_owned(), "--profile host".to_owned()))
                }
                (Profile::Strict, Profile::Strict) | (Profile::Host, Profile::Strict | Profile::Host) => None,
            };
            cap_row("caps.profile", cap.value.to_string(), &cap.place, beyond)
        });
        let rw = self.rw.as_ref().map(|cap| {
            let bad = asked.rw.iter().find(|path| !is_within(path, &cap.value));
            let beyond = bad.map(|path| path.display());
            let beyond = beyond.map(|path| (format!("writing to {path}"), format!("--rw {path}")));
            cap_row("caps.rw", list(&cap.value), &cap.place, beyond)
        });
        let secrets = self.secrets.as_ref().map(|cap| {
            let bad = asked.secrets.iter().find(|name| !cap.value.iter().any(|it| it.matches(name)));
            let beyond = bad.map(|name| {
                (format!("passing the value of {name}"), format!("--secret {name} or --env {name}"))
            });
            cap_row("caps.secrets", list(&cap.value), &cap.place, beyond)
        });
        let held = asked.confinement;
        let seccomp = self.seccomp.as_ref().map(|cap| {
            let option = format!("--seccomp {}", held.seccomp);
            let beyond = (held.seccomp < cap.value).then(|| ("a weaker filter".to_owned(), option));
            cap_row("caps.seccomp", cap.value.to_string(), &cap.place, beyond)
        });
        let landlock = self.landlock.as_ref().map(|cap| {
            let option = format!("--landlock {}", held.landlock);
            let beyond = (held.landlock < cap.value).then(|| ("weaker Landlock rules".to_owned(), option));
            cap_row("caps.landlock", cap.value.to_string(), &cap.place, beyond)
        });
        let userns = self.userns.as_ref().map(|cap| {
            let what = || ("nested user namespaces".to_owned(), "--allow-userns".to_owned());
            cap_row("caps.userns", cap.value.to_string(), &cap.place, (held.userns > cap.value).then(what))
        });
        let openings = self.openings.iter().map(|(kind, cap)| {
            let mut of_kind = asked.openings.iter().filter(|opening| opening.kind() == *kind);
            let broken = of_kind.find_map(|opening| self.refuses(opening));
            Cap { key: opening_key(*kind), value: cap.value.shown(), place: cap.place.clone(), broken }
        });
        // A longer timeout is lowered, not refused; so is a higher limit.
        let timeout =
            self.timeout.as_ref().map(|cap| cap_row("caps.timeout", cap.value.to_string(), &cap.place, None));
        let limits = self
            .limits
            .iter()
            .map(|(kind, cap)| Some(cap_row(limit_key(*kind), kind.show(cap.value), &cap.place, None)));
        let single = [net, profile, rw, secrets, seccomp, landlock, userns, timeout];
        single.into_iter().chain(limits).flatten().chain(openings).collect()
    }

    /// Why an opening exceeds its cap.
    #[must_use]
    pub fn refuses(&self, opening: &Opening) -> Option<Verdict> {
        let (kind, cap) = self.openings.iter().find(|(kind, _)| *kind == opening.kind())?;
        let beyond = (!cap.value.covers(opening)).then(|| (opening.shown(), opening.hint()));
        cap_of(opening_key(*kind), cap.value.shown(), &cap.place, beyond).broken
    }

    /// The highest limits that these caps allow.
    #[must_use]
    pub fn limits_max(&self) -> Limits {
        self.limits.iter().fold(Limits::default(), |limits, (kind, cap)| limits.with(*kind, Some(cap.value)))
    }
}

/// The key of a limit in the file.
#[must_use]
pub const fn limit_key(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Memory => "caps.memory",
        LimitKind::Cpus => "caps.cpus",
        LimitKind::Pids => "caps.pids",
        LimitKind::Disk => "caps.disk",
        LimitKind::Files => "caps.files",
        LimitKind::FileSize => "caps.file_size",
    }
}

/// The shorter of two timeouts.
#[must_use]
pub fn shorter(one: ExecutionTimeout, other: ExecutionTimeout) -> ExecutionTimeout {
    match (one.millis(), other.millis()) {
        (Some(one), Some(other)) => ExecutionTimeout::Millis(one.min(other)),
        (Some(millis), None) | (None, Some(millis)) => ExecutionTimeout::Millis(millis),
        (None, None) => ExecutionTimeout::None,
    }
}

/// The part of a network that exceeds a cap, and the option to drop.
fn network_beyond(cap: &NetMode, asked: &NetMode) -> (String, String) {
    match (cap, asked) {
        (NetMode::Allow(cap), NetMode::Allow(list)) => {
            let place = cap.first_beyond(list).map(ToString::to_string).unwrap_or_default();
            (format!("network access to {place}"), format!("{place} from --net {asked}"))
        }
        (NetMode::None | NetMode::Allow(_) | NetMode::Host, _) => {
            ("network access".to_owned(), format!("--net {asked}"))
        }
    }
}

/// A path with `..` is never within a pattern, since it may lead elsewhere.
fn is_within(path: &Path, patterns: &[Pattern]) -> bool {
    let plain = path.components().all(|part| part != Component::ParentDir);
    plain && patterns.iter().any(|pattern| pattern.matches(&path.to_string_lossy()))
}

fn list(patterns: &[Pattern]) -> String {
    let texts: Vec<&str> = patterns.iter().map(Pattern::text).collect();
    format!("[{}]", texts.join(", "))
}

/// A cap, and the excess with the option to drop.
fn cap_row(key: &'static str, value: String, place: &RulePlace, beyond: Option<(String, String)>) -> Cap {
    cap_of(key, value, place, beyond.map(|(what, flag)| (what, format!("drop {flag}"))))
}

/// A cap, and the excess with a hint.
fn cap_of(key: &'static str, value: String, place: &RulePlace, beyond: Option<(String, String)>) -> Cap {
    let broken = beyond.map(|(what, hint)| Verdict {
        action: Action::Deny,
        rule: key.to_owned(),
        reason: format!("{place} does not allow {what} ({key} is {value})"),
        hint: Some(hint),
    });
    Cap { key, value, place: place.clone(), broken }
}
