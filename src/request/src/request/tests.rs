//! Tests of requests: their digest, and the secrets that they hand over.

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
fn approval_does_not_carry_over_to_other_requests() {
    let fork = |from: Option<&str>| ForkChoice::Persistent {
        name: ForkName::parse("f").unwrap(),
        from: from.map(|from| Reference::parse(from).unwrap()),
    };
    let cache = |source: &str| vec![Extra::Cache { source: source.into(), path: "/srv/app/target".into() }];
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
        assert!(!digests[..at].contains(one), "number {at} equals an earlier one");
    }
    // The form of the answer and the current value of a secret do not change the digest.
    assert_eq!(digest(|it| it.approval = ApprovalMode::Wait), digests[0]);
    assert_eq!(digest(|it| it.streams = Streams::Captured { bytes_max: 1 }), digests[0]);
    assert_eq!(digest(|it| it.cache = CacheMode::Write), digests[0]);
}

#[test]
fn a_secret_file_is_handed_over_by_name_and_path() {
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
    assert_eq!(request.shown_command(), "login '--key=[secret]'");
}
