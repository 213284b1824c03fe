//! `avfs policy check|explain|test`

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use avfs_ops::OpError;
use avfs_ops::runs::{PolicyQuery, check_policy, explain_policy, test_policies};
use avfs_policy::{Action, Effect, ExecutionDecision, Explained, Explanation, Word};
use avfs_request::choices::PolicyProfile;
use avfs_request::{Profile, RunSpec, Terminal};
use avfs_terminal::{Painted, Tone, stdout_is_terminal};
use avfs_types::diagnose::shell_word;
use avfs_types::exit_code;
use avfs_wire::ErrorBody;

use crate::context::CommandContext;
use crate::run_options::{run_options, typed};
use crate::ui::{Out, Outcome};
use crate::view::plural;

/// Evaluate the policies for a command, without running it
///
/// Rules are read from /etc/avfs/policy.toml, then $XDG_CONFIG_HOME/avfs/policy.toml (else
/// ~/.config/avfs/policy.toml), then .avfs/policy.toml next to the vault, which can only tighten. Without a
/// vault, only the first two are read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs policy check -- git push --force
  avfs policy explain --net host --shell 'curl -s example.org | sh'
  avfs policy test .avfs/policy.toml")]
pub struct PolicyArgs {
    #[command(subcommand)]
    action: PolicyAction,
}

#[derive(Debug, Subcommand)]
enum PolicyAction {
    /// Print the decision for a command on one line
    ///
    /// Exit codes: 0 allowed; 120 needs an approval; 122 denied; 1 a policy cannot be read.
    #[command(after_help = "\
Examples:
  avfs policy check -- make test
  avfs policy check --net host --policy agent -- npm install
  avfs policy check --shell 'rm -rf build && make' --json | jq -r .result.decision.action")]
    Check(AskArgs),
    /// Explain the decision for a command
    ///
    /// Prints each simple command in it, and what each rule, profile and cap decides.
    #[command(after_help = "\
Examples:
  avfs policy explain -- git push --force origin main
  avfs policy explain --secret NPM_TOKEN --shell 'npm ci && npm publish'")]
    Explain(AskArgs),
    /// Test the examples of the rules, in a file or in every layer
    ///
    /// Exits with 1 if an example fails. Runs refuse a file with a failing example.
    #[command(after_help = "\
Examples:
  avfs policy test
  avfs policy test ./policy.toml")]
    Test(TestArgs),
}

/// The request to evaluate: the options of avfs-run. `--profile` also accepts policy profiles, whose names
/// differ from those of the sandbox.
#[derive(Clone, Debug)]
struct AskArgs {
    spec: Box<RunSpec>,
}

/// The verb has its own --vault option.
const LEFT_OUT: [&str; 1] = ["vault"];

/// Parses only the options of a run.
#[derive(Parser)]
struct Words {
    #[command(flatten)]
    spec: RunSpec,
}

impl Args for AskArgs {
    fn augment_args(command: Command) -> Command {
        command
            .args(run_options(&LEFT_OUT))
            .mut_arg("profile", |arg| {
                let words = [Profile::WORDS, PolicyProfile::WORDS].concat();
                let values = format!("[possible values: {}]", words.join(", "));
                arg.value_parser(words)
                    .action(ArgAction::Append)
                    .hide_possible_values(true)
                    .help(format!("Show this much of the host, or apply this policy profile {values}"))
            })
            .group(ArgGroup::new("what").required(true).args(["command", "shell"]))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AskArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = run_options(&[&LEFT_OUT[..], &["profile"]].concat());
        let mut words = vec![OsString::new()];
        words.extend(typed(&options, matches));
        for profile in matches.get_many::<String>("profile").into_iter().flatten() {
            let option = if Profile::WORDS.contains(&profile.as_str()) { "profile" } else { "policy" };
            // The last one wins, as with every repeated option.
            words.retain(|word| option == "policy" || !word.as_bytes().starts_with(b"--profile="));
            words.push(format!("--{option}={profile}").into());
        }
        words.push("--".into());
        words.extend(matches.get_raw("command").into_iter().flatten().map(OsStr::to_owned));
        Ok(Self { spec: Box::new(Words::try_parse_from(words)?.spec) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl AskArgs {
    fn query(&self) -> PolicyQuery<'_> {
        let streams = match std::io::stdin().is_terminal() && stdout_is_terminal() {
            true => Terminal::There,
            false => Terminal::None,
        };
        PolicyQuery { spec: &self.spec, streams }
    }
}

#[derive(Debug, Args)]
struct TestArgs {
    /// The file to test [default: the files of all layers]
    file: Option<PathBuf>,
}

pub fn run(ctx: &CommandContext, args: &PolicyArgs) -> Outcome {
    match &args.action {
        PolicyAction::Check(ask) => check(ctx, ask),
        PolicyAction::Explain(ask) => explain(ctx, ask),
        PolicyAction::Test(test_args) => test(ctx, test_args),
    }
}

fn check(ctx: &CommandContext, args: &AskArgs) -> Outcome {
    let (result, decision) = check_policy(&ctx.client, &args.query())?;
    note_one_word(ctx, args);
    let human = |out: &mut Out| {
        let categories = result.decision.categories.join(",");
        let action = out.paint(tone(decision.action), decision.action);
        let rule = out.paint(Tone::Name, decision.rule.as_deref().unwrap_or("-"));
        let categories = if categories.is_empty() { "-" } else { &categories };
        out.line(format_args!("{action}  {categories}  {rule}  {}", decision.reason))
    };
    if let Some(limit) = decision.timeout_max.duration() {
        ctx.ui.note(format_args!("note: the timeout is limited to {limit:?}"));
    }
    for (kind, value) in decision.limits_max.set() {
        ctx.ui.note(format_args!("note: --{} is limited to {}", kind.option(), kind.show(value)));
    }
    let (exit, code) = match decision.action {
        Action::Allow | Action::AllowWithCheckpoint => return ctx.ui.answer(&result, human),
        Action::RequireApproval => (exit_code::RUN_APPROVAL, "policy.approval_required"),
        Action::Deny => (exit_code::RUN_DENIED, "policy.denied"),
    };
    let (code, message, hint) = (code.to_owned(), decision.reason.clone(), decision.hint.clone());
    ctx.ui.answer_no(&result, &ErrorBody { code, message, hint }, human)?;
    if let Some(hint) = &decision.hint {
        ctx.ui.note(format_args!("hint: {hint}{}", colon(&decision)));
    }
    for line in decision.allow_rule.iter().flat_map(|rule| rule.lines()) {
        ctx.ui.note(format_args!("{line}"));
    }
    Ok(exit)
}

fn explain(ctx: &CommandContext, args: &AskArgs) -> Outcome {
    let (result, explanation) = explain_policy(&ctx.client, &args.query())?;
    note_one_word(ctx, args);
    ctx.ui.answer(&result, |out| {
        for explained in &explanation.commands {
            let words: Vec<&str> = explained.command.words.iter().map(Word::shown).collect();
            out.line(format_args!("$ {}", words.join(" ")))?;
            show_command(out, explained)?;
        }
        for doubt in &explanation.doubts {
            out.line(format_args!("? {doubt}"))?;
        }
        explanation.in_doubt.iter().try_for_each(|explained| show_command(out, explained))?;
        show_around(out, &explanation)?;
        show_decision(out, &explanation.decision)
    })
}

/// Notes that a line given as one word is the name of a program, and not a line of a shell.
fn note_one_word(ctx: &CommandContext, args: &AskArgs) {
    if let [word] = args.spec.words.as_slice()
        && word.as_bytes().iter().any(u8::is_ascii_whitespace)
    {
        let line = shell_word(word);
        ctx.ui.note(format_args!(
            "note: {line} is one word, the name of a program; check a line of a shell with: --shell {line}"
        ));
    }
}

fn show_command(out: &mut Out, explained: &Explained) -> Result<(), OpError> {
    for finding in &explained.command.findings {
        out.line(format_args!("  {}: {}", out.paint(Tone::Name, finding.category), finding.why))?;
    }
    let by_default = &explained.baseline;
    out.line(format_args!("  by default {} ({})", by_default.action, by_default.rule))?;
    for said in &explained.said {
        let place = said.place.as_ref();
        let place =
            place.map(|place| Painted::plain("  ").then(out.paint(Tone::Dim, place))).unwrap_or_default();
        let effect = match said.effect {
            Effect::Counts => "",
            Effect::Outweighed => ", overridden in its layer",
            Effect::MayNotLoosen => ", ignored: this layer may only tighten",
            Effect::Unsure => ", if the rule applies at all",
        };
        out.line(format_args!("  {} {}: {}{effect}{place}", said.tier, said.rule, said.action))?;
    }
    out.line(format_args!("  → {} ({})", explained.verdict.action, explained.verdict.rule))
}

/// Prints what applies to the request as a whole.
fn show_around(out: &mut Out, explanation: &Explanation) -> Result<(), OpError> {
    for said in &explanation.handed_over {
        out.line(format_args!("{}: {}, {}", out.paint(Tone::Name, &said.rule), said.action, said.reason))?;
    }
    for (tier, cap) in &explanation.caps {
        let holds = cap.broken.as_ref().map_or("holds", |_| "would be exceeded");
        let (key, place) = (out.paint(Tone::Name, cap.key), out.paint(Tone::Dim, &cap.place));
        out.line(format_args!("{tier} {key} = {}: {holds}  {place}", cap.value))?;
    }
    for profile in &explanation.profiles {
        out.line(format_args!("profile {profile} applies"))?;
    }
    Ok(())
}

fn show_decision(out: &mut Out, decision: &ExecutionDecision) -> Result<(), OpError> {
    let action = out.paint(tone(decision.action), decision.action);
    let rule = out.paint(Tone::Name, decision.rule.as_deref().unwrap_or("-"));
    out.line(format_args!("{action} by {rule}: {}", decision.reason))?;
    if let Some(hint) = &decision.hint {
        out.line(format_args!("hint: {hint}{}", colon(decision)))?;
    }
    decision
        .allow_rule
        .iter()
        .flat_map(|rule| rule.lines())
        .try_for_each(|line| out.line(format_args!("{line}")))
}

/// The separator between a hint and the rule that follows it.
fn colon(decision: &ExecutionDecision) -> &'static str {
    if decision.allow_rule.is_some() { ":" } else { "" }
}

fn tone(action: Action) -> Tone {
    match action {
        Action::Allow | Action::AllowWithCheckpoint => Tone::Added,
        Action::RequireApproval => Tone::Changed,
        Action::Deny => Tone::Deleted,
    }
}

fn test(ctx: &CommandContext, args: &TestArgs) -> Outcome {
    let result = test_policies(&ctx.client, args.file.as_deref())?;
    let human = |out: &mut Out| {
        for file in &result.files {
            let rules = plural(file.rules, "rule", "rules");
            out.line(format_args!(
                "{}: {rules}, {}",
                file.path,
                plural(file.examples, "example", "examples")
            ))?;
        }
        for failure in &result.failures {
            out.line(format_args!("{} {}", out.paint(Tone::Deleted, "FAIL"), failure.message))?;
        }
        Ok(())
    };
    let Some(first) = result.failures.first() else {
        return ctx.ui.answer(&result, human);
    };
    let why = ErrorBody {
        code: "policy.example".to_owned(),
        message: first.message.clone(),
        hint: Some("correct the rule or its example: no run starts with a failing example".to_owned()),
    };
    ctx.ui.answer_no(&result, &why, human)
}
