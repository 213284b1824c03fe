//! Plan: the plans of the sandbox and of its command, with the view, the workspace in it, and the place of the upper.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use avfs_egress::with_proxy;
use avfs_request::reproducible::{HOSTNAME, UMASK, with_clock};
use avfs_request::{
    CacheMode, ExecutionRequest, Extra, GitIdentity, Limits, MergedOutput, Profile, Reproducible, Streams,
    Writing,
};
use avfs_types::VAULT_DIR;
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_vault::backend::RunState;
use avfs_vault::backend::sqlite::Placeholders;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::own::files_of;
use avfs_vault::set_ids::SetIds;

use super::base::Based;
use super::effective::Effective;
use super::prepare::Prepared;
use super::record::Run;
use super::site::Site;
use super::state::{Failure, ProxyExecutionState, Stage, enter_in};
use crate::aliases::{aliases, visible_at};
use crate::error::ExecuteError;
use crate::git::identity::GitIdentity as HostIdentity;
use crate::journal;
use crate::launcher::{CommandPlan, Commands, SandboxPlan, Stdio, UpperPlace, UpperRoot, WorkspaceMount};
use crate::mount_session::{MountSession, ScratchDir, SessionError};
use crate::run_base::RunBase;
use crate::scratch_size::{Scratch, ScratchSpace};
use crate::view::{GIT_CONFIG, SecretFiles, ViewRequest, kept_home, view};
use crate::workspace_root::{Names, Places, WorkspaceRootError, upper_root};

/// The kernel's list of mounts.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Number of earlier runs used to estimate how much the next one writes.
const EARLIER_RUNS: usize = 3;
/// Maximum rows of the journal to search for them.
const EARLIER_ROWS: usize = 6;

/// Bytes of each stream kept for the digest of a recorded run: the same as `--json` keeps.
const RECORDED_BYTES_MAX: usize = 10 << 20;

/// Keeps `git status` and other read-only commands from rewriting the index.
const GIT_WITHOUT_LOCKS: (&str, &str) = ("GIT_OPTIONAL_LOCKS", "0");

/// A run that can be launched.
pub(crate) struct Planned {
    pub base: RunBase,
    /// The parent of a fork created for the run.
    pub parent: ForkName,
    pub scratch_place: Scratch,
    pub sandbox: SandboxPlan,
    pub command: CommandPlan,
}

impl Stage for Planned {
    const STATE: ProxyExecutionState = ProxyExecutionState::Mounting;
}

/// Decides what the command sees, and where it writes.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn plan(
    site: &Site<'_>,
    effective: &Effective<'_>,
    based: Based,
    prepared: &Prepared,
) -> Result<Planned, Failure> {
    let session = &prepared.session;
    enter_in::<Based, Planned>(session);
    let Based { base, parent } = based;
    let plan = || -> Result<_, ExecuteError> {
        let scratch_place = scratch_place(site, &effective.run.request)?;
        let mountpoint = ScratchDir::new(&site.cache_dir).mountpoint()?;
        let workspace = workspace(site, effective, &base, session, scratch_place, &mountpoint)?;
        let command = command_plan(site, effective, &mountpoint)?;
        Ok((scratch_place, sandbox_plan(site, effective, workspace, mountpoint)?, command))
    };
    let (scratch_place, sandbox, command) = plan().map_err(Failure::at::<Planned>)?;
    Ok(Planned { base, parent, scratch_place, sandbox, command })
}

/// The place of the upper, based on the largest amount written by one of the last runs.
pub(super) fn scratch_place(site: &Site<'_>, request: &ExecutionRequest) -> avfs_vault::Result<Scratch> {
    let runs = site.vault.runs(i64::MAX, EARLIER_ROWS)?;
    // Denied runs wrote nothing and are ignored.
    let ran = runs.iter().filter(|run| run.state == RunState::Completed).take(EARLIER_RUNS);
    let written = ran.filter_map(journal::result_of).map(|result| result.bytes_written).max().unwrap_or(0);
    Ok(ScratchSpace::look(&site.cache_dir, written).choose(request.scratch, &request.limits))
}

/// What the sandbox shows, and what it enforces.
fn sandbox_plan(
    site: &Site<'_>,
    effective: &Effective<'_>,
    workspace: WorkspaceMount,
    mountpoint: PathBuf,
) -> Result<SandboxPlan, ExecuteError> {
    let (request, places) = (&effective.run.request, &effective.admitted.places);
    let extras = extras(effective);
    let mut secret = vec![site.cache_dir.clone(), places.workspace.join(VAULT_DIR)];
    let own = site.vault.path().map(|vault| vault.canonicalize().unwrap_or_else(|_| vault.to_owned()));
    let others = site.vault.others().iter().filter(|listed| Some(*listed) != own.as_ref());
    let KeptNames { placeholders, pinned } = keep_names(own.iter().chain(others), &extras)?;
    secret.extend(own.iter().flat_map(|vault| vault_files(vault, places)));
    let shown = shown_dirs(request.profile, &extras);
    secret.extend(other_vaults(&site.private_paths, &shown, places));
    let aliases = aliases(&shown, &secret).map_err(no_access(Path::new(MOUNTS)))?;
    secret.extend(aliases);
    let git_config = match request.git_identity {
        GitIdentity::Host => {
            HostIdentity::read(site.git_configs.in_effect(), site.home.as_deref()).as_config()
        }
        GitIdentity::None => None,
    };
    if let Some(kept_home) = kept_home(&extras, site.home.as_deref()) {
        HostIdentity::remove_other(kept_home, git_config.as_deref())
            .map_err(|source| WorkspaceRootError::Io { path: kept_home.join(GIT_CONFIG), source })?;
    }
    let steps = view(ViewRequest {
        profile: request.profile,
        workspace,
        home: site.home.as_deref(),
        git_config,
        search_path: request.environment.toolchain_path(),
        net: &request.net,
        proc: request.proc,
        extras: &extras,
        repository: shown_repository(effective),
        shown_as: effective.shown_as,
        pinned: &pinned,
        secret: &secret,
        secret_files: match request.secret_files.is_empty() {
            true => SecretFiles::None,
            false => SecretFiles::Some,
        },
    });
    Ok(SandboxPlan {
        mountpoint,
        view: steps,
        secret_files: request.secret_files.clone(),
        hostname: (request.reproducible == Reproducible::On).then_some(HOSTNAME),
        profile: request.profile,
        net: request.net.clone(),
        confinement: request.confinement,
        limits: request.limits,
        commands: Commands::One,
        placeholders,
    })
}

fn command_plan(
    site: &Site<'_>,
    effective: &Effective<'_>,
    mountpoint: &Path,
) -> Result<CommandPlan, ExecuteError> {
    let run = &effective.run;
    let request = &run.request;
    let stdio = Stdio::of_this_process();
    Ok(CommandPlan {
        argv: request.command.words(),
        environment: environment(run),
        cwd: effective.admitted.places.cwd.clone(),
        umask: if request.reproducible == Reproducible::On { UMASK } else { site.memo.umask },
        stdio: match request.cache {
            CacheMode::Off => stdio,
            // Standard input is not part of the cache key.
            CacheMode::Read | CacheMode::Write => Stdio { stdin: None, ..stdio },
        },
        streams: streams(site, run)?,
        timeout: request.timeout,
        grace: request.grace,
        limits: Limits::default(),
        spool_dir: mountpoint.parent().map(Path::to_owned),
    })
}

/// The command's variables. Read-only commands get git without optional locks.
fn environment(run: &Run) -> Vec<(OsString, OsString)> {
    let request = &run.request;
    let mut all = with_clock(with_proxy(&request.environment, &request.net), request);
    let (name, value) = GIT_WITHOUT_LOCKS;
    if run.decision.looks_only() && !all.iter().any(|(set, _)| set == name) {
        all.push((name.into(), value.into()));
    }
    all
}

/// While a fork is recorded, or if a result should be cached, output is captured too.
fn streams(site: &Site<'_>, run: &Run) -> avfs_vault::Result<Streams> {
    match run.request.streams {
        Streams::Passed if run.request.cache == CacheMode::Write || site.vault.is_recorded(&run.fork)? => {
            Ok(Streams::Teed { bytes_max: RECORDED_BYTES_MAX, merged: MergedOutput::Passed })
        }
        asked @ (Streams::Passed | Streams::Captured { .. } | Streams::Teed { .. }) => Ok(asked),
    }
}

fn workspace(
    site: &Site<'_>,
    effective: &Effective<'_>,
    base: &RunBase,
    session: &MountSession,
    scratch_place: Scratch,
    empty: &Path,
) -> Result<WorkspaceMount, ExecuteError> {
    let (run, path) = (&effective.run, effective.admitted.places.workspace.clone());
    let (mut lowers, root) = match base {
        RunBase::Live(dir) | RunBase::Touched(dir) => {
            let own = dir.join(VAULT_DIR).symlink_metadata().is_ok();
            let whiteouts = if own { vec![VAULT_DIR.as_bytes().to_vec()] } else { Vec::new() };
            (vec![dir.clone()], upper_root(dir, Names::Plain, whiteouts)?)
        }
        RunBase::Stacked { stack, .. } => {
            let top = stack.dirs.first().map(PathBuf::as_path).unwrap_or(Path::new("/"));
            let is_host = stack.host_dir().is_some_and(|(dir, _)| dir == top);
            let names = if is_host { Names::Plain } else { Names::Stored };
            (stack.dirs.clone(), upper_root(top, names, Vec::new())?)
        }
        RunBase::Copied { version } => {
            let options = ExportOptions {
                overwrite: Overwrite::Refuse,
                paths: &[],
                set_ids: SetIds::Kept,
                meter: site.meter,
                unwritten: None,
            };
            let copy = session.copy_dir();
            session.reserve_outcome()?;
            site.vault.export(&version.root, &copy, &options)?;
            return Ok(match run.request.writing {
                Writing::Allowed => WorkspaceMount::Copy { path, source: copy },
                Writing::Refused => WorkspaceMount::ReadOnly { path, lowers: vec![copy] },
            });
        }
    };
    if run.request.writing == Writing::Refused {
        // Without an upper, the kernel requires two layers. A bind mount of a single layer would let its
        // sockets work.
        if lowers.len() == 1 {
            lowers.push(empty.to_owned());
        }
        return Ok(WorkspaceMount::ReadOnly { path, lowers });
    }
    let upper = upper_place(session, scratch_place, root)?;
    Ok(WorkspaceMount::Overlay { path, lowers, upper })
}

/// The common directory of a linked worktree, if something of it is shown.
fn shown_repository<'a>(effective: &Effective<'a>) -> Option<&'a Path> {
    let common = effective.admitted.common_dir.as_ref()?;
    common.shown(&effective.run.request).next().map(|_| common.path.as_path())
}

/// Additions to the profile: the repository of a linked worktree, then the extras of the request.
fn extras(effective: &Effective<'_>) -> Vec<Extra> {
    let request = &effective.run.request;
    let common = effective.admitted.common_dir.iter().flat_map(|common| common.shown(request));
    common.cloned().map(Extra::ReadOnly).chain(request.extras.iter().cloned()).collect()
}

/// Host directories visible in addition to the system and the workspace, and their paths in the sandbox.
fn shown_dirs(profile: Profile, extras: &[Extra]) -> Vec<(&Path, &Path)> {
    let root = Path::new("/");
    match profile {
        Profile::Host => vec![(root, root)],
        Profile::Strict => Vec::new(),
    }
    .into_iter()
    .chain(extras.iter().filter_map(|extra| match extra {
        Extra::ReadOnly(_) | Extra::ReadWrite(_) => Some((extra.source(), extra.path())),
        Extra::Tmpfs(_) | Extra::Hide(_) | Extra::Cache { .. } => None,
    }))
    .collect()
}

/// Paths in the workspace that are not part of it, because something else is mounted there.
pub(super) fn hidden(request: &ExecutionRequest, places: &Places) -> Vec<TreePath> {
    in_workspace(request.extras.iter(), places)
}

/// The ones of them that persist between runs.
pub(super) fn caches(request: &ExecutionRequest, places: &Places) -> Vec<TreePath> {
    in_workspace(request.extras.iter().filter(|extra| matches!(extra, Extra::Cache { .. })), places)
}

fn in_workspace<'e>(extras: impl Iterator<Item = &'e Extra>, places: &Places) -> Vec<TreePath> {
    let below = extras.filter_map(|extra| extra.path().strip_prefix(&places.workspace).ok());
    below.filter_map(|below| TreePath::parse(below.as_os_str().as_encoded_bytes()).ok()).collect()
}

fn upper_place(
    session: &MountSession,
    scratch_place: Scratch,
    root: UpperRoot,
) -> Result<UpperPlace, SessionError> {
    match scratch_place {
        Scratch::Disk => session.disk_upper(&root),
        Scratch::Memory { size_bytes, inodes } => {
            Ok(UpperPlace::Memory { at: session.dir().to_owned(), size_bytes, inodes, root })
        }
    }
}

fn no_access(path: &Path) -> impl Fn(std::io::Error) -> WorkspaceRootError {
    move |source| WorkspaceRootError::Io { path: path.to_owned(), source }
}

/// The paths in the sandbox at which a command could create files next to the vault. In a directory `.avfs` it cannot,
/// because that is hidden as a whole.
fn writable_at(vault: &Path, extras: &[Extra]) -> Result<Vec<PathBuf>, WorkspaceRootError> {
    let writable: Vec<(&Path, &Path)> = extras
        .iter()
        .filter_map(|extra| match extra {
            Extra::ReadWrite(shown) => Some((shown.real.as_path(), shown.path.as_path())),
            Extra::ReadOnly(_) | Extra::Tmpfs(_) | Extra::Hide(_) | Extra::Cache { .. } => None,
        })
        .collect();
    match vault.parent().filter(|home| !home.ends_with(VAULT_DIR)) {
        Some(home) => visible_at(&writable, &[home.to_owned()]).map_err(no_access(Path::new(MOUNTS))),
        None => Ok(Vec::new()),
    }
}

/// What keeps the names of vaults next to which a command could create files.
#[derive(Default)]
struct KeptNames {
    placeholders: Placeholders,
    /// Directories that the command must not rename.
    pinned: Vec<PathBuf>,
}

fn keep_names<'v>(
    vaults: impl Iterator<Item = &'v PathBuf>,
    extras: &[Extra],
) -> Result<KeptNames, WorkspaceRootError> {
    let mut kept = KeptNames::default();
    for vault in vaults {
        let writable = writable_at(vault, extras)?;
        if !writable.is_empty() {
            kept.placeholders.extend(Placeholders::take(vault).map_err(no_access(vault))?);
            kept.pinned.extend(pins(&writable, extras));
        }
    }
    kept.pinned.sort();
    kept.pinned.dedup();
    Ok(kept)
}

/// The directories on the way from a writable path to a vault: each becomes a mount point. A mount point cannot be
/// renamed, so no other directory can take the place of the vault's.
fn pins(writable: &[PathBuf], extras: &[Extra]) -> Vec<PathBuf> {
    let tops = extras.iter().filter_map(|extra| match extra {
        Extra::ReadWrite(shown) => Some(&shown.path),
        Extra::ReadOnly(_) | Extra::Tmpfs(_) | Extra::Hide(_) | Extra::Cache { .. } => None,
    });
    let beneath = tops.flat_map(|top| {
        let beneath = writable.iter().filter(move |at| at.starts_with(top));
        beneath.flat_map(move |at| at.ancestors().take_while(move |path| path != top))
    });
    beneath.map(Path::to_owned).collect()
}

/// The other vaults, and the rest of avfs's data, that would be visible.
fn other_vaults(private: &[PathBuf], shown: &[(&Path, &Path)], places: &Places) -> Vec<PathBuf> {
    let bound = places.bound.as_deref();
    let in_workspace = |path: &PathBuf| Some(places.workspace.join(path.strip_prefix(bound?).ok()?));
    // What the caller cannot reach, the command cannot reach either.
    let there = private.iter().filter(|path| path.symlink_metadata().is_ok());
    let on_host = |path: &PathBuf| (!shown.is_empty()).then(|| path.clone());
    there.flat_map(|path| [in_workspace(path), on_host(path)]).flatten().collect()
}

/// The paths at which the vault's own files would be visible: in the workspace, and on the host.
fn vault_files(vault: &Path, places: &Places) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = files_of(vault).collect();
    files.extend(vault.parent().filter(|home| home.ends_with(VAULT_DIR)).map(Path::to_owned));
    if let Some(bound) = &places.bound {
        let below = files.iter().filter_map(|file| file.strip_prefix(bound).ok());
        let inside: Vec<PathBuf> = below.map(|below| places.workspace.join(below)).collect();
        files.extend(inside);
        files.push(bound.join(VAULT_DIR));
    }
    files.sort();
    files.dedup();
    files
}
