//! The context of this process: the vault, the settings and the host, found once. Requests are resolved against it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use avfs_engine::{
    ExecuteError, Executed, LocateError, Located, NewVault, Note, NoteDelivery, Surroundings, VAULT_SKIPPED,
    VaultSource, bound_dir, check_request, make_first_vault,
};
use avfs_hostfs::held::HeldFile;
use avfs_hostfs::{machine, mask};
use avfs_policy::Opening;
use avfs_present::Avfs;
use avfs_request::config::Config;
use avfs_request::request::NamedVault;
use avfs_request::{ExecutionRequest, ForkChoice, Outside, Terminal};
use avfs_types::clock::SystemClock;
use avfs_types::{VAULT_DIR, VAULT_FILE, pause};
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::meter::Meter;
use avfs_vault::{Context, Vault, VaultError};
use avfs_workplace::{RunContext, arguments_bytes_max, policy, read_config};

use crate::command::approve::AtTerminal;
use crate::command::args::Args;
use crate::command::error::RunError;
use crate::command::render;
use crate::command::run::Asked;
use crate::command::waiting::{Audience, Waiting};
use crate::sandbox::HostSandboxes;

pub struct Invocation {
    pub context: RunContext,
    /// The audience for progress during an import.
    audience: Audience,
    /// The `avfs` command in notes and questions.
    avfs: Avfs,
}

impl Invocation {
    /// Opens the selected vault, or creates one.
    pub fn open(args: &Args, around: Surroundings) -> Result<Self, RunError> {
        let vault = VaultAt::find(args, &around)?;
        let settings = read_config(&around, vault.bound()?.as_deref())?;
        Self::at(vault, settings, args, around)
    }

    /// The same for a vault and settings that are already known.
    fn at(
        vault: VaultAt,
        (config, mut notes): (Config, Vec<Note>),
        args: &Args,
        around: Surroundings,
    ) -> Result<Self, RunError> {
        let option = args.spec.vault.as_ref().map(|vault| vault.as_os_str());
        for skipped in around.skipped_vaults(option) {
            if !args.quiet {
                render::say([format!("avfs-run: warning: {skipped}")]);
            }
            notes.push(Note::new(VAULT_SKIPPED, skipped.to_string()));
        }
        notes.extend(vault.note());
        let vault = vault.open(args, &around)?;
        let is_shown = !args.serve && (args.json.is_some() || args.json_fd.is_some() || !args.quiet);
        let delivery = if is_shown { NoteDelivery::Shown } else { NoteDelivery::Dropped };
        Ok(Self {
            context: RunContext::new(around, vault, (config, notes), mask::set_umask(), delivery)?,
            avfs: args.avfs(),
            audience: match (
                args.serve || args.quiet || args.json.is_some(),
                avfs_terminal::stderr_is_terminal(),
            ) {
                (true, _) => Audience::Nobody,
                (false, true) => Audience::Terminal,
                (false, false) => Audience::Log,
            },
        })
    }

    /// Creates the request, and its vault. A request that can never run is rejected before a vault is created.
    pub fn ask(args: &Args, asked: &mut Option<Asked>) -> Result<(Self, ExecutionRequest), RunError> {
        let around = surroundings()?;
        let outside = outside(args, &around);
        let vault = VaultAt::find(args, &around)?;
        let settings = read_config(&around, vault.bound()?.as_deref())?;
        let mut request = args.request(&outside, &settings.0)?;
        *asked = Some(Asked::of(&request, None));
        request.check(arguments_bytes_max()).map_err(ExecuteError::Request)?;
        check_request(&request, vault.bound()?.as_deref()).map_err(ExecuteError::WorkspaceRoot)?;
        if let (VaultAt::Nowhere(_), ForkChoice::Persistent { name, .. }) = (&vault, &request.fork) {
            name.check_new().map_err(VaultError::from)?;
        }
        let invocation = Self::at(vault, settings, args, around)?;
        invocation.context.complete(&mut request)?;
        *asked = Some(Asked::of(&request, invocation.context.vault.path()));
        Ok((invocation, request))
    }

    /// Resolves the arguments into a request.
    pub fn request(&self, args: &Args) -> Result<ExecutionRequest, RunError> {
        let context = &self.context;
        let mut request = args.request(&outside(args, &context.surroundings), &context.config)?;
        context.complete(&mut request)?;
        Ok(request)
    }

    pub fn execute(&self, request: &ExecutionRequest) -> Result<Executed, RunError> {
        let meter = Meter::watched(Box::new(Waiting::new(self.audience)));
        let reports = self.audience != Audience::Nobody;
        let approver = AtTerminal { place: self.context.remember_for(), avfs: &self.avfs, reports };
        Ok(self.context.execute(request, &approver, &HostSandboxes::of_this_program(), &meter)?)
    }
}

/// The caller's terminals. With `--json` the caller is treated as a program, not a person.
pub fn outside(args: &Args, around: &Surroundings) -> Outside {
    use std::io::IsTerminal;
    let there = |is_terminal: bool| if is_terminal { Terminal::There } else { Terminal::None };
    let types = args.json.is_none() && std::io::stdin().is_terminal();
    Outside {
        cwd: around.cwd.clone(),
        environment: machine::environment(),
        terminal: there(types && avfs_terminal::stderr_is_terminal()),
        streams: there(types && avfs_terminal::stdout_is_terminal()),
    }
}

pub fn surroundings() -> Result<Surroundings, RunError> {
    let cwd = std::env::current_dir();
    let cwd = cwd.map_err(RunError::host("find the working directory"))?;
    Ok(Surroundings::of(cwd, machine::environment()))
}

/// The selected vault.
pub enum VaultAt {
    There {
        vault: Box<Vault>,
        named: Option<NamedVault>,
        source: VaultSource,
        /// That it was bound to the new path of its directory.
        rebound: Option<Note>,
    },
    /// No vault exists: a new one would be created here, for this directory.
    Nowhere(NewVault),
}

impl VaultAt {
    /// Opens an existing vault; does not create one.
    pub fn find(args: &Args, around: &Surroundings) -> Result<Self, RunError> {
        match around.locate(args.spec.vault.as_ref().map(|vault| vault.as_os_str())) {
            Ok(located) => {
                let (path, source) = (&located.path, located.source);
                let (vault, named) = match source {
                    VaultSource::Option => open_judged(path, around, OpenOptions::default(), context())?,
                    VaultSource::Environment | VaultSource::Nearest => {
                        (Vault::open(path, OpenOptions::default(), context())?, None)
                    }
                };
                let rebound = around.confirm::<RunError>(&located, &vault)?;
                if let Some(rollback) = vault.older_copy() {
                    // Also with --quiet and --json, and if the command is not run: the vault reports it only once.
                    render::say([format!(
                        "avfs-run: warning: the vault was replaced by an older copy: it lacks {rollback}"
                    )]);
                }
                Ok(Self::There { vault: Box::new(vault), named, source, rebound })
            }
            Err(LocateError::NoneNear { .. }) if !args.explain_cache => {
                let place = read_config(around, None)?.0.vault_place.value;
                let new = around.new_vault(place)?;
                check_new_vault(args, around)?;
                Ok(Self::Nowhere(new))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub fn bound(&self) -> Result<Option<PathBuf>, RunError> {
        match self {
            Self::There { vault, .. } => Ok(bound_dir(vault)?),
            Self::Nowhere(new) => Ok(Some(new.dir.clone())),
        }
    }

    fn note(&self) -> Option<Note> {
        match self {
            Self::There { rebound, .. } => rebound.clone(),
            Self::Nowhere(_) => None,
        }
    }

    /// Creates the vault if it does not exist.
    fn open(self, args: &Args, around: &Surroundings) -> Result<(Vault, Option<NamedVault>), RunError> {
        let say = |text: String| {
            if !args.quiet {
                render::say([text]);
            }
        };
        match self {
            Self::There { vault, named, source, .. } => {
                let path = vault.path().unwrap_or(Path::new(""));
                if source != VaultSource::Option && path != around.cwd.join(VAULT_DIR).join(VAULT_FILE) {
                    say(format!("avfs-run: using the vault {}", path.display()));
                }
                Ok((*vault, named))
            }
            Self::Nowhere(NewVault { path, dir }) => {
                let (vault, made) =
                    make_first_vault::<RunError>(around, (&path, &dir), OpenOptions::default(), &context())?;
                if made && dir != around.cwd {
                    let (path, dir) = (path.display(), dir.display());
                    say(format!("avfs-run: created a new vault: {path}, for the repository {dir}"));
                } else if made {
                    say(format!("avfs-run: created a new vault: {}", path.display()));
                }
                Ok((vault, None))
            }
        }
    }
}

/// Opens the vault named on the command line. The checked vault and the opened one are the same: the canonical path,
/// and the same file.
fn open_judged(
    path: &Path,
    around: &Surroundings,
    options: OpenOptions,
    context: Context,
) -> Result<(Vault, Option<NamedVault>), RunError> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // If the file cannot be opened here, opening the vault reports the reason.
    let judged = HeldFile::open(&path).unwrap_or_default();
    pause::point("vault-judged");
    let vault = Vault::open(&path, options, context)?;
    if !judged.is_at(&path) {
        return Err(VaultError::Moved { path }.into());
    }
    let named = named_vault(&path, &vault, around)?;
    Ok((vault, named))
}

/// Fails if the policy does not allow this caller to create a vault.
fn check_new_vault(args: &Args, around: &Surroundings) -> Result<(), RunError> {
    let policy = policy(around, None)?.with_profiles(&args.spec.policy);
    policy.refuses(&Opening::NewVault).map_or(Ok(()), |verdict| Err(RunError::refused(verdict)))
}

/// A vault named on the command line, unless it is also the default vault here.
fn named_vault(path: &Path, vault: &Vault, around: &Surroundings) -> Result<Option<NamedVault>, RunError> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = real(path);
    let is_default =
        |found: Located| real(&found.path) == path && around.confirm::<RunError>(&found, vault).is_ok();
    if around.locate(None).is_ok_and(is_default) {
        return Ok(None);
    }
    let is_trusted = match around.owns_vault(&path, &vault.id()?) {
        // Without a home directory, ownership is not recorded.
        Err(LocateError::NoHome { .. }) => false,
        owned => owned?,
    };
    Ok(Some(NamedVault { path, is_trusted }))
}

pub fn context() -> Context {
    Context { clock: Arc::new(SystemClock), actor: machine::actor() }
}
