//! Parses `policy.toml` into a layer: every key is known, every value has its type, every example passes.

use std::path::Path;

use avfs_request::choices::PolicyProfile;
use avfs_request::{Cpus, ExecutionTimeout, LimitKind, MEMORY_BYTES_MIN};
use avfs_types::toml_source::{Fault, Source, TomlValue};
use avfs_types::{Size, Span};

use crate::caps::{Caps, OpeningCap, limit_key, opening_key};
use crate::category::{Categories, Category};
use crate::decision::{Action, OnViolation};
use crate::error::PolicyError;
use crate::examples::{Example, Wanted};
use crate::layer::Layer;
use crate::opening::OpeningKind;
use crate::profile::Profiles;
use crate::reading::{Asked, Reading};
use crate::rules::{ArgPattern, Conditions, Pattern, Rule};
use crate::verdict::{Placed, RulePlace, Tier};

const TOP: &[&str] = &["profile", "doubt", "rule", "caps", "truth", "approval"];
const ACTIONS: &str = "allow, allow_with_checkpoint, require_approval or deny";
const RULE: &[&str] = &[
    "name",
    "prefix",
    "args",
    "category",
    "fork",
    "cwd",
    "workspace",
    "net",
    "action",
    "reason",
    "match",
    "not_match",
];
const CAPS: &[&str] = &[
    "net",
    "rw",
    "secrets",
    "timeout",
    "profile",
    "seccomp",
    "landlock",
    "userns",
    "vault",
    "new_vault",
    "apply",
    "ro",
    "env_file",
    "input",
    "at",
    "cover",
    "degraded",
    "preset",
    "persist",
    "memory",
    "cpus",
    "pids",
    "disk",
    "files",
    "file_size",
];
const TRUTH: &[&str] = &["violated"];
const APPROVAL: &[&str] = &["expires"];

/// Prefixes of names that a rule in a file must not have.
const RESERVED: [&str; 3] = ["builtin.", "profile.", "caps."];
const NAME_CHARS_MAX: usize = 64;
/// The text may be untrusted: it must not crowd out the rest of a message.
const REASON_CHARS_MAX: usize = 300;

impl Layer {
    /// Parses a file. A file whose own examples fail is rejected as a whole.
    pub fn parse(
        tier: Tier,
        file: &Path,
        text: &str,
        read: fn(&Asked<'_>) -> Reading,
    ) -> Result<Self, PolicyError> {
        let layer = Self::parse_unchecked(tier, file, text)?;
        match layer.rules.iter().flat_map(|rule| rule.failed_examples(read)).next() {
            Some(failed) => Err(failed.into()),
            None => Ok(layer),
        }
    }

    /// Parses a file without checking its examples.
    pub fn parse_unchecked(tier: Tier, file: &Path, text: &str) -> Result<Self, PolicyError> {
        let source = Source { file, text };
        let document = source.document()?;
        let mut layer = Self::new(tier);
        for found in source.fields(document.get_ref(), "", TOP)? {
            match found.key.as_str() {
                "profile" => layer.profiles = profiles(&found)?,
                "rule" => {
                    for rule in found.items("a list of tables: [[rule]]")? {
                        layer.rules.push(read_rule(&rule)?);
                    }
                }
                "doubt" => layer.doubt = Some(placed(&found, found.parse::<Action>(ACTIONS)?)),
                "caps" => layer.caps = caps(&found)?,
                "truth" => layer.on_violation = truth(&found)?,
                "approval" => layer.approval_seconds = approval(&found)?,
                _ => return Err(found.unread().into()),
            }
        }
        Ok(layer)
    }
}

fn profiles(found: &TomlValue<'_>) -> Result<Profiles, Fault> {
    one_or_more(found)?.iter().map(|item| item.parse::<PolicyProfile>("agent or ci")).collect()
}

fn caps(found: &TomlValue<'_>) -> Result<Caps, Fault> {
    let mut caps = Caps::default();
    for field in found.source.fields(found.table()?, "caps.", CAPS)? {
        match field.key.as_str() {
            "caps.net" => caps.net = Some(placed(&field, field.parse("none, host or allow=DOMAIN,…")?)),
            "caps.rw" => caps.rw = Some(placed(&field, patterns(&field, path_pattern)?)),
            "caps.secrets" => caps.secrets = Some(placed(&field, patterns(&field, text_pattern)?)),
            "caps.profile" => caps.profile = Some(placed(&field, field.parse("strict or host")?)),
            "caps.timeout" => caps.timeout = Some(placed(&field, timeout(&field)?)),
            "caps.seccomp" => caps.seccomp = Some(placed(&field, field.parse("default, strict or off")?)),
            "caps.landlock" => caps.landlock = Some(placed(&field, field.parse("auto, required or off")?)),
            "caps.userns" => caps.userns = Some(placed(&field, field.parse("refused or allowed")?)),
            other => {
                let opening = OpeningKind::ALL.iter().find(|kind| opening_key(**kind) == other);
                let limit = LimitKind::ALL.iter().find(|kind| limit_key(**kind) == other);
                match (opening, limit) {
                    (Some(kind), _) => {
                        caps.openings.push((*kind, placed(&field, opening_cap(&field, *kind)?)))
                    }
                    (None, Some(kind)) => caps.limits.push((*kind, placed(&field, amount(&field, *kind)?))),
                    (None, None) => return Err(field.unread()),
                }
            }
        }
    }
    Ok(caps)
}

/// Paths if the opening is about a path; otherwise true or false.
fn opening_cap(field: &TomlValue<'_>, kind: OpeningKind) -> Result<OpeningCap, Fault> {
    match kind {
        OpeningKind::Vault
        | OpeningKind::Ro
        | OpeningKind::EnvFile
        | OpeningKind::Input
        | OpeningKind::At
        | OpeningKind::Cover => Ok(OpeningCap::Paths(patterns(field, path_pattern)?)),
        OpeningKind::NewVault
        | OpeningKind::Apply
        | OpeningKind::Degraded
        | OpeningKind::Preset
        | OpeningKind::Persist => match field.value.get_ref().as_bool() {
            Some(allowed) => Ok(OpeningCap::Allowed(allowed)),
            None => Err(field.bad(field.value, "it", "true or false")),
        },
    }
}

fn truth(found: &TomlValue<'_>) -> Result<Option<OnViolation>, Fault> {
    let fields = found.source.fields(found.table()?, "truth.", TRUTH)?;
    fields.first().map(|field| field.parse("keep or discard")).transpose()
}

fn approval(found: &TomlValue<'_>) -> Result<Option<i64>, Fault> {
    let fields = found.source.fields(found.table()?, "approval.", APPROVAL)?;
    let seconds = |field: &TomlValue<'_>| {
        const WANTED: &str = "a duration longer than zero, such as 24h";
        let Span(seconds) = field.parse(WANTED)?;
        if seconds > 0 { Ok(seconds) } else { Err(field.bad(field.value, "0", WANTED)) }
    };
    fields.first().map(seconds).transpose()
}

fn timeout(field: &TomlValue<'_>) -> Result<ExecutionTimeout, Fault> {
    const WANTED: &str = "a duration longer than zero, such as 10m, or none";
    match field.parse(WANTED)? {
        ExecutionTimeout::Millis(0) => Err(field.bad(field.value, "0", WANTED)),
        timeout @ (ExecutionTimeout::Millis(_) | ExecutionTimeout::None) => Ok(timeout),
    }
}

/// The value of a limit, which is never zero or none: that would not be a cap.
fn amount(field: &TomlValue<'_>, kind: LimitKind) -> Result<u64, Fault> {
    let wanted = match kind {
        LimitKind::Cpus => "a number of processors such as 2 or 0.5",
        LimitKind::Pids | LimitKind::Files => "a number greater than zero",
        LimitKind::Memory | LimitKind::Disk | LimitKind::FileSize => "a size greater than zero, such as 2GiB",
    };
    let value = field.value.get_ref();
    let number = value.as_integer().map(ToString::to_string);
    let number = number.or_else(|| value.as_float().map(ToString::to_string));
    let text = match number {
        Some(number) => number,
        None => field.text(field.value)?.to_owned(),
    };
    let value = match kind {
        LimitKind::Cpus => text.parse::<Cpus>().map(|cpus| cpus.0),
        LimitKind::Memory | LimitKind::Pids | LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => {
            text.parse::<Size>().map(|size| size.0)
        }
    };
    match value {
        Ok(value) if kind == LimitKind::Memory && value < MEMORY_BYTES_MIN => {
            Err(field.bad(field.value, &text, "a size of at least 1MiB"))
        }
        Ok(value) if value > 0 => Ok(value),
        Ok(_) | Err(_) => Err(field.bad(field.value, &text, wanted)),
    }
}

fn read_rule(found: &TomlValue<'_>) -> Result<Rule, PolicyError> {
    let place = place(found);
    let (mut name, mut action, mut reason) = (None, None, None);
    let mut net = None;
    let (mut when, mut examples) = (Conditions::default(), Vec::new());
    for field in found.source.fields(found.table()?, "rule.", RULE)? {
        match field.key.as_str() {
            "rule.name" => name = Some(rule_name(&field)?),
            "rule.prefix" => when.prefix = prefix(&field)?,
            "rule.args" => when.args = args(&field)?,
            "rule.category" => when.categories = categories(&field)?,
            "rule.fork" => when.fork = Some(text_pattern(&field)?),
            "rule.cwd" => when.cwd = Some(path_pattern(&field)?),
            "rule.workspace" => when.workspace = Some(path_pattern(&field)?),
            "rule.net" => {
                when.net = Some(field.parse("none, host or allow=DOMAIN,…")?);
                let text = field.text(field.value)?;
                net = Some(field.bad(
                    field.value,
                    text,
                    "valid here: only a rule that allows can grant a network",
                ));
            }
            "rule.action" => {
                action = Some(field.parse::<Action>(ACTIONS)?);
            }
            "rule.reason" => reason = Some(rule_reason(&field)?),
            "rule.match" => read_examples(&field, Wanted::Match, &mut examples)?,
            "rule.not_match" => read_examples(&field, Wanted::NotMatch, &mut examples)?,
            _ => return Err(field.unread().into()),
        }
    }
    let action = action.ok_or_else(|| PolicyError::Missing { place: place.clone(), key: "action" })?;
    if let (Some(fault), true) = (net, action > Action::AllowWithCheckpoint) {
        return Err(fault.into());
    }
    let name = name.unwrap_or_else(|| place.to_string());
    Ok(Rule { name, place, when, action, reason, examples })
}

/// A rule with the name of a default could be mistaken for it.
fn rule_name(field: &TomlValue<'_>) -> Result<String, Fault> {
    const WANTED: &str = "a name of up to 64 characters that does not begin with builtin., profile. or caps.";
    let name = line_of_text(field)?;
    let is_good = name.chars().count() <= NAME_CHARS_MAX && !RESERVED.iter().any(|it| name.starts_with(it));
    if is_good { Ok(name) } else { Err(field.bad(field.value, &name, WANTED)) }
}

fn rule_reason(field: &TomlValue<'_>) -> Result<String, Fault> {
    let reason = line_of_text(field)?;
    if reason.chars().count() <= REASON_CHARS_MAX {
        return Ok(reason);
    }
    Err(field.bad(field.value, &reason, "a sentence of up to 300 characters"))
}

/// Text shown to people must not contain control characters.
fn line_of_text(field: &TomlValue<'_>) -> Result<String, Fault> {
    let text = field.text(field.value)?;
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err(field.bad(field.value, text, "one line of text"));
    }
    Ok(text.to_owned())
}

fn prefix(field: &TomlValue<'_>) -> Result<Vec<Vec<String>>, Fault> {
    const WANTED: &str = "a list of words, or of lists of words";
    let elements = field.items(WANTED)?;
    if elements.is_empty() {
        return Err(field.bad(field.value, "[]", WANTED));
    }
    let alternatives = |element: &TomlValue<'_>| {
        let words = one_or_more(element)?;
        if words.is_empty() {
            return Err(element.bad(element.value, "[]", WANTED));
        }
        words.iter().map(|word| word.text(word.value).map(str::to_owned)).collect()
    };
    elements.iter().map(alternatives).collect()
}

fn args(field: &TomlValue<'_>) -> Result<Vec<ArgPattern>, Fault> {
    let pattern = |item: &TomlValue<'_>| match item.text(item.value)?.strip_prefix('!') {
        Some(text) => glob(item, Pattern::of_text(text)).map(ArgPattern::None),
        None => text_pattern(item).map(ArgPattern::Some),
    };
    one_or_more(field)?.iter().map(pattern).collect()
}

fn categories(field: &TomlValue<'_>) -> Result<Categories, Fault> {
    const WANTED: &str =
        "one of read_only, mutating, destructive, networked, host_escape_risk and interactive";
    one_or_more(field)?.iter().map(|item| item.parse::<Category>(WANTED)).collect()
}

fn read_examples(field: &TomlValue<'_>, wanted: Wanted, examples: &mut Vec<Example>) -> Result<(), Fault> {
    for item in one_or_more(field)? {
        let text = item.text(item.value)?.to_owned();
        examples.push(Example { text, wanted, place: place(&item) });
    }
    Ok(())
}

fn patterns(
    field: &TomlValue<'_>,
    pattern: fn(&TomlValue<'_>) -> Result<Pattern, Fault>,
) -> Result<Vec<Pattern>, Fault> {
    field.items("a list of globs")?.iter().map(pattern).collect()
}

fn text_pattern(field: &TomlValue<'_>) -> Result<Pattern, Fault> {
    glob(field, Pattern::of_text(field.text(field.value)?))
}

fn path_pattern(field: &TomlValue<'_>) -> Result<Pattern, Fault> {
    let text = field.text(field.value)?;
    if !text.starts_with('/') || text.split('/').any(|name| name == "..") {
        return Err(field.bad(field.value, text, "an absolute path or glob without '..'"));
    }
    glob(field, Pattern::of_path(text))
}

fn glob(field: &TomlValue<'_>, pattern: Result<Pattern, globset::Error>) -> Result<Pattern, Fault> {
    pattern.or_else(|_| Err(field.bad(field.value, field.text(field.value)?, "a glob")))
}

/// The items of a list; a single value counts as a list of one.
fn one_or_more<'a>(field: &TomlValue<'a>) -> Result<Vec<TomlValue<'a>>, Fault> {
    if field.value.get_ref().is_str() {
        return Ok(vec![TomlValue { source: field.source, key: field.key.clone(), value: field.value }]);
    }
    field.items("a string or a list of strings")
}

fn place(found: &TomlValue<'_>) -> RulePlace {
    RulePlace { file: found.source.file.to_owned(), line: found.line() }
}

fn placed<T>(field: &TomlValue<'_>, value: T) -> Placed<T> {
    Placed { value, place: place(field) }
}

#[cfg(test)]
mod tests {
    use avfs_request::{LandlockMode, Limits, NetMode, Profile};
    use avfs_types::diagnose::Diagnose;

    use super::*;
    use crate::reading::{Judged, Word};

    /// Splits at blanks, which is enough for the examples of these tests.
    fn read(asked: &Asked<'_>) -> Reading {
        let word = |text: &str| match text.contains('$') {
            true => Word::Unknown(text.to_owned()),
            false => Word::Known(text.to_owned()),
        };
        let words: Vec<Word> = asked.command.shown().split_whitespace().map(word).collect();
        if words.is_empty() {
            return Reading { doubts: vec!["it is empty".to_owned()], ..Reading::default() };
        }
        let command = Judged {
            words,
            categories: Categories::of(Category::Mutating),
            findings: Vec::new(),
            screen: None,
            is_redirected: false,
        };
        Reading { commands: vec![command], ..Reading::default() }
    }

    fn parse(text: &str) -> Result<Layer, PolicyError> {
        Layer::parse(Tier::User, Path::new("/p.toml"), text, read)
    }

    const WHOLE: &str = r#"
profile = ["agent", "ci"]
doubt = "deny"

[[rule]]
name = "no-force-push"
prefix = ["git", ["push", "send-pack"]]
args = ["--force*", "!--dry-run"]
category = ["mutating"]
fork = "release-*"
cwd = "/srv/**"
workspace = "/srv/app"
action = "deny"
reason = "history is shared"
match = ["git push --force origin main", "git push $ALL"]
not_match = ["git push origin main", "git push --force --dry-run", "ls"]

[[rule]]
category = "interactive"
net = "host"
action = "allow"

[caps]
net = "none"
rw = ["/srv/data/**"]
secrets = ["NPM_*"]
timeout = "10m"
profile = "strict"
seccomp = "default"
landlock = "required"
userns = "refused"
vault = []
new_vault = false
apply = false
ro = ["/srv/data/**"]
env_file = []
input = []
at = []
cover = []
degraded = true
preset = false
persist = true
memory = "2GiB"
cpus = 1.5
pids = 100
disk = "10GB"
files = 5000
file_size = "1M"

[truth]
violated = "discard"

[approval]
expires = "2h"
"#;

    #[test]
    fn all_keys_are_parsed() {
        let layer = parse(WHOLE).unwrap();
        assert_eq!(
            layer.doubt.as_ref().map(|doubt| (doubt.value, doubt.place.line)),
            Some((Action::Deny, 3))
        );
        assert_eq!(layer.profiles.iter().collect::<Vec<_>>(), [PolicyProfile::Agent, PolicyProfile::Ci]);
        let [first, second] = layer.rules.as_slice() else { panic!("{:?}", layer.rules) };
        assert_eq!((first.name.as_str(), first.place.line, first.action), ("no-force-push", 5, Action::Deny));
        assert_eq!(first.when.prefix, [vec!["git"], vec!["push", "send-pack"]]);
        assert_eq!((first.when.args.len(), first.examples.len()), (2, 5));
        assert!(first.when.fork.as_ref().unwrap().matches("release-1"));
        assert!(first.when.cwd.is_some() && first.when.workspace.is_some());
        assert_eq!(first.reason.as_deref(), Some("history is shared"));
        // A rule without a name is identified by its line.
        assert_eq!((second.name.as_str(), second.when.prefix.len()), ("/p.toml:18", 0));
        let caps = layer.caps;
        let limits = Limits {
            memory: Some(2 << 30),
            cpus: Some(Cpus(1500)),
            pids: Some(100),
            disk: Some(10_000_000_000),
            files: Some(5000),
            file_size: Some(1 << 20),
        };
        assert_eq!(caps.limits_max(), limits);
        assert_eq!(caps.net.unwrap().value, NetMode::None);
        assert_eq!(caps.profile.unwrap().value, Profile::Strict);
        let timeout = caps.timeout.unwrap();
        assert_eq!((timeout.value, timeout.place.line), (ExecutionTimeout::Millis(600_000), 27));
        assert_eq!(caps.landlock.unwrap().value, LandlockMode::Required);
        assert_eq!(caps.openings.len(), 11);
        assert_eq!((caps.rw.unwrap().value.len(), caps.secrets.unwrap().value.len()), (1, 1));
        assert_eq!((layer.on_violation, layer.approval_seconds), (Some(OnViolation::Discard), Some(7_200)));
        assert!(parse("").unwrap().rules.is_empty());
    }

    #[test]
    fn errors_name_the_file_line_and_key() {
        for (text, code, message) in [
            (
                "[[rule]]\nacton = 'deny'",
                "policy.unknown_key",
                "/p.toml:2: unknown key rule.acton; did you mean rule.action?",
            ),
            ("[[rules]]\n", "policy.unknown_key", "/p.toml:1: unknown key rules; did you mean rule?"),
            (
                "[caps]\nnett = 'none'",
                "policy.unknown_key",
                "/p.toml:2: unknown key caps.nett; did you mean caps.net?",
            ),
            (
                "\n[[rule]]\naction = 1",
                "policy.wrong_type",
                "/p.toml:3: rule.action takes a string, not integer",
            ),
            (
                "rule = 1",
                "policy.wrong_type",
                "/p.toml:1: rule takes a list of tables: [[rule]], not integer",
            ),
            (
                "[[rule]]\nprefix = 'git'\naction = 'deny'",
                "policy.wrong_type",
                "/p.toml:2: rule.prefix takes a list of words, or of lists of words, not string",
            ),
            (
                "[[rule]]\nprefix = [\n'git',\n[]]\n",
                "policy.bad_value",
                "/p.toml:4: rule.prefix: invalid value \"[]\": expected a list of words, or of lists of words",
            ),
            (
                "[[rule]]\naction = 'refuse'",
                "policy.bad_value",
                "/p.toml:2: rule.action: invalid value \"refuse\": expected allow, allow_with_checkpoint, require_approval or deny",
            ),
            (
                "profile = 'agnet'",
                "policy.bad_value",
                "/p.toml:1: profile: invalid value \"agnet\": expected agent or ci",
            ),
            (
                "[caps]\nrw = ['data']",
                "policy.bad_value",
                "/p.toml:2: caps.rw: invalid value \"data\": expected an absolute path or glob without '..'",
            ),
            (
                "[[rule]]\nargs = ['[']\naction = 'deny'",
                "policy.bad_value",
                "/p.toml:2: rule.args: invalid value \"[\": expected a glob",
            ),
            (
                "[[rule]]\nname = 'builtin.read_only'",
                "policy.bad_value",
                "/p.toml:2: rule.name: invalid value \"builtin.read_only\": expected a name of up to 64 characters that does not \
                 begin with builtin., profile. or caps.",
            ),
            (
                "[[rule]]\nreason = \"a\\u001b[2J\"",
                "policy.bad_value",
                "/p.toml:2: rule.reason: invalid value \"a\\u{1b}[2J\": expected one line of text",
            ),
            (
                "[approval]\nexpires = '0s'",
                "policy.bad_value",
                "/p.toml:2: approval.expires: invalid value \"0\": expected a duration longer than zero, such as 24h",
            ),
            ("[[rule]]\nname = 'x'", "policy.missing_key", "/p.toml:1: the rule lacks the key action"),
            (
                "[[rule]]\nname = 'x'\naction = 'deny'\nprefix = ['git']\nmatch = [\n'git a',\n'got b']",
                "policy.example",
                "/p.toml:7: the rule x does not match the example \"got b\"",
            ),
            (
                "[[rule]]\nprefix = ['git']\naction = 'deny'\nnot_match = ' '",
                "policy.example",
                "/p.toml:4: the rule /p.toml:1 cannot be checked (it is empty) with the example \" \"",
            ),
            (
                "[[rule]]\naction = 'deny'\nnot_match = 'git a'",
                "policy.example",
                "/p.toml:3: the rule /p.toml:1 matches the example \"git a\"",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.code(), error.to_string().as_str()), (code, message));
        }
        let error = parse("[[rule]]\naction = \n").unwrap_err();
        assert_eq!(error.code(), "policy.syntax");
        assert!(error.to_string().starts_with("/p.toml:2: "), "{error}");
    }

    #[test]
    fn a_possible_match_of_an_example_counts_as_in_a_decision() {
        let rule = |action: &str| {
            parse(&format!("[[rule]]\nprefix = ['git', 'push']\naction = '{action}'\nmatch = 'git $x'"))
        };
        assert!(rule("deny").is_ok() && rule("require_approval").is_ok());
        assert_eq!(rule("allow").unwrap_err().code(), "policy.example");
    }

    #[test]
    fn the_test_file_has_every_key() {
        for key in [TOP, RULE, CAPS, TRUTH, APPROVAL].concat() {
            let is_said = WHOLE.lines().any(|line| {
                let line = line.trim_matches(['[', ']']);
                line.split_whitespace().next() == Some(key)
            });
            assert!(is_said, "{key}");
        }
    }
}
