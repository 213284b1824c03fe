//! One invocation: finds the vault, creates the request, executes it and prints the result.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::{CommandFactory, Parser};

use avfs_changes::FoldedChanges;
use avfs_engine::{
    CacheKeeper, ExecuteError, Executed, ExecutionResult, Exit, OUTPUT_LOST, Outcome, Rehearsal, SANDBOX_LOST,
};
use avfs_hostfs::mask::set_umask;
use avfs_present::{Avfs, error_body, usage_lines};
use avfs_request::spec::RequestObject;
use avfs_request::{ExecutionRequest, JsonForm};
use avfs_types::clock::{Clock as _, SystemClock};
use avfs_types::diagnose::with_causes;
use avfs_types::secrets::Secrets;
use avfs_types::{exit_code, printable};
use avfs_wire::{ErrorBody, ExecutionEnvelope, StateName};
use avfs_workplace::{RunError as WorkError, arguments_bytes_max, policy, read_config};

use crate::command::args::Args;
use crate::command::cache::{explain_cache, give_output};
use crate::command::error::{RunError, execute_code};
use crate::command::invocation::{Invocation, VaultAt, outside, surroundings};
use crate::command::listed::Listed;
use crate::command::meant::option_meant;
use crate::command::render;
use crate::command::request_file::with_request;
use crate::command::serve::serve;
use crate::probe;

pub fn run(args: Args) -> u8 {
    if args.probe {
        return probe();
    }
    if args.man {
        return man();
    }
    if args.serve {
        return serve(&args);
    }
    let envelope_to = match EnvelopeTo::of(&args) {
        Ok(to) => to,
        Err(error) => {
            render::say(render::failure(&error, &args.avfs()));
            return error.exit_code();
        }
    };
    let avfs = args.avfs();
    let args = Args { pure_given: args.spec.pure, ..args };
    let args = match with_request(args) {
        Ok(args) => args,
        Err(error) => return print_failure(&error, None, &envelope_to, &avfs),
    };
    if args.dry_run {
        return rehearse(&args, &envelope_to);
    }
    if args.explain_cache {
        return explain_cache(&args);
    }
    let mut asked = None;
    match execute(&args, &mut asked) {
        Ok((mut executed, asked, listed, keeper)) => {
            if let Err(error) = give_output(&args, &mut executed) {
                return print_failure(&error, Some(asked), &envelope_to, &avfs);
            }
            let code = print_result(&args, &executed, asked, &listed, &envelope_to);
            // The caller has the answer by now.
            let failed = keep_cache(&keeper).err().filter(|_| !args.quiet && args.json.is_none());
            failed.iter().for_each(|text| render::say([format!("avfs-run: {text}")]));
            code
        }
        Err(error) => print_failure(&error, asked, &envelope_to, &avfs),
    }
}

/// A request as it is printed, and the secrets to remove from all text about it.
pub struct Asked {
    object: RequestObject,
    pub secrets: Secrets,
}

impl Asked {
    pub fn of(request: &ExecutionRequest, vault: Option<&Path>) -> Self {
        Self { object: RequestObject::of(request, vault), secrets: request.secrets() }
    }

    /// The envelope of a request that failed before it was judged.
    pub fn failed(asked: Self, error: &RunError, avfs: &Avfs) -> ExecutionEnvelope {
        ExecutionEnvelope::failed(Some(asked.object), error_body(error, avfs).without(&asked.secrets))
    }
}

/// The envelope of a request.
pub fn envelope_of(asked: &Asked, executed: &Executed, avfs: &Avfs) -> ExecutionEnvelope {
    let mut envelope = avfs_present::execution(asked.object.clone(), executed, avfs);
    envelope.error = envelope.error.map(|error| error.without(&asked.secrets));
    envelope
}

/// Prints the result of a request, for people and for scripts.
fn print_result(
    args: &Args,
    executed: &Executed,
    asked: Asked,
    listed: &Listed,
    envelope_to: &EnvelopeTo,
) -> u8 {
    let avfs = args.avfs();
    let envelope = envelope_of(&asked, executed, &avfs);
    let secrets = asked.secrets;
    let ran = match &executed.outcome {
        Ok(Outcome::Ran(result)) => Some((&**result, &listed.folded)),
        Ok(Outcome::Denied(_) | Outcome::ApprovalRequired(_)) | Err(_) => None,
    };
    let written = envelope_to.write(&envelope, ran);
    let human = !matches!(envelope_to, EnvelopeTo::Stdout(_));
    let code = match &executed.outcome {
        Ok(Outcome::Ran(result)) => {
            if human && !args.quiet {
                render::say(summary_lines(args, result, listed));
            }
            let code = code_of(result);
            // If output is lost and the command itself fails, its exit status takes precedence.
            let is_own = |note: &str| note == SANDBOX_LOST || note == OUTPUT_LOST && code == exit_code::OK;
            match result.notes.iter().find(|note| is_own(note.code)) {
                Some(lost) => {
                    if human && args.quiet {
                        render::say([format!("avfs-run: {}", lost.text)]);
                    }
                    exit_code::RUN_OWN
                }
                None => code,
            }
        }
        Ok(Outcome::Denied(_)) => exit_code::RUN_DENIED,
        Ok(Outcome::ApprovalRequired(_)) => exit_code::RUN_APPROVAL,
        Err(error) => execute_code(error),
    };
    if let (Some(error), true) = (&envelope.error, human || written.is_err()) {
        match &executed.outcome {
            Err(error) => render::say_failure(error, &avfs, &secrets),
            Ok(_) => {
                let decision = executed.decision.as_ref();
                let rule = decision.and_then(|decision| decision.allow_rule.as_deref());
                render::say(render::refusal(error, rule));
            }
        }
    }
    match written {
        Ok(()) => code,
        Err(source) => {
            let error = RunError::host("write the envelope")(source);
            render::say(render::failure(&error, &avfs));
            error.exit_code()
        }
    }
}

/// Prints what would be done.
fn rehearse(args: &Args, envelope_to: &EnvelopeTo) -> u8 {
    let printed = plan(args).and_then(|(request, rehearsal)| {
        if !args.quiet && args.json.is_none() {
            render::say(render::rehearsal(&request, &rehearsal));
        }
        let object = RequestObject::of(&request, Some(&rehearsal.vault));
        let envelope = avfs_present::execution_planned(object, &rehearsal.decision, &rehearsal.enforcement);
        envelope_to.write(&envelope, None).map_err(RunError::host("write the envelope"))
    });
    match printed {
        Ok(()) => exit_code::OK,
        Err(error) => print_failure(&error, None, envelope_to, &args.avfs()),
    }
}

/// The state that a run would use; a missing vault is not created.
fn plan(args: &Args) -> Result<(ExecutionRequest, Rehearsal), RunError> {
    let around = surroundings()?;
    let found = VaultAt::find(args, &around)?;
    let bound = found.bound()?;
    let (config, _) = read_config(&around, bound.as_deref())?;
    let mut request = args.request(&outside(args, &around), &config)?;
    request.check(arguments_bytes_max()).map_err(ExecuteError::Request)?;
    let vault = match found {
        VaultAt::There { vault, named, .. } => {
            request.named.vault = named;
            vault.path().map(Path::to_owned).unwrap_or_default()
        }
        VaultAt::Nowhere(new) => new.path,
    };
    let policy = policy(&around, Some(&vault))?;
    let rehearsal = Rehearsal::of(&request, &policy, &vault, bound, &around, &around.cache_dir()?)
        .map_err(ExecuteError::WorkspaceRoot)?;
    Ok((request, rehearsal))
}

/// Prints an error, for people and for scripts.
fn print_failure(error: &RunError, asked: Option<Asked>, envelope_to: &EnvelopeTo, avfs: &Avfs) -> u8 {
    let (object, secrets) = asked.map(|asked| (asked.object, asked.secrets)).unzip();
    let secrets = secrets.unwrap_or_default();
    let mut envelope = ExecutionEnvelope::failed(object, error_body(error, avfs).without(&secrets));
    if let RunError::Work(WorkError::Refused(verdict)) = error {
        envelope.state = StateName::Denied;
        envelope.decision = Some(avfs_present::decision_before_the_request(verdict));
    }
    let written = envelope_to.write(&envelope, None);
    if !matches!(envelope_to, EnvelopeTo::Stdout(_)) || written.is_err() {
        render::say_failure(error, avfs, &secrets);
    }
    error.exit_code()
}

/// Prints a usage error, as JSON if that was requested.
pub fn print_usage_error(error: &clap::Error, words: &[OsString]) -> u8 {
    let mut before_command = words.iter().take_while(|word| *word != "--");
    let form = before_command.find_map(|word| match word.to_str() {
        Some("--json=compact") => Some(JsonForm::Compact),
        Some(word) if word == "--json" || word.starts_with("--json=") => Some(JsonForm::Full),
        Some(_) | None => None,
    });
    if let Some(form) = form {
        let body = usage_body(error, words);
        // If stdout is closed, only the exit code reports the error.
        let _ = EnvelopeTo::Stdout(form).write(&ExecutionEnvelope::failed(None, body), None);
        return exit_code::RUN_OWN;
    }
    if lacks_command(error) {
        let ErrorBody { message, hint, .. } = usage_body(error, words);
        render::say([format!("error: {message}"), format!("hint: {}", hint.unwrap_or_default())]);
        return exit_code::RUN_OWN;
    }
    // clap repeats arguments verbatim, so it gets them escaped.
    let shown = printable::words(words).and_then(|words| Args::try_parse_from(words).err());
    let text = shown.as_ref().unwrap_or(error).render().to_string();
    render::say(
        usage_lines(&text).into_iter().chain([format!("hint: {}", usage_hint(error, words)).as_str()]),
    );
    exit_code::RUN_OWN
}

const OPTIONS_HINT: &str = "see the options with: avfs-run --help";

fn usage_hint(error: &clap::Error, words: &[OsString]) -> String {
    option_meant(error, words, |_| true).unwrap_or_else(|| OPTIONS_HINT.to_owned())
}

fn usage_body(error: &clap::Error, words: &[OsString]) -> ErrorBody {
    let code = "usage".to_owned();
    if lacks_command(error) {
        let message = "missing COMMAND".to_owned();
        let hint = Some("name a command, as in: avfs-run -- make test; see also: avfs-run --help".to_owned());
        return ErrorBody { code, message, hint };
    }
    let text = error.render().to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    ErrorBody { code, message, hint: Some(usage_hint(error, words)) }
}

/// COMMAND is the only required argument. clap would list all alternatives to it, including internal ones.
fn lacks_command(error: &clap::Error) -> bool {
    error.kind() == clap::error::ErrorKind::MissingRequiredArgument
}

/// Prints for `avfs doctor` which features this host supports.
fn probe() -> u8 {
    let printed = surroundings().and_then(|around| Ok(around.cache_dir()?)).and_then(|cache_dir| {
        let text = printable::json_line(&probe::checks(&cache_dir, set_umask()));
        let written = text.and_then(|text| avfs_terminal::pass_on(&text));
        written.map_err(RunError::host("write the results"))
    });
    match printed {
        Ok(()) => exit_code::OK,
        Err(error) => print_failure(&error, None, &EnvelopeTo::Stdout(JsonForm::Full), &Avfs::default()),
    }
}

/// The manual page of `avfs-run`.
pub fn manual_page() -> std::io::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut text)?;
    // The text after the help is its examples.
    Ok(String::from_utf8_lossy(&text).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n"))
}

/// Prints the manual page.
fn man() -> u8 {
    let written = manual_page().and_then(|text| avfs_terminal::pass_on(text.as_bytes()));
    written.map_or(exit_code::RUN_OWN, |()| exit_code::OK)
}

fn summary_lines(args: &Args, result: &ExecutionResult, listed: &Listed) -> Vec<String> {
    let lines = render::summary(result, &listed.first, &args.avfs());
    lines.iter().map(|line| format!("avfs-run: {line}")).collect()
}

fn code_of(result: &ExecutionResult) -> u8 {
    match (result.timed_out, result.exit) {
        (true, _) => exit_code::RUN_TIMED_OUT,
        (false, Exit::Code(code)) => code,
        (false, Exit::Signal(signal)) => {
            exit_code::RUN_SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0))
        }
    }
}

fn execute(
    args: &Args,
    asked: &mut Option<Asked>,
) -> Result<(Executed, Asked, Listed, CacheKeeper), RunError> {
    let (invocation, request) = Invocation::ask(args, asked)?;
    let executed = invocation.execute(&request)?;
    let listed = Listed::of(args, &invocation.context.vault, &executed);
    let asked = Asked::of(&request, invocation.context.vault.path());
    Ok((executed, asked, listed, invocation.context.cache_keeper()))
}

/// Evicts from the cache until it is within its limit. A failure is only reported: the run itself has been answered.
pub fn keep_cache(keeper: &CacheKeeper) -> Result<(), String> {
    let kept = keeper.after_run(SystemClock.now());
    kept.map(drop).map_err(|error| format!("cannot reduce the cache to its limit: {}", with_causes(&error)))
}

/// The destination of the envelope.
enum EnvelopeTo {
    Nowhere,
    Stdout(JsonForm),
    Fd(std::fs::File),
}

impl EnvelopeTo {
    /// Checked before anything runs: a run whose result cannot be delivered is useless.
    fn of(args: &Args) -> Result<Self, RunError> {
        match (args.json, args.json_fd) {
            (Some(form), _) => Ok(Self::Stdout(form)),
            (None, None) => Ok(Self::Nowhere),
            (None, Some(fd)) => crate::sys::adopt_fd(fd).map(Self::Fd).map_err(|_| RunError::BadFd { fd }),
        }
    }

    /// `ran` is the run, if any, with its changes folded for a compact envelope.
    fn write(
        &self,
        envelope: &ExecutionEnvelope,
        ran: Option<(&ExecutionResult, &FoldedChanges)>,
    ) -> std::io::Result<()> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout(JsonForm::Full) => render::pass_on_json(envelope),
            Self::Stdout(JsonForm::Compact) => {
                avfs_terminal::pass_on(&avfs_present::compact_line(envelope, ran)?)
            }
            Self::Fd(file) => {
                let mut out = std::io::BufWriter::with_capacity(1 << 16, file);
                printable::write_json_line(envelope, &mut out)?;
                out.flush()
            }
        }
    }
}
