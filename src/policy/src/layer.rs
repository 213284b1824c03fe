//! One layer: the rules of one tier, and their effect on the previous verdict.

use crate::caps::Caps;
use crate::category::{Categories, Category};
use crate::decision::{Action, OnViolation};
use crate::defaults;
use crate::explanation::{Effect, Said};
use crate::profile::Profiles;
use crate::reading::{Asked, Judged};
use crate::rego::Script;
use crate::rules::Rule;
use crate::verdict::{Fit, Placed, RulePlace, Tier, Verdict, shown};

/// The contents of the files of one tier.
#[derive(Clone, Debug)]
pub struct Layer {
    pub tier: Tier,
    pub rules: Vec<Rule>,
    pub script: Option<Script>,
    pub caps: Caps,
    pub profiles: Profiles,
    pub on_violation: Option<OnViolation>,
    pub approval_seconds: Option<i64>,
    /// The action for doubts: commands that cannot be determined.
    pub doubt: Option<Placed<Action>>,
}

/// What a layer may do to the previous verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    Replace,
    Tighten,
}

/// The verdict of a rule on a command.
struct Voice {
    verdict: Verdict,
    place: RulePlace,
    fit: Fit,
    answers_for: Categories,
}

/// The result of a layer.
pub struct Heard {
    pub stands: Verdict,
    pub said: Vec<Said>,
    /// Whether a rule matches, or may match, the command.
    pub spoke: bool,
}

impl Layer {
    #[must_use]
    pub fn new(tier: Tier) -> Self {
        Self {
            tier,
            rules: Vec::new(),
            script: None,
            caps: Caps::default(),
            profiles: Profiles::default(),
            on_violation: None,
            approval_seconds: None,
            doubt: None,
        }
    }

    /// The verdict after this layer, given the previous one.
    pub fn hear(&self, asked: &Asked<'_>, command: &Judged, stood: Verdict, authority: Authority) -> Heard {
        let voices = self.voices(asked, command);
        let sure = strictest(&voices, Fit::Sure);
        let answered = voices.iter().filter(|voice| voice.fit == Fit::Sure);
        let answered = answered.fold(Categories::NONE, |all, voice| all.union(voice.answers_for));
        let mut effects: Vec<Effect> = voices.iter().map(|_| Effect::Outweighed).collect();
        let mut stands = stood;
        // Also if an unknown word makes the match uncertain: written out, it would have counted.
        let mut spoke = !voices.is_empty();
        if let Some(at) = sure {
            let theirs = voices[at].verdict.clone();
            match authority {
                Authority::Replace => {
                    let unanswered = defaults::categories_of(command).without(answered);
                    let rest = defaults::baseline(asked, command, unanswered);
                    stands = rest.into_iter().fold(theirs, Verdict::stricter);
                    effects[at] = Effect::Counts;
                }
                Authority::Tighten if theirs.action > stands.action => {
                    stands = theirs;
                    effects[at] = Effect::Counts;
                }
                Authority::Tighten => effects[at] = Effect::MayNotLoosen,
            }
        }
        let mut said = Vec::new();
        if let Some(theirs) = self.profile_voice(asked, command, answered) {
            spoke = true;
            said.push(self.profile_said(&theirs, &stands));
            stands = stands.stricter(theirs);
        }
        // Possible matches come last: they can only tighten.
        if let Some(at) = strictest(&voices, Fit::May) {
            let theirs = &voices[at].verdict;
            effects[at] = if theirs.action > stands.action { Effect::Counts } else { Effect::Unsure };
            if theirs.action > stands.action {
                stands = theirs.clone();
            }
        }
        let ruled = voices.into_iter().zip(effects).map(|(voice, effect)| Said {
            tier: self.tier,
            rule: voice.verdict.rule,
            place: Some(voice.place),
            action: voice.verdict.action,
            fit: voice.fit,
            effect,
        });
        Heard { stands, said: ruled.chain(said).collect(), spoke }
    }

    fn voices(&self, asked: &Asked<'_>, command: &Judged) -> Vec<Voice> {
        let heard = self.rules.iter().filter_map(|rule| match rule.fit(asked, command) {
            Fit::No => None,
            fit @ (Fit::May | Fit::Sure) => Some(Voice {
                verdict: ruled(rule, command, fit),
                place: rule.place.clone(),
                fit,
                answers_for: rule.answers_for(),
            }),
        });
        heard.chain(self.script_voice(asked, command)).collect()
    }

    /// The verdict of the layer's script counts like a rule about this one command.
    fn script_voice(&self, asked: &Asked<'_>, command: &Judged) -> Option<Voice> {
        let script = self.script.as_ref()?;
        let verdict = script.say(asked, command)?;
        // The script saw the text of such a word, not its value.
        let is_known = command.words.iter().all(|word| word.known().is_some());
        let fit = if is_known { Fit::Sure } else { Fit::May };
        Some(Voice { verdict, place: script.place(), fit, answers_for: Categories::ALL })
    }

    /// A rule about the command, or about the network, takes precedence over the layer's own profile.
    fn profile_voice(&self, asked: &Asked<'_>, command: &Judged, answered: Categories) -> Option<Verdict> {
        if answered.contains(Category::Networked) {
            return None;
        }
        self.profiles.network(asked, command)
    }

    fn profile_said(&self, theirs: &Verdict, stands: &Verdict) -> Said {
        let effect = if theirs.action > stands.action { Effect::Counts } else { Effect::MayNotLoosen };
        let (rule, action) = (theirs.rule.clone(), theirs.action);
        Said { tier: self.tier, rule, place: None, action, fit: Fit::Sure, effect }
    }
}

/// The hint of a verdict by a rule. The output of that command omits it.
pub const EXPLAIN_HINT: &str = "list all matching rules with: avfs policy explain";

/// The strictest verdict of a fit, the first of equals.
fn strictest(voices: &[Voice], fit: Fit) -> Option<usize> {
    let of_fit = voices.iter().enumerate().filter(|(_, voice)| voice.fit == fit);
    let (at, _) = of_fit.rev().max_by_key(|(_, voice)| voice.verdict.action)?;
    Some(at)
}

fn ruled(rule: &Rule, command: &Judged, fit: Fit) -> Verdict {
    let reason = match (&rule.reason, fit) {
        (Some(reason), Fit::Sure | Fit::No) => reason.clone(),
        (None, Fit::Sure | Fit::No) => format!("{} matches the rule {}", shown(command), rule.name),
        (Some(reason), Fit::May) => format!("{} may match a rule: {reason}", shown(command)),
        (None, Fit::May) => format!("{} may match the rule {}", shown(command), rule.name),
    };
    let hint = match fit {
        Fit::Sure | Fit::No => EXPLAIN_HINT.to_owned(),
        Fit::May => {
            "write the program without its directory, and each word without shell expansions".to_owned()
        }
    };
    Verdict { action: rule.action, rule: rule.name.clone(), reason, hint: Some(hint) }
}
