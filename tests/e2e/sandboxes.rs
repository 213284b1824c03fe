//! The life of a sandbox through the library: it is opened, executes commands, is stopped, and has changes.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use avfs_engine::{
    CommandPlan, Commands, Completion, Exec, Exit, LaunchError, OutsideWrite, Sandbox, SandboxPlan,
    Sandboxes, SecretFiles, ShownAs, Stdio, Upper, UpperPlace, UpperRoot, ViewRequest, ViewStep,
    WorkspaceMount, view,
};
use avfs_hostfs::beneath;
use avfs_request::{Confinement, ExecutionTimeout, LimitKind, Limits, NetMode, ProcMode, Profile, Streams};
use avfs_types::diagnose::Diagnose;
use avfs_vault::backend::sqlite::Placeholders;

use crate::env::runner;
use crate::support::Scratch;

const SIGTERM: i32 = nix::sys::signal::Signal::SIGTERM as i32;

/// A directory with `lower`, `upper` and `work`, and the plan of a sandbox over it.
struct Bench {
    scratch: Scratch,
}

impl Bench {
    fn new() -> Self {
        let scratch = Scratch::new();
        for part in ["mnt", "lower/dir", "upper", "work", "memory"] {
            scratch.dir(part);
        }
        std::fs::write(scratch.join("lower/dir/old"), "old\n").unwrap();
        Self { scratch }
    }

    fn plan(&self, commands: Commands, upper: UpperPlace) -> SandboxPlan {
        let lowers = vec![self.scratch.join("lower")];
        let net = NetMode::None;
        SandboxPlan {
            mountpoint: self.scratch.join("mnt"),
            view: view(ViewRequest {
                profile: Profile::Strict,
                workspace: WorkspaceMount::Overlay { path: "/workspace".into(), lowers, upper },
                home: None,
                git_config: None,
                search_path: "/usr/bin:/bin".as_ref(),
                net: &net,
                proc: ProcMode::Private,
                extras: &[],
                pinned: &[],
                repository: None,
                shown_as: ShownAs::Overlay,
                secret: &[],
                secret_files: SecretFiles::None,
            }),
            secret_files: Vec::new(),
            hostname: None,
            profile: Profile::Strict,
            net,
            confinement: Confinement::DEFAULT,
            limits: Limits::default(),
            commands,
            placeholders: Placeholders::default(),
        }
    }

    fn on_disk(&self, commands: Commands) -> SandboxPlan {
        self.plan(commands, UpperPlace::Disk { dir: self.scratch.path().to_owned() })
    }

    fn written(&self, name: &str) -> PathBuf {
        self.scratch.join("upper").join(name)
    }
}

fn open(plan: &SandboxPlan) -> Box<dyn Sandbox> {
    avfs_run::sandboxes(runner()).open(plan).unwrap()
}

fn command(script: &str) -> CommandPlan {
    CommandPlan {
        argv: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/workspace".into(),
        umask: 0o022,
        stdio: Stdio::default(),
        streams: Streams::Captured { bytes_max: 4096 },
        timeout: ExecutionTimeout::None,
        grace: Duration::from_secs(1),
        limits: Limits::default(),
        spool_dir: None,
    }
}

/// A command that waits for a line of input, and the other end of its input.
fn waiting(script: &str) -> (CommandPlan, File) {
    let (input, gate) = std::io::pipe().unwrap();
    let stdio = Stdio { stdin: Some(input.into()), ..Stdio::default() };
    let command = CommandPlan { stdio, ..command(&format!("read -r line; {script}")) };
    (command, OwnedFd::from(gate).into())
}

fn output(completion: &Completion) -> String {
    String::from_utf8(completion.stdout.as_ref().unwrap().bytes()).unwrap()
}

#[test]
fn commands_share_a_sandbox_until_it_is_stopped() {
    let bench = Bench::new();
    let sandbox = open(&bench.on_disk(Commands::Many));
    let (plan, mut gate) = waiting("echo $line > first");
    let mut first = sandbox.exec(&plan).unwrap();
    // The second runs while the first does, and leaves a process behind that holds its output.
    let mut second =
        sandbox.exec(&command("echo 2 > second; (while :; do echo x >> grows; done) & echo done")).unwrap();
    let ended = second.wait();
    assert_eq!((ended.exit, output(&ended).as_str()), (Exit::Code(0), "done\n"));
    assert!(!bench.written("first").exists());
    assert!(sandbox.processes().len() >= 2, "{:?}", sandbox.processes());
    gate.write_all(b"1\n").unwrap();
    assert_eq!(first.wait().exit, Exit::Code(0));
    let ended = sandbox.exec(&command("cat first second; test -e grows")).unwrap().wait();
    assert_eq!((ended.exit, output(&ended).as_str()), (Exit::Code(0), "1\n2\n"));

    let stopped = sandbox.stop();
    assert!(stopped.left_running >= 1);
    assert_eq!(sandbox.processes(), [0; 0]);
    let Upper::Disk(upper) = sandbox.upper() else { panic!("the upper is on disk") };
    let mut names: Vec<_> = std::fs::read_dir(&upper).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["first", "grows", "second"]);
    assert_eq!(code(sandbox.exec(&command("true"))), "sandbox.vanished");
    sandbox.close();
}

fn code(outcome: Result<Box<dyn Exec>, LaunchError>) -> &'static str {
    outcome.err().unwrap().code()
}

#[test]
fn signals_and_timeouts_of_a_command_spare_the_others() {
    let bench = Bench::new();
    let sandbox = open(&bench.on_disk(Commands::Many));
    let (plan, mut gate) = waiting("exit 3");
    let mut first = sandbox.exec(&plan).unwrap();
    let mut second = sandbox.exec(&command("exec sleep infinity")).unwrap();
    second.signal(SIGTERM).unwrap();
    let ended = second.wait();
    assert_eq!((ended.exit, ended.timed_out), (Exit::Signal(SIGTERM), false));
    let timeout = ExecutionTimeout::Millis(1);
    let ended = sandbox.exec(&CommandPlan { timeout, ..command("sleep infinity & wait") }).unwrap().wait();
    assert!(ended.timed_out);
    gate.write_all(b"\n").unwrap();
    assert_eq!(first.wait().exit, Exit::Code(3));
    sandbox.close();
}

#[test]
fn a_command_that_cannot_be_executed_leaves_the_sandbox_open() {
    let bench = Bench::new();
    let sandbox = open(&bench.on_disk(Commands::Many));
    for _ in 0..2 {
        let missing = CommandPlan { argv: vec!["/no/such".into()], ..command("") };
        assert_eq!(code(sandbox.exec(&missing)), "command.not_found");
        let nowhere = CommandPlan { cwd: "/no/such".into(), ..command("true") };
        assert_eq!(code(sandbox.exec(&nowhere)), "command.no_cwd");
        let limits = Limits { memory: Some(1 << 30), ..Limits::default() };
        assert_eq!(code(sandbox.exec(&CommandPlan { limits, ..command("true") })), "limits.unenforceable");
        assert_eq!(sandbox.exec(&command("true")).unwrap().wait().exit, Exit::Code(0));
    }
    let limits = Limits { file_size: Some(4096), ..Limits::default() };
    let ended = sandbox.exec(&CommandPlan { limits, ..command("ulimit -f") }).unwrap().wait();
    assert_eq!(output(&ended), "8\n");
    let ended = sandbox.exec(&command("ulimit -f; echo x > /tmp/left")).unwrap().wait();
    assert_eq!((output(&ended).as_str(), ended.stopped_by), ("unlimited\n", None::<LimitKind>));
    let left = sandbox.stop().outside_writes;
    assert_eq!(left.paths, [OutsideWrite { path: "/tmp/left".into(), size: Some(2) }]);
}

#[test]
fn the_first_command_reports_why_the_sandbox_could_not_be_set_up() {
    let bench = Bench::new();
    for commands in [Commands::One, Commands::Many] {
        let mut plan = bench.on_disk(commands);
        for step in &mut plan.view {
            if let ViewStep::Workspace(WorkspaceMount::Overlay { lowers, .. }) = step {
                *lowers = vec![bench.scratch.join("missing")];
            }
        }
        let sandbox = open(&plan);
        assert_eq!(code(sandbox.exec(&command("true"))), "mount.layers");
        assert_eq!(sandbox.stop().left_running, 0);
        sandbox.close();
    }
}

#[test]
fn renames_are_answered_while_nobody_waits() {
    let bench = Bench::new();
    let sandbox = open(&bench.plan(
        Commands::Many,
        UpperPlace::Memory {
            at: bench.scratch.join("memory"),
            size_bytes: 1 << 20,
            inodes: 100,
            root: UpperRoot { mode: 0o755, ..UpperRoot::default() },
        },
    ));
    let _first = sandbox.exec(&command("mv dir moved; exec sleep infinity")).unwrap();
    let second = sandbox.exec(&command("until test -e moved/old; do :; done")).unwrap().wait();
    assert_eq!(second.exit, Exit::Code(0));
    // By a process that its command has left running.
    let third = sandbox.exec(&command("(mv moved again; exec sleep infinity) &")).unwrap().wait();
    assert_eq!(third.exit, Exit::Code(0));
    let fourth = sandbox.exec(&command("until test -e again/old; do :; done")).unwrap().wait();
    assert_eq!(fourth.exit, Exit::Code(0));
    let stopped = sandbox.stop();
    assert_eq!((stopped.dirs_not_renamed, stopped.names_renamed.is_empty()), (0, false));
    let upper = sandbox.upper();
    let memory = upper.memory().unwrap();
    assert!(beneath::open(memory.as_fd(), b"upper/again/old", rustix::fs::OFlags::RDONLY).is_ok());
}

#[test]
fn streams_of_a_later_command_are_like_those_of_the_first() {
    let bench = Bench::new();
    let sandbox = open(&bench.on_disk(Commands::Many));
    std::fs::write(bench.scratch.join("input"), "one\ntwo\n").unwrap();
    for _ in 0..2 {
        let file = File::open(bench.scratch.join("input")).unwrap();
        let shared = file.try_clone().unwrap();
        let stdio = Stdio { stdin: Some(file.into()), ..Stdio::default() };
        let mut exec = sandbox.exec(&CommandPlan { stdio, ..command("read -r line; echo $line") }).unwrap();
        assert!(exec.resize(1, 1).is_err(), "it has no terminal");
        assert_eq!(output(&exec.wait()), "one\n");
        // The rest is left to the caller.
        assert_eq!(std::io::read_to_string(shared).unwrap(), "two\n");
        let ended =
            sandbox.exec(&command("readlink /proc/self/fd/0; test ! -t 0; ls /proc/self/fd")).unwrap().wait();
        assert_eq!(output(&ended), "/dev/null\n0\n1\n2\n3\n");
    }
}

#[test]
fn a_sandbox_for_one_command_executes_one() {
    let bench = Bench::new();
    let sandbox = open(&bench.on_disk(Commands::One));
    let mut first = sandbox.exec(&command("sleep infinity & echo 1 > first")).unwrap();
    assert_eq!(code(sandbox.exec(&command("true"))), "run.host");
    let ended = first.wait().with(sandbox.stop());
    assert_eq!((ended.exit, ended.left_running), (Exit::Code(0), 1));
    sandbox.close();
}
