//! `avfs policy check|explain|test`

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{FileText, LocateError, PolicyTexts, bound_dir};
use avfs_policy::{Action, Effect, ExecutionDecision, Explained, Explanation, Layer, Script, Tier, Word};
use avfs_request::choices::PolicyProfile;
use avfs_request::{ExecutionRequest, Outside, Profile, RunSpec, SecretWord, Terminal};
use avfs_types::exit_code;
use avfs_wire::{ErrorBody, PolicyTest, PolicyTested};

use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::run_options::{run_options, typed};
use crate::ui::{Failure, Out, Outcome, Painted, Tone, stdout_is_terminal};
use crate::view::plural;

/// Tell what the policies say of a command, without running it
///
/// Rules are read from /etc/avfs/policy.toml, then $XDG_CONFIG_HOME/avfs/policy.toml (else
/// ~/.config/avfs/policy.toml), then .avfs/policy.toml beside the vault, which may only tighten. Without a vault
/// the first two are all there is.
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
    /// Tell in one line what would be decided of a command
    ///
    /// Exit codes: 0 it may run; 120 it needs an approval; 122 it is denied; 1 a policy cannot be read.
    #[command(after_help = "\
Examples:
  avfs policy check -- make test
  avfs policy check --net host --profile agent -- npm install
  avfs policy check --shell 'rm -rf build && make' --json | jq -r .result.decision.action")]
    Check(AskArgs),
    /// Tell everything on the way to that decision: each command in it, what every rule, profile and cap says
    #[command(after_help = "\
Examples:
  avfs policy explain -- git push --force origin main
  avfs policy explain --secret NPM_TOKEN --shell 'npm ci && npm publish'")]
    Explain(AskArgs),
    /// Try the examples of the rules: of a file, or of every layer
    ///
    /// Exits with 1 if an example fails. A file with such an example is refused by every run.
    #[command(after_help = "\
Examples:
  avfs policy test
  avfs policy test ./policy.toml")]
    Test(TestArgs),
}

/// A run that is asked about: the options of avfs-run. `--profile` takes policy profiles too, whose words differ from
/// those of the sandbox.
#[derive(Clone, Debug)]
struct AskArgs {
    spec: Box<RunSpec>,
}

/// The vault is the verb's own option.
const LEFT_OUT: [&str; 1] = ["vault"];

/// Reads the options of a run by themselves.
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
                    .help(format!("How much of the host is seen, or a policy profile to hold to {values}"))
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
            // The last one counts, as with every option that is given twice.
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

#[derive(Debug, Args)]
struct TestArgs {
    /// The file [default: those of every layer]
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
    let (explanation, texts) = ask(ctx, args)?;
    let decision = explanation.decision;
    let result = avfs_present::policy_check(&decision, &texts);
    let human = |out: &mut Out| {
        let categories = result.decision.categories.join(",");
        let action = out.paint(tone(decision.action), decision.action);
        let rule = out.paint(Tone::Name, decision.rule.as_deref().unwrap_or("-"));
        let categories = if categories.is_empty() { "-" } else { &categories };
        out.line(format_args!("{action}  {categories}  {rule}  {}", decision.reason))
    };
    if let Some(limit) = decision.timeout_max.duration() {
        ctx.ui.note(format_args!("note: it may run for {limit:?} at most"));
    }
    for (kind, value) in decision.limits_max.set() {
        ctx.ui.note(format_args!("note: it may have --{} {} at most", kind.option(), kind.show(value)));
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
    let (explanation, texts) = ask(ctx, args)?;
    let result = avfs_present::policy_explain(&explanation, &texts);
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

fn show_command(out: &mut Out, explained: &Explained) -> Result<(), Failure> {
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
            Effect::Outweighed => ", outweighed in its layer",
            Effect::MayNotLoosen => ", which may only tighten here",
            Effect::Unsure => ", if it is meant at all",
        };
        out.line(format_args!("  {} {}: {}{effect}{place}", said.tier, said.rule, said.action))?;
    }
    out.line(format_args!("  → {} ({})", explained.verdict.action, explained.verdict.rule))
}

/// What is said of the request as a whole.
fn show_around(out: &mut Out, explanation: &Explanation) -> Result<(), Failure> {
    for said in &explanation.handed_over {
        out.line(format_args!("{}: {}, {}", out.paint(Tone::Name, &said.rule), said.action, said.reason))?;
    }
    for (tier, cap) in &explanation.caps {
        let holds = cap.broken.as_ref().map_or("holds", |_| "would be exceeded");
        let (key, place) = (out.paint(Tone::Name, cap.key), out.paint(Tone::Dim, &cap.place));
        out.line(format_args!("{tier} {key} = {}: {holds}  {place}", cap.value))?;
    }
    for profile in &explanation.profiles {
        out.line(format_args!("profile {profile} holds"))?;
    }
    Ok(())
}

fn show_decision(out: &mut Out, decision: &ExecutionDecision) -> Result<(), Failure> {
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

/// Between a hint and the rule that follows it.
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

/// Where the vault and the directory are that a command here would be about.
struct Ground {
    vault: Option<PathBuf>,
    bound: Option<PathBuf>,
}

impl Ground {
    /// Where there is no vault, which is no failure here, there is none.
    fn find(ctx: &CommandContext) -> Result<Self, Failure> {
        match ctx.around.locate(ctx.vault_option.as_deref()) {
            Err(LocateError::NoneNear { .. }) => Ok(Self { vault: None, bound: None }),
            Err(other) => Err(other.into()),
            Ok(located) => Ok(Self { vault: Some(located.path), bound: bound_dir(&ctx.open_vault()?)? }),
        }
    }
}

/// Puts the question that a run with these words would put.
fn ask(ctx: &CommandContext, args: &AskArgs) -> Result<(Explanation, PolicyTexts), Failure> {
    let ground = Ground::find(ctx)?;
    let texts = PolicyTexts::read(&ctx.around, ground.vault.as_deref())?;
    let (config, _) = ConfigTexts::read(&ctx.around, ground.bound.as_deref())?.for_a_run()?;
    let mut variables = ctx.around.variables.clone();
    // As if it were given them: nothing is run.
    for word in &args.spec.secret {
        if let SecretWord::Variable(name) | SecretWord::InFile(name) = SecretWord::parse(word)? {
            variables.entry(name).or_default();
        }
    }
    let outside = Outside {
        cwd: ctx.around.cwd.clone(),
        environment: variables.into_iter().collect(),
        terminal: Terminal::None,
        streams: match std::io::stdin().is_terminal() && stdout_is_terminal() {
            true => Terminal::There,
            false => Terminal::None,
        },
    };
    let request = ExecutionRequest::resolve(&args.spec, &outside, &config)?;
    let bound = ground.bound.unwrap_or_else(|| ctx.around.cwd.clone());
    Ok((avfs_engine::explain(&texts.policy()?, &request, bound, &ctx.around)?, texts))
}

fn test(ctx: &CommandContext, args: &TestArgs) -> Outcome {
    let texts: Vec<FileText> = match &args.file {
        Some(file) => {
            let file = ctx.around.cwd.join(file);
            let text = avfs_hostfs::text::read(&file).map_err(EdgeError::host("read", &file))?;
            vec![FileText { path: file, text: Some(text) }]
        }
        None => {
            let texts = PolicyTexts::read(&ctx.around, Ground::find(ctx)?.vault.as_deref())?;
            texts.files().map(|(_, file)| file.clone()).collect()
        }
    };
    let mut result = PolicyTest { files: Vec::new(), failures: Vec::new() };
    for FileText { path, text } in &texts {
        if let Some(text) = text {
            test_file(path, text, &mut result)?;
        }
    }
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
        hint: Some("correct the rule, or its example: no run starts with such a file".to_owned()),
    };
    ctx.ui.answer_no(&result, &why, human)
}

fn test_file(path: &Path, text: &str, result: &mut PolicyTest) -> Result<(), Failure> {
    let shown = path.to_string_lossy().into_owned();
    if path.extension().is_some_and(|extension| extension == "rego") {
        Script::parse(path, text)?;
        result.files.push(PolicyTested { path: shown, rules: 1, examples: 0 });
        return Ok(());
    }
    // Which layer it is makes no difference to what its examples match.
    let layer = Layer::parse_unchecked(Tier::User, path, text)?;
    let examples = layer.rules.iter().map(|rule| rule.examples.len() as u64).sum();
    result.files.push(PolicyTested { path: shown, rules: layer.rules.len() as u64, examples });
    let failed = layer.rules.iter().flat_map(|rule| rule.failed_examples(avfs_policy::read));
    result.failures.extend(failed.map(|failed| avfs_present::policy_failure(&failed)));
    Ok(())
}
