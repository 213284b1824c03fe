//! The boundary: one request in, one decision, one run, one result out.
//!
//! Each step is executed once, in the order of [`ProxyExecutionState`]; nothing expensive is done before the
//! decision. A run is journaled in the same transaction that keeps its changes; until then its scratch records
//! its state and the data for a recovery.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use avfs_hostfs::random;
use avfs_policy::{ExecutionDecision, OnViolation, Policy};
use avfs_request::reproducible::clock_held;
use avfs_request::{
    BackendChoice, BaseChoice, CacheMode, ClockHeld, Degradation, ExecutionRequest, FixedClock, ForkChoice,
    ProcMode, Retention, ScratchChoice, SecretsInFiles, Writing,
};
use avfs_types::clock::FileTime;
use avfs_types::command_line::shown_word;
use avfs_types::ids::{ApprovalId, ForkName, RunId, to_hex};
use avfs_types::path::TreePath;
use avfs_types::{CommandLine, KeepCount, redact};
use avfs_vault::backend::{ApprovalRecord, RunRecord, RunState};
use avfs_vault::import::Imported;
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::{Vault, VaultError};

use crate::cache_care::{DIRS_RUN_BYTES, lease_dirs};
use crate::checkpoint::CheckpointService;
use crate::conclude::{VaultIdentity, withheld};
use crate::error::ExecuteError;
use crate::first_import::WarnAbove;
use crate::fork_behind::LookBeside;
use crate::journal;
use crate::launcher::{
    CommandPlan, Completion, LaunchError, Refused, Sandbox, SandboxPlan, Sandboxes, Upper,
};
use crate::locate::GitConfigs;
use crate::mount_session::{MountSession, ScratchDir};
use crate::permission::{Approver, Denial, Permission, decide};
use crate::plan::{caches, hidden};
use crate::recover::{HalfCaptured, sweep};
use crate::result::{ExecutionResult, Phases};
use crate::result_cache::MemoSite;
use crate::run::{Run, message};
use crate::scratch_size::Scratch;
use crate::session::noted::NoteDelivery;
use crate::session_record::SessionRecord;
use crate::state::ProxyExecutionState as State;
use crate::view::{ShownAs, hidden_nowhere};
use crate::workspace_root::{Files, Places, check_request};
use crate::workspace_service::{RunBase, WorkspaceService, stand_on_import, wait_for_import};

/// The note about a vault that was replaced by an older copy. On stderr it is printed when the vault is opened.
pub const OLDER_COPY: &str = "vault.older_copy";
/// Minimum grace period, however short the allowed time: programs need time to shut down.
const GRACE_KEPT: Duration = Duration::from_secs(5);

/// The context of the engine, as determined by the edge.
pub struct Site<'a> {
    pub vault: &'a Vault,
    /// The id of the vault.
    pub vault_id: String,
    /// The directory the vault is bound to.
    pub bound: Option<PathBuf>,
    pub cwd: PathBuf,
    pub home: Option<PathBuf>,
    pub git_configs: GitConfigs,
    pub cache_dir: PathBuf,
    /// Other vaults and data of avfs, which no command can see.
    pub private_paths: Vec<PathBuf>,
    /// Identifies a boot of the machine.
    pub boot_id: String,
    pub layers: BaseCache,
    /// The path of the stat cache of the bound directory.
    pub stat_cache: Option<PathBuf>,
    /// Paths that are never versioned, as lines of an ignore file.
    pub exclude: Vec<String>,
    /// The size above which a first import is announced.
    pub warn_above: WarnAbove,
    /// How long to keep changes that were not reviewed.
    pub expires_seconds: i64,
    /// The system's limit for argv and environment of a program.
    pub arguments_bytes_max: usize,
    /// Number of automatic checkpoints that a fork keeps.
    pub checkpoints_keep: KeepCount,
    pub memo: MemoSite<'a>,
    pub meter: &'a Meter,
    pub notes: NoteDelivery,
}

/// Executes requests.
pub struct ProxyRuntime<'a> {
    pub site: &'a Site<'a>,
    pub policy: &'a Policy,
    pub approver: &'a dyn Approver,
    pub launcher: &'a dyn Sandboxes,
    /// The hint for an error, for the journal.
    pub hint: fn(&ExecuteError) -> Option<String>,
}

/// The outcome of a request.
pub struct Executed {
    /// `None` if the request was refused before it became a run.
    pub run_id: Option<RunId>,
    pub decision: Option<ExecutionDecision>,
    /// The approval that permitted it, or that it waits for.
    pub approval: Option<ApprovalId>,
    pub outcome: Result<Outcome, ExecuteError>,
}

/// The known facts about a request, regardless of how far it got.
#[derive(Default)]
struct Known {
    run_id: Option<RunId>,
    decision: Option<ExecutionDecision>,
    approval: Option<ApprovalId>,
}

pub enum Outcome {
    Ran(Box<ExecutionResult>),
    Denied(Denial),
    ApprovalRequired(ApprovalRecord),
}

pub(super) type Step<T> = Result<T, ExecuteError>;

impl ProxyRuntime<'_> {
    /// Executes one request.
    pub fn execute(&self, request: &ExecutionRequest) -> Executed {
        let mut known = Known::default();
        let outcome = self.mediate(request, &mut known);
        let Known { run_id, decision, approval } = known;
        Executed { run_id, decision, approval, outcome }
    }

    fn mediate(&self, request: &ExecutionRequest, known: &mut Known) -> Step<Outcome> {
        let mut state = State::Validating;
        let begun = Instant::now();
        request.check(self.site.arguments_bytes_max)?;
        check_request(request, self.site.bound.as_deref())?;
        let places = Places::find(request, self.site.bound.clone(), &self.site.cwd)?;
        state.become_next(State::Resolving);
        let id = RunId::from_random(random::bytes().map_err(VaultError::Input)?);
        known.run_id = Some(id.clone());
        state.become_next(State::Deciding);
        let decision = decide(self.policy, request, &places, self.site.home.as_deref());
        let mut run = self.begin(id, request, &places, decision, begun);
        known.decision = Some(run.decision.clone());
        let permission = self.permit(&mut run, &places)?;
        known.decision = Some(run.decision.clone());
        match permission {
            Permission::Granted { approval, net } => {
                run.approval = approval;
                run.decision.net = net.or(run.decision.net);
            }
            Permission::Denied(denial) => return Ok(Outcome::Denied(denial)),
            Permission::Wanted(approval) => {
                known.approval = Some(approval.id.clone());
                return Ok(Outcome::ApprovalRequired(approval));
            }
        }
        known.approval = run.approval.clone();
        self.cap(&mut run);
        run.common_dir = places.common_dir();
        let recalled = match run.request.cache {
            CacheMode::Off => None,
            CacheMode::Read | CacheMode::Write => self.try_recall(state, &mut run, &places)?,
        };
        match recalled {
            Some(result) => Ok(Outcome::Ran(Box::new(result))),
            None => self.attempts(state, run, &places).map(|result| Outcome::Ran(Box::new(result))),
        }
    }

    fn begin(
        &self,
        id: RunId,
        request: &ExecutionRequest,
        places: &Places,
        decision: ExecutionDecision,
        begun: Instant,
    ) -> Run {
        let shown = request.shown_command();
        let mut run = Run {
            fork: match &request.fork {
                ForkChoice::Ephemeral { .. } => ForkName::of_run(&id),
                ForkChoice::Persistent { name, .. } => name.clone(),
            },
            id,
            // Record the caller's working directory, so that the request can be repeated.
            request: ExecutionRequest { cwd: Some(places.cwd_below()), ..request.clone() },
            decision,
            approval: None,
            cache: None,
            memo: None,
            base: None,
            found: None,
            parent: ForkName::main(),
            message: message(&redact(&shown)),
            begun,
            started_at: self.site.vault.now(),
            notes: Vec::new(),
            degraded: Vec::new(),
            shown_as: ShownAs::Overlay,
            phases: Phases::default(),
            common_dir: None,
            files: Files::Writable,
        };
        if let Some(rollback) = self.site.vault.older_copy() {
            run.note(OLDER_COPY, format!("the vault was replaced by an older copy: it lacks {rollback}"));
        }
        for name in &request.environment.missing {
            let held_back = request.environment.only_credentials.iter().find(|(pattern, _)| pattern == name);
            let name = name.to_string_lossy();
            let text = match held_back {
                Some((_, variable)) => {
                    let variable = variable.to_string_lossy();
                    format!(
                        "{name} passes no variable: {variable} looks like a credential; \
                         pass it with --secret {variable}"
                    )
                }
                None => format!("{name} is not set, so it is not passed"),
            };
            run.note("env.missing", text);
        }
        for path in hidden_nowhere(request, places) {
            run.note("hide.missing", format!("--hide {}: the path does not exist", path.display()));
        }
        withheld::note_in_text(&mut run);
        // Without libfaketime, programs see the time of the host, which is later than that of any file.
        if request.clock == Some(FixedClock::DEFAULT)
            && clock_held(request) == Some(ClockHeld::Programs)
            && words_of(&request.command).any(|word| word == "make")
        {
            let text = "make may warn about clock skew: the files are newer than the fixed time; \
                        choose a later time with --clock-fixed=TIME";
            run.note("clock.skew", text.to_owned());
        }
        for name in request.secrets().not_searched() {
            run.note("secret.short", format!("{name} is too short to search for in files"));
        }
        run
    }

    /// Applies the limits of the policy to the run.
    fn cap(&self, run: &mut Run) {
        let asked = run.request.clone();
        run.request = capped(asked.clone(), &run.decision);
        let (max, grace, limits) = (run.decision.timeout_max, run.request.grace, run.request.limits);
        if run.request.timeout != asked.timeout {
            run.note("timeout.capped", format!("the policy allows {max} at most, not {}", asked.timeout));
        }
        if grace < asked.grace {
            run.note(
                "grace.capped",
                format!("the grace period after SIGTERM is limited to {} s", grace.as_secs()),
            );
        }
        if run.request.net != asked.net {
            let text = format!("the network is {}, as granted", run.request.net);
            run.note("net.granted", text);
        }
        for (kind, value) in limits.set().filter(|(kind, value)| asked.limits.get(*kind) != Some(*value)) {
            let (option, max) = (kind.option(), kind.show(value));
            let text = match asked.limits.get(kind) {
                Some(wanted) => {
                    format!("the policy allows --{option} {max} at most, not {}", kind.show(wanted))
                }
                None => format!("the policy sets --{option} {max}"),
            };
            run.note("limit.capped", text);
        }
    }

    /// Looks for a cached result. Without one, the run stays in its state.
    fn try_recall(&self, decided: State, run: &mut Run, places: &Places) -> Step<Option<ExecutionResult>> {
        let mut state = decided;
        let recalled = self.recall(&mut state, run, places).map_err(|error| {
            let signal = self.site.meter.stopped_by();
            signal.map_or(error, |signal| ExecuteError::Interrupted { signal })
        });
        recalled.inspect_err(|error| {
            if error.is_of_no_run() {
                self.journal_failure(run, state, error);
            }
        })
    }

    /// Falls back to an alternative, with a note, if the host refuses a feature. Nothing was executed by then.
    fn attempts(&self, decided: State, mut run: Run, places: &Places) -> Step<ExecutionResult> {
        let mut room_was_made = false;
        loop {
            let mut state = decided;
            let error = match self.attempt(&mut state, run.clone(), places) {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if error.is_of_no_run()
                && !room_was_made
                && self.is_cache_full(&error)
                && self.make_room(&mut run)
            {
                room_was_made = true;
                continue;
            }
            if let ExecuteError::Launch(launch) = &error {
                let scratch_place = self.scratch_place(&run.request)?;
                if detour(&mut run, launch.refused, scratch_place) {
                    tracing::debug!(error = %launch, "falling back to an alternative");
                    continue;
                }
            }
            let stood = state;
            state.become_next(State::Failed);
            if error.is_of_no_run() {
                self.journal_failure(&run, stood, &error);
            }
            return Err(error);
        }
    }

    fn attempt(&self, state: &mut State, mut run: Run, places: &Places) -> Step<ExecutionResult> {
        let site = self.site;
        // Do not start a command whose run could not be kept.
        let store = site.vault.backend();
        store.check_writable().and_then(|()| store.check_room()).map_err(VaultError::from)?;
        let identity = VaultIdentity::of(site.vault);
        let dirs = lease_dirs(&run.request.extras)?;
        if !dirs.is_empty() {
            site.layers.account().add(DIRS_RUN_BYTES);
        }
        let scratch = ScratchDir::new(&site.cache_dir);
        let mut session = scratch.prepare(&run.id)?;
        let hidden = hidden(&run.request, places);
        let prepared = self.prepare(state, &mut run, places, &scratch, &session, &hidden);
        let (run_base, scratch_place, plans) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                session.discard()?;
                return Err(error);
            }
        };
        run.phases.resolve = run.begun.elapsed();
        session.mounted()?;
        let launched_at = session.file_time();
        let result = std::thread::scope(|beside| {
            let mut look = None;
            let mut meanwhile = || {
                // Only now: the thread must inherit the signals that the launcher has blocked.
                look = LookBeside::start(beside, site, &run.request.fork, &run_base);
                // An error will occur again where it matters.
                if let Err(error) = site.vault.backend().make_ready() {
                    tracing::debug!(%error, "cannot prepare the vault");
                }
            };
            let (launched, imported) = self.launch(state, &plans, &run_base, &run, &session, &mut meanwhile);
            if let Some(look) = &look {
                look.command_ended();
            }
            session.released()?;
            let Ran { completion, sandbox, upper } = match launched {
                Ok(ran) => ran,
                Err(error) => {
                    session.discard()?;
                    return Err(ExecuteError::Launch(error));
                }
            };
            enter(state, State::Capturing, &session);
            run.phases.mount = completion.mounting;
            run.phases.execute = completion.executing;
            let ended = Ended {
                completion,
                sandbox,
                upper,
                launched_at,
                scratch_place,
                hidden,
                caches: caches(&run.request, places),
                run_base: &run_base,
                imported,
                look,
                scan_met_change: false,
                identity,
            };
            self.conclude(run, session, ended)
        })?;
        drop(dirs);
        state.become_next(State::Completed);
        Ok(result)
    }

    /// Runs the command, and imports a live base beside it.
    fn launch(
        &self,
        state: &mut State,
        plans: &(SandboxPlan, CommandPlan),
        run_base: &RunBase,
        run: &Run,
        session: &MountSession,
        meanwhile: &mut dyn FnMut(),
    ) -> (Result<Ran, LaunchError>, Option<avfs_vault::transfer::Result<Imported>>) {
        let site = self.site;
        std::thread::scope(|scope| {
            let mut import = None;
            let (ended, end) = std::sync::mpsc::channel();
            let mut ended = Some(ended);
            let mut started = || {
                enter(state, State::Executing, session);
                if let (RunBase::Live(dir), true) = (run_base, wants_version(&run.request)) {
                    let thread = std::thread::Builder::new();
                    let ended = ended.take();
                    let thread = thread.spawn_scoped(scope, || {
                        let imported = stand_on_import(site, dir, session);
                        // Dropping the sender signals the end.
                        drop(ended);
                        imported
                    });
                    // If no thread can be created, import after the command has ended.
                    import = Some((dir, thread.ok()));
                }
            };
            let mut launched = execute(self.launcher, plans, meanwhile, &mut started);
            // From here on a recovery can finish the run if this process is killed during the import.
            let mut note_end = || {
                if let Ok(Ran { completion, upper, .. }) = &mut launched {
                    self.note_end(run, completion, upper, session);
                }
            };
            let import = import.map(|(dir, thread)| match thread {
                Some(thread) => {
                    wait_for_import(site, &end, note_end);
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                None => {
                    note_end();
                    stand_on_import(site, dir, session)
                }
            });
            (launched, import)
        })
    }

    /// Everything before the launch.
    fn prepare(
        &self,
        state: &mut State,
        run: &mut Run,
        places: &Places,
        scratch: &ScratchDir,
        session: &MountSession,
        hidden: &[TreePath],
    ) -> Step<(RunBase, Scratch, (SandboxPlan, CommandPlan))> {
        self.session_record(run, hidden).write(session)?;
        enter(state, State::Checkpointing, session);
        run.notes.extend(sweep::<ExecuteError>(
            scratch,
            self.site.vault,
            HalfCaptured::Finish { boot_id: &self.site.boot_id },
        )?);
        let workspaces = WorkspaceService { site: self.site };
        let goes_on = || match self.site.meter.stopped_by() {
            Some(signal) => Err(ExecuteError::Interrupted { signal }),
            None => Ok(()),
        };
        workspaces.announce_first_import::<ExecuteError>(places, run)?;
        goes_on()?;
        let run_base = workspaces.run_base::<ExecuteError>(places, run, session);
        goes_on()?;
        let run_base = run_base?;
        match &run_base {
            RunBase::Live(_) | RunBase::Touched(_) => {}
            RunBase::Stacked { version, .. } | RunBase::Copied { version, .. } => {
                session.note_base(&version.id)?
            }
        }
        // Only now: the fork that the run starts from may have expired, but is in use.
        workspaces.expire_forks(run);
        enter(state, State::Mounting, session);
        let scratch_place = self.scratch_place(&run.request)?;
        let plans = self.plan(run, places, &run_base, scratch, session, scratch_place)?;
        Ok((run_base, scratch_place, plans))
    }

    /// The record with which another process can finish the run.
    fn session_record(&self, run: &Run, hidden: &[TreePath]) -> SessionRecord {
        let (site, request) = (self.site, &run.request);
        let texts = run.audit_texts();
        let checkpoints = CheckpointService { mode: request.checkpoint, keep: site.checkpoints_keep };
        let labels = checkpoints.labels(run.decision.action, &run.id);
        SessionRecord {
            run: run.id.to_string(),
            vault_id: site.vault_id.clone(),
            vault: site.vault.path().map(|path| path.display().to_string()),
            boot_id: site.boot_id.clone(),
            fork: run.fork.to_string(),
            ephemeral: request.fork.is_ephemeral(),
            touched: request.base == BaseChoice::Touched,
            wanted: request.retention != Retention::Discard && request.writing == Writing::Allowed,
            started_at: run.started_at.0,
            message: run.message.clone(),
            told_decision: texts.decision,
            looks_only: run.decision.looks_only(),
            drops_violations: run.decision.on_violation == OnViolation::Discard,
            expires_seconds: site.expires_seconds,
            exclude: site.exclude.clone(),
            hidden: hidden.iter().map(|path| to_hex(path.as_bytes())).collect(),
            secrets: match request.secrets_in_files {
                SecretsInFiles::Refused => request.secrets().searched().map(str::to_owned).collect(),
                SecretsInFiles::Allowed => Vec::new(),
            },
            item: request.item.as_ref().map(|item| (item.batch.to_string(), item.number)),
            checkpoints: (
                labels.before.map(|name| name.to_string()),
                labels.after.map(|name| name.to_string()),
            ),
            checkpoints_keep: site.checkpoints_keep.to_string(),
            clock_fixed: request.clock.map(|clock| clock.to_string()),
            request: journal::request(request, site.vault.path()),
            decision: journal::decision(&run.decision, run.approval.as_ref()),
        }
    }

    /// Journals a run that failed. An error in that must not hide the original error.
    fn journal_failure(&self, run: &Run, stood: State, error: &ExecuteError) {
        let record = RunRecord {
            result: journal::failure(stood, error, (self.hint)(error), &run.request.secrets()),
            ..self.not_run(run, RunState::Failed)
        };
        if let Err(error) = self.site.vault.journal_refused(&record, run.audit_texts().as_texts()) {
            tracing::warn!(%error, "cannot journal the failed run");
        }
    }
}

/// A command that has ended, in a sandbox that has stopped.
struct Ran {
    completion: Completion,
    sandbox: Box<dyn Sandbox>,
    upper: Upper,
}

/// Executes one command in a new sandbox. `meanwhile` is called while the sandbox is being set up, `started` once the
/// command runs, for work beside it.
fn execute(
    sandboxes: &dyn Sandboxes,
    (plan, command): &(SandboxPlan, CommandPlan),
    meanwhile: &mut dyn FnMut(),
    started: &mut dyn FnMut(),
) -> Result<Ran, LaunchError> {
    let sandbox = sandboxes.open(plan)?;
    meanwhile();
    let mut exec = sandbox.exec(command)?;
    started();
    let completion = exec.wait();
    let completion = completion.with(sandbox.stop());
    let upper = sandbox.upper();
    Ok(Ran { completion, sandbox, upper })
}

/// The request, limited to the maximums of the policy.
pub(super) fn capped(request: ExecutionRequest, decision: &ExecutionDecision) -> ExecutionRequest {
    let max = decision.timeout_max;
    // A command that ignores SIGTERM must not exceed the allowed time through a long grace period.
    let grace = max.duration().map_or(request.grace, |max| request.grace.min(max.max(GRACE_KEPT)));
    ExecutionRequest {
        timeout: request.timeout.at_most(max),
        grace,
        limits: request.limits.at_most(&decision.limits_max),
        net: decision.net.clone().unwrap_or(request.net),
        ..request
    }
}

/// True if the changes of the command should be kept, which requires a version that they are relative to.
pub(super) fn wants_version(request: &ExecutionRequest) -> bool {
    request.retention != Retention::Discard && request.writing == Writing::Allowed
}

/// Enters the next state and records it. The record is only informational, so an error does not fail the command.
fn enter(state: &mut State, next: State, session: &MountSession) {
    state.become_next(next);
    if let Err(error) = session.note_state(next.word()) {
        tracing::warn!(%error, "cannot record the state of the run");
    }
}

/// Switches to an alternative for a refused feature; false if no alternative exists.
fn detour(run: &mut Run, refused: Refused, scratch_place: Scratch) -> bool {
    let request = &mut run.request;
    match refused {
        Refused::Overlay | Refused::Memory if request.scratch == ScratchChoice::Auto => {
            request.scratch = match scratch_place {
                Scratch::Memory { .. } => ScratchChoice::Disk,
                Scratch::Disk => ScratchChoice::Memory,
            };
            true
        }
        // With a touched base, the whole directory would have to be copied.
        Refused::Overlay | Refused::Memory
            if request.backend == BackendChoice::Auto && request.base != BaseChoice::Touched =>
        {
            request.backend = BackendChoice::Copy;
            let text =
                "this host cannot mount an overlay here: the command runs on a copy (see: avfs doctor)";
            run.note("backend.copy", text.to_owned());
            true
        }
        // Without overlay support there is no other way; otherwise only if the request accepts less isolation.
        Refused::Shown
            if run.shown_as == ShownAs::Overlay
                && (request.degradation == Degradation::Allowed
                    || request.backend == BackendChoice::Copy) =>
        {
            run.shown_as = ShownAs::Bind;
            run.degraded.push("ro".to_owned());
            let text = "a directory of --ro cannot be a layer of an overlay: the directories of --ro are bind mounted, \
                        and sockets in them can be used";
            run.note("view.ro_bound", text.to_owned());
            true
        }
        Refused::Proc if request.degradation == Degradation::Allowed => {
            let again = request.proc == ProcMode::Private;
            request.proc = ProcMode::Absent;
            run.degraded.push("proc".to_owned());
            again
        }
        // The request cannot give up a limit set by the policy.
        Refused::Limit(kind)
            if request.degradation == Degradation::Allowed && run.decision.limits_max.get(kind).is_none() =>
        {
            request.limits = request.limits.with(kind, None);
            run.degraded.push(format!("limit.{kind}"));
            true
        }
        Refused::Overlay
        | Refused::Memory
        | Refused::Proc
        | Refused::Shown
        | Refused::Limit(_)
        | Refused::Other => false,
    }
}

/// A command that has ended, and its results.
pub(super) struct Ended<'g> {
    pub completion: Completion,
    pub sandbox: Box<dyn Sandbox>,
    pub upper: Upper,
    /// By the clock of file times; the command did not run before.
    pub launched_at: FileTime,
    pub scratch_place: Scratch,
    pub hidden: Vec<TreePath>,
    /// The hidden paths that persist between runs.
    pub caches: Vec<TreePath>,
    pub run_base: &'g RunBase,
    /// The import that ran in parallel to the command.
    pub imported: Option<avfs_vault::transfer::Result<Imported>>,
    /// The comparison of the directory with the fork, which runs in parallel.
    pub look: Option<LookBeside<'g>>,
    /// True if that import found a file that changed after the launch.
    pub scan_met_change: bool,
    pub identity: VaultIdentity,
}

/// The words of a command, or of a shell command line.
pub(super) fn words_of(command: &CommandLine) -> impl Iterator<Item = String> {
    let texts = match command {
        CommandLine::Argv(words) => words.as_slice(),
        CommandLine::Shell(line) => std::slice::from_ref(line),
    };
    let is_between = |c: char| c.is_whitespace() || ";|&()\"'".contains(c);
    texts.iter().flat_map(move |text| {
        let text = shown_word(text);
        let words = text.split(is_between).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>()
    })
}
