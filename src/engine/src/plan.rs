//! Creates the plans of a run's sandbox and of its command: the view, the workspace in it, and the place of the upper.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use avfs_egress::with_proxy;
use avfs_request::reproducible::{HOSTNAME, UMASK, with_clock};
use avfs_request::{
    CacheMode, ExecutionRequest, Extra, GitIdentity, Limits, MergedOutput, Profile, Reproducible, Streams,
    Writing,
};
use avfs_types::VAULT_DIR;
use avfs_types::path::TreePath;
use avfs_vault::backend::RunState;
use avfs_vault::backend::sqlite::Placeholders;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::own::files_of;
use avfs_vault::set_ids::SetIds;

use crate::aliases::{aliases, visible_at};
use crate::git::identity::GitIdentity as HostIdentity;
use crate::journal;
use crate::launcher::{CommandPlan, Commands, SandboxPlan, Stdio, UpperPlace, UpperRoot, WorkspaceMount};
use crate::mount_session::{MountSession, ScratchDir, SessionError};
use crate::proxy::{ProxyRuntime, Step};
use crate::run::Run;
use crate::scratch_size::{Scratch, ScratchSpace};
use crate::view::{GIT_CONFIG, SecretFiles, ViewRequest, kept_home, view};
use crate::workspace_root::{Names, Places, WorkspaceRootError, upper_root};
use crate::workspace_service::RunBase;

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

impl ProxyRuntime<'_> {
    /// The place of the upper, based on the largest amount written by one of the last runs.
    pub(super) fn scratch_place(&self, request: &ExecutionRequest) -> avfs_vault::Result<Scratch> {
        let runs = self.site.vault.runs(i64::MAX, EARLIER_ROWS)?;
        // Denied runs wrote nothing and are ignored.
        let ran = runs.iter().filter(|run| run.state == RunState::Completed).take(EARLIER_RUNS);
        let written = ran
            .map(|run| journal::result_of(run).map_or(0, |result| result.bytes_written))
            .max()
            .unwrap_or(0);
        Ok(ScratchSpace::look(&self.site.cache_dir, written).choose(request.scratch, &request.limits))
    }

    pub(super) fn plan(
        &self,
        run: &Run,
        places: &Places,
        run_base: &RunBase,
        scratch: &ScratchDir,
        session: &MountSession,
        scratch_place: Scratch,
    ) -> Step<(SandboxPlan, CommandPlan)> {
        let (request, site) = (&run.request, self.site);
        let mountpoint = scratch.mountpoint()?;
        let workspace = self.workspace(run, places, run_base, session, scratch_place, &mountpoint)?;
        let extras = extras(run);
        let mut secret = vec![site.cache_dir.clone(), places.workspace.join(VAULT_DIR)];
        let (mut placeholders, mut pinned) = (Placeholders::default(), Vec::new());
        let own = site.vault.path().map(|vault| vault.canonicalize().unwrap_or_else(|_| vault.to_owned()));
        let others = site.vault.others().iter().filter(|listed| Some(*listed) != own.as_ref());
        for vault in own.iter().chain(others) {
            let writable = writable_at(vault, &extras)?;
            if !writable.is_empty() {
                placeholders.extend(Placeholders::take(vault).map_err(no_access(vault))?);
                pinned.extend(pins(&writable, &extras));
            }
        }
        pinned.sort();
        pinned.dedup();
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
            repository: shown_repository(run),
            shown_as: run.shown_as,
            pinned: &pinned,
            secret: &secret,
            secret_files: match request.secret_files.is_empty() {
                true => SecretFiles::None,
                false => SecretFiles::Some,
            },
        });
        let is_reproducible = request.reproducible == Reproducible::On;
        let sandbox = SandboxPlan {
            mountpoint,
            view: steps,
            secret_files: request.secret_files.clone(),
            hostname: is_reproducible.then_some(HOSTNAME),
            profile: request.profile,
            net: request.net.clone(),
            confinement: request.confinement,
            limits: request.limits,
            commands: Commands::One,
            placeholders,
        };
        let stdio = Stdio::of_this_process();
        let command = CommandPlan {
            argv: request.command.words(),
            environment: self.environment(run),
            cwd: places.cwd.clone(),
            umask: if is_reproducible { UMASK } else { site.memo.umask },
            stdio: match request.cache {
                CacheMode::Off => stdio,
                // Standard input is not part of the cache key.
                CacheMode::Read | CacheMode::Write => Stdio { stdin: None, ..stdio },
            },
            streams: self.streams(run)?,
            timeout: request.timeout,
            grace: request.grace,
            limits: Limits::default(),
            spool_dir: sandbox.mountpoint.parent().map(Path::to_owned),
        };
        Ok((sandbox, command))
    }

    /// The command's variables. Read-only commands get git without optional locks.
    fn environment(&self, run: &Run) -> Vec<(OsString, OsString)> {
        let request = &run.request;
        let mut all = with_clock(with_proxy(&request.environment, &request.net), request);
        let (name, value) = GIT_WITHOUT_LOCKS;
        if run.decision.looks_only() && !all.iter().any(|(set, _)| set == name) {
            all.push((name.into(), value.into()));
        }
        all
    }

    /// While a fork is recorded, or if a result should be cached, output is captured too.
    fn streams(&self, run: &Run) -> avfs_vault::Result<Streams> {
        match run.request.streams {
            Streams::Passed
                if run.request.cache == CacheMode::Write || self.site.vault.is_recorded(&run.fork)? =>
            {
                Ok(Streams::Teed { bytes_max: RECORDED_BYTES_MAX, merged: MergedOutput::Passed })
            }
            asked @ (Streams::Passed | Streams::Captured { .. } | Streams::Teed { .. }) => Ok(asked),
        }
    }

    fn workspace(
        &self,
        run: &Run,
        places: &Places,
        run_base: &RunBase,
        session: &MountSession,
        scratch_place: Scratch,
        empty: &Path,
    ) -> Step<WorkspaceMount> {
        let path = places.workspace.clone();
        let (mut lowers, root) = match run_base {
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
            RunBase::Copied { root, .. } => {
                let options = ExportOptions {
                    overwrite: Overwrite::Refuse,
                    paths: &[],
                    set_ids: SetIds::Kept,
                    meter: self.site.meter,
                    unwritten: None,
                };
                let copy = session.copy_dir();
                session.reserve_outcome()?;
                self.site.vault.export(root, &copy, &options)?;
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
}

/// The common directory of a linked worktree, if something of it is shown.
fn shown_repository(run: &Run) -> Option<&Path> {
    let common = run.common_dir.as_ref()?;
    common.shown(&run.request).next().map(|_| common.path.as_path())
}

/// Additions to the profile: the repository of a linked worktree, then the extras of the request.
fn extras(run: &Run) -> Vec<Extra> {
    let common = run.common_dir.iter().flat_map(|common| common.shown(&run.request));
    common.cloned().map(Extra::ReadOnly).chain(run.request.extras.iter().cloned()).collect()
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
