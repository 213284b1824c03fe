//! What a request is known by: the digest that an approval is bound to.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use avfs_types::CommandLine;
use avfs_types::encode::put_bytes;
use avfs_types::ids::{DigestKind, RequestDigest};
use avfs_types::reference::Reference;

use crate::choices::ForkChoice;
use crate::reproducible::Reproducible;
use crate::request::{ExecutionRequest, Named, NamedVault};

impl ExecutionRequest {
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
            // What is shown and set is in here already.
            named: Named { vault, ro: _, env_files: _, net: _ },
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
        if let Some(NamedVault { path, .. }) = vault {
            [&b"vault"[..], b"named", path.as_os_str().as_bytes()].into_iter().for_each(&mut put);
        }
        RequestDigest(DigestKind::Request.digest(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use avfs_hostfs::held::HeldFile;
    use avfs_types::ids::ForkName;

    use super::*;
    use crate::choices::*;
    use crate::confinement::{LandlockMode, NestedUserns, SeccompProfile};
    use crate::environment::{EnvChoice, Environment};
    use crate::extra::{Extra, HostPath, Profile};
    use crate::net::NetMode;
    use crate::reproducible::FixedClock;
    use crate::secret::SecretFile;
    use crate::streams::{ProcMode, Streams};
    use crate::timeout::ExecutionTimeout;

    fn request() -> ExecutionRequest {
        ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]))
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

    fn host_path(path: &str) -> HostPath {
        HostPath { path: path.into(), real: path.into(), file: HeldFile::default() }
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
            Box::new(|it| it.extras = vec![Extra::ReadOnly(host_path("/srv/app/target"))]),
            Box::new(|it| it.extras = vec![Extra::ReadWrite(host_path("/srv/app/target"))]),
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
}
