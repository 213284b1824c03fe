//! What is asked for: one command, on which fork, with what around it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::BatchItem;
use crate::diagnose::Diagnose;
use crate::ids::{ApprovalPrefix, DigestKind, ForkName, RequestDigest};
use crate::vault::codec::put_bytes;
use crate::vault::secrets::Secrets;
use crate::vault::version::Reference;

use super::change_report::ChangeForm;
use super::confinement::Confinement;
use super::environment::Environment;
use super::launcher::{ProcMode, SecretFile, Streams};
use super::limits::Limits;
use super::net::NetMode;
use super::policy::PolicyProfile;
use super::reproducible::{FixedClock, Reproducible};
use super::timeout::ExecutionTimeout;
use super::view::{Extra, Profile};
use super::words::words;

/// The longest word the kernel takes, its end included (MAX_ARG_STRLEN: 32 pages of 4 KiB).
const WORD_BYTES_MAX: usize = 131_072;

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    Argv(Vec<OsString>),
    /// A line for `/bin/sh -c`.
    Shell(OsString),
}

impl CommandLine {
    /// The words that are executed.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        match self {
            Self::Argv(words) => words.clone(),
            Self::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        }
    }

    /// One line for people and messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Argv(words) => {
                let words: Vec<String> = words.iter().map(|word| shown_word(word)).collect();
                words.join(" ")
            }
            Self::Shell(line) => shown_word(line),
        }
    }
}

/// A word as people and JSON are shown it: bytes that are no text are escaped.
#[must_use]
pub fn shown_word(word: &OsStr) -> String {
    let mut shown = String::with_capacity(word.len());
    for part in word.as_bytes().utf8_chunks() {
        shown.push_str(part.valid());
        shown.extend(part.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

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
}

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
}

impl ExecutionRequest {
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

    /// What an approval of this request is bound to: everything that is asked for, in the directory `cwd`. The
    /// values of secrets are no part of it, since it is written down; how the answer is given is none either.
    #[must_use]
    pub fn digest(&self, cwd: &Path) -> RequestDigest {
        // Taken apart, so that a field which is added cannot be forgotten.
        let Self {
            command,
            fork,
            retention,
            writing,
            base,
            scratch,
            backend,
            checkpoint,
            degradation,
            at,
            // Where it leads to is `cwd`.
            cwd: _,
            timeout,
            grace,
            net,
            proc,
            profile,
            extras,
            environment,
            reproducible,
            clock,
            secret_files,
            secrets_in_files,
            limits,
            confinement,
            streams: _,
            // A remembered result is what running the request has given.
            cache: _,
            inputs: _,
            purity: _,
            show: _,
            policy,
            approval: _,
            approved: _,
            item: _,
        } = self;
        let mut bytes = Vec::with_capacity(1024);
        let mut put = |field: &[u8]| put_bytes(&mut bytes, field);
        let (mode, words) = match command {
            CommandLine::Argv(words) => ("argv", words.as_slice()),
            CommandLine::Shell(line) => ("shell", std::slice::from_ref(line)),
        };
        put(mode.as_bytes());
        put(&words.len().to_be_bytes());
        words.iter().for_each(|word| put(word.as_bytes()));
        let (fork, from) = match fork {
            ForkChoice::Ephemeral { from } => ("", from.as_ref()),
            ForkChoice::Persistent { name, from } => (name.as_str(), from.as_ref()),
        };
        put(fork.as_bytes());
        put(from.map_or("", Reference::text).as_bytes());
        for word in [
            retention.word(),
            writing.word(),
            base.word(),
            scratch.word(),
            backend.word(),
            checkpoint.word(),
            degradation.word(),
            &net.to_string(),
            proc.word(),
            profile.word(),
            secrets_in_files.word(),
            confinement.seccomp.word(),
            confinement.landlock.word(),
            confinement.userns.word(),
        ] {
            put(word.as_bytes());
        }
        put(at.as_ref().map_or(&b""[..], |at| at.as_os_str().as_bytes()));
        put(cwd.as_os_str().as_bytes());
        put(timeout.to_string().as_bytes());
        put(&grace.as_millis().to_be_bytes());
        let limits: Vec<_> = limits.set().collect();
        put(&limits.len().to_be_bytes());
        for (kind, value) in limits {
            put(kind.word().as_bytes());
            put(&value.to_be_bytes());
        }
        put(&secret_files.len().to_be_bytes());
        for file in secret_files {
            put(file.name.as_bytes());
            put(file.source.as_ref().map_or(&b""[..], |source| source.as_os_str().as_bytes()));
        }
        put(&policy.len().to_be_bytes());
        policy.iter().for_each(|profile| put(profile.word().as_bytes()));
        put(&extras.len().to_be_bytes());
        for extra in extras {
            put(extra.kind().as_bytes());
            put(extra.path().as_os_str().as_bytes());
            put(extra.source().as_os_str().as_bytes());
        }
        for (name, value) in environment.pairs() {
            // A secret must not pass for a variable that is empty: the yes to one is no yes to the other.
            let (kind, value) = match environment.is_secret(&name) {
                true => ("secret", &b""[..]),
                false => ("value", value.as_bytes()),
            };
            put(name.as_bytes());
            put(kind.as_bytes());
            put(value);
        }
        // Behind the variables, in their form and of another kind: without them the digest is what it always was.
        if let Some(clock) = clock {
            [&b"clock"[..], b"fixed", clock.epoch().as_bytes()].into_iter().for_each(&mut put);
        }
        match reproducible {
            Reproducible::Off => {}
            Reproducible::On => [&b"reproducible"[..], b"on", b""].into_iter().for_each(&mut put),
        }
        RequestDigest(DigestKind::Request.digest(&bytes))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::runtime::confinement::{LandlockMode, NestedUserns, SeccompProfile};
    use crate::runtime::environment::EnvChoice;

    pub(crate) fn request() -> ExecutionRequest {
        ExecutionRequest {
            command: CommandLine::Argv(vec!["make".into(), "test".into()]),
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
        }
    }

    type Change = Box<dyn Fn(&mut ExecutionRequest)>;

    fn digest(change: impl Fn(&mut ExecutionRequest)) -> RequestDigest {
        let mut request = request();
        change(&mut request);
        request.digest(Path::new("/srv/app"))
    }

    fn variables(choices: &[EnvChoice]) -> Environment {
        Environment::choose([("TOKEN".into(), "hush".into())], choices)
    }

    #[test]
    fn a_yes_to_one_request_is_none_to_another() {
        let fork = |from: Option<&str>| ForkChoice::Persistent {
            name: ForkName::parse("f").unwrap(),
            from: from.map(|from| Reference::parse(from).unwrap()),
        };
        let cache =
            |source: &str| vec![Extra::Cache { source: source.into(), path: "/srv/app/target".into() }];
        let token = || -> OsString { "TOKEN".into() };
        let changes: Vec<Change> = vec![
            Box::new(|_| {}),
            Box::new(|it| it.command = CommandLine::Argv(vec!["make test".into()])),
            Box::new(|it| it.command = CommandLine::Shell("make test".into())),
            Box::new(move |it| it.fork = fork(None)),
            Box::new(move |it| it.fork = fork(Some("main"))),
            Box::new(|it| it.retention = Retention::Apply),
            Box::new(|it| it.writing = Writing::Refused),
            Box::new(|it| it.base = BaseChoice::Live),
            Box::new(|it| it.scratch = ScratchChoice::Disk),
            Box::new(|it| it.backend = BackendChoice::Copy),
            Box::new(|it| it.checkpoint = CheckpointMode::Never),
            Box::new(|it| it.degradation = Degradation::Allowed),
            Box::new(|it| it.at = Some("/srv/app".into())),
            Box::new(|it| it.timeout = ExecutionTimeout::None),
            Box::new(|it| it.grace = Duration::MAX),
            Box::new(|it| it.net = NetMode::Host),
            Box::new(|it| it.net = "allow=a.org".parse().unwrap()),
            Box::new(|it| it.net = "allow=b.org".parse().unwrap()),
            Box::new(|it| it.limits.memory = Some(1)),
            Box::new(|it| it.limits.disk = Some(1)),
            Box::new(|it| it.confinement.seccomp = SeccompProfile::Off),
            Box::new(|it| it.confinement.landlock = LandlockMode::Off),
            Box::new(|it| it.confinement.userns = NestedUserns::Allowed),
            Box::new(|it| it.secrets_in_files = SecretsInFiles::Allowed),
            Box::new(|it| {
                it.secret_files = vec![SecretFile { name: "TOKEN".into(), bytes: Vec::new(), source: None }];
            }),
            Box::new(|it| {
                let source = Some("/home/u/token".into());
                it.secret_files = vec![SecretFile { name: "TOKEN".into(), bytes: Vec::new(), source }];
            }),
            Box::new(|it| it.proc = ProcMode::Absent),
            Box::new(|it| it.profile = Profile::Host),
            Box::new(|it| it.reproducible = Reproducible::On),
            Box::new(|it| it.clock = Some(FixedClock::DEFAULT)),
            Box::new(|it| it.clock = "@0".parse().ok()),
            Box::new(|it| it.policy = vec![PolicyProfile::Agent]),
            Box::new(|it| it.extras = vec![Extra::ReadOnly("/srv/app/target".into())]),
            Box::new(|it| it.extras = vec![Extra::ReadWrite("/srv/app/target".into())]),
            Box::new(move |it| it.extras = cache("/cache/1")),
            Box::new(move |it| it.extras = cache("/cache/2")),
            Box::new(|it| it.environment = variables(&[])),
            Box::new(move |it| it.environment = variables(&[EnvChoice::Set(token(), OsString::new())])),
            Box::new(move |it| it.environment = variables(&[EnvChoice::Set(token(), "hush".into())])),
            Box::new(move |it| it.environment = variables(&[EnvChoice::Secret(token())])),
        ];
        let mut digests: Vec<RequestDigest> = changes.iter().map(digest).collect();
        digests.push(request().digest(Path::new("/srv")));
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(one), "number {at} is like an earlier one");
        }
        // How it is asked and told makes no other request of it, nor does the value that a secret has today.
        assert_eq!(digest(|it| it.approval = ApprovalMode::Wait), digests[0]);
        assert_eq!(digest(|it| it.streams = Streams::Captured { bytes_max: 1 }), digests[0]);
        assert_eq!(digest(|it| it.cache = CacheMode::Write), digests[0]);
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

    #[test]
    fn what_is_no_text_is_shown_escaped() {
        assert_eq!(shown_word(OsStr::from_bytes(b"a\xff\xfe b\xc3\xa9")), "a\\xff\\xfe b\u{e9}");
        let line = CommandLine::Argv(vec!["ls".into(), OsStr::from_bytes(b"\xff").into()]);
        assert_eq!(line.shown(), "ls \\xff");
    }
}
