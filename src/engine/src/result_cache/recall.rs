//! Recall: a run with a cached result. Its changes are applied to the current files, in the same transaction that
//! journals it. Nothing is mounted and no process is started.

use std::time::{Duration, Instant};

use avfs_request::{CacheMode, Streams};
use avfs_types::ids::{BlobId, ForkName};
use avfs_vault::backend::{Guard, MemoRecord, RunRecord, RunState, VersionRecord};
use avfs_vault::edited_tree::EditedTree;
use avfs_vault::memo::{Forget, Lost, MemoParts};
use avfs_vault::run::{AuditTexts, RunLanding};
use avfs_vault::stored_output::copy_output;
use avfs_vault::version::full_root_of;
use avfs_vault::{Batch, VaultError, require_version};
use avfs_wire::CacheObject;

use super::changes::changes_onto;
use super::key::set_base;
use super::look::{Search, find, parts_of};
use super::{CacheUse, reason};
use crate::error::ExecuteError;
use crate::journal;
use crate::journal::RunResult;
use crate::launcher::{Completion, Exit, Sandboxes};
use crate::output::{Output, OutputBuffer};
use crate::run::{
    Admitted, Before, ExecutionResult, Failure, Notes, Phases, ProxyExecutionState, Reported, Run, Site,
    Stage, VaultIdentity, changed, enter, kept_output, land, result, run_landing, wants_version,
};
use crate::run_base::Files;
use crate::workspace_service::{BaseVersion, WorkspaceService};

/// The answer of the cache.
pub(crate) enum Recall {
    /// The run is finished.
    Hit(Box<ExecutionResult>),
    /// The command must be executed.
    Miss(Box<Lookup>),
}

/// What a lookup without a result found out about the run; nothing if the cache was not requested.
#[derive(Default)]
pub(crate) struct Lookup {
    /// The use of the cache, if requested.
    pub cache: Option<CacheUse>,
    /// The parts of the key of its result.
    pub parts: Option<MemoParts>,
    /// The version that the run starts from.
    pub base: Option<BaseVersion>,
    pub files: Files,
    pub notes: Notes,
}

impl Stage for Lookup {
    const STATE: ProxyExecutionState = ProxyExecutionState::Checkpointing;
}

/// A cached result, and the run that gets it.
struct Recalled {
    memo: MemoRecord,
    before: Before,
    /// The parent of a fork created for the run.
    parent: ForkName,
    edited: Option<EditedTree>,
    completion: Completion,
    cache: CacheUse,
    notes: Notes,
    resolving: Duration,
    /// Keeps a sweep away until the result has landed.
    pin: Guard,
}

impl Stage for Recalled {
    const STATE: ProxyExecutionState = ProxyExecutionState::Capturing;
}

enum Found {
    Result(Box<Recalled>),
    Nothing(Box<Lookup>),
}

/// Uses a cached result for the run, if there is one.
#[tracing::instrument(level = "debug", skip_all)]
pub(crate) fn recall(
    site: &Site<'_>,
    launcher: &dyn Sandboxes,
    admitted: &Admitted,
) -> Result<Recall, Failure> {
    let request = &admitted.run.request;
    if request.cache == CacheMode::Off {
        return Ok(Recall::Miss(Box::default()));
    }
    let mut cache = CacheUse::new(request.cache);
    let refused = reason::of_request(request, admitted.common_dir.as_ref());
    if !refused.is_empty() {
        if request.cache == CacheMode::Write {
            cache.not_remembered.clone_from(&refused);
        }
        cache.missed = refused;
        return Ok(Recall::Miss(Box::new(Lookup { cache: Some(cache), ..Lookup::default() })));
    }
    let interrupted = |failure: Failure| match site.meter.stopped_by() {
        Some(signal) if failure.error.is_of_no_run() => {
            Failure { error: ExecuteError::Interrupted { signal }, ..failure }
        }
        Some(_) | None => failure,
    };
    enter::<Admitted, Lookup>();
    let identity = VaultIdentity::of(site.vault);
    let found = look_up(site, admitted, cache).map_err(Failure::at::<Lookup>).map_err(interrupted)?;
    let recalled = match found {
        Found::Result(recalled) => *recalled,
        Found::Nothing(lookup) => return Ok(Recall::Miss(lookup)),
    };
    enter::<Lookup, Recalled>();
    let landed = match identity.check(site.vault) {
        Ok(()) => land_recalled(site, launcher, admitted, recalled),
        Err(error) => Err(error.into()),
    };
    landed.map(|result| Recall::Hit(Box::new(result))).map_err(Failure::at::<Recalled>).map_err(interrupted)
}

/// Finds the base of the run, and the result of an equal one.
fn look_up(site: &Site<'_>, admitted: &Admitted, mut cache: CacheUse) -> Result<Found, ExecuteError> {
    let (run, places) = (&admitted.run, &admitted.places);
    let mut parts = parts_of(site, &run.request, places)?;
    let workspaces = WorkspaceService { site };
    let files = workspaces.announce_first_import(places, &run.request, Files::default())?;
    let mut notes = Notes::default();
    let base = workspaces.base(places, &run.request, &mut notes)?;
    set_base(&mut parts, &base.record.content);
    cache.key = Some(parts.key());
    let resolving = run.begun.elapsed();
    // Pinned, so that the result is not swept before it has landed.
    let pin = site.vault.backend().pin().map_err(VaultError::from)?;
    let search = find(&*site.vault.read()?, &parts, site.vault.now())?;
    let lost = match search {
        Search::Nothing(reasons) => {
            cache.missed = reasons;
            None
        }
        Search::Lost(memo, why) => Some((memo, why)),
        Search::Found(memo) => match read(site, run, &base.record, &memo) {
            Ok((before, edited, completion)) => {
                cache.from = Some(memo.run.clone());
                cache.remembered = true;
                let notes = admitted.notes.followed_by(&notes);
                let parent = base.parent;
                return Ok(Found::Result(Box::new(Recalled {
                    memo,
                    before,
                    parent,
                    edited,
                    completion,
                    cache,
                    notes,
                    resolving,
                    pin,
                })));
            }
            // Running the command again is better than failing: the result was only kept to save time.
            Err(VaultError::MissingObject { kind, .. } | VaultError::DamagedObject { kind, .. }) => {
                Some((memo, if kind == "blob" { Lost::Output } else { Lost::Version }))
            }
            Err(error) => return Err(error.into()),
        },
    };
    drop(pin);
    if let Some((memo, why)) = lost {
        site.vault.forget(&Forget::Lost(memo.key, why))?;
        cache.missed = vec![reason::lost(&memo, why)];
    }
    let (cache, parts, base) = (Some(cache), Some(parts), Some(base));
    Ok(Found::Nothing(Box::new(Lookup { cache, parts, base, files, notes })))
}

/// Reads the data of a result, with its changes as changes of the current files.
fn read(
    site: &Site<'_>,
    run: &Run,
    version: &VersionRecord,
    memo: &MemoRecord,
) -> avfs_vault::Result<(Before, Option<EditedTree>, Completion)> {
    let reader = site.vault.read()?;
    let before = Before { version: version.id, root: full_root_of(&*reader, version)? };
    let edited = match (memo.version_before, memo.version_after) {
        (Some(from), Some(to)) if wants_version(&run.request) => {
            let root = |id| full_root_of(&*reader, &require_version(&*reader, id)?);
            let edits = changes_onto(&&*reader, &root(&from)?, &root(&to)?, &before.root)?;
            Some(EditedTree::new(&&*reader, &before.root, &edits)?)
        }
        (Some(_) | None, _) => None,
    };
    let output = |id| read_output(site, id, run.request.streams);
    let exit = Exit::Code(u8::try_from(memo.exit_code).unwrap_or(u8::MAX));
    let (stdout, stderr) = (Some(output(&memo.stdout)?), Some(output(&memo.stderr)?));
    Ok((before, edited, Completion { stdout, stderr, ..Completion::of(exit) }))
}

/// The output of a stream, limited as requested.
fn read_output(site: &Site<'_>, id: &BlobId, streams: Streams) -> avfs_vault::Result<Output> {
    let bytes_max = match streams {
        Streams::Captured { bytes_max } => bytes_max,
        Streams::Passed | Streams::Teed { .. } => usize::MAX,
    };
    let mut buffer = OutputBuffer::new(bytes_max, site.vault.temporary_dir());
    copy_output(&*site.vault.backend().read_unmapped()?, id, &mut buffer)?;
    Ok(buffer.finish())
}

/// Keeps the run, and reports it like one that was executed.
fn land_recalled(
    site: &Site<'_>,
    launcher: &dyn Sandboxes,
    admitted: &Admitted,
    recalled: Recalled,
) -> Result<ExecutionResult, ExecuteError> {
    let Recalled { memo, before, parent, edited, completion, cache, mut notes, resolving, pin } = recalled;
    let (vault, run) = (site.vault, &admitted.run);
    let committing = Instant::now();
    let mut phases = Phases { resolve: resolving, ..Phases::default() };
    let record = RunRecord {
        version_before: Some(before.version),
        exit_code: Some(memo.exit_code),
        result: journal::text(&RunResult {
            cache: Some(CacheObject::from(&cache)),
            ..journal::result(&run.request, &completion, &phases)
        }),
        ..run.row(vault, RunState::Completed)
    };
    let decision = run.decision.audit_text();
    let texts = AuditTexts { cached_from: cache.from.as_ref(), ..run.audit_texts(&decision) };
    // The changes are in the vault already.
    let kept = kept_output(site, &run.request, &completion, 0, &mut notes)?;
    let landing = run_landing(site, run, &parent, Some(before.version), record, texts);
    let landing = RunLanding { edited: edited.as_ref(), kept, ..landing };
    let landed = land(vault, landing, Batch::new(vault)?)?;
    // The following steps may wait for a sweep.
    drop(pin);
    phases.commit = committing.elapsed();
    let changed = changed(site, run, Some(before), &landed.landed, &mut notes);
    let reported = Reported {
        landed,
        changed,
        completion,
        left_out: Vec::new(),
        caches: Vec::new(),
        violated: false,
        phases,
        enforcement: None,
        cache: Some(cache),
    };
    result(site, launcher, run, reported, notes)
}
