//! A policy as a Rego script: package `avfs`, one rule `decision` of the form `{"action": …, "reason": …}`.
//!
//! Evaluated in this process, without files, network or clock, and stopped when it takes too long. A script that
//! fails denies.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use serde_json::json;

use crate::decision::Action;
use crate::error::PolicyError;
use crate::reading::{Asked, Judged, Word};
use crate::verdict::{RulePlace, Verdict, shown};

/// The rule that a script must define.
const DECISION: &str = "data.avfs.decision";
/// The time limit for one command.
const EVALUATION_MILLIS_MAX: u64 = 100;
/// Steps between two checks of the time limit.
const STEPS_BETWEEN_LOOKS: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// A parsed script.
#[derive(Clone, Debug)]
pub struct Script {
    file: PathBuf,
    engine: Engine,
}

impl Script {
    pub fn parse(file: &Path, text: &str) -> Result<Self, PolicyError> {
        let refused =
            |line: usize, problem: String| PolicyError::Rego { file: file.to_owned(), line, problem };
        let mut engine = Engine::new();
        engine.set_execution_timer_config(ExecutionTimerConfig {
            limit: Duration::from_millis(EVALUATION_MILLIS_MAX),
            check_interval: STEPS_BETWEEN_LOOKS,
        });
        engine.add_policy(file.display().to_string(), text.to_owned()).map_err(|error| {
            let message = format!("{error:#}");
            refused(line_of(&message), message_of(&message))
        })?;
        // Evaluated once with an empty input: this detects a missing rule, and prepares the rest.
        engine.set_input(Value::new_object());
        match engine.eval_rule(DECISION.to_owned()) {
            Err(error) if error.to_string().contains("not a valid rule path") => {
                let missing = "there is no rule `decision` in the package `avfs`".to_owned();
                Err(refused(1, missing))
            }
            Ok(_) | Err(_) => Ok(Self { file: file.to_owned(), engine }),
        }
    }

    #[must_use]
    pub fn place(&self) -> RulePlace {
        RulePlace { file: self.file.clone(), line: 1 }
    }

    /// The verdict on a command; `None` if the rule is undefined.
    #[must_use]
    pub fn say(&self, asked: &Asked<'_>, command: &Judged) -> Option<Verdict> {
        let rule = self.file.display().to_string();
        match self.evaluate(asked, command) {
            Ok(None) => None,
            Ok(Some((action, reason))) => {
                let reason = reason.unwrap_or_else(|| format!("{rule} decided so for {}", shown(command)));
                Some(Verdict { action, rule, reason, hint: None })
            }
            Err(problem) => Some(Verdict {
                action: Action::Deny,
                reason: format!("{rule} failed: {problem}"),
                hint: Some(format!("fix it, then test it with: avfs policy test {rule}")),
                rule,
            }),
        }
    }

    fn evaluate(
        &self,
        asked: &Asked<'_>,
        command: &Judged,
    ) -> Result<Option<(Action, Option<String>)>, String> {
        let describe = |error: &dyn std::fmt::Display| message_of(&error.to_string());
        let mut engine = self.engine.clone();
        engine.set_input(Value::from_json_str(&input(asked, command)).map_err(|error| describe(&error))?);
        let answer = engine.eval_rule(DECISION.to_owned()).map_err(|error| describe(&error))?;
        if answer == Value::Undefined {
            return Ok(None);
        }
        let action = answer["action"].as_string().map_err(|_| "its decision has no action".to_owned())?;
        let action = action.parse().map_err(|error| describe(&error))?;
        let reason = answer["reason"].as_string().ok();
        Ok(Some((action, reason.map(|reason| reason.replace(char::is_control, " ")))))
    }
}

/// The input of a script.
fn input(asked: &Asked<'_>, command: &Judged) -> String {
    let unknown = command.words.iter().enumerate().filter(|(_, word)| word.known().is_none());
    let input = json!({
        "command": asked.command.shown(),
        "words": command.words.iter().map(Word::shown).collect::<Vec<_>>(),
        "unknown": unknown.map(|(at, _)| at).collect::<Vec<_>>(),
        "categories": command.categories.iter().map(|category| category.word()).collect::<Vec<_>>(),
        "net": asked.net.to_string(),
        "profile": asked.profile.word(),
        "fork": asked.fork.map(|fork| fork.as_str()),
        "cwd": asked.cwd.to_string_lossy(),
        "workspace": asked.workspace.to_string_lossy(),
        "rw": asked.rw.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "secrets": asked.secrets,
        "timeout_ms": asked.timeout.millis(),
    });
    input.to_string()
}

/// The line in `--> FILE:LINE:COLUMN`.
fn line_of(text: &str) -> usize {
    let place = text.lines().find_map(|line| line.trim().strip_prefix("-->"));
    let mut numbers = place.unwrap_or_default().rsplit(':');
    numbers.nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or(1)
}

/// The message after the source excerpt.
fn message_of(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.next_back().unwrap_or("evaluation failed");
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
    use avfs_types::CommandLine;
    use avfs_types::diagnose::Diagnose;

    use super::*;
    use crate::category::{Categories, Category};
    use crate::engine::Policy;
    use crate::layer::Layer;
    use crate::reading::{OwnChoices, Reading};
    use crate::verdict::Tier;

    const SCRIPT: &str = r#"package avfs

decision := {"action": "deny", "reason": "no pushes from here"} if {
    input.words[0] == "git"
    input.words[1] == "push"
    input.net == "none"
}

decision := {"action": "allow"} if {
    "mutating" in input.categories
    input.words[0] == "touch"
}
"#;

    const ENDLESS: &str = r#"package avfs
decision := {"action": "allow"} if {
    count([1 | some i in numbers.range(1, 3000); some j in numbers.range(1, 3000); i * j == 0]) == 0
}
"#;

    fn parse(text: &str) -> Result<Script, PolicyError> {
        Script::parse(Path::new("/p/policy.rego"), text)
    }

    fn decided(script: &Script, tier: Tier, text: &str) -> (Action, String, String) {
        let word = |text: &str| match text.contains('$') {
            true => Word::Unknown(text.to_owned()),
            false => Word::Known(text.to_owned()),
        };
        let words = text.split_whitespace().map(word).collect();
        let command = Judged {
            words,
            categories: Categories::of(Category::Mutating),
            findings: Vec::new(),
            screen: None,
            is_redirected: false,
        };
        let line = CommandLine::Shell(text.into());
        let asked = Asked {
            command: &line,
            fork: None,
            cwd: Path::new("/w"),
            workspace: Path::new("/w"),
            project: Path::new("/w"),
            home: None,
            net: &NetMode::None,
            confinement: Confinement::DEFAULT,
            profile: Profile::Strict,
            timeout: ExecutionTimeout::DEFAULT,
            rw: &[],
            provided: &[],
            secrets: &[],
            variables: &[],
            openings: &[],
            terminal: Terminal::None,
            editor: false,
            own: OwnChoices::NONE,
        };
        let layer = Layer { script: Some(script.clone()), ..Layer::new(tier) };
        let reading = Reading { commands: vec![command], ..Reading::default() };
        let decision = Policy::builtin().with(layer).judge(&asked, reading).decision;
        (decision.action, decision.rule.unwrap(), decision.reason)
    }

    #[test]
    fn a_script_counts_like_a_rule_of_its_layer() {
        let script = parse(SCRIPT).unwrap();
        let (action, rule, reason) = decided(&script, Tier::User, "git push origin");
        assert_eq!((action, rule.as_str()), (Action::Deny, "/p/policy.rego"));
        assert_eq!(reason, "no pushes from here");
        // No verdict if its rule is undefined.
        assert_eq!(decided(&script, Tier::User, "git log").1, "builtin.mutating");
        for (tier, expected) in [
            (Tier::System, Action::Allow),
            (Tier::User, Action::Allow),
            (Tier::Vault, Action::AllowWithCheckpoint),
        ] {
            assert_eq!(decided(&script, tier, "touch x").0, expected, "{tier}");
        }
        // An unknown word does not loosen anything.
        assert_eq!(decided(&script, Tier::System, "touch $x").0, Action::AllowWithCheckpoint);
    }

    #[test]
    fn a_script_that_fails_or_times_out_denies() {
        for (text, part) in [
            ("package avfs\ndecision := {\"action\": \"refuse\"}", "invalid action"),
            ("package avfs\ndecision := {\"reason\": \"x\"}", "its decision has no action"),
            (ENDLESS, ""),
            ("package avfs\ndecision := {\"action\": \"allow\"}\ndecision := {\"action\": \"deny\"}", ""),
        ] {
            let (action, _, reason) = decided(&parse(text).unwrap(), Tier::System, "x");
            assert_eq!(action, Action::Deny, "{text}: {reason}");
            assert!(reason.contains("policy.rego failed: ") && reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_bad_script_is_rejected_with_its_line() {
        for (text, message) in [
            ("package avfs\n\nx := { if", "/p/policy.rego:3: unexpected keyword `if`"),
            (
                "package other\ndecision := {}",
                "/p/policy.rego:1: there is no rule `decision` in the package `avfs`",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.code(), error.to_string().as_str()), ("policy.rego", message));
        }
        // The host is not accessible.
        for call in ["time.now_ns() > 0", "http.send({\"url\": \"http://x\"})", "opa.runtime() == {}"] {
            let text = format!("package avfs\ndecision := {{\"action\": \"allow\"}} if {call}");
            let action = parse(&text).map(|script| decided(&script, Tier::System, "x").0);
            assert!(!matches!(action, Ok(Action::Allow)), "{call}");
        }
    }
}
