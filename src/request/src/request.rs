//! What is asked for: one command, on which fork, with what around it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use avfs_types::CommandLine;
use avfs_types::command_line::shown_word;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ApprovalPrefix, BatchItem};
use avfs_types::secrets::Secrets;

use crate::choices::{
    ApprovalMode, BackendChoice, BaseChoice, CacheMode, ChangeForm, CheckpointMode, Degradation, ForkChoice,
    PolicyProfile, Purity, Retention, ScratchChoice, SecretsInFiles, Writing,
};
use crate::confinement::Confinement;
use crate::environment::Environment;
use crate::extra::{Extra, Profile};
use crate::limits::Limits;
use crate::net::NetMode;
use crate::reproducible::{FixedClock, Reproducible};
use crate::secret::SecretFile;
use crate::streams::{ProcMode, Streams};
use crate::timeout::ExecutionTimeout;

/// The longest word the kernel takes, its end included (MAX_ARG_STRLEN: 32 pages of 4 KiB).
const WORD_BYTES_MAX: usize = 131_072;

/// What no command can be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    #[error("there is no command to run")]
    Empty,
    #[error("word {number} of the command holds a NUL byte, which no program can be given")]
    Nul { number: usize },
    #[error("the value of the variable {name} holds a NUL byte, which no program can be given")]
    NulInVariable { name: String },
    #[error("word {number} of the command is {bytes} bytes long; at most {WORD_BYTES_MAX} are possible")]
    WordTooLong { number: usize, bytes: usize },
    #[error("the command and its variables are {bytes} bytes long; this system takes at most {max}")]
    TooLong { bytes: usize, max: usize },
}

impl Diagnose for RequestError {
    fn code(&self) -> &'static str {
        match self {
            Self::Empty => "request.empty",
            Self::Nul { .. } | Self::NulInVariable { .. } => "request.nul",
            Self::WordTooLong { .. } | Self::TooLong { .. } => "request.too_long",
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Empty => "give a command: avfs-run -- make test".to_owned(),
            Self::Nul { .. } | Self::NulInVariable { .. } => "take it out".to_owned(),
            Self::WordTooLong { .. } | Self::TooLong { .. } => {
                "put it into a file of the workspace, or on the command's standard input".to_owned()
            }
        })
    }
}

/// One request, complete: nothing else decides what happens.
#[derive(Clone, Debug)]
pub struct ExecutionRequest {
    pub command: CommandLine,
    pub fork: ForkChoice,
    pub retention: Retention,
    pub writing: Writing,
    pub base: BaseChoice,
    pub scratch: ScratchChoice,
    pub backend: BackendChoice,
    pub checkpoint: CheckpointMode,
    pub degradation: Degradation,
    /// Where the workspace is seen inside; its own path if nothing is said.
    pub at: Option<PathBuf>,
    /// Inside; relative to the workspace.
    pub cwd: Option<PathBuf>,
    pub timeout: ExecutionTimeout,
    pub grace: Duration,
    pub net: NetMode,
    pub proc: ProcMode,
    pub profile: Profile,
    pub extras: Vec<Extra>,
    pub environment: Environment,
    pub reproducible: Reproducible,
    /// The time that is the present for it.
    pub clock: Option<FixedClock>,
    pub secret_files: Vec<SecretFile>,
    /// Whether files that hold a secret's value are kept.
    pub secrets_in_files: SecretsInFiles,
    pub limits: Limits,
    pub confinement: Confinement,
    pub streams: Streams,
    pub cache: CacheMode,
    /// Files and directories of the host that the result depends on.
    pub inputs: Vec<PathBuf>,
    pub purity: Purity,
    /// How its changes are told.
    pub show: ChangeForm,
    /// Policy profiles that hold for it beside those of the files.
    pub policy: Vec<PolicyProfile>,
    pub approval: ApprovalMode,
    /// An approval that is shown with the request.
    pub approved: Option<ApprovalPrefix>,
    /// The item of a batch that it is made for.
    pub item: Option<BatchItem>,
    pub named: Named,
}

/// What a request itself names on the host: not what the settings add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// A vault other than the one that would be found.
    pub vault: Option<NamedVault>,
    /// Real paths of `--ro`, and of `--env-file`.
    pub ro: Vec<PathBuf>,
    pub env_files: Vec<PathBuf>,
    /// Whether it says itself which network it has, be it none.
    pub net: bool,
}

impl ExecutionRequest {
    /// A request for this command, with everything else as without options.
    #[must_use]
    pub fn of(command: CommandLine) -> Self {
        Self {
            command,
            fork: ForkChoice::Ephemeral { from: None },
            retention: Retention::Review,
            writing: Writing::Allowed,
            base: BaseChoice::Auto,
            scratch: ScratchChoice::Auto,
            backend: BackendChoice::Auto,
            checkpoint: CheckpointMode::Auto,
            degradation: Degradation::Refused,
            at: None,
            cwd: None,
            timeout: ExecutionTimeout::DEFAULT,
            grace: Duration::from_secs(5),
            net: NetMode::None,
            proc: ProcMode::Private,
            profile: Profile::Strict,
            extras: Vec::new(),
            environment: Environment::default(),
            reproducible: Reproducible::Off,
            clock: None,
            secret_files: Vec::new(),
            secrets_in_files: SecretsInFiles::Refused,
            limits: Limits::default(),
            confinement: Confinement::DEFAULT,
            streams: Streams::Passed,
            cache: CacheMode::Off,
            inputs: Vec::new(),
            purity: Purity::Unknown,
            show: ChangeForm::Summary,
            policy: Vec::new(),
            approval: ApprovalMode::Fail,
            approved: None,
            item: None,
            named: Named::default(),
        }
    }

    /// Refuses what could never be run, before anything is done for it. `arguments_bytes_max` is what the system
    /// takes for words and variables together.
    pub fn check(&self, arguments_bytes_max: usize) -> Result<(), RequestError> {
        let words = match &self.command {
            CommandLine::Argv(words) => words.as_slice(),
            CommandLine::Shell(line) => std::slice::from_ref(line),
        };
        if words.first().is_none_or(|word| word.is_empty()) {
            return Err(RequestError::Empty);
        }
        for (at, word) in words.iter().enumerate() {
            let (number, bytes) = (at + 1, word.len() + 1);
            if word.as_bytes().contains(&0) {
                return Err(RequestError::Nul { number });
            }
            if bytes > WORD_BYTES_MAX {
                return Err(RequestError::WordTooLong { number, bytes });
            }
        }
        let variables = self.environment.pairs();
        if let Some((name, _)) = variables.iter().find(|(_, value)| value.as_bytes().contains(&0)) {
            return Err(RequestError::NulInVariable { name: name.to_string_lossy().into_owned() });
        }
        // Each has its end and a pointer.
        let each = 1 + size_of::<usize>();
        let bytes = words.iter().map(|word| word.len() + each).sum::<usize>()
            + variables.iter().map(|(name, value)| name.len() + value.len() + 1 + each).sum::<usize>();
        if bytes > arguments_bytes_max {
            return Err(RequestError::TooLong { bytes, max: arguments_bytes_max });
        }
        Ok(())
    }

    /// The values that nothing may hold which is kept or shown.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        let variables = self.environment.secret_values();
        let variables = variables.map(|(name, value)| (shown_word(name), value.as_bytes()));
        let files = self.secret_files.iter().map(|file| (shown_word(&file.name), file.bytes.as_slice()));
        Secrets::new(variables.chain(files))
    }

    /// Names of everything of the caller's own that it hands over. Of a file of the host the path counts too: the name
    /// for it is the request's to choose.
    #[must_use]
    pub fn handed_over(&self) -> Vec<String> {
        let mut names = self.environment.handed_over();
        for file in &self.secret_files {
            names.push(shown_word(&file.name));
            names.extend(file.source.as_ref().map(|source| shown_word(source.as_os_str())));
        }
        names
    }

    /// The command on one line, without the values of secrets.
    #[must_use]
    pub fn shown_command(&self) -> String {
        self.secrets().scrub_text(self.command.shown())
    }
}

/// A vault that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVault {
    pub path: PathBuf,
    /// Its user made it or trusts it, so approvals in it are the user's.
    pub is_trusted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ExecutionRequest {
        ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]))
    }

    #[test]
    fn a_file_is_handed_over_by_its_name_and_by_its_path() {
        let mut request = request();
        let file = |source: Option<&str>| SecretFile {
            name: "KEY".into(),
            bytes: b"hush-hush".to_vec(),
            source: source.map(PathBuf::from),
        };
        request.secret_files = vec![file(None)];
        assert_eq!(request.handed_over(), ["KEY"]);
        request.secret_files = vec![file(Some("/home/u/key"))];
        assert_eq!(request.handed_over(), ["KEY", "/home/u/key"]);
        assert!(!format!("{request:?}").contains("hush"), "{request:?}");
        request.command = CommandLine::Argv(vec!["login".into(), "--key=hush-hush".into()]);
        assert_eq!(request.shown_command(), "login --key=[secret]");
    }
}
