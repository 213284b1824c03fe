//! The decision: every simple command is judged separately, layer by layer, and the strictest verdict wins.
//!
//! Total and deterministic: every request gets a decision, and always the same one.

use avfs_request::choices::PolicyProfile;
use avfs_request::{Confinement, ExecutionTimeout, Limits, NestedUserns, NetMode};

use crate::caps::{Cap, shorter};
use crate::category::{Categories, Category};
use crate::decision::{Action, ExecutionDecision, OnViolation};
use crate::defaults::{self, HOST_ESCAPE, NETWORKED, WRITE_OUT};
use crate::explanation::{Explained, Explanation};
use crate::layer::{Authority, Layer};
use crate::offer::{self, Offer};
use crate::opening::Opening;
use crate::profile::Profiles;
use crate::reading::{Asked, Judged, OwnChoices, Reading};
use crate::verdict::{Fit, Tier, Verdict};

/// The built-in defaults and the layers over them.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// In the order of their tiers; at most one of each.
    layers: Vec<Layer>,
}

/// Whether the system layer has a rule about a command.
#[derive(Clone, Copy)]
enum System {
    Silent,
    Spoke,
}

/// The authority of a layer: it may loosen the defaults, but not the verdict of a higher layer. The project's layer
/// never loosens.
fn may(tier: Tier, system: System) -> Authority {
    match (tier, system) {
        (Tier::System, _) | (Tier::User, System::Silent) => Authority::Replace,
        (Tier::User, System::Spoke) | (Tier::Vault, _) => Authority::Tighten,
    }
}

/// The stricter of the verdicts on two parts of a request. If both allow their part, the one that explains more.
fn deciding(one: Verdict, other: Verdict) -> Verdict {
    let rank = |verdict: &Verdict| defaults::explaining_rank(&verdict.rule);
    let allows = one.action <= Action::AllowWithCheckpoint;
    match one.action == other.action && allows && rank(&other) < rank(&one) {
        true => other,
        false => one.stricter(other),
    }
}

impl Policy {
    /// The defaults, without any files.
    #[must_use]
    pub fn builtin() -> Self {
        Self::default()
    }

    /// Adds a layer, replacing the previous one of the same tier.
    #[must_use]
    pub fn with(mut self, layer: Layer) -> Self {
        self.layers.retain(|other| other.tier != layer.tier);
        self.layers.push(layer);
        self.layers.sort_by_key(|layer| layer.tier);
        self
    }

    /// Adds a profile named by the caller, as if the user's own file had it.
    #[must_use]
    pub fn with_profile(mut self, profile: PolicyProfile) -> Self {
        let at = self.layers.iter().position(|layer| layer.tier == Tier::User);
        let mut user = at.map_or_else(|| Layer::new(Tier::User), |at| self.layers.remove(at));
        user.profiles = user.profiles.with(profile);
        self.with(user)
    }

    /// Adds every profile of a request.
    #[must_use]
    pub fn with_profiles(self, profiles: &[PolicyProfile]) -> Self {
        profiles.iter().fold(self, |policy, profile| policy.with_profile(*profile))
    }

    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    #[must_use]
    pub fn decide(&self, asked: &Asked<'_>) -> ExecutionDecision {
        self.explain(asked).decision
    }

    #[must_use]
    pub fn explain(&self, asked: &Asked<'_>) -> Explanation {
        let mut explanation = self.judge(asked, super::read(asked));
        if self.userns_would_do(asked, &explanation) {
            explanation.decision.hint = Some("add --allow-userns".to_owned());
            return explanation;
        }
        match offer::rules_for(self, asked, &explanation) {
            Some(Offer::Rules(text)) => explanation.decision.allow_rule = Some(text),
            // The hint of another rule remains.
            Some(Offer::Nothing(why)) if explanation.decision.rule.as_deref() == Some(HOST_ESCAPE) => {
                explanation.decision.hint = Some(why);
            }
            Some(Offer::Nothing(_)) | None => {}
        }
        explanation
    }

    /// True if the request is denied only because its command may not create user namespaces. A rule would not help:
    /// the sandbox refuses them.
    fn userns_would_do(&self, asked: &Asked<'_>, explanation: &Explanation) -> bool {
        let denied = &explanation.decision;
        if denied.action != Action::Deny
            || denied.rule.as_deref() != Some(HOST_ESCAPE)
            || asked.confinement.userns != NestedUserns::Refused
        {
            return false;
        }
        let confinement = Confinement { userns: NestedUserns::Allowed, ..asked.confinement };
        let allowing = Asked { confinement, ..*asked };
        self.judge(&allowing, super::read(&allowing)).decision.action != Action::Deny
    }

    /// Why an opening is denied, before the rest of its request is examined; `None` if it is allowed.
    #[must_use]
    pub fn refuses(&self, opening: &Opening) -> Option<Verdict> {
        let by_cap = self.layers.iter().find_map(|layer| layer.caps.refuses(opening));
        let is_agent = self.profiles().contains(PolicyProfile::Agent);
        let by_profile = is_agent.then(|| opening.for_an_agent()).filter(|it| it.action == Action::Deny);
        by_cap.or(by_profile)
    }

    /// The decision about a parsed command, and how it was reached.
    #[must_use]
    pub fn judge(&self, asked: &Asked<'_>, reading: Reading) -> Explanation {
        let in_doubt = reading.is_doubtful().then(|| self.judge_doubts(asked, &reading.doubts));
        let categories = reading.categories();
        let mut commands: Vec<Explained> =
            reading.commands.into_iter().map(|command| self.judge_command(asked, command)).collect();
        if in_doubt.is_some() {
            commands.iter_mut().for_each(|explained| self.ask_without_net_of_rule(asked, explained));
            self.hint_beside_doubt(asked, &reading.doubts, &mut commands);
        }
        let profiles = self.profiles();
        let handed_over = profiles.handed_over(asked);
        let caps: Vec<(Tier, Cap)> = self
            .layers
            .iter()
            .flat_map(|layer| layer.caps.hold(asked).into_iter().map(|cap| (layer.tier, cap)))
            .collect();
        let said = commands.iter().chain(&in_doubt).map(|explained| &explained.verdict);
        let broken = caps.iter().filter_map(|(_, cap)| cap.broken.as_ref());
        let strictest = said.chain(&handed_over).chain(broken).cloned().reduce(deciding);
        // Without a command there is a doubt, so there is always a verdict.
        let strictest = strictest.unwrap_or_else(|| defaults::doubt(asked, &reading.doubts));
        let mut decision = self.decision(profiles.answered(strictest), categories);
        // What runs in doubt could use the network for anything.
        if decision.action <= Action::AllowWithCheckpoint && in_doubt.is_none() {
            decision.net = self.granted_net(asked, &commands);
        }
        let profiles = profiles.iter().collect();
        Explanation { commands, doubts: reading.doubts, in_doubt, profiles, handed_over, caps, decision }
    }

    fn judge_command(&self, asked: &Asked<'_>, command: Judged) -> Explained {
        let all = defaults::categories_of(&command);
        let baseline = defaults::baseline(asked, &command, all);
        // A command always has a category, so there is a verdict.
        let baseline = baseline.unwrap_or_else(|| defaults::doubt(asked, &[]));
        self.hear_layers(asked, command, baseline, may)
    }

    /// In a request with a doubt a rule gives no network, so a networked command that a rule allows with one asks as if
    /// there were no rule.
    fn ask_without_net_of_rule(&self, asked: &Asked<'_>, explained: &mut Explained) {
        let networked = Categories::of(Category::Networked);
        if *asked.net != NetMode::None
            || !explained.command.categories.contains(Category::Networked)
            || self.net_of_rule(asked, &explained.command).is_none()
        {
            return;
        }
        if let Some(asks) = defaults::baseline(asked, &explained.command, networked) {
            explained.verdict = explained.verdict.clone().stricter(asks);
        }
    }

    /// With the option that a networked command lacks, the doubt beside it would ask: the hint is to remove the doubt.
    fn hint_beside_doubt(&self, asked: &Asked<'_>, doubts: &[String], commands: &mut [Explained]) {
        let with_net = Asked { own: OwnChoices { net: true, ..asked.own }, ..*asked };
        if *asked.net != NetMode::None || self.doubt(&with_net, doubts).action <= Action::AllowWithCheckpoint
        {
            return;
        }
        for explained in commands.iter_mut().filter(|explained| explained.verdict.rule == NETWORKED) {
            explained.verdict.hint = Some(WRITE_OUT.to_owned());
        }
    }

    /// Only rules that apply to every command match one without words, and they may only tighten: no rule can be
    /// meant to allow a command that cannot be parsed.
    fn judge_doubts(&self, asked: &Asked<'_>, doubts: &[String]) -> Explained {
        self.hear_layers(asked, Judged::nothing(), self.doubt(asked, doubts), |_, _| Authority::Tighten)
    }

    /// The verdict on doubts according to the files. The same layers may loosen it as for commands.
    fn doubt(&self, asked: &Asked<'_>, doubts: &[String]) -> Verdict {
        let (mut stands, mut system) = (defaults::doubt(asked, doubts), System::Silent);
        for layer in &self.layers {
            let Some(wanted) = &layer.doubt else { continue };
            if wanted.value > stands.action || may(layer.tier, system) == Authority::Replace {
                let asks = wanted.value > Action::AllowWithCheckpoint;
                let hint = asks.then(|| WRITE_OUT.to_owned());
                let rule = format!("{}", wanted.place);
                stands = Verdict { action: wanted.value, rule, reason: defaults::why_in_doubt(doubts), hint };
            }
            if layer.tier == Tier::System {
                system = System::Spoke;
            }
        }
        stands
    }

    fn hear_layers(
        &self,
        asked: &Asked<'_>,
        command: Judged,
        baseline: Verdict,
        authority: impl Fn(Tier, System) -> Authority,
    ) -> Explained {
        let (mut stands, mut said, mut system) = (baseline.clone(), Vec::new(), System::Silent);
        for layer in &self.layers {
            let heard = layer.hear(asked, &command, stands, authority(layer.tier, system));
            if layer.tier == Tier::System && heard.spoke {
                system = System::Spoke;
            }
            stands = heard.stands;
            said.extend(heard.said);
        }
        Explained { command, baseline, said, verdict: stands }
    }

    /// The profiles of all layers together.
    #[must_use]
    pub fn profiles(&self) -> Profiles {
        self.layers.iter().flat_map(|layer| layer.profiles.iter()).collect()
    }

    fn decision(&self, strictest: Verdict, categories: Categories) -> ExecutionDecision {
        let discards = self.layers.iter().any(|layer| layer.on_violation == Some(OnViolation::Discard));
        let timeouts = self.layers.iter().filter_map(|layer| layer.caps.timeout.as_ref());
        ExecutionDecision {
            action: strictest.action,
            categories,
            rule: Some(strictest.rule),
            reason: strictest.reason,
            hint: strictest.hint,
            allow_rule: None,
            on_violation: if discards { OnViolation::Discard } else { OnViolation::Keep },
            timeout_max: timeouts.map(|cap| cap.value).fold(ExecutionTimeout::None, shorter),
            limits_max: self
                .layers
                .iter()
                .map(|layer| layer.caps.limits_max())
                .fold(Limits::default(), |one, other| one.at_most(&other)),
            approval_seconds: self.approval_seconds(),
            net: None,
        }
    }

    /// The network that rules grant to a request without one: only if they grant the same one to every command that
    /// is not read-only, and every cap allows it.
    fn granted_net(&self, asked: &Asked<'_>, commands: &[Explained]) -> Option<NetMode> {
        if *asked.net != NetMode::None {
            return None;
        }
        let only_looks = Categories::of(Category::ReadOnly);
        let acts = |explained: &&Explained| explained.command.categories != only_looks;
        let mut nets =
            commands.iter().filter(acts).map(|explained| self.net_of_rule(asked, &explained.command));
        let net = nets.next()??;
        let same = nets.all(|other| other == Some(net));
        let mut caps = self.layers.iter().filter_map(|layer| layer.caps.net.as_ref());
        (same && caps.all(|cap| cap.value.covers(net))).then(|| net.clone())
    }

    /// The project's file cannot grant a network.
    fn net_of_rule(&self, asked: &Asked<'_>, command: &Judged) -> Option<&NetMode> {
        let own = self.layers.iter().filter(|layer| layer.tier != Tier::Vault);
        let allowing = own.flat_map(|layer| &layer.rules).filter(|rule| {
            rule.action <= Action::AllowWithCheckpoint && rule.fit(asked, command) == Fit::Sure
        });
        let nets = allowing.filter_map(|rule| rule.when.net.as_ref());
        // The narrowest of several: a later rule that narrows it takes precedence.
        nets.reduce(|one, other| if one.covers(other) { other } else { one })
            .filter(|net| **net != NetMode::None)
    }

    /// The system and the user may extend the default; the project may only shorten it.
    fn approval_seconds(&self) -> i64 {
        let said = |layer: &&Layer| layer.approval_seconds;
        let (vault, own): (Vec<&Layer>, Vec<&Layer>) =
            self.layers.iter().partition(|layer| layer.tier == Tier::Vault);
        let own = own.iter().filter_map(said).min().unwrap_or(ExecutionDecision::APPROVAL_SECONDS);
        vault.iter().filter_map(said).fold(own, i64::min)
    }
}
