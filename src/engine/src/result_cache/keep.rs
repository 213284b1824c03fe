//! Caches the result of an executed run.

use std::io::Read;

use avfs_request::CacheMode;
use avfs_vault::VaultError;
use avfs_vault::capture::LeftOut;
use avfs_vault::memo::Memo;
use avfs_vault::stored_output::is_full;

use super::key::set_base;
use super::reason;
use super::reason::Ending;
use crate::conclude::Before;
use crate::launcher::Exit;
use crate::output::Output;
use crate::proxy::{Ended, ProxyRuntime};
use crate::run::Run;

impl ProxyRuntime<'_> {
    /// The result, if it was requested to be cached and can be; otherwise records the reason in the run.
    /// `bytes_written` is the size of the changes, which the vault needs room for too.
    pub(crate) fn memo(
        &self,
        run: &mut Run,
        ended: &Ended<'_>,
        before: Option<&Before>,
        left_out: &[LeftOut],
        violated: bool,
        bytes_written: u64,
    ) -> avfs_vault::Result<Option<Memo>> {
        let Some(mut cache) = run.cache.take() else { return Ok(None) };
        if cache.mode != CacheMode::Write {
            run.cache = Some(cache);
            return Ok(None);
        }
        let completion = &ended.completion;
        cache.not_remembered.extend(reason::of_asking(&run.request));
        cache.not_remembered.extend(reason::of_ending(&Ending { run, completion, left_out, violated }));
        let length = |output: &Option<Output>| output.as_ref().map_or(0, Output::length);
        let lengths = [length(&completion.stdout), length(&completion.stderr)];
        if is_full(&*self.site.vault.read()?, lengths, bytes_written)? {
            cache.not_remembered.push(reason::no_room());
        }
        let outputs = completion.stdout.as_ref().zip(completion.stderr.as_ref());
        let memo = match (&run.memo, before, completion.exit, outputs) {
            (Some(parts), Some(before), Exit::Code(code), Some((stdout, stderr)))
                if cache.not_remembered.is_empty() =>
            {
                let mut parts = parts.clone();
                set_base(&mut parts, &before.root.content);
                let expires_at = self.site.vault.now().plus_seconds(self.site.memo.expires_seconds);
                let (mut stdout, mut stderr) = (stdout.reader(), stderr.reader());
                let sources: [&mut (dyn Read + Send); 2] = [&mut stdout, &mut stderr];
                match Memo::new(self.site.vault, parts, code, sources, expires_at) {
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
        run.cache = Some(cache);
        Ok(memo)
    }
}
