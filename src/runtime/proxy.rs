//! The boundary: one request in, one run, one result out.
//!
//! Each step is taken once, in the order of [`ProxyExecutionState`]. A run is journaled in the same
//! transaction that keeps its changes; until then its scratch holds what a recovery needs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::backend::{Life, VersionRecord};
use crate::clock::Timestamp;
use crate::hostfs::random;
use crate::ids::{ForkName, RunId, to_hex};
use crate::vault::export::{ExportOptions, Overwrite};
use crate::vault::import::{ImportOptions, Imported, OnTrouble};
use crate::vault::layers::Stack;
use crate::vault::materialize::BaseCache;
use crate::vault::meter::Meter;
use crate::vault::page::DirRef;
use crate::vault::path::TreePath;
use crate::vault::version::{Reference, full_root_of};
use crate::vault::{Vault, VaultError};

use super::conclude::{VaultIdentity, message};
use super::decision::ExecutionDecision;
use super::error::ExecuteError;
use super::ground::{Beneath, Names, Places, upper_root};
use super::journal;
use super::launcher::{
    Completion, LaunchPlan, Launcher, ProcMode, Refused, UpperPlace, UpperRoot, WorkspaceMount,
};
use super::locate::VAULT_DIR;
use super::mount_session::{MountSession, ScratchDir, SessionError};
use super::request::{
    BackendChoice, Degradation, ExecutionRequest, ForkChoice, Retention, ScratchChoice, Writing,
};
use super::result::{ExecutionResult, Note, Phases};
use super::room::{Room, Scratch};
use super::session_record::SessionRecord;
use super::state::ProxyExecutionState as State;
use super::view::{ViewRequest, view};

/// Runs whose writing is looked at to tell how much the next one will write.
const EARLIER_RUNS: usize = 3;

/// Where the runtime works, as the edge found it.
pub struct Site<'a> {
    pub vault: &'a Vault,
    /// The vault's own id.
    pub vault_id: String,
    /// The directory the vault is bound to.
    pub bound: Option<PathBuf>,
    pub cwd: PathBuf,
    pub home: Option<PathBuf>,
    pub cache_dir: PathBuf,
    /// Tells one start of the machine from another.
    pub boot_id: String,
    pub layers: BaseCache,
    /// Where the stat cache of the bound directory lies.
    pub stat_cache: Option<PathBuf>,
    /// Never versioned, as lines of an ignore file.
    pub exclude: Vec<String>,
    /// How long changes nobody has looked at are kept.
    pub expires_seconds: i64,
    pub meter: &'a Meter,
}

/// Takes requests.
pub struct ProxyRuntime<'a, L: Launcher> {
    pub site: &'a Site<'a>,
    pub launcher: &'a L,
}

/// What lies beneath a run.
pub(super) enum Ground {
    /// The directory itself; its version is made beside the command.
    Live(PathBuf),
    Stacked {
        stack: Stack,
        version: VersionRecord,
        root: DirRef,
    },
    /// A copy in the scratch, which the command changes as it is.
    Copied {
        version: VersionRecord,
        root: DirRef,
    },
}

/// Everything about a run that is known when its command has ended.
pub(super) struct Run<'r> {
    pub id: RunId,
    pub request: &'r ExecutionRequest,
    pub decision: &'r ExecutionDecision,
    /// Where its changes will go.
    pub fork: ForkName,
    /// Where a fork made for the run begins.
    pub parent: ForkName,
    pub message: String,
    pub begun: Instant,
    pub started_at: Timestamp,
    pub notes: Vec<Note>,
    pub degraded: Vec<String>,
    pub phases: Phases,
}

impl Run<'_> {
    pub fn note(&mut self, code: &'static str, text: String) {
        self.notes.push(Note { code, text });
    }

    /// What an import could not keep.
    pub fn note_import(&mut self, imported: &Imported) {
        for trouble in &imported.scanned.troubles {
            self.note("import.trouble", format!("{}: {}", trouble.path, trouble.reason));
        }
    }
}

pub(super) type Outcome<T, L> = Result<T, ExecuteError<<L as Launcher>::Error>>;

impl<L: Launcher> ProxyRuntime<'_, L> {
    /// Runs one request to its end. Where the host refuses a piece that can be had in another way, that way is
    /// taken and said; nothing was executed by then.
    pub fn execute(
        &self,
        request: &ExecutionRequest,
        decision: &ExecutionDecision,
    ) -> Outcome<ExecutionResult, L> {
        let mut detours = Detours { request: request.clone(), notes: Vec::new(), degraded: Vec::new() };
        loop {
            match self.execute_once(&detours, decision) {
                Err(ExecuteError::Launch(error)) => {
                    let room = self.room(&detours.request)?;
                    if !detours.around(L::refused(&error), room) {
                        return Err(ExecuteError::Launch(error));
                    }
                    tracing::debug!(%error, "taking another way");
                }
                other => return other,
            }
        }
    }

    fn execute_once(&self, detours: &Detours, decision: &ExecutionDecision) -> Outcome<ExecutionResult, L> {
        let request = &detours.request;
        let mut state = State::Validating;
        let begun = Instant::now();
        let site = self.site;
        let started_at = site.vault.now();
        let places = Places::find(request, site.bound.clone(), &site.cwd)?;
        let identity = VaultIdentity::of(site.vault);
        state.become_next(State::Resolving);
        let id = RunId::from_random(random::bytes().map_err(VaultError::Input)?);
        let mut run = Run {
            fork: match &request.fork {
                ForkChoice::Ephemeral => ForkName::of_run(&id),
                ForkChoice::Persistent { name, .. } => name.clone(),
            },
            id,
            request,
            decision,
            parent: ForkName::main(),
            message: message(&request.command.shown()),
            begun,
            started_at,
            notes: detours.notes.clone(),
            degraded: detours.degraded.clone(),
            phases: Phases::default(),
        };
        for name in &request.environment.missing {
            run.note("env.missing", format!("{} is not set, so it is not passed on", name.to_string_lossy()));
        }
        let scratch = ScratchDir::new(&site.cache_dir);
        self.sweep(&scratch, &mut run)?;
        let ground = self.ground(request, &places, &mut run)?;
        state.become_next(State::Deciding);
        state.become_next(State::Checkpointing);
        state.become_next(State::Mounting);
        let mut session = scratch.prepare(&run.id)?;
        let room = self.room(request)?;
        let prepared = self.plan(&run, &places, &ground, &scratch, &session, room);
        let (plan, hidden) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                session.discard()?;
                return Err(error);
            }
        };
        run.phases.resolve = begun.elapsed();
        session.mounted()?;
        let wants_version = request.retention != Retention::Discard;
        let (launched, imported) = std::thread::scope(|scope| {
            let mut import = None;
            let mut started = || {
                state.become_next(State::Executing);
                if let (Ground::Live(dir), true) = (&ground, wants_version) {
                    import = Some(scope.spawn(move || import_dir(site, dir)));
                }
            };
            let launched = self.launcher.launch(&plan, &mut started);
            session.released()?;
            let import =
                import.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            Ok::<_, ExecuteError<L::Error>>((launched, import))
        })?;
        let completion = match launched {
            Ok(completion) => completion,
            Err(error) => {
                session.discard()?;
                return Err(ExecuteError::Launch(error));
            }
        };
        state.become_next(State::Capturing);
        run.phases.mount = completion.mounting;
        run.phases.execute = completion.executing;
        let ended = Ended { completion, room, hidden, ground: &ground, imported, identity };
        let result = self.conclude(run, session, ended)?;
        state.become_next(State::Completed);
        Ok(result)
    }

    /// What the command will stand on.
    fn ground(&self, request: &ExecutionRequest, places: &Places, run: &mut Run<'_>) -> Outcome<Ground, L> {
        let site = self.site;
        if let Beneath::Live(dir) = Beneath::choose(request, places, &site.cache_dir)? {
            return Ok(Ground::Live(dir));
        }
        let version = match &request.fork {
            ForkChoice::Ephemeral => {
                if let Some(dir) = &places.bound {
                    let imported = import_dir(site, dir)?;
                    run.note_import(&imported);
                }
                self.head(&ForkName::main())?
            }
            ForkChoice::Persistent { name, from } => self.persistent(name, from.as_ref(), places, run)?,
        };
        let root = {
            let reader = site.vault.read()?;
            full_root_of(&*reader, &version)?
        };
        if request.backend == BackendChoice::Copy {
            return Ok(Ground::Copied { version, root });
        }
        let stack = site.vault.stack(&root, &site.layers, site.meter)?;
        Ok(Ground::Stacked { stack, version, root })
    }

    fn head(&self, fork: &ForkName) -> Outcome<VersionRecord, L> {
        let reader = self.site.vault.read()?;
        let reference = Reference::parse(fork.as_str())?;
        Ok(reference.resolve(&*reader)?.0)
    }

    /// The head of a named fork, which is made on first use.
    fn persistent(
        &self,
        name: &ForkName,
        from: Option<&Reference>,
        places: &Places,
        run: &mut Run<'_>,
    ) -> Outcome<VersionRecord, L> {
        let (site, vault) = (self.site, self.site.vault);
        match vault.fork(name) {
            Ok(_) => {
                if let Some(from) = from {
                    from.resolve(&*vault.read()?)?;
                    run.note("fork.exists", format!("fork {name} exists already, so --from means nothing"));
                }
                return self.head(name);
            }
            Err(VaultError::NoFork { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let main = Reference::parse(ForkName::main().as_str())?;
        let from = match (from, &places.bound) {
            (Some(from), _) => from,
            // Of the directory as it is now, or the first run would find nothing.
            (None, Some(dir)) => {
                let imported = import_dir(site, dir)?;
                run.note_import(&imported);
                &main
            }
            (None, None) => &main,
        };
        match vault.create_fork(name, from, Life::Persistent) {
            // Somebody else was faster; theirs is as good.
            Ok(_) | Err(VaultError::ForkExists { .. }) => self.head(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Where what the command writes goes; the most that one of the last runs wrote has a say.
    fn room(&self, request: &ExecutionRequest) -> crate::vault::Result<Scratch> {
        let runs = self.site.vault.runs(i64::MAX, EARLIER_RUNS)?;
        let written = runs.iter().map(|run| journal::bytes_written(&run.result)).max().unwrap_or(0);
        Ok(Room::look(&self.site.cache_dir, written).choose(request.scratch))
    }

    /// Everything for the launcher, and the paths of the workspace that are not part of it.
    fn plan(
        &self,
        run: &Run<'_>,
        places: &Places,
        ground: &Ground,
        scratch: &ScratchDir,
        session: &MountSession,
        room: Scratch,
    ) -> Outcome<(LaunchPlan, Vec<TreePath>), L> {
        let (request, site) = (run.request, self.site);
        let workspace = self.workspace(run, places, ground, session, room)?;
        let mut secret = vec![site.cache_dir.clone(), places.workspace.join(VAULT_DIR)];
        let mut hidden = Vec::new();
        if let Some(vault) = site.vault.path() {
            secret.extend(vault_files(vault, places));
        }
        for extra in &request.extras {
            if let Ok(below) = extra.path().strip_prefix(&places.workspace) {
                hidden.extend(TreePath::parse(below.as_os_str().as_encoded_bytes()).ok());
            }
        }
        let search_path = request.environment.get("PATH").unwrap_or_default();
        let steps = view(ViewRequest {
            profile: request.profile,
            workspace,
            home: site.home.as_deref(),
            search_path,
            net: request.net,
            proc: request.proc,
            extras: &request.extras,
            secret: &secret,
        });
        let plan = LaunchPlan {
            mountpoint: scratch.mountpoint()?,
            view: steps,
            net: request.net,
            command: request.command.words(),
            environment: request.environment.pairs(),
            cwd: places.cwd.clone(),
            streams: request.streams,
            timeout: request.timeout,
            grace: request.grace,
        };
        self.session_record(run, &hidden).write(session)?;
        Ok((plan, hidden))
    }

    /// What somebody else needs to finish the run.
    fn session_record(&self, run: &Run<'_>, hidden: &[TreePath]) -> SessionRecord {
        let (site, request) = (self.site, run.request);
        SessionRecord {
            run: run.id.to_string(),
            vault_id: site.vault_id.clone(),
            vault: site.vault.path().map(|path| path.display().to_string()),
            boot_id: site.boot_id.clone(),
            fork: run.fork.to_string(),
            ephemeral: matches!(request.fork, ForkChoice::Ephemeral),
            wanted: request.retention != Retention::Discard && request.writing == Writing::Allowed,
            started_at: run.started_at.0,
            message: run.message.clone(),
            expires_seconds: site.expires_seconds,
            exclude: site.exclude.clone(),
            hidden: hidden.iter().map(|path| to_hex(path.as_bytes())).collect(),
            request: journal::request(request, site.vault.path()),
            decision: journal::decision(run.decision),
        }
    }

    fn workspace(
        &self,
        run: &Run<'_>,
        places: &Places,
        ground: &Ground,
        session: &MountSession,
        room: Scratch,
    ) -> Outcome<WorkspaceMount, L> {
        let path = places.workspace.clone();
        let (lowers, root) = match ground {
            Ground::Live(dir) => {
                let own = dir.join(VAULT_DIR).symlink_metadata().is_ok();
                let whiteouts = if own { vec![VAULT_DIR.as_bytes().to_vec()] } else { Vec::new() };
                (vec![dir.clone()], upper_root(dir, Names::Plain, whiteouts)?)
            }
            Ground::Stacked { stack, .. } => {
                let top = stack.dirs.first().map(PathBuf::as_path).unwrap_or(Path::new("/"));
                (stack.dirs.clone(), upper_root(top, Names::Stored, Vec::new())?)
            }
            Ground::Copied { root, .. } => {
                let options =
                    ExportOptions { overwrite: Overwrite::Refuse, paths: &[], meter: self.site.meter };
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
            return Ok(WorkspaceMount::ReadOnly { path, lowers });
        }
        let upper = upper_place(session, room, root)?;
        Ok(WorkspaceMount::Overlay { path, lowers, upper })
    }
}

/// The request as it is after what the host has refused so far.
struct Detours {
    request: ExecutionRequest,
    notes: Vec<Note>,
    degraded: Vec<String>,
}

impl Detours {
    /// Takes another way around a refused piece; false if there is none.
    fn around(&mut self, refused: Refused, room: Scratch) -> bool {
        let request = &mut self.request;
        match refused {
            Refused::Overlay | Refused::Memory if request.scratch == ScratchChoice::Auto => {
                request.scratch = match room {
                    Scratch::Memory { .. } => ScratchChoice::Disk,
                    Scratch::Disk => ScratchChoice::Memory,
                };
                true
            }
            Refused::Overlay | Refused::Memory if request.backend == BackendChoice::Auto => {
                request.backend = BackendChoice::Copy;
                let text =
                    "this host cannot mount an overlay here: the command works on a copy (see: avfs doctor)";
                self.notes.push(Note { code: "backend.copy", text: text.to_owned() });
                true
            }
            Refused::Proc if request.degradation == Degradation::Allowed => {
                let again = request.proc == ProcMode::Private;
                request.proc = ProcMode::Absent;
                self.degraded.push("proc".to_owned());
                again
            }
            Refused::Overlay | Refused::Memory | Refused::Proc | Refused::Other => false,
        }
    }
}

/// Brings the bound directory's present state onto the main fork.
fn import_dir(site: &Site<'_>, dir: &Path) -> crate::vault::Result<Imported> {
    let options = ImportOptions {
        on_trouble: OnTrouble::KeepGoing,
        stat_cache: site.stat_cache.as_deref(),
        exclude: &site.exclude,
        meter: site.meter,
    };
    site.vault.import(dir, &ForkName::main(), "import before a run", &options)
}

/// A command that has ended, and everything it left behind.
pub(super) struct Ended<'g> {
    pub completion: Completion,
    pub room: Scratch,
    pub hidden: Vec<TreePath>,
    pub ground: &'g Ground,
    /// The import that ran beside the command.
    pub imported: Option<crate::vault::Result<Imported>>,
    pub identity: VaultIdentity,
}

fn upper_place(session: &MountSession, room: Scratch, root: UpperRoot) -> Result<UpperPlace, SessionError> {
    match room {
        Scratch::Disk => session.disk_upper(&root),
        Scratch::Memory { size_bytes, inodes } => {
            Ok(UpperPlace::Memory { at: session.dir().to_owned(), size_bytes, inodes, root })
        }
    }
}

/// Where the vault's own files would be seen: in the workspace, or anywhere else on the host.
fn vault_files(vault: &Path, places: &Places) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["", "-wal", "-shm", "-lock", "-use", "-gate"]
        .iter()
        .map(|suffix| crate::backend::sqlite::sibling(vault, suffix))
        .collect();
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
