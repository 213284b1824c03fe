//! Choices of a request, each written as one word.

use avfs_types::ids::ForkName;
use avfs_types::reference::Reference;
use avfs_types::words;

/// The fork that a command runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkChoice {
    /// A new fork for this run, created from `from`, or from the current state of the workspace.
    Ephemeral { from: Option<Reference> },
    /// A persistent fork that each run advances; created from `from` on first use.
    Persistent { name: ForkName, from: Option<Reference> },
}

impl ForkChoice {
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        matches!(self, Self::Ephemeral { .. })
    }

    /// The version that a new fork starts from, if the request names one.
    #[must_use]
    pub fn from(&self) -> Option<&Reference> {
        match self {
            Self::Ephemeral { from } | Self::Persistent { from, .. } => from.as_ref(),
        }
    }
}

words!(
    /// Where a new vault is created.
    VaultPlace, "vault place", {
        /// In the directory that it is for, as `.avfs/vault.db`.
        Workspace = "workspace",
        /// In the user's data directory, where tools that clean the workspace do not find it.
        Data = "data",
    }
);

words!(
    /// The git identity of commits if the repository sets none.
    GitIdentity, "git identity", {
        /// `user.name` and `user.email` of the caller's global git configuration.
        Host = "host",
        None = "none",
    }
);

words!(
    /// What to do with the changes.
    Retention, "retention", {
        /// Keep them for review.
        Review = "review",
        /// Write them to the host directory if the command succeeds.
        Apply = "apply",
        /// Keep only the record of the run.
        Discard = "discard",
    }
);

words!(
    /// Whether the command may write to the workspace.
    Writing, "write mode", {
        Allowed = "allowed",
        Refused = "refused",
    }
);

words!(
    /// The base of an ephemeral run.
    BaseChoice, "base", {
        /// The directory itself if possible, else a copy in the cache.
        Auto = "auto",
        /// The directory itself, read-only.
        Live = "live",
        /// A copy in the cache.
        Cached = "cached",
        /// The directory itself, without a scan: only the paths that the run changes are recorded.
        Touched = "touched",
    }
);

words!(
    /// Where the changes of a run are held while it runs.
    ScratchChoice, "scratch", {
        Auto = "auto",
        Memory = "memory",
        Disk = "disk",
    }
);

words!(
    /// How the workspace is made writable.
    BackendChoice, "backend", {
        Auto = "auto",
        Overlay = "overlay",
        Copy = "copy",
    }
);

words!(
    /// When to save checkpoints.
    CheckpointMode, "checkpoint mode", {
        /// Before a run that the rules do not classify as read-only, and after every run that changed files.
        Auto = "auto",
        /// Before and after every run.
        Always = "always",
        Never = "never",
    }
);

words!(
    /// Whether to continue with less isolation than requested when the host refuses a feature.
    Degradation, "degradation mode", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

words!(
    /// Whether files that contain the value of a secret become part of versions.
    SecretsInFiles, "mode for secrets in files", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

words!(
    /// Whether cached results are used.
    CacheMode, "cache mode", {
        Off = "off",
        /// Take a matching result.
        Read = "read",
        /// Take a matching result, and cache new results.
        Write = "write",
    }
);

words!(
    /// Whether the caller asserts that inputs outside of the cache key do not affect the result.
    Purity, "purity", {
        Unknown = "unknown",
        /// The network and visible host paths do not affect the result.
        Declared = "declared",
    }
);

words!(
    /// What to do when a person has to approve the request first.
    ApprovalMode, "approval mode", {
        /// Refuse the request until it is approved.
        Fail = "fail",
        /// Wait for an answer from elsewhere.
        Wait = "wait",
        /// Ask the user at the terminal.
        Ask = "ask",
    }
);

words!(
    /// Whether the output of a command is kept in the vault.
    OutputRetention, "output retention", {
        /// It is dropped after the run.
        Dropped = "dropped",
        /// It is kept.
        Kept = "kept",
    }
);

words!(
    /// The home directory of the command.
    HomeMode, "home mode", {
        /// An empty directory, deleted after the run.
        Private = "private",
        /// A directory that the fork keeps.
        Persistent = "persistent",
    }
);

words!(
    /// The `/tmp` of the command.
    TmpMode, "/tmp mode", {
        /// An empty directory, deleted after the run.
        Private = "private",
        /// A directory that the fork keeps.
        Kept = "kept",
    }
);

words!(
    /// How much an envelope contains.
    JsonForm, "JSON form", {
        /// Everything.
        Full = "full",
        /// A summary that fits in a small context.
        Compact = "compact",
    }
);

words!(
    /// How to show the changes of a run.
    ChangeForm, "form of changes", {
        /// Counts and the first paths.
        Summary = "summary",
        /// The changed paths as a tree.
        Tree = "tree",
        /// Added and deleted lines of each file.
        Stat = "stat",
        /// A unified diff.
        Patch = "patch",
    }
);

words!(
    /// The kind of caller.
    PolicyProfile, "policy profile", {
        /// An agent: network, secrets and access beyond the workspace require approval.
        Agent = "agent",
        /// A pipeline: no person can be asked.
        Ci = "ci",
    }
);
