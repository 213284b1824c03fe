//! Decisions and explanations of the policy as wire types.

use avfs_engine::PolicyTexts;
use avfs_policy::{
    Cap, Categories, ExecutionDecision, Explained, Explanation, FailedExample, Finding, Said, Tier, Verdict,
    Word,
};
use avfs_wire::{
    LimitMax, PolicyCap, PolicyCheck, PolicyCommand, PolicyDecision, PolicyExplain, PolicyFailure,
    PolicyFile, PolicyFinding, PolicySaid, PolicyVerdict, PolicyWord,
};

fn words(categories: Categories) -> Vec<avfs_types::Word> {
    categories.iter().map(|category| category.word().into()).collect()
}

fn files(texts: &PolicyTexts) -> Vec<PolicyFile> {
    let file = |(tier, file): (Tier, &avfs_engine::FileText)| PolicyFile {
        layer: tier.word().into(),
        path: file.path.to_string_lossy().into_owned(),
        found: file.text.is_some(),
    };
    texts.files().map(file).collect()
}

#[must_use]
pub fn policy_check(decision: &ExecutionDecision, texts: &PolicyTexts) -> PolicyCheck {
    PolicyCheck { decision: crate::policy_decision(decision), files: files(texts) }
}

#[must_use]
pub fn policy_explain(explanation: &Explanation, texts: &PolicyTexts) -> PolicyExplain {
    PolicyExplain {
        decision: crate::policy_decision(&explanation.decision),
        commands: explanation.commands.iter().map(crate::policy_command).collect(),
        doubts: explanation.doubts.clone(),
        in_doubt: explanation.in_doubt.as_ref().map(crate::policy_command),
        profiles: explanation.profiles.iter().map(|profile| profile.word().into()).collect(),
        handed_over: explanation.handed_over.iter().map(crate::policy_verdict).collect(),
        caps: explanation.caps.iter().map(|(tier, cap)| crate::policy_cap(*tier, cap)).collect(),
        files: files(texts),
    }
}

#[must_use]
pub fn policy_cap(tier: Tier, cap: &Cap) -> PolicyCap {
    PolicyCap {
        layer: tier.word().into(),
        cap: cap.key.into(),
        value: cap.value.clone(),
        file: cap.place.file.to_string_lossy().into_owned(),
        line: cap.place.line as u64,
        broken: cap.broken.as_ref().map(crate::policy_verdict),
    }
}

#[must_use]
pub fn policy_decision(decision: &ExecutionDecision) -> PolicyDecision {
    PolicyDecision {
        action: decision.action.word().into(),
        categories: words(decision.categories),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
        hint: decision.hint.clone(),
        allow_rule: decision.allow_rule.clone(),
        on_violation: decision.on_violation.word().into(),
        timeout_max_ms: decision.timeout_max.millis(),
        limits_max: decision
            .limits_max
            .set()
            .map(|(kind, value)| LimitMax { limit: kind.word().into(), value })
            .collect(),
        approval_seconds: decision.approval_seconds,
    }
}

#[must_use]
pub fn policy_command(explained: &Explained) -> PolicyCommand {
    let word = |word: &Word| PolicyWord { text: word.shown().to_owned(), known: word.known().is_some() };
    let finding =
        |found: &Finding| PolicyFinding { category: found.category.word().into(), why: found.why.clone() };
    PolicyCommand {
        words: explained.command.words.iter().map(word).collect(),
        categories: words(explained.command.categories),
        findings: explained.command.findings.iter().map(finding).collect(),
        baseline: crate::policy_verdict(&explained.baseline),
        said: explained.said.iter().map(crate::policy_said).collect(),
        verdict: crate::policy_verdict(&explained.verdict),
    }
}

#[must_use]
pub fn policy_verdict(verdict: &Verdict) -> PolicyVerdict {
    PolicyVerdict {
        action: verdict.action.word().into(),
        rule: verdict.rule.clone(),
        reason: verdict.reason.clone(),
        hint: verdict.hint.clone(),
    }
}

#[must_use]
pub fn policy_said(said: &Said) -> PolicySaid {
    let place = said.place.as_ref();
    PolicySaid {
        layer: said.tier.word().into(),
        rule: said.rule.clone(),
        file: place.map(|place| place.file.to_string_lossy().into_owned()),
        line: place.map(|place| place.line as u64),
        action: said.action.word().into(),
        fit: said.fit.word().into(),
        effect: said.effect.word().into(),
    }
}

#[must_use]
pub fn policy_failure(failed: &FailedExample) -> PolicyFailure {
    PolicyFailure {
        file: failed.place.file.to_string_lossy().into_owned(),
        line: failed.place.line as u64,
        rule: failed.rule.clone(),
        example: failed.example.clone(),
        wanted: failed.wanted.to_string(),
        message: failed.to_string(),
    }
}
