//! Converts rows of the journal to items of a list.

use std::collections::BTreeMap;

use serde::Deserialize;

use avfs_request::Retention;
use avfs_request::spec::RunSpec;
use avfs_types::ids::{RunId, VersionId};
use avfs_types::redact::REDACTED;
use avfs_vault::backend::{Reader, RunRecord, RunState, VersionRecord};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{ListExpected, ListItem, ListStart, Recorded, RunOutcome};

use super::selection::Selection;

/// Rows read at a time.
const BATCH_ROWS: usize = 200;

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub items: u64,
    /// Number of runs omitted from the list, by reason: a state, or `unreadable`.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Items without digests, because their versions no longer exist.
    pub without_versions: u64,
    /// Items whose command was recorded with a credential redacted.
    pub redacted: u64,
}

/// Passes the items of a list to `write`, oldest first. No reader is open during the calls.
pub fn export<E: From<VaultError>>(
    vault: &Vault,
    selection: &Selection,
    mut write: impl FnMut(&ListItem) -> Result<(), E>,
) -> Result<Exported, E> {
    let (mut exported, mut after) = (Exported::default(), 0);
    loop {
        let runs = selection.after(vault, after, BATCH_ROWS)?;
        let Some(last) = runs.last() else { return Ok(exported) };
        after = last.seq;
        let mut items = Vec::with_capacity(runs.len());
        {
            let reader = vault.read()?;
            for run in &runs {
                match replayable(run) {
                    Ok(request) => items.push(item(&*reader, run, request, selection)?),
                    Err(why) => *exported.left_out.entry(why).or_default() += 1,
                }
            }
        }
        for item in &items {
            write(item)?;
            exported.items += 1;
            exported.without_versions += u64::from(is_without_versions(item));
            exported.redacted += u64::from(is_redacted(item));
        }
    }
}

/// Number of runs in the selection.
pub fn count(vault: &Vault, selection: &Selection) -> Result<u64, VaultError> {
    let (mut count, mut after) = (0, 0);
    loop {
        let runs = selection.after(vault, after, BATCH_ROWS)?;
        let Some(last) = runs.last() else { return Ok(count) };
        after = last.seq;
        count += runs.len() as u64;
    }
}

/// The request of a run that can be repeated; otherwise, the reason it cannot.
fn replayable(run: &RunRecord) -> Result<RunSpec, &'static str> {
    if run.state != RunState::Completed {
        return Err(run.state.word());
    }
    let request = RunSpec::parse(run.request.as_bytes()).map_err(|_| "unreadable")?;
    request.check().map_err(|_| "unreadable")?;
    Ok(request)
}

fn item(
    reader: &dyn Reader,
    run: &RunRecord,
    request: RunSpec,
    selection: &Selection,
) -> Result<ListItem, VaultError> {
    let version = |id: Option<VersionId>| {
        Ok::<_, VaultError>(match id {
            Some(id) => reader.version(&id)?,
            None => None,
        })
    };
    let before = version(run.version_before)?;
    let after = match run.version_after {
        Some(_) => version(run.version_after)?,
        // The run changed nothing, unless its changes were dropped.
        None if is_dropped(run, &request) => None,
        None => before.clone(),
    };
    let needs = match before.as_ref().and_then(|before| before.run.as_deref()) {
        Some(maker) => needed(reader, maker, selection)?,
        None => None,
    };
    Ok(ListItem {
        id: run.id.to_string(),
        needs: needs.into_iter().map(|id| id.to_string()).collect(),
        start: before.as_ref().map(|before| ListStart {
            version: Some(before.id.to_hex()),
            tree: Some(before.root.to_hex()),
            content: Some(before.content.to_hex()),
        }),
        expected: Some(expected(run, after.as_ref())),
        run: Some(run.id.to_string()),
        request: portable(request),
        ..ListItem::default()
    })
}

/// The run that created a version, if it is in the list.
fn needed(reader: &dyn Reader, maker: &str, selection: &Selection) -> Result<Option<RunId>, VaultError> {
    let Ok(id) = RunId::parse(maker) else { return Ok(None) };
    let maker = reader.run(&id)?;
    Ok(maker.filter(|maker| selection.holds(maker) && replayable(maker).is_ok()).map(|maker| maker.id))
}

/// True if the changes of a run without a version may have been dropped.
fn is_dropped(run: &RunRecord, request: &RunSpec) -> bool {
    run.discarded_at.is_some() || request.retention == Some(Retention::Discard)
}

fn expected(run: &RunRecord, after: Option<&VersionRecord>) -> ListExpected {
    let outcome = Recorded::<RunOutcome>::parse(&run.result);
    let outputs = outcome.result().filter(|_| knows_outputs(&run.request)).cloned().unwrap_or_default();
    // The digest of truncated output depends on the limit.
    let whole = |digest: Option<String>, truncated: bool| digest.filter(|_| !truncated);
    let number = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok());
    ListExpected {
        exit_code: number(run.exit_code),
        signal: number(run.signal),
        stdout: whole(outputs.stdout_digest, outputs.stdout_truncated),
        stderr: whole(outputs.stderr_digest, outputs.stderr_truncated),
        tree: after.map(|after| after.root.to_hex()),
        content: after.map(|after| after.content.to_hex()),
        version: after.map(|after| after.id.to_hex()),
    }
}

/// False for rows written before requests recorded `env`: where output was streamed, they have the digest of
/// empty output.
fn knows_outputs(request: &str) -> bool {
    #[derive(Deserialize)]
    struct Since {
        env: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Since>(request).is_ok_and(|since| since.env.is_some())
}

/// A request without the options that belong to one vault, fork or host: the user who runs the list chooses those.
fn portable(request: RunSpec) -> RunSpec {
    RunSpec {
        schema_version: None,
        vault: None,
        fork: None,
        from: None,
        retention: None,
        base: None,
        scratch: None,
        backend: None,
        cache_dirs: Vec::new(),
        ..request
    }
}

fn is_without_versions(item: &ListItem) -> bool {
    item.start.is_none() || item.expected.as_ref().is_none_or(|expected| expected.tree.is_none())
}

fn is_redacted(item: &ListItem) -> bool {
    item.request.command.to_string().contains(REDACTED)
}
