//! `--request`: a request in JSON becomes the options it stands for.
//!
//! What the command line says wins over what the file says.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use avfs_request::choices::PolicyProfile;
use avfs_request::request_file::{REQUEST_BYTES_MAX, RequestFile, RequestFileError, amount_text};
use avfs_request::{ExecutionTimeout, Retention, seed};
use avfs_types::CommandLine;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::ForkName;

use crate::command::args::Args;

#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("cannot read the request {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the request {}: {problem}", path.display())]
    Malformed { path: PathBuf, problem: RequestFileError },
    #[error("the request {}: {key}: {problem}", path.display())]
    BadValue { path: PathBuf, key: &'static str, problem: String },
}

impl Diagnose for BadRequest {
    fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "request.unreadable",
            Self::Malformed { .. } | Self::BadValue { .. } => "request.malformed",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unreadable { .. } => None,
            Self::Malformed { .. } | Self::BadValue { .. } => {
                Some("see every key with: avfs schema, under RequestFile".to_owned())
            }
        }
    }
}

/// The options with what the request file says, if there is one.
pub fn with_request(args: Args) -> Result<Args, BadRequest> {
    let Some(path) = args.request.clone() else { return Ok(args) };
    let text = read(&path).map_err(|source| BadRequest::Unreadable { path: path.clone(), source })?;
    let malformed = |problem| BadRequest::Malformed { path: path.clone(), problem };
    let file = RequestFile::parse(&text).map_err(malformed)?;
    let command = file.command_line().map_err(malformed)?;
    fill(args, file, command, &path)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    // One more than is allowed, so that too much is noticed.
    let bound = REQUEST_BYTES_MAX as u64 + 1;
    let mut text = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(bound).read_to_end(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(bound).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// The options with what a request says.
pub fn fill(
    mut args: Args,
    file: RequestFile,
    command: CommandLine,
    path: &Path,
) -> Result<Args, BadRequest> {
    fn word<T: FromStr<Err: std::fmt::Display>>(
        set: &mut Option<T>,
        value: Option<&str>,
        key: &'static str,
        path: &Path,
    ) -> Result<(), BadRequest> {
        if let (None, Some(text)) = (&set, value) {
            let parsed = text.parse().map_err(|error: T::Err| {
                let (path, problem) = (path.to_owned(), error.to_string());
                BadRequest::BadValue { path, key, problem }
            })?;
            *set = Some(parsed);
        }
        Ok(())
    }
    match command {
        CommandLine::Argv(words) => args.command = words,
        CommandLine::Shell(line) => args.shell = Some(line),
    }
    args.vault = args.vault.or_else(|| file.vault.map(OsString::from));
    word::<ForkName>(&mut args.fork, file.fork.as_deref(), "fork", path)?;
    args.from = args.from.or(file.from);
    args.cwd = args.cwd.or_else(|| file.cwd.map(PathBuf::from));
    args.at = args.at.or_else(|| file.at.map(PathBuf::from));
    args.readonly |= file.readonly;
    args.allow_degraded |= file.allow_degraded;
    word(&mut args.timeout, file.timeout.as_deref(), "timeout", path)?;
    let millis = |limit: Option<u64>| limit.map_or(ExecutionTimeout::None, ExecutionTimeout::Millis);
    args.timeout = args.timeout.or_else(|| file.timeout_ms.map(millis));
    args.grace = args.grace.or_else(|| file.grace_ms.map(ExecutionTimeout::Millis));
    word(&mut args.checkpoint, file.checkpoint_mode.as_deref(), "checkpoint_mode", path)?;
    word(&mut args.net, file.net.as_deref(), "net", path)?;
    word(&mut args.base, file.base.as_deref(), "base", path)?;
    word(&mut args.scratch, file.scratch.as_deref(), "scratch", path)?;
    word(&mut args.backend, file.backend.as_deref(), "backend", path)?;
    word(&mut args.profile, file.profile.as_deref(), "profile", path)?;
    word(&mut args.cache, file.cache_mode.as_deref(), "cache_mode", path)?;
    args.pure |= file.pure;
    word(&mut args.approval, file.approval.as_deref(), "approval", path)?;
    word(&mut args.approved, file.approval_id.as_deref(), "approval_id", path)?;
    word(&mut args.seccomp, file.seccomp.as_deref(), "seccomp", path)?;
    word(&mut args.landlock, file.landlock.as_deref(), "landlock", path)?;
    args.allow_userns |= file.allow_userns;
    args.allow_secret_files |= file.allow_secret_files;
    args.reproducible |= file.reproducible;
    word(&mut args.clock_fixed, file.clock_fixed.as_deref(), "clock_fixed", path)?;
    word(&mut args.memory, amount_text(&file.memory).as_deref(), "memory", path)?;
    word(&mut args.cpus, amount_text(&file.cpus).as_deref(), "cpus", path)?;
    word(&mut args.pids, amount_text(&file.pids).as_deref(), "pids", path)?;
    word(&mut args.disk, amount_text(&file.disk).as_deref(), "disk", path)?;
    word(&mut args.files, amount_text(&file.files).as_deref(), "files", path)?;
    word(&mut args.file_size, amount_text(&file.file_size).as_deref(), "file_size", path)?;
    for profile in &file.policy {
        let mut wanted = None;
        word::<PolicyProfile>(&mut wanted, Some(profile), "policy", path)?;
        args.policy.extend(wanted);
    }
    let mut retention = (args.apply || args.discard).then_some(Retention::Review);
    word(&mut retention, file.retention.as_deref(), "retention", path)?;
    if !args.apply && !args.discard {
        args.apply = retention == Some(Retention::Apply);
        args.discard = retention == Some(Retention::Discard);
    }
    if args.apply && (args.fork.is_some() || args.readonly) {
        let problem = "apply goes neither with a fork nor with readonly".to_owned();
        return Err(BadRequest::BadValue { path: path.to_owned(), key: "retention", problem });
    }
    for (own, theirs) in [
        (&mut args.ro, file.ro),
        (&mut args.rw, file.rw),
        (&mut args.tmpfs, file.tmpfs),
        (&mut args.hide, file.hide),
        (&mut args.input, file.inputs),
    ] {
        own.extend(theirs.into_iter().map(PathBuf::from));
    }
    // What the command line sets comes last and wins.
    let mut env: Vec<OsString> =
        file.env.iter().map(|(name, value)| format!("{name}={value}").into()).collect();
    let secret = |name: &String| file.secrets.contains(name);
    // The names an envelope tells are those the command had, also of what was fixed for it.
    let fixed = seed(args.reproducibility(), args.clock());
    let is_fixed = |name: &String| fixed.iter().any(|(fixed, _)| fixed == name.as_str());
    let passed = file.environment.iter().filter(|name| !secret(name) && !file.env.contains_key(*name));
    let passed = passed.filter(|name| !is_fixed(name));
    env.extend(passed.filter(|name| std::env::var_os(name).is_some()).map(OsString::from));
    env.append(&mut args.env);
    args.env = env;
    args.secret.extend(file.secrets.iter().map(OsString::from));
    // What an envelope tells of them are names alone.
    let as_file =
        |secret: &String| if secret.contains('=') { secret.into() } else { format!("{secret}=file").into() };
    args.secret.extend(file.secret_files.iter().map(as_file));
    Ok(args)
}
