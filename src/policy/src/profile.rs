//! Profiles: named sets of stricter rules that a file or a caller can select. They only ever add strictness.

use std::path::Path;

use avfs_request::choices::PolicyProfile;
use avfs_request::{NetMode, Preset, Profile, with_hosts};

use crate::category::Category;
use crate::decision::Action;
use crate::defaults::{NET_FLAG, categories_of};
use crate::opening::Opening;
use crate::reading::{Asked, Judged};
use crate::verdict::{Verdict, shown};

/// The selected profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles(Vec<PolicyProfile>);

impl Profiles {
    #[must_use]
    pub fn with(mut self, profile: PolicyProfile) -> Self {
        if !self.contains(profile) {
            self.0.push(profile);
            self.0.sort_unstable();
        }
        self
    }

    #[must_use]
    pub fn contains(&self, profile: PolicyProfile) -> bool {
        self.0.contains(&profile)
    }

    pub fn iter(&self) -> impl Iterator<Item = PolicyProfile> {
        self.0.iter().copied()
    }

    /// The verdict on the network access of one command. A rule about the command may take precedence.
    #[must_use]
    pub fn network(&self, asked: &Asked<'_>, command: &Judged) -> Option<Verdict> {
        if !self.contains(PolicyProfile::Agent) {
            return None;
        }
        let networked = categories_of(command).contains(Category::Networked);
        let reason = match (networked, asked.net) {
            (false, NetMode::None) => return None,
            (true, NetMode::None | NetMode::Allow(_) | NetMode::Host) => {
                format!("{} needs the network, which an agent gets only by approval", shown(command))
            }
            (false, NetMode::Allow(_) | NetMode::Host) => {
                format!("{} would have network access, which an agent gets only by approval", shown(command))
            }
        };
        let hint = match (networked, asked.net) {
            // Without the option, an approved command would still have no network.
            (_, NetMode::None) => Some(format!("add {NET_FLAG}, then have it approved")),
            (false, net @ (NetMode::Allow(_) | NetMode::Host)) => Some(match preset_of_net(asked) {
                Some(preset) => {
                    format!("add --net none if the network of --preset {preset} is not needed")
                }
                None => format!("drop --net {net} if it is not needed"),
            }),
            (true, NetMode::Allow(_) | NetMode::Host) => None,
        };
        Some(Verdict { action: Action::RequireApproval, rule: "profile.agent.net".to_owned(), reason, hint })
    }

    /// The verdicts on the privileges that the request passes to any command. No rule takes precedence: rules decide
    /// which commands may run, not with which privileges.
    #[must_use]
    pub fn handed_over(&self, asked: &Asked<'_>) -> Vec<Verdict> {
        if self.contains(PolicyProfile::Agent) { privileges(asked) } else { Vec::new() }
    }

    /// The verdict on a request in a file outside of the workspace, before the file is opened.
    #[must_use]
    pub fn foreign_request(&self, file: &Path) -> Option<Verdict> {
        self.contains(PolicyProfile::Agent).then(|| Verdict {
            action: Action::Deny,
            rule: "profile.agent.request".to_owned(),
            reason: format!("an agent would read {}, outside of the workspace", file.display()),
            hint: Some(
                "write the request to a file of the workspace, or to standard input: --request -".to_owned(),
            ),
        })
    }

    /// With the profile `ci`, nobody can be asked, so a required approval becomes a denial.
    #[must_use]
    pub fn answered(&self, verdict: Verdict) -> Verdict {
        if !self.contains(PolicyProfile::Ci) || verdict.action != Action::RequireApproval {
            return verdict;
        }
        Verdict {
            action: Action::Deny,
            reason: format!("{} ({}), and nobody can approve it", verdict.reason, verdict.rule),
            rule: "profile.ci".to_owned(),
            hint: verdict.hint,
        }
    }
}

impl FromIterator<PolicyProfile> for Profiles {
    fn from_iter<I: IntoIterator<Item = PolicyProfile>>(profiles: I) -> Self {
        profiles.into_iter().fold(Self::default(), Self::with)
    }
}

/// The privileges that a request passes to any command, as the profile `agent` judges them.
fn privileges(asked: &Asked<'_>) -> Vec<Verdict> {
    let mut said = Vec::new();
    if let Some(name) = asked.secrets.first() {
        let reason = format!("the value of {name} would be passed to an agent");
        said.push(ask("profile.agent.secrets", reason, format!("drop --secret {name} or --env {name}")));
    }
    if let Some(path) = asked.rw.first() {
        let path = path.display();
        let reason = format!("an agent would write to {path}, outside of the workspace");
        said.push(ask("profile.agent.rw", reason, format!("drop --rw {path}")));
    }
    match asked.profile {
        Profile::Strict => {}
        Profile::Host => {
            let reason = "an agent would see every file of the host that its user can read".to_owned();
            said.push(ask("profile.agent.profile", reason, "drop --profile host".to_owned()));
        }
    }
    if let Some(flag) = asked.confinement.opened_by() {
        let reason = format!("more of the kernel would be exposed to an agent ({flag})");
        said.push(ask("profile.agent.confinement", reason, format!("drop {flag}")));
    }
    said.extend(asked.openings.iter().map(Opening::for_an_agent));
    said
}

/// The first option of a request that gives its command more than the default, as a hint to drop it. The settings do
/// not count: their author trusts every command with them.
pub fn option_to_drop(asked: &Asked<'_>) -> Option<String> {
    if asked.own.net {
        return Some(match preset_of_net(asked) {
            Some(preset) => format!("drop --preset {preset}"),
            None => format!("drop --net {}", asked.net),
        });
    }
    let own = Asked { profile: asked.own.profile, confinement: asked.own.confinement, ..*asked };
    let given = privileges(&own).into_iter().find_map(|verdict| verdict.hint);
    given.or_else(|| asked.own.variables.then(|| "drop --env NAME".to_owned()))
}

/// The first preset, if the whole network of the request is that of its presets.
fn preset_of_net(asked: &Asked<'_>) -> Option<Preset> {
    let presets: Vec<Preset> = asked.openings.iter().filter_map(Opening::preset).collect();
    presets.first().copied().filter(|_| *asked.net == with_hosts(NetMode::None, &presets))
}

fn ask(rule: &str, reason: String, hint: String) -> Verdict {
    Verdict { action: Action::RequireApproval, rule: rule.to_owned(), reason, hint: Some(hint) }
}
