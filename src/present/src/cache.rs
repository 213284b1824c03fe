//! Cached results as wire types.

use avfs_engine::journal;
use avfs_engine::{CachedResult, Look, Reason};
use avfs_types::clock::time_text;
use avfs_types::ids::{VersionId, to_hex};
use avfs_vault::backend::{MemoRecord, RunRecord};
use avfs_vault::memo::Lost;
use avfs_wire::{CacheExplain, CacheObject, FoundObject, MemoObject, ReasonObject};

/// The cache use of a run from the journal; `None` if the cache was not requested.
#[must_use]
pub fn cache_use_of_run(run: &RunRecord) -> Option<CacheObject> {
    journal::result_of(run)?.cache
}

#[must_use]
pub fn memo(memo: &MemoRecord, run: Option<&RunRecord>, lost: Option<Lost>) -> MemoObject {
    MemoObject {
        key: memo.key.to_hex(),
        run_id: memo.run.to_string(),
        command: run.and_then(|run| crate::command_of(&run.request)),
        exit_code: memo.exit_code,
        stdout_digest: to_hex(&memo.stdout_digest),
        stderr_digest: to_hex(&memo.stderr_digest),
        version_before: memo.version_before.as_ref().map(VersionId::to_hex),
        version_after: memo.version_after.as_ref().map(VersionId::to_hex),
        created_at: time_text(memo.created_at),
        expires_at: time_text(memo.expires_at),
        lost: lost.map(|lost| lost.word().into()),
        parts: serde_json::from_str(&memo.parts).unwrap_or_default(),
    }
}

#[must_use]
pub fn found(found: &CachedResult) -> FoundObject {
    FoundObject {
        exit_code: found.exit_code,
        stdout_digest: to_hex(&found.stdout_digest),
        stderr_digest: to_hex(&found.stderr_digest),
        changed: found.version.is_some(),
        tree: found.tree.to_hex(),
        content: found.content.to_hex(),
        created_at: time_text(found.created_at),
        expires_at: time_text(found.expires_at),
    }
}

/// Explains the cache use of a run, from the journal.
#[must_use]
pub fn cache_explained_of_run(run: &RunRecord, remembered: bool) -> CacheExplain {
    let run_id = Some(run.id.to_string());
    let Some(cache) = crate::cache_use_of_run(run) else {
        return CacheExplain {
            run_id,
            outcome: "not_asked".into(),
            cached_from: None,
            key: None,
            missed: Vec::new(),
            remembered,
            not_remembered: Vec::new(),
            found: None,
        };
    };
    let CacheObject { mode: _, key, cached_from, missed, not_remembered } = cache;
    let outcome = if cached_from.is_some() { "hit" } else { "miss" }.into();
    CacheExplain { run_id, outcome, cached_from, key, missed, remembered, not_remembered, found: None }
}

/// Explains the cache use of a request, from a lookup. `not_remembered` has the reasons why its own result
/// would not be cached.
#[must_use]
pub fn cache_explained_of_look(look: &Look, not_remembered: &[Reason]) -> CacheExplain {
    let found = match look {
        Look::Hit(found) => Some(found),
        Look::Miss(_) => None,
    };
    CacheExplain {
        run_id: None,
        outcome: if found.is_some() { "hit" } else { "miss" }.into(),
        cached_from: found.map(|found| found.run.to_string()),
        key: found.map(|found| found.key.to_hex()),
        missed: match look {
            Look::Hit(_) => Vec::new(),
            Look::Miss(missed) => missed.iter().map(ReasonObject::from).collect(),
        },
        remembered: not_remembered.is_empty(),
        not_remembered: not_remembered.iter().map(ReasonObject::from).collect(),
        found: found.map(|found| crate::found(found)),
    }
}
