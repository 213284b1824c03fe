//! Caches the result of an executed run.

use std::io::Read;

use avfs_request::CacheMode;
use avfs_vault::VaultError;
use avfs_vault::memo::Memo;
use avfs_vault::stored_output::is_full;

use super::key::set_base;
use super::reason::Ending;
use super::{CacheUse, Lookup, reason};
use crate::launcher::Exit;
use crate::output::Output;
use crate::run::{Before, Run, Site};

/// The use of the cache, with the result if it was requested to be cached and can be; otherwise with the reason.
/// `bytes_written` is the size of the changes, which the vault needs room for too.
pub(crate) fn memo(
    site: &Site<'_>,
    run: &Run,
    lookup: &Lookup,
    before: Option<Before>,
    ending: &Ending<'_>,
    bytes_written: u64,
) -> avfs_vault::Result<(Option<CacheUse>, Option<Memo>)> {
    let mut cache = match &lookup.cache {
        Some(cache) if cache.mode == CacheMode::Write => cache.clone(),
        cache => return Ok((cache.clone(), None)),
    };
    let completion = ending.completion;
    cache.not_remembered.extend(reason::of_asking(&run.request));
    cache.not_remembered.extend(reason::of_ending(ending));
    let length = |output: &Option<Output>| output.as_ref().map_or(0, Output::length);
    let lengths = [length(&completion.stdout), length(&completion.stderr)];
    if is_full(&*site.vault.read()?, lengths, bytes_written)? {
        cache.not_remembered.push(reason::no_room());
    }
    let outputs = completion.stdout.as_ref().zip(completion.stderr.as_ref());
    let memo = match (&lookup.parts, before, completion.exit, outputs) {
        (Some(parts), Some(before), Exit::Code(code), Some((stdout, stderr)))
            if cache.not_remembered.is_empty() =>
        {
            let mut parts = parts.clone();
            set_base(&mut parts, &before.root.content);
            let expires_at = site.vault.now().plus_seconds(site.memo.expires_seconds);
            let (mut stdout, mut stderr) = (stdout.reader(), stderr.reader());
            let sources: [&mut (dyn Read + Send); 2] = [&mut stdout, &mut stderr];
            match Memo::new(site.vault, parts, code, sources, expires_at) {
                Ok(memo) => Some(memo),
                // The run must not fail because of its result.
                Err(VaultError::Quota { .. }) => {
                    cache.not_remembered.push(reason::no_room());
                    None
                }
                Err(VaultError::Input(_)) => {
                    cache.not_remembered.push(reason::output_unknown());
                    None
                }
                Err(error) => return Err(error),
            }
        }
        (Some(_) | None, _, Exit::Code(_) | Exit::Signal(_), _) => None,
    };
    Ok((Some(cache), memo))
}
