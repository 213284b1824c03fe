//! The state of one run while it is executed, and its notes.

use std::time::Instant;

use avfs_policy::ExecutionDecision;
use avfs_request::ExecutionRequest;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{ApprovalId, ForkName, RunId};
use avfs_vault::backend::VersionRecord;
use avfs_vault::import::Scanned;
use avfs_vault::layers::HostBase;
use avfs_vault::memo::MemoParts;
use avfs_vault::run::AuditTexts;

use crate::git::repository::CommonDir;
use crate::result::{Note, Phases};
use crate::result_cache::CacheUse;
use crate::view::ShownAs;
use crate::workspace_root::Files;

/// Maximum characters of a command in the message of its version.
const MESSAGE_CHARS: usize = 200;

#[derive(Clone, Debug)]
pub struct Run {
    pub id: RunId,
    /// The request, adjusted for the features that the host has refused so far.
    pub request: ExecutionRequest,
    pub decision: ExecutionDecision,
    /// The approval that permitted it.
    pub approval: Option<ApprovalId>,
    /// Its use of the cache, if requested.
    pub cache: Option<CacheUse>,
    /// The cache key of its result, and the version it starts from: known early if the cache was consulted.
    pub memo: Option<MemoParts>,
    pub base: Option<VersionRecord>,
    /// The directory as found by its import before this run.
    pub found: Option<HostBase>,
    /// The fork that will get its changes.
    pub fork: ForkName,
    /// The parent of a fork created for the run.
    pub parent: ForkName,
    pub message: String,
    pub begun: Instant,
    pub started_at: Timestamp,
    pub notes: Vec<Note>,
    pub degraded: Vec<String>,
    pub shown_as: ShownAs,
    pub phases: Phases,
    /// The repository's common directory, if the workspace is a linked worktree.
    pub common_dir: Option<CommonDir>,
    /// Whether the files of the directory can be mapped in its sandbox.
    pub files: Files,
}

impl Run {
    pub fn note(&mut self, code: &'static str, text: String) {
        self.notes.push(Note::new(code, text));
    }

    pub fn has_note(&self, code: &str) -> bool {
        self.notes.iter().any(|note| note.code == code)
    }

    /// Notes the files that an import could not keep.
    pub fn note_import(&mut self, scanned: &Scanned) {
        for trouble in &scanned.troubles {
            self.note("import.trouble", format!("{}: {}", trouble.path, trouble.reason));
        }
        if scanned.mended > 0 {
            let blobs = scanned.mended;
            let text = format!("{blobs} damaged blobs in the vault were stored again");
            let note = Note::new("import.mended", text)
                .with_remedy("check for other damage with", "fsck".to_owned());
            self.notes.push(note);
        }
    }

    pub fn audit_texts(&self) -> OwnedAuditTexts {
        OwnedAuditTexts {
            request: self.message.clone(),
            decision: self.decision.audit_text(),
            violation: None,
            cached_from: self.cache.as_ref().and_then(|cache| cache.from.clone()),
        }
    }
}

/// The texts about a run for the audit log.
#[derive(Clone, Debug)]
pub struct OwnedAuditTexts {
    pub request: String,
    pub decision: String,
    pub violation: Option<String>,
    pub cached_from: Option<RunId>,
}

impl OwnedAuditTexts {
    pub fn as_texts(&self) -> AuditTexts<'_> {
        AuditTexts {
            request: &self.request,
            decision: &self.decision,
            violation: self.violation.as_deref(),
            cached_from: self.cached_from.as_ref(),
        }
    }
}

/// A one-line description of a command for the message of its version, truncated.
pub fn message(command: &str) -> String {
    let mut message: String = command.chars().take(MESSAGE_CHARS).collect();
    if message.len() < command.len() {
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_truncated() {
        assert_eq!(message("make test"), "make test");
        let long = message(&"x".repeat(500));
        assert_eq!(long.chars().count(), MESSAGE_CHARS + 1);
    }
}
