//! The envelope of every outcome of a request, as scripts depend on it: the content of a golden file never changes.
//! Fields may be added.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use avfs_changes::{ChangeSummary, HostUse, RunsOnHost};
use avfs_engine::{
    Backend, BaseUsed, Connection, ConnectionVerdict, Connections, Denial, Enforcement, ExecuteError,
    Executed, ExecutionResult, Exit, LaunchError, Note, Omitted, Outcome, Output, OutsideWrites, Phases,
    Refused, Scratch, Usage,
};
use avfs_hostfs::held::HeldFile;
use avfs_policy::{Action, Categories, Category, ExecutionDecision, OnViolation};
use avfs_present::Avfs;
use avfs_request::spec::RequestObject;
use avfs_request::spec::RunSpec;
use avfs_request::{
    ChangeForm, Confined, Cpus, EnforcedLimit, Environment, ExecutionRequest, ExecutionTimeout, Extra,
    ForkChoice, HostPath, LimitKind, Limits, Mechanism, NestedUserns, NetMode, RefusedCall, SeccompProfile,
    SecretFile, Streams,
};
use avfs_types::CommandLine;
use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{
    ApprovalId, ApprovalPrefix, CheckpointName, ForkName, RequestDigest, RunId, VersionId,
};
use avfs_types::path::TreePath;
use avfs_vault::approval::Fault;
use avfs_vault::backend::{ApprovalRecord, ApprovalState};
use avfs_vault::run::Landed;
use avfs_wire::{ErrorBody, ExecutionEnvelope};

use crate::env::binary;
use crate::schema;

#[derive(Debug, thiserror::Error)]
#[error("cannot make a user namespace")]
struct NoSandbox;

impl Diagnose for NoSandbox {
    fn code(&self) -> &'static str {
        "sandbox.user_namespace"
    }
}

fn no_sandbox() -> LaunchError {
    LaunchError {
        refused: Refused::Other,
        exit_code: 121,
        remedy: Some("see: avfs doctor".to_owned()),
        error: Box::new(NoSandbox),
    }
}

fn request() -> ExecutionRequest {
    let outside = [("PATH", "/bin"), ("TOKEN", "hush-hush")].map(|(name, value)| (name.into(), value.into()));
    ExecutionRequest {
        fork: ForkChoice::Persistent { name: ForkName::parse("fix-1").unwrap(), from: None },
        at: Some("/srv/app".into()),
        cwd: Some("src".into()),
        timeout: ExecutionTimeout::Millis(60_000),
        net: "allow=*.crates.io:443,github.com".parse().unwrap(),
        extras: vec![
            Extra::ReadOnly(HostPath {
                path: "/opt/data".into(),
                real: "/opt/data".into(),
                file: HeldFile::default(),
            }),
            Extra::Hide("/srv/app/secret".into()),
        ],
        environment: Environment::choose(outside, &[avfs_request::EnvChoice::Secret("TOKEN".into())]),
        secret_files: vec![SecretFile { name: "CERT".into(), bytes: b"hush-hush".to_vec(), source: None }],
        limits: Limits { memory: Some(1 << 30), cpus: Some(Cpus(1500)), ..Limits::default() },
        streams: Streams::Captured { bytes_max: 1000 },
        show: ChangeForm::Tree,
        ..ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]))
    }
}

fn decision(action: Action) -> ExecutionDecision {
    ExecutionDecision {
        action,
        categories: Categories::of(Category::Mutating).with(Category::Networked),
        rule: Some("builtin.networked".to_owned()),
        reason: "`make test` may write to the workspace".to_owned(),
        hint: Some("add --net host".to_owned()),
        allow_rule: None,
        on_violation: OnViolation::Keep,
        timeout_max: ExecutionTimeout::None,
        limits_max: Limits::default(),
        approval_seconds: 60,
        net: None,
    }
}

fn result(exit: Exit, timed_out: bool) -> ExecutionResult {
    let run_id = RunId::parse("00112233aa").unwrap();
    let output = |text: &[u8], omitted| Output::lacking(text.to_vec(), omitted);
    ExecutionResult {
        fork: Some(ForkName::parse("fix-1").unwrap()),
        version_before: Some(VersionId([1; 32])),
        version_after: Some(VersionId([2; 32])),
        checkpoint_before: Some(CheckpointName::of_run("before", &run_id)),
        checkpoint_after: Some(CheckpointName::of_run("run", &run_id)),
        exit,
        timed_out,
        stopped_by: None,
        started_at: Timestamp(1_700_000_000_000_000_000),
        duration: Duration::from_micros(12_345),
        stdout: Some(output(b"out\n", None)),
        stderr: Some(output(&[0xff, b'\n'], Some(Omitted { offset: 1, bytes: 7 }))),
        changes: ChangeSummary::default(),
        change_report: None,
        left_out: Vec::new(),
        caches: Vec::new(),
        landed: Landed::Advanced { version: VersionId([2; 32]) },
        classification_violated: false,
        runs_on_host: vec![RunsOnHost {
            path: TreePath::parse(b".git/hooks/pre-commit").unwrap(),
            used: HostUse::Executed,
            why: "a git hook",
            link: None,
        }],
        connections: connections(),
        refused_calls: vec![RefusedCall { call: "mount".to_owned(), count: 2 }],
        outside_writes: OutsideWrites::default(),
        is_bound: true,
        applied: None,
        kept_until: None,
        usage: Usage {
            user: Duration::from_millis(3),
            system: Duration::from_micros(1500),
            max_rss_bytes: 4096,
        },
        phases: Phases { resolve: Duration::from_millis(1), ..Phases::default() },
        notes: vec![Note::new("env.missing", "A is not set".to_owned())],
        enforcement: Some(Enforcement {
            backend: Backend::Overlay,
            confined: Confined {
                seccomp: SeccompProfile::Default,
                landlock_abi: Some(7),
                userns: NestedUserns::Refused,
            },
            limits: vec![EnforcedLimit {
                kind: LimitKind::Memory,
                value: 1 << 30,
                mechanism: Mechanism::Cgroup2,
            }],
            clock: None,
            net: NetMode::None,
            base: BaseUsed::Layered,
            scratch: Scratch::Disk,
            degraded: Vec::new(),
        }),
        cache: None,
        run_id,
    }
}

fn connections() -> Connections {
    let connection = |host: &str, verdict, address: Option<&str>| Connection {
        host: host.to_owned(),
        port: 443,
        address: address.map(|address| address.parse().unwrap()),
        verdict,
        bytes_up: 517,
        bytes_down: 4096,
        began: Duration::from_millis(5),
        lasted: Duration::from_millis(20),
    };
    let refused = ConnectionVerdict::Refused("not on the list".to_owned());
    let list = vec![
        connection("github.com", ConnectionVerdict::Allowed, Some("140.82.112.3")),
        connection("example.com", refused, None),
    ];
    Connections { list, left_off: 1 }
}

fn approval() -> ApprovalRecord {
    ApprovalRecord {
        seq: 1,
        id: ApprovalId::parse("aabbccdd00").unwrap(),
        request_digest: RequestDigest([7; 32]),
        state: ApprovalState::Pending,
        asked_by: RunId::parse("00112233aa").unwrap(),
        reason: "`curl` does its work over the network".to_owned(),
        request: "{}".to_owned(),
        decision: "{}".to_owned(),
        created_at: Timestamp(0),
        expires_at: Timestamp(1),
        decided_at: None,
        decided_by: None,
        used_by: None,
    }
}

fn executed(action: Action, outcome: Result<Outcome, ExecuteError>) -> ExecutionEnvelope {
    let approval = matches!(outcome, Ok(Outcome::ApprovalRequired(_))).then(|| approval().id);
    let executed = Executed {
        run_id: Some(RunId::parse("00112233aa").unwrap()),
        decision: Some(decision(action)),
        approval,
        outcome,
    };
    let object = RequestObject::of(&request(), Some(Path::new("/srv/app/.avfs/vault.db")));
    avfs_present::execution(object, &executed, &Avfs::default())
}

/// Every outcome, by name.
fn envelopes() -> Vec<(&'static str, ExecutionEnvelope)> {
    let ran = |exit, timed_out| Ok(Outcome::Ran(Box::new(result(exit, timed_out))));
    let denied = |denial| executed(Action::Deny, Ok(Outcome::Denied(denial)));
    let approval_id = approval().id;
    let broken = ExecuteError::CaptureFailed {
        id: RunId::parse("00112233aa").unwrap(),
        dir: "/cache/run/00112233aa".into(),
        exit: Exit::Code(0),
        source: Box::new(avfs_vault::VaultError::Moved { path: "/srv/app/.avfs/vault.db".into() }.into()),
    };
    let usage = ErrorBody {
        code: "usage".to_owned(),
        message: "unexpected argument '--frok' found".to_owned(),
        hint: Some("see: avfs-run --help".to_owned()),
    };
    let object = RequestObject::of(&request(), None);
    let plan = result(Exit::Code(0), false).enforcement.unwrap();
    vec![
        ("success", executed(Action::AllowWithCheckpoint, ran(Exit::Code(0), false))),
        ("failure", executed(Action::Allow, ran(Exit::Code(2), false))),
        ("signal", executed(Action::Allow, ran(Exit::Signal(9), false))),
        ("timeout", executed(Action::Allow, ran(Exit::Signal(15), true))),
        ("denied", denied(Denial::Policy)),
        (
            "denied-by-a-person",
            denied(Denial::Person { approval: approval_id.clone(), by: "ann".to_owned() }),
        ),
        (
            "approval-mismatched",
            denied(Denial::BadApproval {
                shown: ApprovalPrefix::from(&approval_id),
                fault: Fault::Mismatched,
            }),
        ),
        ("approval-required", executed(Action::RequireApproval, Ok(Outcome::ApprovalRequired(approval())))),
        ("setup-failure", executed(Action::Allow, Err(ExecuteError::Launch(no_sandbox())))),
        ("capture-failure", executed(Action::Allow, Err(broken))),
        ("usage-error", ExecutionEnvelope::failed(None, usage)),
        ("planned", avfs_present::execution_planned(object, &decision(Action::Deny), &plan)),
    ]
}

fn golden(kind: &str, name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(kind);
    dir.join(format!("{name}.json"))
}

/// The content of a golden file.
pub fn golden_in(kind: &str, name: &str, now: &Value) -> Value {
    let file = golden(kind, name);
    // A new golden file is written only on request; an existing one is never rewritten.
    if std::env::var_os("AVFS_GOLDEN_REGENERATE").is_some() && !file.exists() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, format!("{now:#}\n")).unwrap();
    }
    let then = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&then).unwrap()
}

/// Fails unless everything in `then` is in `now`, with the same value.
pub fn assert_kept(then: &Value, now: &Value, at: &str) {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (key, value) in then {
                let found = now.get(key).unwrap_or_else(|| panic!("{at}.{key} is gone"));
                assert_kept(value, found, &format!("{at}.{key}"));
            }
        }
        (Value::Array(then), Value::Array(now)) => {
            assert_eq!(then.len(), now.len(), "{at}");
            for (number, (then, now)) in then.iter().zip(now).enumerate() {
                assert_kept(then, now, &format!("{at}[{number}]"));
            }
        }
        (then, now) => assert_eq!(then, now, "{at} has changed"),
    }
}

#[test]
fn envelopes_match_their_golden_files() {
    for (name, envelope) in envelopes() {
        let now = serde_json::to_value(&envelope).unwrap();
        let then = golden_in("envelopes", name, &now);
        assert_kept(&then, &now, name);
        schema::validate(&binary(), &now);
        let read: ExecutionEnvelope = serde_json::from_value(now.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), now, "{name}");
    }
}

#[test]
fn every_golden_envelope_is_still_produced() {
    let names: Vec<&str> = envelopes().into_iter().map(|(name, _)| name).collect();
    for entry in std::fs::read_dir(golden("envelopes", "x").parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name.trim_end_matches(".json")), "no envelope corresponds to {name}");
    }
}

#[test]
fn no_envelope_contains_a_secret() {
    for (name, envelope) in envelopes() {
        let text = serde_json::to_string(&envelope).unwrap();
        assert!(!text.contains("hush-hush"), "{name}");
    }
}

#[test]
fn recorded_request_can_be_parsed_again() {
    let object = RequestObject::of(&request(), Some(Path::new("/v.db")));
    let text = serde_json::to_vec(&object).unwrap();
    let file = RunSpec::parse(&text).unwrap();
    assert_eq!(file.command_line().unwrap(), request().command);
    assert_eq!(
        (file.fork.as_ref().map(|fork| fork.as_str()), file.timeout_ms),
        (Some("fix-1"), Some(Some(60_000)))
    );
    assert_eq!((file.ro, file.hide), (vec!["/opt/data".into()], vec!["/srv/app/secret".into()]));
}
