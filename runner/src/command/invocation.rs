//! Where this process works: the vault, the settings and the machine, found once, and requests made for it.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{
    ExecuteError, Executed, LocateError, Located, Look, Machine, MemoSite, Note, Outcome, PolicyTexts,
    ProxyRuntime, RememberFor, Site, Surroundings, TrustOrigin, UNBOUND_PATH, VaultSource, bound_dir,
    cache_line, look, make_vault, stat_cache_path,
};
use avfs_hostfs::held::HeldFile;
use avfs_hostfs::{machine, mask};
use avfs_policy::{Opening, Policy};
use avfs_request::config::Config;
use avfs_request::request::NamedVault;
use avfs_request::{ExecutionRequest, Retention};
use avfs_types::clock::SystemClock;
use avfs_types::{VAULT_DIR, VAULT_FILE, pause};
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::{OnClose, OpenOptions};
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::{Context, Vault, VaultError};

use crate::command::approve::AtTerminal;
use crate::command::args::{Args, Outside, Terminal};
use crate::command::error::RunError;
use crate::command::{render, settings};
use crate::launch::SandboxLauncher;

pub struct Invocation {
    pub around: Surroundings,
    pub vault: Vault,
    /// The vault, if it is another one than would be found here.
    named: Option<NamedVault>,
    bound: Option<PathBuf>,
    config: Config,
    /// What the directory's settings asked for in vain.
    notes: Vec<Note>,
    vault_id: String,
    cache_dir: PathBuf,
    boot_id: String,
    umask: u32,
    machine: Machine,
}

impl Invocation {
    /// Opens the vault that is meant, or makes one.
    pub fn open(args: &Args, around: Surroundings) -> Result<Self, RunError> {
        let (vault, named) = open_vault(args, &around)?;
        let bound = bound_dir(&vault)?;
        let (config, notes) = read_config(&around, bound.as_deref())?;
        let boot_id = machine::boot_id()
            .map_err(|source| RunError::Host { operation: "read the machine's boot id", source })?;
        let (vault_id, cache_dir) = (vault.id()?, around.cache_dir()?);
        Ok(Self {
            around,
            vault,
            named,
            bound,
            config,
            notes,
            vault_id,
            cache_dir,
            boot_id,
            umask: mask::set_umask(),
            machine: Machine::default(),
        })
    }

    /// The request that the words stand for here.
    pub fn request(&self, args: &Args, outside: &Outside) -> Result<ExecutionRequest, RunError> {
        let workspace = args.at.as_deref().or(self.bound.as_deref());
        let extras =
            settings::extras(&self.config, &self.vault_id, workspace, &self.around, &self.cache_dir)?;
        let mut request = args.request(outside, &self.config, extras)?;
        request.named.vault = self.named.clone();
        Ok(request)
    }

    /// Takes a request to its end. The rules are read anew each time: somebody may have said "always".
    pub fn execute(&self, request: &ExecutionRequest) -> Result<Executed, RunError> {
        let around = &self.around;
        let policy = policy(around, self.vault.path())?;
        let meter = Meter::default();
        let site = self.site(&meter);
        let workspace = site.bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH));
        let place = RememberFor { around, vault: self.vault.path(), workspace };
        let runtime = ProxyRuntime {
            site: &site,
            policy: &policy,
            approver: &AtTerminal { place },
            launcher: &SandboxLauncher::new(self.umask),
        };
        let mut executed = runtime.execute(request);
        if let Ok(Outcome::Ran(result)) = &mut executed.outcome {
            result.notes.splice(0..0, self.notes.iter().cloned());
            if request.retention == Retention::Review && result.version_after.is_some() {
                result.notes.extend(self.note_git_clean());
            }
        }
        Ok(executed)
    }

    /// Once for a vault in a repository: `git clean -x` would delete it, with every run that was not applied.
    fn note_git_clean(&self) -> Option<Note> {
        let (dir, home) = (self.bound.as_deref()?, self.vault.path()?.parent()?);
        let is_cleaned = home.starts_with(dir) && dir.ancestors().any(|above| above.join(".git").exists());
        if !is_cleaned {
            return None;
        }
        let noted = home.join("git-clean-noted");
        match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&noted) {
            Ok(_) => Some(Note {
                code: "vault.git_clean",
                text: format!(
                    "git clean -x would delete {} with every run that is not applied; \
                     vault.place = \"data\" in your avfs.toml keeps new vaults elsewhere",
                    home.display()
                ),
            }),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::AlreadyExists {
                    tracing::debug!(%error, "the note about git clean was not written down");
                }
                None
            }
        }
    }

    /// Whether a result is remembered that would be taken for the request; nothing is written.
    pub fn look(&self, request: &ExecutionRequest) -> Result<Look, RunError> {
        let (meter, policy) = (Meter::default(), policy(&self.around, self.vault.path())?);
        Ok(look(&self.site(&meter), &policy, request).map_err(ExecuteError::from)?)
    }

    fn site<'a>(&'a self, meter: &'a Meter) -> Site<'a> {
        let (around, config, bound) = (&self.around, &self.config, self.bound.clone());
        Site {
            vault: &self.vault,
            vault_id: self.vault_id.clone(),
            stat_cache: bound.as_ref().map(|dir| stat_cache_path(&self.cache_dir, &self.vault_id, dir)),
            exclude: config
                .capture_exclude
                .iter()
                .map(|pattern| pattern.value.clone())
                .chain(bound.as_ref().and_then(|dir| cache_line(&self.cache_dir, dir)))
                .collect(),
            bound,
            cwd: around.cwd.clone(),
            home: around.home.clone(),
            layers: BaseCache::new(&self.cache_dir, &self.boot_id),
            cache_dir: self.cache_dir.clone(),
            boot_id: self.boot_id.clone(),
            expires_seconds: config.fork_expires.value.0,
            arguments_bytes_max: arguments_bytes_max(),
            checkpoints_keep: config.checkpoint_keep.value,
            memo: MemoSite {
                machine: &self.machine,
                umask: self.umask,
                expires_seconds: config.run_cache_expires.value.0,
            },
            meter,
        }
    }
}

/// The rules that hold.
pub fn policy(around: &Surroundings, vault: Option<&Path>) -> Result<Policy, RunError> {
    Ok(PolicyTexts::read(around, vault)?.policy()?)
}

/// What the kernel takes for the words and variables of a program: a quarter of the stack, 6 MiB at most.
pub fn arguments_bytes_max() -> usize {
    const MOST: u64 = 6 << 20;
    // The kernel always grants this much.
    const LEAST: u64 = 128 << 10;
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    usize::try_from(stack.map_or(MOST, |stack| (stack / 4).clamp(LEAST, MOST))).unwrap_or(usize::MAX)
}

pub fn outside(args: &Args, around: &Surroundings) -> Result<Outside, RunError> {
    use std::io::IsTerminal;
    let person = std::io::stdin().is_terminal() && render::stderr_is_terminal();
    Ok(Outside {
        cwd: around.cwd.clone(),
        environment: std::env::vars_os().collect(),
        secrets: args.secrets(&around.cwd)?,
        terminal: if person { Terminal::There } else { Terminal::None },
    })
}

/// The settings of the user and of the directory, and what the directory asked for in vain.
pub fn read_config(around: &Surroundings, bound: Option<&Path>) -> Result<(Config, Vec<Note>), RunError> {
    let texts = ConfigTexts::read(around, bound)?;
    let (config, refused) = texts.for_a_run()?;
    let file = texts.directory.map(|file| file.path.display().to_string()).unwrap_or_default();
    let note = |key: &str| Note {
        code: "config.not_trusted",
        text: format!("{key} in {file} is not taken: a directory cannot open its own sandbox"),
    };
    Ok((config, refused.into_iter().map(note).collect()))
}

pub fn surroundings() -> Result<Surroundings, RunError> {
    let cwd = std::env::current_dir();
    let cwd = cwd.map_err(|source| RunError::Host { operation: "find the working directory", source })?;
    Ok(Surroundings::of(cwd, std::env::vars_os()))
}

/// The vault that is meant; a new one in the working directory if there is none.
fn open_vault(args: &Args, around: &Surroundings) -> Result<(Vault, Option<NamedVault>), RunError> {
    let context = context();
    let options = OpenOptions { on_close: OnClose::EmptyLog, ..OpenOptions::default() };
    let say = |text: String| {
        if !args.quiet {
            render::say([text]);
        }
    };
    match around.locate(args.vault.as_deref()) {
        Ok(Located { path, source }) => {
            if source != VaultSource::Option && path != around.cwd.join(VAULT_DIR).join(VAULT_FILE) {
                say(format!("avfs-run: using the vault {}", path.display()));
            }
            match source {
                VaultSource::Option => open_judged(&path, around, options, context),
                VaultSource::Environment | VaultSource::Nearest => {
                    Ok((Vault::open(&path, options, context)?, None))
                }
            }
        }
        Err(LocateError::NoneNear { cwd }) if !args.explain_cache => {
            let place = read_config(around, None)?.0.vault_place.value;
            let path = around.new_vault(place)?;
            check_new_vault(args, around)?;
            let make =
                || -> Result<Vault, RunError> { Ok(make_vault(&path, &cwd, options, context.clone())?) };
            let trusted = around.trusted_vaults()?;
            match trusted.make(&path, TrustOrigin::Made, make) {
                // Another first run here was faster, or somebody else.
                Err(RunError::Vault(VaultError::Backend(BackendError::Exists { .. }))) => {
                    trusted.check(&path)?;
                    Ok((Vault::open(&path, options, context)?, None))
                }
                made => {
                    let vault = made?;
                    say(format!("avfs-run: a new vault: {}", path.display()));
                    Ok((vault, None))
                }
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens the vault that the words name. What is opened is what was judged: the real path, and the file that was there.
fn open_judged(
    path: &Path,
    around: &Surroundings,
    options: OpenOptions,
    context: Context,
) -> Result<(Vault, Option<NamedVault>), RunError> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // Why it cannot be held is reported when it is opened.
    let judged = HeldFile::open(&path).unwrap_or_default();
    let named = named_vault(&path, around)?;
    pause::point("vault-judged");
    let vault = Vault::open(&path, options, context)?;
    if !judged.is_at(&path) {
        return Err(VaultError::Moved { path }.into());
    }
    Ok((vault, named))
}

/// Fails where the rules let this caller make no vault.
pub fn check_new_vault(args: &Args, around: &Surroundings) -> Result<(), RunError> {
    let policy = policy(around, None)?.with_profiles(&args.policy);
    policy.refuses(&Opening::NewVault).map_or(Ok(()), |verdict| Err(RunError::Refused(verdict)))
}

/// A vault that the words name, unless it is the one that is used here anyway.
pub fn named_vault(path: &Path, around: &Surroundings) -> Result<Option<NamedVault>, RunError> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = real(path);
    if around.locate(None).is_ok_and(|found| real(&found.path) == path) {
        return Ok(None);
    }
    let is_trusted = match around.owns_vault(&path) {
        // Without a home nothing is recorded.
        Err(LocateError::NoHome { .. }) => false,
        owned => owned?,
    };
    Ok(Some(NamedVault { path, is_trusted }))
}

pub fn context() -> Context {
    Context { clock: Arc::new(SystemClock), actor: machine::actor() }
}
