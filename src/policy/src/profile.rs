//! Profiles: sets of stricter habits that a file or a caller takes on by name. They only ever add strictness.

use avfs_request::choices::PolicyProfile;
use avfs_request::{NetMode, Profile};

use crate::category::Category;
use crate::decision::Action;
use crate::defaults::{NET_FLAG, categories_of};
use crate::opening::Opening;
use crate::reading::{Asked, Judged};
use crate::verdict::{Verdict, shown};

/// The profiles that somebody has named.
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

    /// What they say of the network one command has. A rule about the command may answer for it.
    #[must_use]
    pub fn network(&self, asked: &Asked<'_>, command: &Judged) -> Option<Verdict> {
        if !self.contains(PolicyProfile::Agent) {
            return None;
        }
        let networked = categories_of(command).contains(Category::Networked);
        let reason = match (networked, asked.net) {
            (false, NetMode::None) => return None,
            (true, NetMode::None | NetMode::Allow(_) | NetMode::Host) => {
                format!("{} needs the network, which an agent has only by approval", shown(command))
            }
            (false, NetMode::Allow(_) | NetMode::Host) => {
                format!("{} would have the network, which an agent has only by approval", shown(command))
            }
        };
        let hint = match (networked, asked.net) {
            // Without the flag an approved command would still find no network.
            (_, NetMode::None) => Some(format!("add {NET_FLAG}, then have it approved")),
            (false, net @ (NetMode::Allow(_) | NetMode::Host)) => {
                Some(format!("drop --net {net} if it is not needed"))
            }
            (true, NetMode::Allow(_) | NetMode::Host) => None,
        };
        Some(Verdict { action: Action::RequireApproval, rule: "profile.agent.net".to_owned(), reason, hint })
    }

    /// What they say of what the request hands over, whatever the command. No rule answers for that: it says
    /// what may run, not with what.
    #[must_use]
    pub fn handed_over(&self, asked: &Asked<'_>) -> Vec<Verdict> {
        if !self.contains(PolicyProfile::Agent) {
            return Vec::new();
        }
        let mut said = Vec::new();
        if let Some(name) = asked.secrets.first() {
            let reason = format!("the value of {name} would be given to an agent");
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
                let reason = "an agent would see every file of the host that its user may read".to_owned();
                said.push(ask("profile.agent.profile", reason, "drop --profile host".to_owned()));
            }
        }
        if let Some(flag) = asked.confinement.opened_by() {
            let reason = format!("an agent would have more of the kernel to attack ({flag})");
            said.push(ask("profile.agent.confinement", reason, format!("drop {flag}")));
        }
        said.extend(asked.openings.iter().map(Opening::for_an_agent));
        said
    }

    /// Where nobody is there to be asked, what would be asked is refused.
    #[must_use]
    pub fn answered(&self, verdict: Verdict) -> Verdict {
        if !self.contains(PolicyProfile::Ci) || verdict.action != Action::RequireApproval {
            return verdict;
        }
        Verdict {
            action: Action::Deny,
            reason: format!("{} ({}), and nobody is there to approve it", verdict.reason, verdict.rule),
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

fn ask(rule: &str, reason: String, hint: String) -> Verdict {
    Verdict { action: Action::RequireApproval, rule: rule.to_owned(), reason, hint: Some(hint) }
}
