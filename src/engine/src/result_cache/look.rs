//! Looks up the cached result for a request. Writes and runs nothing.

use avfs_policy::{Action, Policy};
use avfs_request::ExecutionRequest;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{ContentId, MemoKey, RunId, TreeId, VersionId};
use avfs_vault::backend::{MemoRecord, Reader};
use avfs_vault::memo::{COMMAND_PART, Lost, MemoParts};
use avfs_vault::{memo, require_version};

use super::key::{Around, parts, set_base};
use super::reason::Reason;
use super::{MemoError, reason};
use crate::permission::decide;
use crate::run::{Site, capped};
use crate::workspace_root::{Places, check_request};
use crate::workspace_service::WorkspaceService;

/// Maximum results of a command to search for the most similar one.
const NEAR_MAX: usize = 20;

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Hit(Box<CachedResult>),
    /// Why no result was found.
    Miss(Vec<Reason>),
}

/// A result that would be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedResult {
    pub key: MemoKey,
    pub run: RunId,
    pub exit_code: i32,
    /// Plain BLAKE3 of the output of the command.
    pub stdout_digest: [u8; 32],
    pub stderr_digest: [u8; 32],
    /// The files after the run, with the times of the cached run and without times. If the run changed
    /// nothing, these are the files that the request starts from.
    pub tree: TreeId,
    pub content: ContentId,
    /// The version with these files; `None` if the run changed nothing.
    pub version: Option<VersionId>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Looks up the cached result of a request. A request that the policy does not allow without an approval
/// has none.
pub fn look(site: &Site<'_>, policy: &Policy, request: &ExecutionRequest) -> Result<Look, MemoError> {
    check_request(request, site.bound.as_deref())?;
    let places = Places::find(request, site.bound.clone(), &site.cwd)?;
    let refused = reason::of_request(request, places.common_dir().as_ref());
    if !refused.is_empty() {
        return Ok(Look::Miss(refused));
    }
    let decision = decide(policy, request, &places, site.home.as_deref());
    match decision.action {
        Action::Allow | Action::AllowWithCheckpoint => {}
        Action::RequireApproval | Action::Deny => return Ok(Look::Miss(vec![reason::refused(&decision)])),
    }
    let request = &capped(request, &decision);
    let mut parts = parts_of(site, request, &places)?;
    let (tree, content) = WorkspaceService { site }.base_now(request, &places)?;
    set_base(&mut parts, &content);
    let reader = site.vault.read()?;
    Ok(match find(&*reader, &parts, site.vault.now())? {
        Search::Found(memo) => {
            let (tree, content) = match memo.version_after {
                Some(after) => {
                    let after = require_version(&*reader, &after)?;
                    (after.root, after.content)
                }
                None => (tree, content),
            };
            Look::Hit(Box::new(CachedResult {
                key: memo.key,
                exit_code: memo.exit_code,
                stdout_digest: memo.stdout_digest,
                stderr_digest: memo.stderr_digest,
                tree,
                content,
                version: memo.version_after,
                created_at: memo.created_at,
                expires_at: memo.expires_at,
                run: memo.run,
            }))
        }
        Search::Lost(memo, why) => Look::Miss(vec![reason::lost(&memo, why)]),
        Search::Nothing(reasons) => Look::Miss(reasons),
    })
}

/// Every part except the base.
pub(super) fn parts_of(
    site: &Site<'_>,
    request: &ExecutionRequest,
    places: &Places,
) -> Result<MemoParts, MemoError> {
    let around = Around {
        places,
        home: site.home.as_deref(),
        exclude: &site.exclude,
        umask: site.memo.umask,
        machine: site.memo.machine,
    };
    parts(request, &around)
}

/// The result of a search for a key.
pub(super) enum Search {
    Found(MemoRecord),
    /// The result is no longer available.
    Lost(MemoRecord, Lost),
    /// Not found, with the differences from the most similar result.
    Nothing(Vec<Reason>),
}

pub(super) fn find(reader: &dyn Reader, parts: &MemoParts, now: Timestamp) -> avfs_vault::Result<Search> {
    if let Some(memo) = reader.memo(&parts.key())? {
        return Ok(match memo::lost(reader, &memo, now)? {
            Some(why) => Search::Lost(memo, why),
            None => Search::Found(memo),
        });
    }
    let near = match parts.get(COMMAND_PART) {
        Some(command) => reader.memos_of_command(&command, NEAR_MAX)?,
        None => Vec::new(),
    };
    let differences = near.iter().map(|memo| reason::differences(memo, parts));
    // Results are sorted newest first, and `min_by_key` returns the first of equals.
    Ok(Search::Nothing(differences.min_by_key(Vec::len).unwrap_or_else(|| vec![reason::unknown()])))
}
