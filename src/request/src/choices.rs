//! What a request can choose, each choice a word.

use avfs_types::ids::ForkName;
use avfs_types::reference::Reference;
use avfs_types::words;

/// The fork a command works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkChoice {
    /// One of its own, made from `from`, else from the present state of the workspace.
    Ephemeral { from: Option<Reference> },
    /// A named one that each run moves on; made from `from` on first use.
    Persistent { name: ForkName, from: Option<Reference> },
}

impl ForkChoice {
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        matches!(self, Self::Ephemeral { .. })
    }

    /// The version that a new fork begins from, where the request names one.
    #[must_use]
    pub fn from(&self) -> Option<&Reference> {
        match self {
            Self::Ephemeral { from } | Self::Persistent { from, .. } => from.as_ref(),
        }
    }
}

words!(
    /// Where a new vault is made.
    VaultPlace, "place of a vault", {
        /// In the directory it is for, as `.avfs/vault.db`.
        Workspace = "workspace",
        /// In the user's data directory, where no tool that cleans the workspace finds it.
        Data = "data",
    }
);

words!(
    /// Whose name commits of the command carry where the repository sets none.
    GitIdentity, "git identity", {
        /// `user.name` and `user.email` of the caller's global git configuration.
        Host = "host",
        None = "none",
    }
);

words!(
    /// What becomes of the changes.
    Retention, "way to keep changes", {
        /// They are kept for somebody to look at.
        Review = "review",
        /// They are written to the host's directory if the command succeeds.
        Apply = "apply",
        /// Nothing is kept but the record.
        Discard = "discard",
    }
);

words!(
    /// Whether the command may write to the workspace.
    Writing, "way to write", {
        Allowed = "allowed",
        Refused = "refused",
    }
);

words!(
    /// What lies beneath an ephemeral run.
    BaseChoice, "base", {
        /// The directory itself where it can, else a copy in the cache.
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
    /// Where what the command writes goes first.
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
    /// When checkpoints are made.
    CheckpointMode, "checkpoint mode", {
        /// Before a run that the rules do not let through as harmless, and after every one that changed something.
        Auto = "auto",
        /// Before and after every run.
        Always = "always",
        Never = "never",
    }
);

words!(
    /// Whether less isolation than asked for is taken where the host refuses a piece.
    Degradation, "degradation", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

words!(
    /// Whether files that hold the value of a secret get into versions.
    SecretsInFiles, "way with secrets in files", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

words!(
    /// Whether remembered results are used.
    CacheMode, "way to use the cache", {
        Off = "off",
        /// One that is there is taken.
        Read = "read",
        /// That, and what is run is remembered.
        Write = "write",
    }
);

words!(
    /// Whether the caller vouches for a run that reaches beyond what its result is remembered by.
    Purity, "purity", {
        Unknown = "unknown",
        /// The network and what is shown of the host make no difference.
        Declared = "declared",
    }
);

words!(
    /// What is done where a person has to say yes first.
    ApprovalMode, "way to be approved", {
        /// The request is refused until somebody has.
        Fail = "fail",
        /// It waits for somebody to do it from elsewhere.
        Wait = "wait",
        /// Whoever sits at the terminal is asked.
        Ask = "ask",
    }
);

words!(
    /// Whether what a command wrote is kept in the vault.
    OutputRetention, "way to keep output", {
        /// It goes with the run.
        Dropped = "dropped",
        /// It is kept.
        Kept = "kept",
    }
);

words!(
    /// What the command has as its home.
    HomeMode, "home", {
        /// An empty one, which goes with the run.
        Private = "private",
        /// One that the fork keeps.
        Persistent = "persistent",
    }
);

words!(
    /// What the command has as /tmp.
    TmpMode, "/tmp", {
        /// An empty one, which goes with the run.
        Private = "private",
        /// One that the fork keeps.
        Kept = "kept",
    }
);

words!(
    /// How much an envelope tells.
    JsonForm, "form of JSON", {
        /// Everything.
        Full = "full",
        /// What fits in a small context.
        Compact = "compact",
    }
);

words!(
    /// How the changes of a run are told.
    ChangeForm, "way to show changes", {
        /// Counts and the first paths.
        Summary = "summary",
        /// The changed paths as a tree.
        Tree = "tree",
        /// Lines that came and went in each file.
        Stat = "stat",
        /// A unified diff.
        Patch = "patch",
    }
);

words!(
    /// Who is on the other side.
    PolicyProfile, "policy profile", {
        /// An agent: network, secrets and ways out of the workspace only by approval.
        Agent = "agent",
        /// A pipeline: nobody is there to be asked.
        Ci = "ci",
    }
);
