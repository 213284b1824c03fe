//! What `avfs policy` answers with.

use schemars::JsonSchema;
use serde::Serialize;

use crate::runtime::decision::ExecutionDecision;
use crate::runtime::policy::{
    Cap, Categories, Explained, Explanation, FailedExample, Finding, Said, Tier, Verdict, Word,
};
use crate::runtime::policy_files::PolicyTexts;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyCheck {
    pub decision: PolicyDecision,
    pub files: Vec<PolicyFile>,
}

/// What was decided.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyDecision {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: &'static str,
    pub categories: Vec<&'static str>,
    pub rule: Option<String>,
    pub reason: String,
    pub hint: Option<String>,
    /// What becomes of a run that was said to look only, and wrote: `keep` or `discard`.
    pub on_violation: &'static str,
    /// No command may run for longer; nothing where there is no such cap.
    pub timeout_max_ms: Option<u64>,
    /// No command may use more.
    pub limits_max: Vec<LimitMax>,
    pub approval_seconds: i64,
}

/// The cap of a limit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitMax {
    /// `memory`, `cpus`, `pids`, `disk`, `files` or `file_size`.
    pub limit: &'static str,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
}

/// A place where a policy may be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyFile {
    /// `system`, `user` or `vault`.
    pub layer: &'static str,
    pub path: String,
    pub found: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyExplain {
    pub decision: PolicyDecision,
    /// One for each simple command.
    pub commands: Vec<PolicyCommand>,
    /// Why it cannot be told what will be run.
    pub doubts: Vec<String>,
    /// What was said of the doubts.
    pub in_doubt: Option<PolicyCommand>,
    /// `agent`, `ci`.
    pub profiles: Vec<&'static str>,
    /// What the profiles say of what the request hands over.
    pub handed_over: Vec<PolicyVerdict>,
    pub caps: Vec<PolicyCap>,
    pub files: Vec<PolicyFile>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyCommand {
    pub words: Vec<PolicyWord>,
    pub categories: Vec<&'static str>,
    pub findings: Vec<PolicyFinding>,
    /// What holds where no file says anything.
    pub baseline: PolicyVerdict,
    pub said: Vec<PolicySaid>,
    pub verdict: PolicyVerdict,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyWord {
    pub text: String,
    /// False for a word that only the shell will know.
    pub known: bool,
}

/// Why a category holds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyFinding {
    pub category: &'static str,
    pub why: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyVerdict {
    pub action: &'static str,
    pub rule: String,
    pub reason: String,
    pub hint: Option<String>,
}

/// What a rule, or a profile, said of a command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicySaid {
    pub layer: &'static str,
    pub rule: String,
    /// Nothing for a profile.
    pub file: Option<String>,
    pub line: Option<u64>,
    pub action: &'static str,
    /// `sure`, or `may` where a word that only the shell knows decides it.
    pub fit: &'static str,
    /// `counts`, `outweighed`, `may_not_loosen` or `unsure`.
    pub effect: &'static str,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyCap {
    pub layer: &'static str,
    /// Such as `caps.net`.
    pub cap: &'static str,
    pub value: String,
    pub file: String,
    pub line: u64,
    /// What is said of a request that goes beyond it.
    pub broken: Option<PolicyVerdict>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyTest {
    pub files: Vec<PolicyTested>,
    pub failures: Vec<PolicyFailure>,
}

/// A file whose examples were tried.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyTested {
    pub path: String,
    pub rules: u64,
    pub examples: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyFailure {
    pub file: String,
    pub line: u64,
    pub rule: String,
    pub example: String,
    /// `match` or `not_match`.
    pub wanted: String,
    pub message: String,
}

impl PolicyCheck {
    #[must_use]
    pub fn of(decision: &ExecutionDecision, texts: &PolicyTexts) -> Self {
        Self { decision: decision.into(), files: files(texts) }
    }
}

impl PolicyExplain {
    #[must_use]
    pub fn of(explanation: &Explanation, texts: &PolicyTexts) -> Self {
        Self {
            decision: (&explanation.decision).into(),
            commands: explanation.commands.iter().map(PolicyCommand::from).collect(),
            doubts: explanation.doubts.clone(),
            in_doubt: explanation.in_doubt.as_ref().map(PolicyCommand::from),
            profiles: explanation.profiles.iter().map(|profile| profile.word()).collect(),
            handed_over: explanation.handed_over.iter().map(PolicyVerdict::from).collect(),
            caps: explanation.caps.iter().map(|(tier, cap)| PolicyCap::of(*tier, cap)).collect(),
            files: files(texts),
        }
    }
}

impl PolicyCap {
    fn of(tier: Tier, cap: &Cap) -> Self {
        Self {
            layer: tier.word(),
            cap: cap.key,
            value: cap.value.clone(),
            file: cap.place.file.to_string_lossy().into_owned(),
            line: cap.place.line as u64,
            broken: cap.broken.as_ref().map(PolicyVerdict::from),
        }
    }
}

impl From<&ExecutionDecision> for PolicyDecision {
    fn from(decision: &ExecutionDecision) -> Self {
        Self {
            action: decision.action.word(),
            categories: words(decision.categories),
            rule: decision.rule.clone(),
            reason: decision.reason.clone(),
            hint: decision.hint.clone(),
            on_violation: decision.on_violation.word(),
            timeout_max_ms: decision.timeout_max.millis(),
            limits_max: decision
                .limits_max
                .set()
                .map(|(kind, value)| LimitMax { limit: kind.word(), value })
                .collect(),
            approval_seconds: decision.approval_seconds,
        }
    }
}

impl From<&Explained> for PolicyCommand {
    fn from(explained: &Explained) -> Self {
        let word = |word: &Word| PolicyWord { text: word.shown().to_owned(), known: word.known().is_some() };
        let finding =
            |found: &Finding| PolicyFinding { category: found.category.word(), why: found.why.clone() };
        Self {
            words: explained.command.words.iter().map(word).collect(),
            categories: words(explained.command.categories),
            findings: explained.command.findings.iter().map(finding).collect(),
            baseline: (&explained.baseline).into(),
            said: explained.said.iter().map(PolicySaid::from).collect(),
            verdict: (&explained.verdict).into(),
        }
    }
}

impl From<&Verdict> for PolicyVerdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            action: verdict.action.word(),
            rule: verdict.rule.clone(),
            reason: verdict.reason.clone(),
            hint: verdict.hint.clone(),
        }
    }
}

impl From<&Said> for PolicySaid {
    fn from(said: &Said) -> Self {
        let place = said.place.as_ref();
        Self {
            layer: said.tier.word(),
            rule: said.rule.clone(),
            file: place.map(|place| place.file.to_string_lossy().into_owned()),
            line: place.map(|place| place.line as u64),
            action: said.action.word(),
            fit: said.fit.word(),
            effect: said.effect.word(),
        }
    }
}

impl From<&FailedExample> for PolicyFailure {
    fn from(failed: &FailedExample) -> Self {
        Self {
            file: failed.place.file.to_string_lossy().into_owned(),
            line: failed.place.line as u64,
            rule: failed.rule.clone(),
            example: failed.example.clone(),
            wanted: failed.wanted.to_string(),
            message: failed.to_string(),
        }
    }
}

fn words(categories: Categories) -> Vec<&'static str> {
    categories.iter().map(|category| category.word()).collect()
}

fn files(texts: &PolicyTexts) -> Vec<PolicyFile> {
    let file = |(tier, file): (Tier, &crate::runtime::policy_files::PolicyText)| PolicyFile {
        layer: tier.word(),
        path: file.path.to_string_lossy().into_owned(),
        found: file.text.is_some(),
    };
    texts.files().map(file).collect()
}
