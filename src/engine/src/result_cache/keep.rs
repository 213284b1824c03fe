//! Remembers the result of an executed run.

use avfs_request::CacheMode;
use avfs_vault::capture::LeftOut;
use avfs_vault::memo::{Memo, is_full};

use super::key::set_base;
use super::reason;
use super::reason::Ending;
use crate::conclude::Before;
use crate::launcher::Exit;
use crate::proxy::{Ended, ProxyRuntime};
use crate::run::Run;

impl ProxyRuntime<'_> {
    /// The result, if it was requested to be remembered and can be; otherwise records the reason in the run.
    pub(crate) fn memo(
        &self,
        run: &mut Run,
        ended: &Ended<'_>,
        before: Option<&Before>,
        left_out: &[LeftOut],
        violated: bool,
    ) -> avfs_vault::Result<Option<Memo>> {
        let Some(mut cache) = run.cache.take() else { return Ok(None) };
        if cache.mode != CacheMode::Write {
            run.cache = Some(cache);
            return Ok(None);
        }
        let completion = &ended.completion;
        cache.not_remembered.extend(reason::of_asking(&run.request));
        cache.not_remembered.extend(reason::of_ending(&Ending { run, completion, left_out, violated }));
        if is_full(&*self.site.vault.read()?)? {
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
                let (stdout, stderr) = (stdout.bytes(), stderr.bytes());
                Some(Memo::new(parts, code, [&stdout, &stderr], expires_at)?)
            }
            (Some(_) | None, _, Exit::Code(_) | Exit::Signal(_), _) => None,
        };
        run.cache = Some(cache);
        Ok(memo)
    }
}
