//! Complete runs in scripted sandboxes: states, fallbacks, captured and recovered changes, without namespaces.

mod scripted;

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use avfs_hostfs::machine::boot_id;
use avfs_policy::{ExecutionDecision, Policy};
use avfs_request::{BackendChoice, Degradation, ExecutionRequest, ForkChoice, ScratchChoice, SecretsInFiles};
use avfs_types::clock::SystemClock;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_types::{CommandLine, KeepCount};
use avfs_vault::approval::Answer;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::backend::{ApprovalRecord, RunState};
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::page::Node;
use avfs_vault::quota::Quota;
use avfs_vault::tree::{Pages, lookup};
use avfs_vault::version::root_of;
use avfs_vault::{Context, Vault, read_content, require_version};

use crate::first_import::WarnAbove;
use crate::launcher::{Exit, Refused, WorkspaceMount};
use crate::locate::GitConfigs;
use crate::permission::Approver;
use crate::result_cache::{Machine, MemoSite};
use crate::run::{Backend, Executed, ExecutionResult, Outcome, ProxyRuntime, Site};
use crate::session::noted::NoteDelivery;
use crate::{Doubt, RecoverOptions, Recovery, ScratchDir, make_vault};

use scripted::{ScriptedSandboxes, exited};

struct Nobody;

impl Approver for Nobody {
    fn ask(&self, _: &ApprovalRecord, _: &ExecutionDecision) -> Option<Answer> {
        None
    }

    fn waits(&self, _: &ApprovalRecord) {}
}

/// A project with one file, its vault, and a cache.
struct Bench {
    dir: TempDir,
    vault: Vault,
    boot_id: String,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("file"), "old\n").unwrap();
        let context = Context { clock: Arc::new(SystemClock), actor: "test".to_owned() };
        let path = project.join(".avfs/vault.db");
        let vault = make_vault(&path, &project, OpenOptions::default(), context).unwrap();
        Self { dir, vault, boot_id: boot_id().unwrap() }
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn execute(&self, request: &ExecutionRequest, launcher: &ScriptedSandboxes) -> Executed {
        let (meter, machine) = (Meter::default(), Machine::default());
        let site = Site {
            vault: &self.vault,
            vault_id: self.vault.id().unwrap(),
            bound: Some(self.project()),
            cwd: self.project(),
            home: None,
            git_configs: GitConfigs::default(),
            layers: BaseCache::new(&self.cache(), &self.boot_id),
            cache_dir: self.cache(),
            private_paths: Vec::new(),
            boot_id: self.boot_id.clone(),
            stat_cache: None,
            exclude: Vec::new(),
            warn_above: WarnAbove { files: None, bytes: None },
            expires_seconds: 3600,
            arguments_bytes_max: 128 << 10,
            checkpoints_keep: KeepCount::DEFAULT,
            memo: MemoSite { machine: &machine, umask: 0o022, expires_seconds: 3600 },
            meter: &meter,
            notes: NoteDelivery::Shown,
        };
        let policy = Policy::builtin();
        ProxyRuntime { site: &site, policy: &policy, approver: &Nobody, launcher }.execute(request)
    }

    fn ran(&self, request: &ExecutionRequest, launcher: &ScriptedSandboxes) -> ExecutionResult {
        match self.execute(request, launcher).outcome {
            Ok(Outcome::Ran(result)) => *result,
            Ok(Outcome::Denied(_) | Outcome::ApprovalRequired(_)) => panic!("the request was not permitted"),
            Err(error) => panic!("{error}"),
        }
    }

    /// The content of a file on a fork.
    fn read(&self, fork: &ForkName, path: &str) -> String {
        let reader = self.vault.read().unwrap();
        let version = require_version(&*reader, &self.vault.fork(fork).unwrap().head).unwrap();
        let root = root_of(&version).unwrap();
        let path = TreePath::parse(path.as_bytes()).unwrap();
        let pages: &dyn Pages = &&*reader;
        let Some(Node::File(file)) = lookup(pages, &root, &path).unwrap() else {
            panic!("{path} is not a file")
        };
        String::from_utf8(read_content(&*reader, &file).unwrap()).unwrap()
    }
}

/// A request whose writes go to disk, where a script can write too.
fn request() -> ExecutionRequest {
    ExecutionRequest {
        scratch: ScratchChoice::Disk,
        ..ExecutionRequest::of(CommandLine::Argv(vec!["make".into()]))
    }
}

#[test]
fn run_becomes_a_version_and_the_directory_is_unchanged() {
    let bench = Bench::new();
    let launcher = ScriptedSandboxes::default().writing(&[("file", "new\n"), ("other", "1\n")]);
    let result = bench.ran(&request(), &launcher);
    assert_eq!((result.exit, result.changes.changes.len()), (Exit::Code(0), 2));
    let fork = result.fork.unwrap();
    assert_eq!(bench.read(&fork, "file") + &bench.read(&fork, "other"), "new\n1\n");
    assert_eq!(std::fs::read_to_string(bench.project().join("file")).unwrap(), "old\n");
    let row = bench.vault.read().unwrap().run(&result.run_id).unwrap().unwrap();
    assert_eq!((row.state, row.version_after), (RunState::Completed, result.version_after));
}

#[test]
fn fork_keeps_changes_from_run_to_run() {
    let bench = Bench::new();
    let name = ForkName::parse("work").unwrap();
    let fork = ForkChoice::Persistent { name: name.clone(), from: None };
    let on_fork = ExecutionRequest { fork, ..request() };
    bench.ran(&on_fork, &ScriptedSandboxes::default().writing(&[("a", "1")]));
    bench.ran(&on_fork, &ScriptedSandboxes::default().writing(&[("b", "2")]));
    assert_eq!(bench.read(&name, "a") + &bench.read(&name, "b") + &bench.read(&name, "file"), "12old\n");
    // No changes, no version.
    let head = bench.vault.fork(&name).unwrap().head;
    let result = bench.ran(&on_fork, &ScriptedSandboxes::default().then(|_| Ok(exited(3))));
    assert_eq!((result.exit, result.version_after), (Exit::Code(3), None));
    assert_eq!(bench.vault.fork(&name).unwrap().head, head);
}

#[test]
fn command_runs_on_a_copy_without_overlay_support() {
    let bench = Bench::new();
    let launcher = ScriptedSandboxes::default().refusing(Refused::Overlay).writing(&[("file", "copied\n")]);
    let result = bench.ran(&request(), &launcher);
    let mounts = launcher.mounts.borrow();
    assert!(
        matches!(mounts[..], [WorkspaceMount::Overlay { .. }, WorkspaceMount::Copy { .. }]),
        "{mounts:?}"
    );
    assert_eq!(result.enforcement.unwrap().backend, Backend::Copy);
    assert!(result.notes.iter().any(|note| note.code == "backend.copy"));
    assert_eq!(bench.read(&result.fork.unwrap(), "file"), "copied\n");
    // Not if an overlay was requested.
    let overlay = ExecutionRequest { backend: BackendChoice::Overlay, ..request() };
    let executed = bench.execute(&overlay, &ScriptedSandboxes::default().refusing(Refused::Overlay));
    assert_eq!(executed.outcome.err().unwrap().code(), "sandbox.test");
}

#[test]
fn isolation_is_reduced_only_if_allowed() {
    let bench = Bench::new();
    let executed = bench.execute(&request(), &ScriptedSandboxes::default().refusing(Refused::Proc));
    assert_eq!(executed.outcome.err().unwrap().code(), "sandbox.test");
    let row = bench.vault.read().unwrap().run(&executed.run_id.unwrap()).unwrap().unwrap();
    assert_eq!(row.state, RunState::Failed);
    let allowed = ExecutionRequest { degradation: Degradation::Allowed, ..request() };
    let launcher = ScriptedSandboxes::default().refusing(Refused::Proc).writing(&[("a", "1")]);
    assert_eq!(bench.ran(&allowed, &launcher).enforcement.unwrap().degraded, ["proc"]);
}

#[test]
fn changes_that_cannot_be_captured_are_kept_and_recovered() {
    let bench = Bench::new();
    // The first version is in the vault; the next one has an entry too many.
    bench.ran(&request(), &ScriptedSandboxes::default().writing(&[("file", "1")]));
    bench.vault.change_quota(|_| Quota { files: Some(1), ..Quota::default() }).unwrap();
    let launcher = ScriptedSandboxes::default().writing(&[("kept", "yes"), ("beside", "too")]);
    let executed = bench.execute(&request(), &launcher);
    let (error, id) = (executed.outcome.err().unwrap(), executed.run_id.unwrap());
    assert_eq!((error.code(), Diagnose::cause(&error)), ("capture.failed", Some("quota.exceeded")));
    bench.vault.change_quota(|_| Quota::default()).unwrap();
    let scratch = ScratchDir::new(&bench.cache());
    let mut found = Recovery::find(&scratch, &bench.vault).unwrap().runs;
    let (project, recovery) = (bench.project(), found.pop().unwrap());
    let options = RecoverOptions {
        bound: Some(&project),
        stat_cache: None,
        boot_id: &bench.boot_id,
        doubt: Doubt::Refused,
        secrets_in_files: SecretsInFiles::Refused,
        environment: &[],
    };
    recovery.finish(&bench.vault, &options).unwrap();
    let row = bench.vault.read().unwrap().run(&id).unwrap().unwrap();
    assert_eq!(row.state, RunState::Completed);
    assert_eq!(bench.read(&row.fork, "kept"), "yes");
    // With the automatic checkpoints that it would have got.
    let made = bench.vault.read().unwrap().checkpoints_of_fork(&row.fork).unwrap();
    let names: Vec<String> = made.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, [format!("before-{id}"), format!("run-{id}")]);
    assert!(Recovery::find(&scratch, &bench.vault).unwrap().runs.is_empty(), "recovered once");
}
