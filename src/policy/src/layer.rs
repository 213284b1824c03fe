//! One layer: what the files of one tier say, and what becomes of what stood before it spoke.

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

/// What the files of one tier say.
#[derive(Clone, Debug)]
pub struct Layer {
    pub tier: Tier,
    pub rules: Vec<Rule>,
    pub script: Option<Script>,
    pub caps: Caps,
    pub profiles: Profiles,
    pub on_violation: Option<OnViolation>,
    pub approval_seconds: Option<i64>,
    /// What is to be done where nobody can tell what will be run.
    pub doubt: Option<Placed<Action>>,
}

/// What a layer may do to what stood before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    Replace,
    Tighten,
}

/// Something that was said of a command, by a rule.
struct Voice {
    verdict: Verdict,
    place: RulePlace,
    fit: Fit,
    answers_for: Categories,
}

/// What stands after a layer has spoken.
pub struct Heard {
    pub stands: Verdict,
    pub said: Vec<Said>,
    /// Whether it has, or may have, something to say of the command.
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

    /// What stands after this layer, where `stood` did before.
    pub fn hear(&self, asked: &Asked<'_>, command: &Judged, stood: Verdict, authority: Authority) -> Heard {
        let voices = self.voices(asked, command);
        let sure = strictest(&voices, Fit::Sure);
        let answered = voices.iter().filter(|voice| voice.fit == Fit::Sure);
        let answered = answered.fold(Categories::NONE, |all, voice| all.union(voice.answers_for));
        let mut effects: Vec<Effect> = voices.iter().map(|_| Effect::Outweighed).collect();
        let mut stands = stood;
        // Also where a word that only the shell knows keeps it from counting: written out, it would have counted.
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
        // What only may be meant comes last: it can do nothing but tighten.
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
        let heard = self.rules.iter().filter_map(|rule| match rule.when.fit(asked, command) {
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

    /// What the script of the layer says counts like a rule about this one command.
    fn script_voice(&self, asked: &Asked<'_>, command: &Judged) -> Option<Voice> {
        let script = self.script.as_ref()?;
        let verdict = script.say(asked, command)?;
        // It saw how such a word is written, not what it will be.
        let is_known = command.words.iter().all(|word| word.known().is_some());
        let fit = if is_known { Fit::Sure } else { Fit::May };
        Some(Voice { verdict, place: script.place(), fit, answers_for: Categories::ALL })
    }

    /// A rule about the command, or about the network, answers in place of the layer's own profile.
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

/// The strictest voice of a fit, the first of equals.
fn strictest(voices: &[Voice], fit: Fit) -> Option<usize> {
    let of_fit = voices.iter().enumerate().filter(|(_, voice)| voice.fit == fit);
    let (at, _) = of_fit.rev().max_by_key(|(_, voice)| voice.verdict.action)?;
    Some(at)
}

fn ruled(rule: &Rule, command: &Judged, fit: Fit) -> Verdict {
    let reason = match (&rule.reason, fit) {
        (Some(reason), Fit::Sure | Fit::No) => reason.clone(),
        (None, Fit::Sure | Fit::No) => format!("{} is what the rule {} is about", shown(command), rule.name),
        (Some(reason), Fit::May) => format!("{} may be what a rule is about: {reason}", shown(command)),
        (None, Fit::May) => format!("{} may be what the rule {} is about", shown(command), rule.name),
    };
    let hint = match fit {
        Fit::Sure | Fit::No => "see every rule that was heard with: avfs policy explain".to_owned(),
        Fit::May => {
            "write the program without its directory, and each word as the shell would pass it on".to_owned()
        }
    };
    Verdict { action: rule.action, rule: rule.name.clone(), reason, hint: Some(hint) }
}
