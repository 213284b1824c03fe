//! What was asked for, as an envelope and the journal tell it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::Serialize;

use avfs_types::base64::base64;
use avfs_types::command_line::shown_word;
use avfs_types::redact::redact_words;
use avfs_types::secrets::Secrets;
use avfs_types::{CommandLine, redact};

use crate::choices::{Degradation, ForkChoice, Purity, SecretsInFiles, Writing};
use crate::confinement::NestedUserns;
use crate::extra::Extra;
use crate::reproducible::Reproducible;
use crate::request::ExecutionRequest;

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
    /// Whether it may run with less isolation where the host refuses a piece.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
    /// What was shown, put or hidden beside the profile.
    pub ro: Vec<String>,
    pub rw: Vec<String>,
    /// Names in `ro` and `rw` that lead elsewhere, and where: that is what was judged and shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, String>,
    /// Those of `ro` that the request names itself, as real paths; the others come from the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ro_named: Vec<String>,
    pub tmpfs: Vec<String>,
    pub hide: Vec<String>,
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
    /// The caller vouches that the network and what is shown of the host make no difference.
    pub pure: bool,
}

impl RequestObject {
    #[must_use]
    pub fn of(request: &ExecutionRequest, vault: Option<&std::path::Path>) -> Self {
        let path = |path: &std::path::PathBuf| path.display().to_string();
        let paths = |wanted: fn(&Extra) -> bool| {
            let chosen = request.extras.iter().filter(|extra| wanted(extra));
            chosen.map(|extra| extra.path().display().to_string()).collect::<Vec<_>>()
        };
        let words = request.command.words();
        let is_text = words.iter().all(|word| word.to_str().is_some());
        let secrets = request.secrets();
        let scrubbed = |word: &OsString| secrets.scrub(word.as_encoded_bytes().to_vec());
        let bytes = || words.iter().map(|word| base64(&scrubbed(word))).collect();
        let shown = |word: &OsString| secrets.scrub_text(shown_word(word));
        let (command, command_mode) = match &request.command {
            CommandLine::Argv(words) => (CommandText::Argv(words.iter().map(shown).collect()), "argv"),
            CommandLine::Shell(line) => (CommandText::Shell(shown(line)), "shell"),
        };
        Self {
            command,
            command_mode,
            command_base64: (!is_text).then(bytes),
            vault: vault.map(|vault| vault.display().to_string()),
            vault_named: request.named.vault.is_some(),
            fork: match &request.fork {
                ForkChoice::Ephemeral { .. } => None,
                ForkChoice::Persistent { name, .. } => Some(name.to_string()),
            },
            from: request.fork.from().map(|from| from.text().to_owned()),
            cwd: request.cwd.as_ref().map(path),
            at: request.at.as_ref().map(path),
            readonly: request.writing == Writing::Refused,
            timeout_ms: request.timeout.millis(),
            grace_ms: u64::try_from(request.grace.as_millis()).unwrap_or(u64::MAX),
            checkpoint_mode: request.checkpoint.word(),
            net: request.net.to_string(),
            retention: request.retention.word(),
            base: request.base.word(),
            scratch: request.scratch.word(),
            backend: request.backend.word(),
            profile: request.profile.word(),
            allow_degraded: request.degradation == Degradation::Allowed,
            ro: paths(|extra| matches!(extra, Extra::ReadOnly(_))),
            rw: paths(|extra| matches!(extra, Extra::ReadWrite(_))),
            links: request
                .extras
                .iter()
                .filter_map(|extra| match extra {
                    Extra::ReadOnly(shown) | Extra::ReadWrite(shown) if shown.path != shown.real => {
                        Some((path(&shown.path), path(&shown.real)))
                    }
                    Extra::ReadOnly(_)
                    | Extra::ReadWrite(_)
                    | Extra::Tmpfs(_)
                    | Extra::Hide(_)
                    | Extra::Cache { .. } => None,
                })
                .collect(),
            ro_named: request.named.ro.iter().map(path).collect(),
            tmpfs: paths(|extra| matches!(extra, Extra::Tmpfs(_))),
            hide: paths(|extra| matches!(extra, Extra::Hide(_))),
            cache: paths(|extra| matches!(extra, Extra::Cache { .. })),
            env: brought(request, &secrets),
            env_files: request.named.env_files.iter().map(path).collect(),
            reproducible: request.reproducible == Reproducible::On,
            clock_fixed: request.clock.map(|clock| clock.to_string()),
            environment: request.environment.names(),
            secrets: request.environment.secret_names(),
            secret_files: request
                .secret_files
                .iter()
                .map(|file| match &file.source {
                    Some(source) => format!("{}={}", shown_word(&file.name), source.display()),
                    None => shown_word(&file.name),
                })
                .collect(),
            allow_secret_files: request.secrets_in_files == SecretsInFiles::Allowed,
            memory: request.limits.memory,
            cpus: request.limits.cpus.map(|cpus| cpus.to_string()),
            pids: request.limits.pids,
            disk: request.limits.disk,
            files: request.limits.files,
            file_size: request.limits.file_size,
            seccomp: request.confinement.seccomp.word(),
            landlock: request.confinement.landlock.word(),
            allow_userns: request.confinement.userns == NestedUserns::Allowed,
            policy: request.policy.iter().map(|profile| profile.word()).collect(),
            cache_mode: request.cache.word(),
            inputs: request.inputs.iter().map(path).collect(),
            pure: request.purity == Purity::Declared,
        }
    }

    /// As it is written down: what looks like a credential is taken out of the command.
    #[must_use]
    pub fn redacted(self) -> Self {
        let command = match &self.command {
            CommandText::Argv(words) => CommandText::Argv(redact_words(words)),
            CommandText::Shell(line) => CommandText::Shell(redact(line).into_owned()),
        };
        // Its bytes would tell what its text does not.
        let command_base64 = self.command_base64.filter(|_| command == self.command);
        Self { command, command_base64, ..self }
    }
}

/// A variable with one of these in its name is taken for a credential, whatever it looks like.
const SECRET_NAMES: [&str; 8] = ["TOKEN", "SECRET", "PASS", "KEY", "CRED", "AUTH", "COOKIE", "PRIVATE"];

/// What the request sets, as far as it may be told. A value that is missing has to be given once more; one that is kept
/// cannot be taken back.
fn brought(request: &ExecutionRequest, secrets: &Secrets) -> BTreeMap<String, String> {
    let texts =
        request.environment.brought().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let harmless = texts.filter(|(name, value)| {
        let told = format!("{name}={value}");
        // Who wrote something is no secret.
        let name = name.to_ascii_uppercase().replace("AUTHOR_", "");
        !SECRET_NAMES.iter().any(|secret| name.contains(secret))
            && redact(&told) == told
            && secrets.scrub_text(told.clone()) == told
    });
    harmless.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
