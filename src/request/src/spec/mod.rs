//! The options of a run, declared once for the command line, JSON and the JSON schema.
//!
//! [`RunSpec`] is a request with every field optional: `avfs-run` parses it from its options, `--request` and lists
//! parse it from JSON. It resolves to an [`ExecutionRequest`](crate::ExecutionRequest), which is complete and checked.
//! [`RequestObject`] is the JSON form of that request in envelopes and the journal; it parses as a `RunSpec` again.

mod layer;
mod object;
mod read;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use avfs_types::ids::{ApprovalPrefix, ForkName};
use avfs_types::reference::Reference;
use avfs_types::{Limit, Size, Word, amount_values, text_values};

use crate::choices::{
    ApprovalMode, BackendChoice, BaseChoice, CacheMode, CheckpointMode, GitIdentity, HomeMode, PolicyProfile,
    Retention, ScratchChoice,
};
use crate::confinement::{LandlockMode, SeccompProfile};
use crate::extra::Profile;
use crate::limits::CpuLimit;
use crate::net::NetMode;
use crate::preset::Preset;
use crate::reproducible::FixedClock;
use crate::timeout::ExecutionTimeout;

pub(crate) use object::brought;
pub use read::{REQUEST_BYTES_MAX, SCHEMA_VERSION, SpecError, read_json};

layer::options! {
/// A request as JSON, and the equivalent command line options.
///
/// Unknown keys are rejected; a missing key has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RequestFile"))]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// The version of this format; 1 by default.
    [skip]
    pub schema_version: Option<u32>,
    /// A list of words, or a command line for /bin/sh -c.
    [skip]
    pub command: Value,
    /// `argv` or `shell`; by default it follows from the type of `command`.
    [skip]
    pub command_mode: Option<String>,
    /// The words of the command in Base64, if they are not UTF-8; overrides `command`.
    [skip]
    pub command_base64: Option<Vec<String>>,
    /// Run LINE with /bin/sh -c instead of COMMAND
    #[serde(skip)]
    [long, value_name = "LINE"]
    pub shell: Option<OsString> => "matched by the rules",
    /// The command and its arguments
    #[serde(skip)]
    [id = "command", trailing_var_arg = true, value_name = "COMMAND"]
    pub words: Vec<OsString> => "matched by the rules",

    /// Use this vault: a path, or the name of a vault in $XDG_DATA_HOME/avfs/vaults [default: $AVFS_VAULT, else the
    /// nearest .avfs/vault.db, else a new one in .avfs of the git repository or the working directory]
    [long, value_name = "PATH|NAME", help_heading = "Workspace"]
    pub vault: Option<PathBuf> => "profile.agent.vault caps.vault profile.agent.new_vault caps.new_vault",
    /// Ignored: it follows from `vault`.
    [skip]
    pub vault_named: bool,
    /// Run on this fork and advance it; created on first use [default: $AVFS_FORK, else a new fork for this run]
    [long, value_name = "NAME", help_heading = "Workspace"]
    pub fork: Option<ForkName> => "matched by the rules",
    /// Start from this version (only when the run creates a fork) [default: the current state of the directory]
    [long, value_name = "REF", help_heading = "Workspace"]
    pub from: Option<Reference> => "any version of the vault",
    /// Mount the workspace at DIR in the sandbox [default: its path on the host]
    [long, value_name = "DIR", help_heading = "Workspace"]
    pub at: Option<PathBuf> => "profile.agent.at caps.at",
    /// Set the working directory, relative to the workspace root [default: the same as on the host]
    [long, value_name = "DIR", help_heading = "Workspace"]
    pub cwd: Option<PathBuf> => "a directory in the sandbox",
    /// Select the base of a run without --fork. live: the directory itself, read-only; cached: a copy in the cache;
    /// touched: the directory itself without a scan, recording only the paths that the run changes; auto: live if
    /// possible, else cached [default: auto] [possible values: auto, live, cached, touched]
    [long, value_name = "BASE", help_heading = "Workspace"]
    pub base: Option<BaseChoice> => "the same files by another method",

    /// Write the changes to the host directory if the command exits with status 0
    #[serde(skip)]
    [long, conflicts_with_all = ["discard", "readonly"], help_heading = "Changes"]
    pub apply: bool => "profile.agent.apply caps.apply",
    /// Drop the changes; keep only the record of the run
    #[serde(skip)]
    [long, help_heading = "Changes"]
    pub discard: bool => "keeps less",
    /// `review`, `apply` or `discard`.
    [skip]
    pub retention: Option<Retention>,
    /// Make the workspace read-only. The directory is imported only for --fork, --cache or a cached base
    [long, help_heading = "Changes"]
    pub readonly: bool => "grants less",
    /// Choose when to save checkpoints of a run that changes files. auto: after the run, and before it unless the
    /// decision of the policy is allow; always: before and after; never: no checkpoints [default: auto]
    /// [possible values: auto, always, never]
    #[serde(rename = "checkpoint_mode")]
    [long, value_name = "WHEN", help_heading = "Changes"]
    pub checkpoint: Option<CheckpointMode> => "which versions are pinned",

    /// Use cached results. read: take a matching result instead of running the command; write: like read, and
    /// cache new results. Standard input is empty in both modes. avfs cache explain shows why a result was found or
    /// not [default: off] [possible values: off, read, write]
    #[serde(rename = "cache_mode")]
    [long, value_name = "HOW", help_heading = "Cache"]
    pub cache: Option<CacheMode> => "a cached result of the same request",
    /// Ignored: cache directories come from the settings.
    #[serde(rename = "cache")]
    [skip]
    pub cache_dirs: Vec<String>,
    /// Declare a host file or directory that the result depends on; can be repeated. Its content becomes part of the
    /// cache key
    #[serde(rename = "inputs")]
    [long, value_name = "PATH", help_heading = "Cache"]
    pub input: Vec<PathBuf> => "profile.agent.input caps.input",
    /// Cache the result even if the command may use the network or visible host paths; you assert that they do not
    /// affect the result
    [long, help_heading = "Cache"]
    pub pure: bool => "whether a result is cached",

    /// Also apply this policy profile. agent: network, secrets, --rw and reduced isolation require approval; ci: deny
    /// instead of asking for approval [possible values: agent, ci]
    [long, value_name = "PROFILE", help_heading = "Policy"]
    pub policy: Vec<PolicyProfile> => "can only be stricter",
    /// Choose what to do when approval is required. fail: exit with status 120; wait: wait for an answer given with
    /// avfs approvals; ask: prompt on the terminal [default: ask on a terminal without --json, else fail] [possible
    /// values: fail, wait, ask]
    [long, value_name = "HOW", help_heading = "Policy"]
    pub approval: Option<ApprovalMode> => "how to wait for the answer",
    /// Use this approval if one is required; exit with status 122 if it is not valid for this exact request
    #[serde(rename = "approval_id")]
    [long, value_name = "ID", help_heading = "Policy"]
    pub approved: Option<ApprovalPrefix> => "names an approval, which is checked",

    /// Choose the network. none: loopback only; host: the host's network; allow: only the listed places, through a
    /// proxy that programs find in HTTP_PROXY and related variables. A place is DOMAIN, *.DOMAIN (subdomains only) or
    /// ADDRESS[/PREFIX], with :PORT, or without it for ports 80 and 443; private addresses must be listed explicitly
    /// [default: none] [possible values: none, host, allow=PLACE,...]
    [long, value_name = "NET", help_heading = "Sandbox"]
    pub net: Option<NetMode> => "profile.agent.net caps.net",
    /// Add caches that persist between runs, package hosts and variables for the tools of a language; the hosts are
    /// added to the list of --net, except with --net none [possible values: node, python, rust, go, java]
    [long, value_name = "PRESET", help_heading = "Sandbox"]
    pub preset: Vec<Preset> => "profile.agent.preset caps.preset profile.agent.net caps.net profile.agent.secrets caps.secrets",
    /// Choose how much of the host is visible. strict: the system and toolchains; host: everything the caller can read,
    /// read-only [default: strict] [possible values: strict, host]
    [long, value_name = "PROFILE", help_heading = "Sandbox"]
    pub profile: Option<Profile> => "profile.agent.profile caps.profile",
    /// Make a host path visible, read-only; can be repeated
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub ro: Vec<PathBuf> => "profile.agent.ro caps.ro",
    /// Ignored: every path in `ro` counts as named by the request.
    [skip]
    pub ro_named: Vec<PathBuf>,
    /// Make a host path visible and writable; can be repeated
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub rw: Vec<PathBuf> => "profile.agent.rw caps.rw",
    /// Ignored: symlinks are resolved again.
    [skip]
    pub links: BTreeMap<String, PathBuf>,
    /// Mount an empty tmpfs at PATH; can be repeated
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub tmpfs: Vec<PathBuf> => "profile.agent.cover caps.cover",
    /// Hide PATH from the command; can be repeated
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub hide: Vec<PathBuf> => "profile.agent.cover caps.cover",
    /// Choose the home directory of the command. private: empty for each run; persistent: kept between runs of the
    /// fork, needs --fork [default: private] [possible values: private, persistent]
    [long, value_name = "HOME", help_heading = "Sandbox"]
    pub home: Option<HomeMode> => "profile.agent.persist caps.persist",
    /// Keep /tmp between runs of the fork; needs --fork
    [long, help_heading = "Sandbox"]
    pub keep_tmp: bool => "profile.agent.persist caps.persist",
    /// Variables to set, with their values.
    [skip]
    pub env: BTreeMap<String, String>,
    /// Names of variables to pass if the caller has them, except variables with a fixed value.
    [skip]
    pub environment: Vec<String>,
    /// Pass a variable, or set it; can be repeated. NAME* passes all variables with this prefix except those that look
    /// like credentials
    #[serde(skip)]
    [id = "env", long = "env", value_name = "NAME[*]|NAME=VALUE", help_heading = "Sandbox"]
    pub env_words: Vec<OsString> => "profile.agent.secrets caps.secrets",
    /// Set variables from a file of NAME=VALUE lines; can be repeated
    #[serde(skip)]
    [long, value_name = "FILE", help_heading = "Sandbox"]
    pub env_file: Vec<PathBuf> => "profile.agent.env_file caps.env_file",
    /// Ignored: an envelope only names these files, because their values are never stored.
    [skip]
    pub env_files: Vec<PathBuf>,
    /// Pass the variable NAME as a secret; can be repeated. NAME=file: pass it as the file /run/secrets/NAME instead;
    /// NAME=PATH: pass a host file that way; the variable NAME_FILE holds the path of the file. Secrets are never
    /// stored, are removed from output captured by --json (not from streamed output), and files that contain one are
    /// not kept
    #[serde(skip)]
    [long, value_name = "NAME[=file|=PATH]", help_heading = "Sandbox"]
    pub secret: Vec<OsString> => "profile.agent.secrets caps.secrets",
    /// Names of variables to pass as secrets, which are never stored.
    [skip]
    pub secrets: Vec<String>,
    /// Secrets to pass as files: `NAME=file`, or `NAME=PATH`.
    [skip]
    pub secret_files: Vec<String>,
    /// Keep files that contain the value of a secret
    [long, help_heading = "Sandbox"]
    pub allow_secret_files: bool => "stores a value that the command already has",
    /// Choose the git identity of the command. host: user.name and user.email of the host's global git configuration,
    /// and nothing else from it; always none with --reproducible or --cache [default: host] [possible values: host,
    /// none]
    [long, value_name = "WHOSE", help_heading = "Sandbox"]
    pub git_identity: Option<GitIdentity> => "the author of commits",
    /// Choose the seccomp filter; avfs doctor --explain-denials lists the refused system calls [default: default]
    /// [possible values: default, strict, off]
    [long, value_name = "PROFILE", help_heading = "Sandbox"]
    pub seccomp: Option<SeccompProfile> => "profile.agent.confinement caps.seccomp",
    /// Also enforce file access with Landlock. auto: if the kernel supports it; required: fail if it does not [default:
    /// auto] [possible values: auto, required, off]
    [long, value_name = "MODE", help_heading = "Sandbox"]
    pub landlock: Option<LandlockMode> => "profile.agent.confinement caps.landlock",
    /// Allow the command to create user namespaces, as nested sandboxes do
    [long, help_heading = "Sandbox"]
    pub allow_userns: bool => "profile.agent.confinement caps.userns",
    /// Hold the changes of the run in memory or on disk. auto: in memory if it has enough free space, else on disk
    /// [default: auto] [possible values: auto, memory, disk]
    [long, value_name = "SCRATCH", help_heading = "Sandbox"]
    pub scratch: Option<ScratchChoice> => "where changes are held",
    /// Make the workspace writable with an overlay or a copy. auto: an overlay, or a copy if the host refuses one
    /// [default: auto] [possible values: auto, overlay, copy]
    [long, value_name = "BACKEND", help_heading = "Sandbox"]
    pub backend: Option<BackendChoice> => "the same files by another method",
    /// Make the run reproducible: fixed host name, umask, environment (from the caller only PATH, HOME and variables of
    /// --env) and clock (--clock-fixed). The order of directory entries, process ids, addresses and the number of
    /// processors are not fixed
    [long, help_heading = "Sandbox"]
    pub reproducible: bool => "grants less",
    /// Freeze the clock at TIME (2026-01-31T12:00:00Z or @SECONDS). Sets SOURCE_DATE_EPOCH, the times of all files
    /// that the command writes and, if the host has libfaketime, the time that programs see [default:
    /// 1980-01-01T00:00:00Z]
    [
        long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "@315532800",
        help_heading = "Sandbox"
    ]
    pub clock_fixed: Option<FixedClock> => "a time",
    /// Continue with less isolation if the host refuses a feature, and report it
    [long, help_heading = "Sandbox"]
    pub allow_degraded: bool => "profile.agent.degraded caps.degraded",

    /// Limit the run time of the command: 90s, 10m, 2h, or none [default: 300s; none on a terminal]
    [long, value_name = "TIME", help_heading = "Limits"]
    pub timeout: Option<ExecutionTimeout> => "caps.timeout",
    /// The timeout in milliseconds; null for no timeout, absent for the default.
    #[serde(deserialize_with = "read::even_null", skip_serializing_if = "Option::is_none")]
    [skip]
    pub timeout_ms: Option<Option<u64>>,
    /// Wait this long after SIGTERM before sending SIGKILL [default: 5s]
    [long, value_name = "TIME", help_heading = "Limits"]
    pub grace: Option<ExecutionTimeout> => "caps.timeout",
    /// The time between SIGTERM and SIGKILL in milliseconds.
    [skip]
    pub grace_ms: Option<u64>,
    /// Limit the memory of all processes together: 512MiB, 2GiB, or none [default: none]
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub memory: Option<Limit> => "caps.memory",
    /// Limit the number of processors: 2, 0.5, or none; fractions need control groups [default: none]
    [long, value_name = "N", help_heading = "Limits"]
    pub cpus: Option<CpuLimit> => "caps.cpus",
    /// Limit the number of processes and threads: 100, or none [default: none]
    [long, value_name = "N", help_heading = "Limits"]
    pub pids: Option<Limit> => "caps.pids",
    /// Limit the bytes written to the workspace, and to each tmpfs such as /tmp: 500MiB, 2GiB, or none. Writes to --rw
    /// paths and caches are not counted [default: none]
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub disk: Option<Limit> => "caps.disk",
    /// Limit the number of files created or deleted in the workspace: 10000, or none. Directories and links count
    /// [default: none]
    [long, value_name = "N", help_heading = "Limits"]
    pub files: Option<Limit> => "caps.files",
    /// Limit the size of each file: 100MiB, or none. A larger file in the workspace cannot be modified [default: none]
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub file_size: Option<Limit> => "caps.file_size",
    /// Store the output of the command in the vault, as long as its changes are kept; avfs runs show --output prints
    /// it. Values of --secret are removed
    [long, help_heading = "Changes"]
    pub keep_output: bool => "stores output that the caller sees anyway",
    /// Keep at most this much of each stream with --json or --keep-output, half from the start and half from the end
    /// [default: 10MiB]
    #[serde(skip)]
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub output_max: Option<Size> => "how much of the output is kept",
}
}

// The command of a request: its words, or a line for a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CommandText {
    Argv(Vec<String>),
    Shell(String),
}

// The complete request of a run, in envelopes and in the journal. A key that an earlier version did not write has its
// default, so that a recorded request can be run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct RequestObject {
    pub command: CommandText,
    pub command_mode: Word,
    /// The words of the command in Base64, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_base64: Option<Vec<String>>,
    pub vault: Option<String>,
    /// Whether the request names a vault other than the one that would be found.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vault_named: bool,
    /// Null for an ephemeral fork.
    pub fork: Option<String>,
    /// The version that a new fork starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub cwd: Option<String>,
    pub at: Option<String>,
    pub readonly: bool,
    pub timeout_ms: Option<u64>,
    pub grace_ms: u64,
    pub checkpoint_mode: Word,
    /// `none`, `host`, or `allow=` and a list of places.
    pub net: String,
    pub retention: Word,
    pub base: Word,
    pub scratch: Word,
    pub backend: Word,
    pub profile: Word,
    /// `none` if the request asks not to pass the caller's git identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_identity: Option<Word>,
    /// Whether to continue with less isolation than requested when the host refuses a feature.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
    /// Host paths that are visible in addition to the profile, read-only.
    pub ro: Vec<String>,
    pub rw: Vec<String>,
    /// The presets that the request names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preset: Vec<Word>,
    /// Symlinks in `ro` and `rw`, with their targets: the policy judges the target, and the target is mounted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, String>,
    /// The paths in `ro` that the request names, resolved; the others come from the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ro_named: Vec<String>,
    pub tmpfs: Vec<String>,
    pub hide: Vec<String>,
    /// `persistent` if the fork keeps the home directory of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<Word>,
    /// Whether the fork keeps /tmp.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_tmp: bool,
    /// Directories that persist between runs.
    pub cache: Vec<String>,
    /// Variables that the request sets, with their values, except those that look like credentials.
    pub env: BTreeMap<String, String>,
    /// The files that set more variables, as resolved paths; their values are not stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_files: Vec<String>,
    /// Whether the run is reproducible.
    pub reproducible: bool,
    /// The time at which the clock is frozen.
    pub clock_fixed: Option<String>,
    /// Names of the variables passed to the command; never their values.
    pub environment: Vec<String>,
    /// Names of the variables passed as secrets, which are never stored.
    pub secrets: Vec<String>,
    /// The secrets passed as files: a name, or `NAME=PATH` for a host file.
    pub secret_files: Vec<String>,
    /// Whether files that contain the value of a secret are kept.
    pub allow_secret_files: bool,
    /// The memory limit in bytes. This and the other limits are null for no limit.
    pub memory: Option<u64>,
    /// The number of processors, such as `1.5`.
    pub cpus: Option<String>,
    pub pids: Option<u64>,
    pub disk: Option<u64>,
    pub files: Option<u64>,
    pub file_size: Option<u64>,
    /// `default`, `strict` or `off`.
    pub seccomp: Word,
    /// `auto`, `required` or `off`.
    pub landlock: Word,
    pub allow_userns: bool,
    /// Policy profiles that the request asks for.
    pub policy: Vec<Word>,
    /// `off`, `read` or `write`: whether cached results are used.
    pub cache_mode: Word,
    /// Host paths that the result depends on.
    pub inputs: Vec<String>,
    /// Whether the output of the command is kept in the vault.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_output: bool,
    /// The caller asserts that the network and visible host paths do not affect the result.
    pub pure: bool,
    /// Keys that a later version wrote.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub later: Map<String, Value>,
}

text_values!(
    ApprovalMode,
    BackendChoice,
    BaseChoice,
    CacheMode,
    CheckpointMode,
    ExecutionTimeout,
    FixedClock,
    GitIdentity,
    HomeMode,
    LandlockMode,
    NetMode,
    PolicyProfile,
    Preset,
    Profile,
    Retention,
    ScratchChoice,
    SeccompProfile,
);
amount_values!(CpuLimit);
