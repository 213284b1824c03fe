//! Finishes a dead or failed run: its changes are captured once, or discarded.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_changes::places_of_host;
use avfs_changes::read_only_check::Touched;
use avfs_request::SecretsInFiles;
use avfs_types::KeepCount;
use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{BatchItem, ForkName, RunPrefix, VersionId, from_hex};
use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::backend::{Durability, Life, RunRecord, RunState};
use avfs_vault::capture::{CaptureOptions, Captured, LeftOut, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::import::{ImportOptions, OnTrouble, TouchedOptions};
use avfs_vault::meter::Meter;
use avfs_vault::run::{AuditTexts, LandedRun, Landing, RunLanding};
use avfs_vault::version::full_root_of_either;
use avfs_vault::write_out::FreshPages;
use avfs_vault::{Batch, Vault, VaultError, require_version, transfer};

use super::mount_session::{MountSession, RECORD, ScratchDir, SessionError};
use super::session_record::{SessionOutcome, SessionRecord};
use crate::journal;
use crate::journal::RunResult;
use crate::launcher::Exit;
use crate::orphans::{is_vault_gone, stood_at};
use crate::run::{Note, earliest_time, land, times};

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("there is no run {id} to recover")]
    None { id: RunPrefix },
    #[error("{id} is ambiguous: {count} runs match")]
    Ambiguous { id: RunPrefix, count: usize },
    #[error("the machine was rebooted since run {id}; its changes may be incomplete")]
    Restarted { id: String },
    #[error("run {id} was given secrets, which its changes may contain; unknown values: {}", names.join(", "))]
    SecretsUnknown { id: String, names: Vec<String> },
    #[error("run {id} changed a directory that the vault is no longer bound to")]
    NoDirectory { id: String },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Vault(#[from] transfer::Error),
}

impl From<VaultError> for RecoverError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.into())
    }
}

impl Diagnose for RecoverError {
    fn code(&self) -> &'static str {
        match self {
            Self::None { .. } => "recover.none",
            Self::Ambiguous { .. } => "recover.ambiguous",
            Self::Restarted { .. } => "recover.restarted",
            Self::SecretsUnknown { .. } => "recover.secrets_unknown",
            Self::NoDirectory { .. } => "recover.no_directory",
            Self::Session(error) => error.code(),
            Self::Vault(error) => error.code(),
        }
    }
}

/// A scratch that can be finished.
pub struct Recovery {
    pub record: SessionRecord,
    pub outcome: SessionOutcome,
    session: MountSession,
}

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    pub landed: LandedRun,
    pub left_out: Vec<LeftOut>,
}

/// Whether to accept changes that may be incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    Refused,
    Accepted,
}

/// The options of a recovery.
pub struct RecoverOptions<'a> {
    /// The directory that the vault is bound to, and its stat cache.
    pub bound: Option<&'a Path>,
    pub stat_cache: Option<&'a Path>,
    pub boot_id: &'a str,
    pub doubt: Doubt,
    pub secrets_in_files: SecretsInFiles,
    /// The environment in which to look up the values of the run's secrets by name; the run did not store the values.
    pub environment: &'a [(OsString, OsString)],
}

impl RecoverOptions<'_> {
    /// The secret values that kept files must not contain.
    fn secrets(&self, record: &SessionRecord) -> Result<Secrets, RecoverError> {
        match self.secrets_in_files {
            SecretsInFiles::Allowed => return Ok(Secrets::default()),
            SecretsInFiles::Refused => {}
        }
        let value = |name: &String| {
            let found = self
                .environment
                .iter()
                .find(|(set, value)| set.as_os_str() == name.as_str() && !value.is_empty());
            found.map(|(_, value)| (name.clone(), value.as_bytes()))
        };
        let known: Vec<(String, &[u8])> = record.secrets.iter().filter_map(value).collect();
        let secrets = Secrets::new(known);
        // A value too short to search for is not the original one, which was long enough.
        let searched: Vec<&str> = secrets.searched().collect();
        let unknown = record.secrets.iter().filter(|name| !searched.contains(&name.as_str()));
        let names: Vec<String> = unknown.cloned().collect();
        match names.is_empty() {
            true => Ok(secrets),
            false => Err(RecoverError::SecretsUnknown { id: record.run.clone(), names }),
        }
    }
}

/// The runs that a vault can recover.
#[derive(Default)]
pub struct Recoverable {
    pub runs: Vec<Recovery>,
    /// Runs whose outcome cannot be read, and the error. They do not prevent the recovery of others.
    pub unreadable: Vec<(String, SessionError)>,
}

impl Recoverable {
    /// The run with this id.
    pub fn one(self, id: &RunPrefix) -> Result<Recovery, RecoverError> {
        if let Some(back) = id.steps_back() {
            let mut runs = self.runs;
            runs.sort_by_key(|recovery| std::cmp::Reverse(recovery.record.started_at()));
            let meant = usize::try_from(back).ok().and_then(|back| runs.into_iter().nth(back));
            return meant.ok_or_else(|| RecoverError::None { id: id.clone() });
        }
        let is_meant = |run: &str| run.starts_with(id.as_str());
        let mut named: Vec<Recovery> =
            self.runs.into_iter().filter(|recovery| is_meant(&recovery.record.run)).collect();
        let unreadable = self.unreadable.into_iter().find(|(run, _)| is_meant(run));
        match (named.pop(), named.len(), unreadable) {
            (Some(recovery), 0, None) => Ok(recovery),
            (Some(_), more, unreadable) => {
                let count = more + 1 + usize::from(unreadable.is_some());
                Err(RecoverError::Ambiguous { id: id.clone(), count })
            }
            (None, _, Some((_, error))) => Err(error.into()),
            (None, _, None) => Err(RecoverError::None { id: id.clone() }),
        }
    }
}

impl Recovery {
    /// All runs that can be recovered for a vault.
    pub fn find(scratch: &ScratchDir, vault: &Vault) -> Result<Recoverable, RecoverError> {
        let vault_id = vault.id()?;
        let mut found = Recoverable::default();
        for (name, session) in scratch.dead()? {
            let Ok(record) = SessionRecord::read(&session, &name) else { continue };
            if record.vault_id != vault_id || !is_of(&record, vault) {
                continue;
            }
            match SessionOutcome::read(&session, &name) {
                Ok(Some(outcome)) => found.runs.push(Self { record, outcome, session }),
                Ok(None) => {}
                Err(error) => found.unreadable.push((name, error)),
            }
        }
        Ok(found)
    }

    /// Captures and journals the run.
    #[tracing::instrument(name = "recover", skip_all, fields(run = self.record.run))]
    pub fn finish(self, vault: &Vault, options: &RecoverOptions<'_>) -> Result<Recovered, RecoverError> {
        let Self { record, outcome, session } = self;
        if record.boot_id != options.boot_id && options.doubt == Doubt::Refused {
            return Err(RecoverError::Restarted { id: record.run });
        }
        let id = record.run_id()?;
        let row = vault.read()?.run(&id).map_err(VaultError::from)?;
        if row.is_some_and(|run| run.state == RunState::Completed) {
            // The process died between its commit and the removal of its scratch.
            session.captured()?;
            return Err(VaultError::RunCaptured { id }.into());
        }
        if !record.wanted {
            let run = run_record(&record, Some(&outcome), RunState::Completed, outcome.version_before())?;
            let landed = journal_only(vault, run, &record)?;
            session.discard()?;
            return Ok(Recovered { landed, left_out: Vec::new() });
        }
        let secrets = options.secrets(&record)?;
        let recovered = Changes::open(&record, &outcome, &session)?.land(vault, options, &secrets)?;
        session.captured()?;
        Ok(recovered)
    }

    /// Discards the changes, and journals that.
    pub fn discard(self, vault: &Vault) -> Result<(), RecoverError> {
        let before = self.outcome.version_before();
        let run = run_record(&self.record, Some(&self.outcome), RunState::Failed, before)?;
        journal_only(vault, run, &self.record)?;
        Ok(self.session.discard()?)
    }

    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.session.dir().to_owned()
    }
}

/// The changes in the scratch of a run whose command ended.
struct Changes<'a> {
    record: &'a SessionRecord,
    outcome: &'a SessionOutcome,
    session: &'a MountSession,
    upper: OwnedFd,
    kind: UpperKind,
    /// Paths in the workspace that are not part of it.
    hidden: Vec<TreePath>,
    modes_journal: PathBuf,
    meter: Meter,
}

impl<'a> Changes<'a> {
    fn open(
        record: &'a SessionRecord,
        outcome: &'a SessionOutcome,
        session: &'a MountSession,
    ) -> Result<Self, SessionError> {
        let (upper, kind) = session.open_changes()?;
        let hidden = record.hidden.iter().filter_map(|hex| TreePath::parse(&from_hex(hex)?).ok()).collect();
        let (modes_journal, meter) = (session.modes_journal(), Meter::default());
        Ok(Self { record, outcome, session, upper, kind, hidden, modes_journal, meter })
    }

    /// Captures and lands them.
    fn land(
        &self,
        vault: &Vault,
        options: &RecoverOptions<'_>,
        secrets: &Secrets,
    ) -> Result<Recovered, RecoverError> {
        let Self { record, outcome, .. } = *self;
        let row = |version_before| run_record(record, Some(outcome), RunState::Completed, version_before);
        let Some(before) = self.before(vault, options)? else {
            let landed = journal_only(vault, row(None)?, record)?;
            return Ok(Recovered { landed, left_out: Vec::new() });
        };
        let captured = self.capture(vault, &before, secrets)?;
        let violation = match record.looks_only {
            true => {
                let changes = captured.edited.changes(&FreshPages::new(vault), vault.temporary_dirs())?;
                Touched::by(&changes, |_| Ok(false))?.in_words()
            }
            false => None,
        };
        let dropped = violation.is_some() && record.drops_violations;
        let mut run = row(Some(before).filter(|_| !record.touched))?;
        run.discarded_at = Some(vault.now()).filter(|_| dropped);
        if let (Some(_), Some(result)) = (&violation, journal::result_of(&run)) {
            run.result = journal::text(&RunResult { classification_violated: true, ..result });
        }
        let (main, name, item, labels) = (ForkName::main(), record.fork()?, record.item(), record.labels());
        let expires_at = vault.now().plus_seconds(record.expires_seconds);
        let life = Life::Ephemeral { expires_at };
        let landing = RunLanding {
            landing: match record.ephemeral {
                true => Landing::NewFork { name: &name, base: before, parent: &main, life },
                false => Landing::Fork { name: &name, base: before },
            },
            edited: Some(&captured.edited).filter(|_| !dropped),
            checkpoint_before: labels.before,
            checkpoint_after: labels.after,
            checkpoints_keep: record.checkpoints_keep(),
            texts: AuditTexts { violation: violation.as_deref(), ..record.audit_texts() },
            ..row_only(run, record, item.as_ref())
        };
        let landed = land(vault, landing, captured.batch)?;
        Ok(Recovered { landed, left_out: captured.left_out })
    }

    /// The version that they are relative to; `None` if the command touched nothing.
    fn before(&self, vault: &Vault, options: &RecoverOptions<'_>) -> Result<Option<VersionId>, RecoverError> {
        let Self { record, meter, .. } = self;
        match (self.outcome.version_before(), options.bound) {
            (Some(version), _) => Ok(Some(version)),
            (None, bound) if record.touched => {
                let dir = bound.ok_or_else(|| RecoverError::NoDirectory { id: record.run.clone() })?;
                let links_at = places_of_host();
                let options = TouchedOptions {
                    links_at: &links_at,
                    exclude: &record.exclude,
                    hidden: &self.hidden,
                    launched_at: earliest_time(record.started_at()),
                    modes_journal: &self.modes_journal,
                    meter,
                };
                let Some(base) = vault.import_touched(dir, self.upper.as_fd(), &options)? else {
                    return Ok(None);
                };
                self.session.note_base(&base.version.id)?;
                Ok(Some(base.version.id))
            }
            // The process died before the directory was imported: its current state is the best available base.
            (None, Some(dir)) => {
                let options = ImportOptions {
                    on_trouble: OnTrouble::KeepGoing,
                    stat_cache: options.stat_cache,
                    exclude: &record.exclude,
                    meter,
                };
                let imported = vault.import(dir, &ForkName::main(), "import for a recovery", &options)?;
                Ok(Some(imported.committed.version.id))
            }
            (None, None) => Ok(Some(vault.fork(&ForkName::main())?.head)),
        }
    }

    fn capture<'v>(
        &self,
        vault: &'v Vault,
        before: &VersionId,
        secrets: &Secrets,
    ) -> Result<Captured<'v>, RecoverError> {
        let record = self.record;
        let root = {
            let reader = vault.read()?;
            full_root_of_either(&*reader, &require_version(&*reader, before)?)?
        };
        let options = CaptureOptions {
            kind: self.kind,
            exclude: &record.exclude,
            hidden: &self.hidden,
            file_bytes_max: FILE_BYTES_MAX,
            secrets,
            times: times(record.clock(), record.started_at()),
            since: earliest_time(record.started_at()),
            renamed: &RenamedNames::default(),
            modes_journal: &self.modes_journal,
            meter: &self.meter,
        };
        Ok(vault.capture(self.upper.as_fd(), &root, &options)?)
    }
}

fn run_record(
    record: &SessionRecord,
    outcome: Option<&SessionOutcome>,
    state: RunState,
    version_before: Option<VersionId>,
) -> Result<RunRecord, SessionError> {
    let (exit_code, signal) = match outcome.map(SessionOutcome::exit) {
        Some(Exit::Code(code)) => (Some(i32::from(code)), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    Ok(RunRecord {
        seq: 0,
        id: record.run_id()?,
        fork: record.fork()?,
        state,
        version_before,
        version_after: None,
        started_at: record.started_at(),
        ended_at: outcome.map(|outcome| Timestamp(outcome.ended_at)),
        exit_code,
        signal,
        applied_at: None,
        discarded_at: None,
        request: record.request.clone(),
        decision: record.decision.clone(),
        result: outcome.map_or_else(|| "{}".to_owned(), |outcome| outcome.result.clone()),
    })
}

/// Journals a row without changes.
fn journal_only(vault: &Vault, run: RunRecord, session: &SessionRecord) -> avfs_vault::Result<LandedRun> {
    let item = session.item();
    land(vault, row_only(run, session, item.as_ref()), Batch::new(vault)?)
}

/// A run of which only the row is kept.
fn row_only<'a>(
    record: RunRecord,
    session: &'a SessionRecord,
    item: Option<&'a BatchItem>,
) -> RunLanding<'a> {
    RunLanding {
        landing: Landing::RecordOnly,
        record,
        edited: None,
        message: &session.message,
        checkpoint_before: None,
        checkpoint_after: None,
        checkpoints_keep: KeepCount::DEFAULT,
        memo: None,
        kept: None,
        item,
        durability: Durability::Synced,
        texts: session.audit_texts(),
    }
}

/// A file in a scratch: an automatic recovery failed.
const TRIED: &str = "tried";

/// What to do with runs whose command ended, but whose changes were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfCaptured<'a> {
    /// Capture them, unless something prevents it.
    Finish { boot_id: &'a str },
    /// Leave them for the user to decide.
    Leave,
}

/// Removes the scratches of killed runs, and journals the runs. Returns notes for the user.
pub fn sweep<E: From<SessionError> + From<VaultError>>(
    scratch: &ScratchDir,
    vault: &Vault,
    half_captured: HalfCaptured<'_>,
) -> Result<Vec<Note>, E> {
    let vault_id = vault.id()?;
    let mut notes = Vec::new();
    for (name, session) in scratch.dead()? {
        let record = match SessionRecord::read(&session, &name) {
            Ok(record) => record,
            // Killed before it started, or during its removal: there are no changes to keep.
            Err(_) if !session.dir().join(RECORD).exists() || session.read_outcome()?.is_none() => {
                notes.extend(leftover(&name, session.discard()));
                continue;
            }
            // Never discard the changes of a command unread.
            Err(error) => {
                let text = format!(
                    "run {name} left changes in {}, but they cannot be recovered: {error}",
                    session.dir().display()
                );
                notes.push(Note::new("scratch.unreadable", text));
                continue;
            }
        };
        let ours = record.vault_id == vault_id && is_of(&record, vault);
        // A run that waited for an approval has a row from before it started.
        let begun = |run: &RunRecord| run.state != RunState::ApprovalRequired;
        let row = vault.read()?.run(&record.run_id()?).map_err(VaultError::from)?;
        let known = ours && row.as_ref().is_some_and(begun);
        match (session.read_outcome()?, known) {
            (_, true) => notes.extend(leftover(&name, session.captured())),
            (Some(_), false) if ours => notes.push(half_way(vault, &name, session, record, half_captured)),
            (Some(_), false) => {}
            // Its own vault journals it with its next run.
            (None, false)
                if !ours && record.vault.as_ref().is_some_and(|vault| Path::new(vault).exists()) => {}
            (None, false) => {
                if ours {
                    let mut row = run_record(&record, None, RunState::Interrupted, None)?;
                    row.result = journal::interrupted(stood_at(session.dir()));
                    journal_only(vault, row, &record)?;
                }
                notes.extend(leftover(&name, session.discard()));
            }
        }
    }
    Ok(notes)
}

/// False for a run of another copy of the vault that still exists: the next run of that copy handles it. A vault that
/// was moved is the same vault, even if another one is at its former path.
fn is_of(record: &SessionRecord, vault: &Vault) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let theirs = record.vault.as_ref().and_then(|path| file(Path::new(path)));
    theirs.is_none() || theirs == vault.path().and_then(file) || is_vault_gone(record)
}

/// Finishes a run whose command ended, or notes that the user has to.
fn half_way(
    vault: &Vault,
    name: &str,
    session: MountSession,
    record: SessionRecord,
    half_captured: HalfCaptured<'_>,
) -> Note {
    let wait = |why: &str| {
        let text = format!("run {name} was never captured{why}");
        Note::new("run.recoverable", text).with_remedy("finish it with", format!("recover {name}"))
    };
    let HalfCaptured::Finish { boot_id } = half_captured else { return wait("") };
    let tried = session.dir().join(TRIED);
    if tried.exists() {
        return wait("");
    }
    let outcome = match SessionOutcome::read(&session, name) {
        Ok(Some(outcome)) => outcome,
        Ok(None) => return wait(""),
        Err(error) => return wait(&format!(" ({error})")),
    };
    if outcome.version_before().is_none() {
        return wait(" (its base was not imported yet)");
    }
    let options = RecoverOptions {
        bound: None,
        stat_cache: None,
        boot_id,
        doubt: Doubt::Refused,
        secrets_in_files: SecretsInFiles::Refused,
        environment: &[],
    };
    match (Recovery { record, outcome, session }).finish(vault, &options) {
        Ok(recovered) => {
            let kept = match recovered.landed.landed.version() {
                Some(_) => format!("they are now on fork {}", recovered.landed.record.fork),
                None => "there were none".to_owned(),
            };
            let text = format!("recovered the changes of run {name}; {kept}");
            Note::new("run.recovered", text)
        }
        Err(error) => {
            // Try only once: otherwise every run would read changes that cannot be captured. If the mark cannot
            // be written, it does.
            let _ = std::fs::write(&tried, "");
            wait(&format!(" ({error})"))
        }
    }
}

/// A leftover that cannot be removed only causes a note.
pub(crate) fn leftover(name: &str, cleared: Result<(), SessionError>) -> Option<Note> {
    let error = cleared.err()?;
    let text = format!("cannot remove the scratch of run {name}: {error}");
    Some(Note::new("scratch.leftover", text))
}
