//! How a run is asked for: every option of it, declared once for the command line, JSON and its schema.
//!
//! [`RunSpec`] is what is asked, every field of it optional: `avfs-run` reads it from its options, `--request` and lists
//! from JSON. It becomes an [`ExecutionRequest`](crate::ExecutionRequest), complete and checked. [`RequestObject`] is
//! that request as envelopes and the journal have it; its JSON is a `RunSpec` again.

mod layer;
mod object;
mod read;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use avfs_types::ids::{ApprovalPrefix, ForkName};
use avfs_types::reference::Reference;
use avfs_types::{Limit, Size, amount_values, text_values};

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
/// What is asked for: a request as JSON has it, and the options that say the same.
///
/// Every key is known; what no key says is as without it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RequestFile"))]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// The version of this format; 1 if nothing is said.
    [skip]
    pub schema_version: Option<u32>,
    /// A list of words, or a line for /bin/sh -c.
    [skip]
    pub command: Value,
    /// `argv` or `shell`; what `command` looks like if nothing is said.
    [skip]
    pub command_mode: Option<String>,
    /// The command's words in Base64, where they are not UTF-8; wins over `command`.
    [skip]
    pub command_base64: Option<Vec<String>>,
    /// A line for /bin/sh -c, in place of a command
    #[serde(skip)]
    [long, value_name = "LINE"]
    pub shell: Option<OsString> => "the rules are about it",
    /// The command and its arguments
    #[serde(skip)]
    [id = "command", trailing_var_arg = true, value_name = "COMMAND"]
    pub words: Vec<OsString> => "the rules are about it",

    /// The vault: a path, or the name of one in $XDG_DATA_HOME/avfs/vaults [default: $AVFS_VAULT, else the
    /// nearest .avfs/vault.db, else a new one in ./.avfs]
    [long, value_name = "PATH|NAME", help_heading = "Workspace"]
    pub vault: Option<PathBuf> => "profile.agent.vault caps.vault profile.agent.new_vault caps.new_vault",
    /// Of no account: it follows from `vault`.
    [skip]
    pub vault_named: bool,
    /// Work on this fork, and move it on; made on first use [default: $AVFS_FORK, else one of its own]
    [long, value_name = "NAME", help_heading = "Workspace"]
    pub fork: Option<ForkName> => "the rules are about it",
    /// Begin from this version: a fork that is new, or the one of its own that a run without --fork is given [default:
    /// the directory as it is now]
    [long, value_name = "REF", help_heading = "Workspace"]
    pub from: Option<Reference> => "any version of the vault",
    /// Where the workspace is seen inside [default: its own path]
    [long, value_name = "DIR", help_heading = "Workspace"]
    pub at: Option<PathBuf> => "profile.agent.at caps.at",
    /// The working directory, from the workspace's root [default: the same as outside]
    [long, value_name = "DIR", help_heading = "Workspace"]
    pub cwd: Option<PathBuf> => "a directory of the view",
    /// What lies beneath a run without --fork: the directory itself or a copy; touched does not scan the directory and
    /// records only the paths that the run changes [default: auto] [possible values: auto, live, cached, touched]
    [long, value_name = "BASE", help_heading = "Workspace"]
    pub base: Option<BaseChoice> => "the same files by another way",

    /// Write the changes to the host's directory if the command exits with 0
    #[serde(skip)]
    [long, conflicts_with_all = ["discard", "readonly"], help_heading = "Changes"]
    pub apply: bool => "profile.agent.apply caps.apply",
    /// Keep nothing but the record of the run
    #[serde(skip)]
    [long, help_heading = "Changes"]
    pub discard: bool => "keeps less",
    /// `review`, `apply` or `discard`.
    [skip]
    pub retention: Option<Retention>,
    /// Refuse every write to the workspace
    [long, help_heading = "Changes"]
    pub readonly: bool => "gives less",
    /// When to save checkpoints of a run that changed something. auto: after it, and before it unless the policy
    /// says that it only looks; always: both; never [default: auto] [possible values: auto, always, never]
    #[serde(rename = "checkpoint_mode")]
    [long, value_name = "WHEN", help_heading = "Changes"]
    pub checkpoint: Option<CheckpointMode> => "what is kept",

    /// Whether remembered results are used. read: one that is there is taken, and nothing is executed; write: that,
    /// and what is executed is remembered. The command's standard input is empty with both. Why one is found or not:
    /// avfs cache explain [default: off] [possible values: off, read, write]
    #[serde(rename = "cache_mode")]
    [long, value_name = "HOW", help_heading = "Cache"]
    pub cache: Option<CacheMode> => "a remembered result of the same request",
    /// Of no account: cache directories come from the settings.
    #[serde(rename = "cache")]
    [skip]
    pub cache_dirs: Vec<String>,
    /// A file or directory of the host that the result depends on: other content is another result
    #[serde(rename = "inputs")]
    [long, value_name = "PATH", help_heading = "Cache"]
    pub input: Vec<PathBuf> => "is compared, and not shown",
    /// Remember the result although the command may use the network or what is shown of the host: whoever says this
    /// vouches that they make no difference
    [long, help_heading = "Cache"]
    pub pure: bool => "whether a result is remembered",

    /// Hold to this policy profile too. agent: network, secrets, --rw and less of a sandbox only by approval; ci:
    /// nobody is asked, what would be is denied [possible values: agent, ci]
    [long, value_name = "PROFILE", help_heading = "Policy"]
    pub policy: Vec<PolicyProfile> => "only adds strictness",
    /// What to do where an approval is required. fail: exit with 120; wait: until somebody answers with avfs
    /// approvals; ask: at the terminal [default: ask on a terminal without --json, else fail] [possible values:
    /// fail, wait, ask]
    [long, value_name = "HOW", help_heading = "Policy"]
    pub approval: Option<ApprovalMode> => "how an answer is waited for",
    /// Use this approval; exit with 122 if it is not good for this very request
    #[serde(rename = "approval_id")]
    [long, value_name = "ID", help_heading = "Policy"]
    pub approved: Option<ApprovalPrefix> => "names an approval, which is checked",

    /// The network: loopback only, the host's, or places of a list through a proxy that programs find by HTTP_PROXY
    /// and the like. A place is DOMAIN, *.DOMAIN (not DOMAIN itself) or ADDRESS[/PREFIX], with :PORT or else for ports
    /// 80 and 443; a private address needs a place of its own [default: none] [possible values: none, host,
    /// allow=PLACE,...]
    [long, value_name = "NET", help_heading = "Sandbox"]
    pub net: Option<NetMode> => "profile.agent.net caps.net",
    /// Add what the tools of a language need: caches that persist between runs, the hosts of its packages to the list of
    /// --net, and a few variables; --net none keeps the hosts out [possible values: node, python, rust, go, java]
    [long, value_name = "PRESET", help_heading = "Sandbox"]
    pub preset: Vec<Preset> => "profile.agent.preset caps.preset profile.agent.net caps.net profile.agent.secrets caps.secrets",
    /// How much of the host is seen [default: strict] [possible values: strict, host]
    [long, value_name = "PROFILE", help_heading = "Sandbox"]
    pub profile: Option<Profile> => "profile.agent.profile caps.profile",
    /// Show a path of the host, read-only
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub ro: Vec<PathBuf> => "profile.agent.ro caps.ro",
    /// Of no account: every path of `ro` is named.
    [skip]
    pub ro_named: Vec<PathBuf>,
    /// Show a path of the host, for reading and writing
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub rw: Vec<PathBuf> => "profile.agent.rw caps.rw",
    /// Of no account: links are followed anew.
    [skip]
    pub links: BTreeMap<String, PathBuf>,
    /// Put an empty directory in memory there
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub tmpfs: Vec<PathBuf> => "profile.agent.cover caps.cover",
    /// Hide a path
    [long, value_name = "PATH", help_heading = "Sandbox"]
    pub hide: Vec<PathBuf> => "profile.agent.cover caps.cover",
    /// What the command has as its home: an empty one, or one that the fork keeps between its runs. Needs --fork
    /// [default: private] [possible values: private, persistent]
    [long, value_name = "HOME", help_heading = "Sandbox"]
    pub home: Option<HomeMode> => "profile.agent.persist caps.persist",
    /// Keep /tmp between the runs of the fork. Needs --fork
    [long, help_heading = "Sandbox"]
    pub keep_tmp: bool => "profile.agent.persist caps.persist",
    /// Variables and their values.
    [skip]
    pub env: BTreeMap<String, String>,
    /// Names of variables that are passed on where the caller has them, but for those that are fixed.
    [skip]
    pub environment: Vec<String>,
    /// Pass a variable on, or set it; NAME* passes all that begin so, but none that looks like a credential
    #[serde(skip)]
    [id = "env", long = "env", value_name = "NAME[*]|NAME=VALUE", help_heading = "Sandbox"]
    pub env_words: Vec<OsString> => "profile.agent.secrets caps.secrets",
    /// Set the variables of a file of NAME=VALUE lines
    #[serde(skip)]
    [long, value_name = "FILE", help_heading = "Sandbox"]
    pub env_file: Vec<PathBuf> => "profile.agent.env_file caps.env_file",
    /// Of no account: what they set is in `env`.
    [skip]
    pub env_files: Vec<PathBuf>,
    /// Give a secret: the variable NAME; with =file its value as the file /run/secrets/NAME instead, with =PATH that
    /// file of the host as one; NAME_FILE tells where it is. It is never written down, taken out of what --json
    /// captures (what streams is not touched), and files that hold it are not kept
    #[serde(skip)]
    [long, value_name = "NAME[=file|=PATH]", help_heading = "Sandbox"]
    pub secret: Vec<OsString> => "profile.agent.secrets caps.secrets",
    /// Names of variables that are passed on and never written down.
    [skip]
    pub secrets: Vec<String>,
    /// Secrets that are given as files: `NAME=file`, or `NAME=PATH`.
    [skip]
    pub secret_files: Vec<String>,
    /// Keep files in which the value of a secret is found
    [long, help_heading = "Sandbox"]
    pub allow_secret_files: bool => "keeps what the command was given already",
    /// Show git the user.name and user.email of the host's global configuration, and nothing else of it; not with
    /// --reproducible or --cache [default: host] [possible values: host, none]
    [long, value_name = "WHOSE", help_heading = "Sandbox"]
    pub git_identity: Option<GitIdentity> => "the name that commits carry",
    /// Which system calls are refused; avfs doctor --explain-denials lists them [default: default] [possible values:
    /// default, strict, off]
    [long, value_name = "PROFILE", help_heading = "Sandbox"]
    pub seccomp: Option<SeccompProfile> => "profile.agent.confinement caps.seccomp",
    /// Whether Landlock enforces what is seen a second time [default: auto] [possible values: auto, required, off]
    [long, value_name = "MODE", help_heading = "Sandbox"]
    pub landlock: Option<LandlockMode> => "profile.agent.confinement caps.landlock",
    /// Let the command make user namespaces of its own, as nested sandboxes do
    [long, help_heading = "Sandbox"]
    pub allow_userns: bool => "profile.agent.confinement caps.userns",
    /// Where what the command writes goes first [default: auto] [possible values: auto, memory, disk]
    [long, value_name = "SCRATCH", help_heading = "Sandbox"]
    pub scratch: Option<ScratchChoice> => "where changes wait",
    /// How the workspace is made writable [default: auto] [possible values: auto, overlay, copy]
    [long, value_name = "BACKEND", help_heading = "Sandbox"]
    pub backend: Option<BackendChoice> => "the same files by another way",
    /// Make the run come out the same again: a fixed host name, mask and environment (of the caller's only PATH, HOME
    /// and what --env names) and --clock-fixed. The order of directories, process ids, addresses and the number of
    /// processors are not fixed
    [long, help_heading = "Sandbox"]
    pub reproducible: bool => "gives less",
    /// Make this the present: SOURCE_DATE_EPOCH and the times of everything the command writes, and what programs see
    /// where the host has libfaketime; as 2026-01-31T12:00:00Z or @SECONDS [default: 1980-01-01T00:00:00Z]
    [
        long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "@315532800",
        help_heading = "Sandbox"
    ]
    pub clock_fixed: Option<FixedClock> => "a time",
    /// Run with less isolation where the host refuses a piece, and say so
    [long, help_heading = "Sandbox"]
    pub allow_degraded: bool => "profile.agent.degraded caps.degraded",

    /// How long the command may run: 90s, 10m, 2h, or none [default: 300s; none on a terminal]
    [long, value_name = "TIME", help_heading = "Limits"]
    pub timeout: Option<ExecutionTimeout> => "caps.timeout",
    /// Milliseconds; null means that it may run for ever, nothing at all the default.
    #[serde(deserialize_with = "read::even_null", skip_serializing_if = "Option::is_none")]
    [skip]
    pub timeout_ms: Option<Option<u64>>,
    /// How long it has to end after SIGTERM [default: 5s]
    [long, value_name = "TIME", help_heading = "Limits"]
    pub grace: Option<ExecutionTimeout> => "caps.timeout",
    /// The same in milliseconds.
    [skip]
    pub grace_ms: Option<u64>,
    /// How much memory all its processes may use together: 512MiB, 2GiB, or none
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub memory: Option<Limit> => "caps.memory",
    /// How many processors it may use: 2, 0.5, or none; less than a whole one needs control groups
    [long, value_name = "N", help_heading = "Limits"]
    pub cpus: Option<CpuLimit> => "caps.cpus",
    /// How many processes and threads there may be at once, or none
    [long, value_name = "N", help_heading = "Limits"]
    pub pids: Option<Limit> => "caps.pids",
    /// How much it may write to the workspace, and to each file system in memory such as /tmp, or none; what --rw
    /// and caches take is not counted
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub disk: Option<Limit> => "caps.disk",
    /// How many files it may make or delete in the workspace, or none; directories and links count
    [long, value_name = "N", help_heading = "Limits"]
    pub files: Option<Limit> => "caps.files",
    /// How large one file may become, or none; a file of the workspace that is larger cannot be changed
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub file_size: Option<Limit> => "caps.file_size",
    /// Keep what the command writes in the vault, as long as its changes are kept: avfs runs show --output prints it.
    /// Values of --secret are taken out
    [long, help_heading = "Changes"]
    pub keep_output: bool => "keeps what the caller is shown anyway",
    /// Keep this much of each stream with --json or --keep-output, half from its beginning and half from its end [default: 10MiB]
    #[serde(skip)]
    [long, value_name = "SIZE", help_heading = "Limits"]
    pub output_max: Option<Size> => "how much of the output is kept",
}
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CommandText {
    Argv(Vec<String>),
    Shell(String),
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestObject {
    pub command: CommandText,
    pub command_mode: &'static str,
    /// The command's bytes where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_base64: Option<Vec<String>>,
    pub vault: Option<String>,
    /// Whether the request named the vault, and another one would have been found.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vault_named: bool,
    /// Nothing for an ephemeral fork.
    pub fork: Option<String>,
    /// The version that a new fork begins from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub cwd: Option<String>,
    pub at: Option<String>,
    pub readonly: bool,
    pub timeout_ms: Option<u64>,
    pub grace_ms: u64,
    pub checkpoint_mode: &'static str,
    /// `none`, `host`, or `allow=` and a list of places.
    pub net: String,
    pub retention: &'static str,
    pub base: &'static str,
    pub scratch: &'static str,
    pub backend: &'static str,
    pub profile: &'static str,
    /// `none` if the command was to commit without the caller's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_identity: Option<&'static str>,
    /// Whether it may run with less isolation where the host refuses a piece.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
    /// What was shown, put or hidden beside the profile.
    pub ro: Vec<String>,
    pub rw: Vec<String>,
    /// The presets that the request names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preset: Vec<&'static str>,
    /// Names in `ro` and `rw` that lead elsewhere, and where: that is what was judged and shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, String>,
    /// Those of `ro` that the request names itself, as real paths; the others come from the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ro_named: Vec<String>,
    pub tmpfs: Vec<String>,
    pub hide: Vec<String>,
    /// `persistent` where the fork keeps the home of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<&'static str>,
    /// Whether the fork keeps /tmp.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_tmp: bool,
    /// Directories that persist between runs.
    pub cache: Vec<String>,
    /// Variables that the request sets, with their values; without those that hold what looks like a credential.
    pub env: BTreeMap<String, String>,
    /// The files that some of them come from, as real paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_files: Vec<String>,
    /// Whether the run was to come out the same again.
    pub reproducible: bool,
    /// The time that was the present for it.
    pub clock_fixed: Option<String>,
    /// Names of the variables the command is given; never their values.
    pub environment: Vec<String>,
    /// Those of them that are never written down.
    pub secrets: Vec<String>,
    /// The secrets that are given as files: a name, or `NAME=PATH` for a file of the host.
    pub secret_files: Vec<String>,
    /// Whether files that hold a secret's value are kept.
    pub allow_secret_files: bool,
    /// What the run may use; nothing where there is no limit.
    pub memory: Option<u64>,
    /// Such as `1.5`.
    pub cpus: Option<String>,
    pub pids: Option<u64>,
    pub disk: Option<u64>,
    pub files: Option<u64>,
    pub file_size: Option<u64>,
    /// `default`, `strict` or `off`.
    pub seccomp: &'static str,
    /// `auto`, `required` or `off`.
    pub landlock: &'static str,
    pub allow_userns: bool,
    /// Policy profiles that were asked for.
    pub policy: Vec<&'static str>,
    /// `off`, `read` or `write`: whether remembered results are used.
    pub cache_mode: &'static str,
    /// Paths of the host that the result depends on.
    pub inputs: Vec<String>,
    /// Whether what the command wrote is kept in the vault.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_output: bool,
    /// The caller vouches that the network and what is shown of the host make no difference.
    pub pure: bool,
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
