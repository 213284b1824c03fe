//! Cached results: why one was reused or not, the list, and how to forget them.

use avfs_types::ids::RunPrefix;
use avfs_vault::Vault;
use avfs_vault::backend::MemoRecord;
use avfs_vault::memo::{Forget, lost, of_run};
use avfs_wire::{CacheExplain, CacheForget, CacheList, MemoObject};
use avfs_workplace::{OpError, Workplace};

/// Explains the cache use of a run, from the journal.
pub fn explain_cache(workplace: &Workplace, run: &RunPrefix) -> Result<CacheExplain, OpError> {
    let vault = &workplace.vault;
    let run = vault.run(run)?;
    let cached = of_run(&*vault.read()?, &run.id)?;
    Ok(avfs_present::cache_explained_of_run(&run, cached.is_some()))
}

/// The newest results.
pub fn cached_results(workplace: &Workplace, limit: usize) -> Result<CacheList, OpError> {
    let vault = &workplace.vault;
    let mut memos = vault.memos(i64::MAX, limit.saturating_add(1))?;
    let more = memos.len() > limit;
    memos.truncate(limit);
    let results = memos.iter().map(|memo| object(vault, memo)).collect::<Result<Vec<_>, _>>()?;
    if results.is_empty() && !more {
        workplace.note(format_args!("no cached results"));
    }
    Ok(CacheList { results, more })
}

/// Forgets the result of a run; `None` forgets all results.
pub fn forget_results(workplace: &Workplace, run: Option<&RunPrefix>) -> Result<CacheForget, OpError> {
    let vault = &workplace.vault;
    let which = match run {
        Some(run) => Forget::OfRun(vault.run(run)?.id),
        None => Forget::All,
    };
    let gone = vault.forget(&which)?;
    Ok(CacheForget { forgotten: gone.iter().map(|memo| object(vault, memo)).collect::<Result<_, _>>()? })
}

fn object(vault: &Vault, memo: &MemoRecord) -> Result<MemoObject, OpError> {
    let reader = vault.read()?;
    let run = reader.run(&memo.run)?;
    Ok(avfs_present::memo(memo, run.as_ref(), lost(&*reader, memo, vault.now())?))
}
