//! One invocation: finds the vault, makes the request, has it executed, tells what came of it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use avfs::backend::sqlite::OpenOptions;
use avfs::clock::SystemClock;
use avfs::exit_code;
use avfs::runtime::envelope::{ErrorBody, ExecutionEnvelope, RequestObject};
use avfs::runtime::{
    BOUND_ABOVE, ExecutionDecision, ExecutionRequest, ExecutionResult, Exit, LocateError, ProxyRuntime, Site,
    Surroundings, VAULT_DIR, VAULT_FILE, bound_dir, stat_cache_path,
};
use avfs::vault::materialize::BaseCache;
use avfs::vault::meter::Meter;
use avfs::vault::{Context, Vault};

use crate::args::{Args, Outside};
use crate::error::RunError;
use crate::launch::SandboxLauncher;
use crate::render;

/// How long changes nobody has looked at are kept.
const EXPIRES_SECONDS: i64 = 7 * 24 * 60 * 60;

pub fn run(args: &Args) -> u8 {
    let envelope_to = match EnvelopeTo::of(args) {
        Ok(to) => to,
        Err(error) => {
            render::say(&render::failure(&error));
            return error.exit_code();
        }
    };
    let mut request = None;
    let outcome = execute(args, &mut request);
    let failed = outcome.is_err();
    let (code, text, envelope) = match (outcome, request) {
        (Ok((result, object)), _) => {
            let decision = ExecutionDecision::without_policy();
            let envelope = ExecutionEnvelope::completed(object, &decision, &result);
            (code_of(&result), summary_text(args, &result), envelope)
        }
        (Err(error), request) => {
            let envelope = ExecutionEnvelope::failed(request, None, ErrorBody::of(&error));
            (error.exit_code(), render::failure(&error), envelope)
        }
    };
    let written = envelope_to.write(&envelope);
    // Quiet is for summaries; why nothing was run is told in any case.
    let silent = matches!(envelope_to, EnvelopeTo::Stdout) || (args.quiet && !failed);
    if !silent {
        render::say(&text);
    }
    match written {
        Ok(()) => code,
        Err(error) => {
            let error = RunError::Host { operation: "write the envelope", source: error };
            render::say(&render::failure(&error));
            error.exit_code()
        }
    }
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

fn execute(
    args: &Args,
    told: &mut Option<RequestObject>,
) -> Result<(ExecutionResult, RequestObject), RunError> {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let around = surroundings()?;
    let outside = Outside { cwd: around.cwd.clone(), environment: std::env::vars_os().collect() };
    let request = args.request(&outside, Vec::new())?;
    *told = Some(RequestObject::of(&request, None));
    let vault = open_vault(args, &around)?;
    let object = RequestObject::of(&request, vault.path());
    *told = Some(object.clone());
    let result = execute_on(&vault, &around, &request, umask.bits())?;
    Ok((result, object))
}

fn execute_on(
    vault: &Vault,
    around: &Surroundings,
    request: &ExecutionRequest,
    umask: u32,
) -> Result<ExecutionResult, RunError> {
    let cache_dir = around.cache_dir()?;
    let bound = bound_dir(vault)?;
    let boot_id = boot_id()?;
    let stat_cache = match &bound {
        Some(dir) => Some(stat_cache_path(&cache_dir, &vault.id()?, dir)),
        None => None,
    };
    let meter = Meter::default();
    let site = Site {
        vault,
        bound,
        cwd: around.cwd.clone(),
        home: around.home.clone(),
        layers: BaseCache::new(&cache_dir, &boot_id),
        cache_dir,
        boot_id,
        stat_cache,
        exclude: Vec::new(),
        expires_seconds: EXPIRES_SECONDS,
        meter: &meter,
    };
    let runtime = ProxyRuntime { site: &site, launcher: &SandboxLauncher { umask } };
    Ok(runtime.execute(request, &ExecutionDecision::without_policy())?)
}

fn surroundings() -> Result<Surroundings, RunError> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cwd = std::env::current_dir();
    Ok(Surroundings {
        cwd: cwd.map_err(|source| RunError::Host { operation: "find the working directory", source })?,
        vault: var("AVFS_VAULT"),
        home: var("HOME").map(PathBuf::from),
        data_home: var("XDG_DATA_HOME").map(PathBuf::from),
        cache_home: var("XDG_CACHE_HOME").map(PathBuf::from),
    })
}

fn boot_id() -> Result<String, RunError> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let text = text.map_err(|source| RunError::Host { operation: "read the machine's boot id", source })?;
    Ok(text.trim().to_owned())
}

/// The vault that is meant; a new one in the working directory if there is none.
fn open_vault(args: &Args, around: &Surroundings) -> Result<Vault, RunError> {
    let context = Context { clock: Arc::new(SystemClock), actor: actor() };
    match around.locate(args.vault.as_deref()) {
        Ok(located) => Ok(Vault::open(&located.path, OpenOptions::default(), context)?),
        Err(LocateError::NoneNear { cwd }) => {
            let dir = cwd.join(VAULT_DIR);
            let made = std::fs::DirBuilder::new();
            if let Err(source) = made.create(&dir)
                && source.kind() != std::io::ErrorKind::AlreadyExists
            {
                return Err(RunError::Host { operation: "make a vault in the working directory", source });
            }
            let path = dir.join(VAULT_FILE);
            let vault = Vault::create(&path, Some(BOUND_ABOVE), OpenOptions::default(), context)?;
            if !args.quiet {
                render::say(&format!("avfs-run: a new vault: {}\n", path.display()));
            }
            Ok(vault)
        }
        Err(error) => Err(error.into()),
    }
}

/// Who acts, as the audit log names them: `name(uid)`.
fn actor() -> String {
    let uid = rustix::process::geteuid();
    let name = std::env::var_os("USER").or_else(|| std::env::var_os("LOGNAME"));
    let name = name.unwrap_or_else(|| OsString::from("unknown"));
    format!("{}({uid})", name.to_string_lossy())
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
