//! One invocation: finds the vault, makes the request, has it executed, tells what came of it.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clap::CommandFactory;

use avfs::backend::sqlite::{OnClose, OpenOptions};
use avfs::clock::SystemClock;
use avfs::config::{Config, ConfigTexts};
use avfs::exit_code;
use avfs::hostfs::machine;
use avfs::runtime::envelope::{ErrorBody, ExecutionEnvelope, RequestObject};
use avfs::runtime::policy::Policy;
use avfs::runtime::{
    BOUND_ABOVE, Came, ExecuteError, Executed, ExecutionRequest, ExecutionResult, Exit, LocateError, Note,
    PolicyTexts, ProxyRuntime, Rehearsal, RememberFor, Site, Surroundings, UNBOUND_PATH, VAULT_DIR,
    VAULT_FILE, bound_dir, make_vault, stat_cache_path,
};
use avfs::vault::materialize::BaseCache;
use avfs::vault::meter::Meter;
use avfs::vault::secrets::Secrets;
use avfs::vault::{Context, Vault};

use crate::approve::AtTerminal;
use crate::args::{Args, Outside, Terminal};
use crate::error::{RunError, execute_code};
use crate::launch::{LaunchError, SandboxLauncher};
use crate::probe;
use crate::render;
use crate::request_file::with_request;
use crate::settings;

pub fn run(args: Args) -> u8 {
    if args.probe {
        return probe();
    }
    if args.man {
        return man();
    }
    let envelope_to = match EnvelopeTo::of(&args) {
        Ok(to) => to,
        Err(error) => {
            render::say(&render::failure(&error));
            return error.exit_code();
        }
    };
    let args = match with_request(args) {
        Ok(args) => args,
        Err(error) => return tell_failure(&error.into(), None, &envelope_to),
    };
    if args.dry_run {
        return rehearse(&args, &envelope_to);
    }
    let mut asked = None;
    match execute(&args, &mut asked) {
        Ok((executed, asked)) => tell(&args, &executed, asked, &envelope_to),
        Err(error) => tell_failure(&error, asked, &envelope_to),
    }
}

/// A request as it is told, and what no text about it may hold.
struct Asked {
    object: RequestObject,
    secrets: Secrets,
}

impl Asked {
    fn of(request: &ExecutionRequest, vault: Option<&Path>) -> Self {
        Self { object: RequestObject::of(request, vault), secrets: request.secrets() }
    }
}

/// Says what came of a request, to people and to scripts.
fn tell(args: &Args, executed: &Executed<LaunchError>, asked: Asked, envelope_to: &EnvelopeTo) -> u8 {
    let Asked { object, secrets } = asked;
    let mut envelope = ExecutionEnvelope::of(object, executed);
    envelope.error = envelope.error.map(|error| error.without(&secrets));
    let written = envelope_to.write(&envelope);
    let human = !matches!(envelope_to, EnvelopeTo::Stdout);
    let code = match &executed.came {
        Ok(Came::Ran(result)) => {
            if human && !args.quiet {
                render::say(&summary_text(args, result));
            }
            code_of(result)
        }
        Ok(Came::Denied(_)) => exit_code::RUN_DENIED,
        Ok(Came::ApprovalRequired(_)) => exit_code::RUN_APPROVAL,
        Err(error) => execute_code(error),
    };
    if let (Some(error), true) = (&envelope.error, human || written.is_err()) {
        match &executed.came {
            Err(error) => render::say(&secrets.scrub_text(render::failure(error))),
            Ok(_) => render::say(&render::refusal(error)),
        }
    }
    match written {
        Ok(()) => code,
        Err(source) => {
            let error = RunError::Host { operation: "write the envelope", source };
            render::say(&render::failure(&error));
            error.exit_code()
        }
    }
}

/// Says what would be done.
fn rehearse(args: &Args, envelope_to: &EnvelopeTo) -> u8 {
    let told = plan(args).and_then(|(request, rehearsal)| {
        if !args.quiet && !args.json {
            render::say(&render::rehearsal(&request, &rehearsal));
        }
        let object = RequestObject::of(&request, Some(&rehearsal.vault));
        let envelope = ExecutionEnvelope::planned(object, &rehearsal.decision, &rehearsal.enforcement);
        envelope_to
            .write(&envelope)
            .map_err(|source| RunError::Host { operation: "write the envelope", source })
    });
    match told {
        Ok(()) => exit_code::OK,
        Err(error) => tell_failure(&error, None, envelope_to),
    }
}

/// What a run would stand on; a vault that is not there is not made.
fn plan(args: &Args) -> Result<(ExecutionRequest, Rehearsal), RunError> {
    let around = surroundings()?;
    let outside = outside(args, &around)?;
    let (vault, bound) = match around.locate(args.vault.as_deref()) {
        Ok(located) => {
            let vault = Vault::open(&located.path, OpenOptions::default(), context())?;
            (located.path, bound_dir(&vault)?)
        }
        Err(LocateError::NoneNear { cwd }) => (cwd.join(VAULT_DIR).join(VAULT_FILE), Some(cwd)),
        Err(error) => return Err(error.into()),
    };
    let (config, _) = read_config(&around, bound.as_deref())?;
    let request = args.request(&outside, &config, Vec::new())?;
    request.check(arguments_bytes_max()).map_err(ExecuteError::<LaunchError>::Request)?;
    let policy = policy(&around, Some(&vault))?;
    let rehearsal = Rehearsal::of(&request, &policy, &vault, bound, &around, &around.cache_dir()?)
        .map_err(ExecuteError::<LaunchError>::Ground)?;
    Ok((request, rehearsal))
}

/// Says what failed, to people and to scripts.
fn tell_failure(error: &RunError, asked: Option<Asked>, envelope_to: &EnvelopeTo) -> u8 {
    let (object, secrets) = asked.map(|asked| (asked.object, asked.secrets)).unzip();
    let secrets = secrets.unwrap_or_default();
    let envelope = ExecutionEnvelope::failed(object, ErrorBody::of(error).without(&secrets));
    let written = envelope_to.write(&envelope);
    if !matches!(envelope_to, EnvelopeTo::Stdout) || written.is_err() {
        render::say(&secrets.scrub_text(render::failure(error)));
    }
    error.exit_code()
}

/// Bad words, for those who asked for JSON too.
pub fn tell_usage(error: &clap::Error, words: &[OsString]) -> u8 {
    let before_command = words.iter().take_while(|word| *word != "--");
    if before_command.into_iter().any(|word| word == "--json") {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hint = Some("see: avfs-run --help".to_owned());
        let body = ErrorBody { code: "usage".to_owned(), message, hint };
        // Where stdout is closed the exit code has to do.
        let _ = EnvelopeTo::Stdout.write(&ExecutionEnvelope::failed(None, body));
        return exit_code::RUN_OWN;
    }
    // Where stderr is closed nobody wants to know.
    let _ = error.print();
    exit_code::RUN_OWN
}

/// Tells `avfs doctor` what this host allows.
fn probe() -> u8 {
    let told = surroundings().and_then(|around| Ok(around.cache_dir()?)).and_then(|cache_dir| {
        let text = serde_json::to_string(&probe::checks(&cache_dir, umask())).map_err(std::io::Error::other);
        let written = text.and_then(|text| writeln!(std::io::stdout().lock(), "{text}"));
        written.map_err(|source| RunError::Host { operation: "write what was found", source })
    });
    match told {
        Ok(()) => exit_code::OK,
        Err(error) => {
            render::say(&render::failure(&error));
            error.exit_code()
        }
    }
}

/// The manual page, for those who install it.
fn man() -> u8 {
    let page = clap_mangen::Man::new(Args::command());
    match page.render(&mut std::io::stdout().lock()) {
        Ok(()) => exit_code::OK,
        Err(_) => exit_code::RUN_OWN,
    }
}

/// The mask that the command is to have; asking for it means setting it.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

fn summary_text(args: &Args, result: &ExecutionResult) -> String {
    let vault = args.vault.as_ref().map(|vault| vault.to_string_lossy());
    let lines = render::summary(result, vault.as_deref());
    lines.iter().map(|line| format!("avfs-run: {line}\n")).collect()
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

fn execute(args: &Args, told: &mut Option<Asked>) -> Result<(Executed<LaunchError>, Asked), RunError> {
    let around = surroundings()?;
    let outside = outside(args, &around)?;
    let arguments_bytes_max = arguments_bytes_max();
    // What cannot be followed is refused before a vault is made for it.
    let request = args.request(&outside, &Config::default(), Vec::new())?;
    *told = Some(Asked::of(&request, None));
    request.check(arguments_bytes_max).map_err(ExecuteError::Request)?;
    let vault = open_vault(args, &around)?;
    let bound = bound_dir(&vault)?;
    let (config, notes) = read_config(&around, bound.as_deref())?;
    let policy = policy(&around, vault.path())?;
    let cache_dir = around.cache_dir()?;
    let vault_id = vault.id()?;
    let extras =
        settings::extras(&config, &vault_id, args.at.as_deref().or(bound.as_deref()), &around, &cache_dir)?;
    let request = args.request(&outside, &config, extras)?;
    *told = Some(Asked::of(&request, vault.path()));
    let boot_id = machine::boot_id()
        .map_err(|source| RunError::Host { operation: "read the machine's boot id", source })?;
    let stat_cache = bound.as_ref().map(|dir| stat_cache_path(&cache_dir, &vault_id, dir));
    let meter = Meter::default();
    let site = Site {
        vault: &vault,
        vault_id,
        bound,
        cwd: around.cwd.clone(),
        home: around.home.clone(),
        layers: BaseCache::new(&cache_dir, &boot_id),
        cache_dir,
        boot_id,
        stat_cache,
        exclude: config.capture_exclude.iter().map(|pattern| pattern.value.clone()).collect(),
        expires_seconds: config.fork_expires.value.0,
        arguments_bytes_max,
        checkpoints_keep: config.checkpoint_keep.value,
        meter: &meter,
    };
    let workspace = site.bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH));
    let place = RememberFor { around: &around, vault: vault.path(), workspace };
    let runtime = ProxyRuntime {
        site: &site,
        policy: &policy,
        approver: &AtTerminal { place },
        launcher: &SandboxLauncher { umask: umask() },
    };
    let mut executed = runtime.execute(&request);
    if let Ok(Came::Ran(result)) = &mut executed.came {
        result.notes.splice(0..0, notes);
    }
    Ok((executed, Asked::of(&request, vault.path())))
}

/// The rules that hold.
fn policy(around: &Surroundings, vault: Option<&Path>) -> Result<Policy, RunError> {
    Ok(PolicyTexts::read(around, vault)?.policy()?)
}

/// What the kernel takes for the words and variables of a program: a quarter of the stack, 6 MiB at most.
fn arguments_bytes_max() -> usize {
    const MOST: u64 = 6 << 20;
    // The kernel always grants this much.
    const LEAST: u64 = 128 << 10;
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    usize::try_from(stack.map_or(MOST, |stack| (stack / 4).clamp(LEAST, MOST))).unwrap_or(usize::MAX)
}

fn outside(args: &Args, around: &Surroundings) -> Result<Outside, RunError> {
    use std::io::IsTerminal;
    let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    Ok(Outside {
        cwd: around.cwd.clone(),
        environment: std::env::vars_os().collect(),
        secrets: args.secrets(&around.cwd)?,
        terminal: if person { Terminal::There } else { Terminal::None },
    })
}

/// The settings of the user and of the directory, and what the directory asked for in vain.
fn read_config(around: &Surroundings, bound: Option<&Path>) -> Result<(Config, Vec<Note>), RunError> {
    let texts = ConfigTexts::read(around, bound)?;
    let (config, refused) = texts.for_a_run()?;
    let file = texts.directory.map(|file| file.path.display().to_string()).unwrap_or_default();
    let note = |key: &str| Note {
        code: "config.not_trusted",
        text: format!("{key} in {file} is not taken: a directory cannot open its own sandbox"),
    };
    Ok((config, refused.into_iter().map(note).collect()))
}

fn surroundings() -> Result<Surroundings, RunError> {
    let cwd = std::env::current_dir();
    let cwd = cwd.map_err(|source| RunError::Host { operation: "find the working directory", source })?;
    Ok(Surroundings::of(cwd, std::env::vars_os()))
}

/// The vault that is meant; a new one in the working directory if there is none.
fn open_vault(args: &Args, around: &Surroundings) -> Result<Vault, RunError> {
    let context = context();
    let options = OpenOptions { on_close: OnClose::EmptyLog, ..OpenOptions::default() };
    match around.locate(args.vault.as_deref()) {
        Ok(located) => Ok(Vault::open(&located.path, options, context)?),
        Err(LocateError::NoneNear { cwd }) => {
            let path = cwd.join(VAULT_DIR).join(VAULT_FILE);
            let vault = make_vault(&path, BOUND_ABOVE, options, context)?;
            if !args.quiet {
                render::say(&format!("avfs-run: a new vault: {}\n", path.display()));
            }
            Ok(vault)
        }
        Err(error) => Err(error.into()),
    }
}

fn context() -> Context {
    Context { clock: Arc::new(SystemClock), actor: machine::actor() }
}

/// Where the envelope goes.
enum EnvelopeTo {
    Nowhere,
    Stdout,
    Fd(std::fs::File),
}

impl EnvelopeTo {
    /// Checked before anything runs: a result that nobody can be given is not worth a run.
    fn of(args: &Args) -> Result<Self, RunError> {
        match (args.json, args.json_fd) {
            (true, _) => Ok(Self::Stdout),
            (false, None) => Ok(Self::Nowhere),
            (false, Some(fd)) => crate::sys::adopt_fd(fd).map(Self::Fd).map_err(|_| RunError::BadFd { fd }),
        }
    }

    fn write(&self, envelope: &ExecutionEnvelope) -> std::io::Result<()> {
        let text = serde_json::to_string(envelope).map_err(std::io::Error::other)?;
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout => writeln!(std::io::stdout().lock(), "{text}"),
            Self::Fd(file) => writeln!(&mut &*file, "{text}"),
        }
    }
}
