//! Finds out which sandbox features this host supports by using each of them once, with a tiny workspace in the real
//! scratch directory.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_engine::{
    CommandPlan, Commands, Completion, Exit, LaunchError, SandboxPlan, Sandboxes, SecretFiles, ShownAs,
    Stdio, Upper, UpperPlace, UpperRoot, ViewRequest, WorkspaceMount, view,
};
use avfs_hostfs::remove::remove_tree;
use avfs_hostfs::{beneath, make, xattr};
use avfs_request::{
    Confinement, ExecutionTimeout, LandlockMode, Limits, NestedUserns, NetMode, ProcMode, Profile,
    SeccompProfile, Streams,
};
use avfs_types::diagnose::{Diagnose, with_causes};
use avfs_vault::backend::sqlite::Placeholders;
use avfs_wire::DoctorCheck;

use crate::remedy::Piece;
use crate::sandbox::HostSandboxes;

const OPAQUE: &[u8] = b"user.overlay.opaque";
const MEMORY_BYTES: u64 = 1 << 20;
const MEMORY_INODES: u64 = 100;
/// Replaces a directory of the lower layer: the upper must mark it as opaque.
const REPLACE: &str = "rm -r d && mkdir d && : > d/new";

const FILTER_HOLDS: &str =
    "grep -q '^Seccomp:[[:space:]]*2$' /proc/self/status || { echo 'no filter holds' >&2; exit 1; }";
/// A refused call. The new root must differ from the current one, or chroot(1) makes no system call.
const CHROOT: &str = "PATH=$PATH:/usr/sbin:/sbin chroot /usr true 2>/dev/null; true";
const SCOPE_HOLDS: &str = "! kill -0 1 2>/dev/null || { echo 'no scope holds' >&2; exit 1; }";

/// A workspace for the checks, removed on drop.
struct Bench {
    dir: PathBuf,
}

impl Bench {
    fn make(cache_dir: &Path) -> std::io::Result<Self> {
        let dir = cache_dir.join(format!("doctor-{}", std::process::id()));
        for part in ["mnt", "lower/d", "memory", "disk/upper", "disk/work"] {
            make::private_dirs(&dir.join(part))?;
        }
        std::fs::write(dir.join("lower/d/old"), "old\n")?;
        Ok(Self { dir })
    }

    fn overlay(&self, upper: UpperPlace) -> WorkspaceMount {
        WorkspaceMount::Overlay { path: "/workspace".into(), lowers: vec![self.dir.join("lower")], upper }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A leftover of a check is harmless; the next check uses another name.
        let _ = remove_tree(&self.dir);
    }
}

/// Every check, in the order in which a run needs them.
pub fn checks(cache_dir: &Path, umask: u32) -> Vec<DoctorCheck> {
    let bench = match Bench::make(cache_dir) {
        Ok(bench) => bench,
        Err(error) => {
            let hint = "set XDG_CACHE_HOME to a directory you can write".to_owned();
            let detail = format!("{}: {error}", cache_dir.display());
            return vec![DoctorCheck::failed("scratch directory", true, "scratch.io", detail, Some(hint))];
        }
    };
    let prober = Prober { bench: &bench, sandboxes: HostSandboxes::of_this_program(), umask };
    let plain = WorkspaceMount::ReadOnly { path: "/workspace".into(), lowers: vec![bench.dir.join("lower")] };
    let mut checks = vec![
        prober.check(
            "user namespace and mounts",
            true,
            prober.plan(plain.clone(), NetMode::Host, ProcMode::Absent, "true"),
        ),
        prober.check(
            "private /proc",
            true,
            prober.plan(plain.clone(), NetMode::Host, ProcMode::Private, "true"),
        ),
        prober.check("private network", true, prober.plan(plain, NetMode::None, ProcMode::Private, "true")),
    ];
    let disk = prober.overlay(UpperPlace::Disk { dir: bench.dir.join("disk") });
    let memory = prober.overlay(UpperPlace::Memory {
        at: bench.dir.join("memory"),
        size_bytes: MEMORY_BYTES,
        inodes: MEMORY_INODES,
        root: UpperRoot { mode: 0o755, ..UpperRoot::default() },
    });
    // One of the two is enough: a run uses the available one, and the copy backend if neither is available.
    let either = disk.is_ok() || memory.is_ok();
    checks.push(check_result("overlay, scratch on disk", !either, disk));
    checks.push(check_result("overlay, scratch in memory", false, memory));
    checks.push(check_result("seccomp filter", true, prober.seccomp()));
    checks.push(check_result("refused calls are reported", false, prober.refusals_reported()));
    checks.push(check_result("Landlock", false, prober.landlock()));
    checks.push(own_group());
    checks
}

struct Prober<'b> {
    bench: &'b Bench,
    sandboxes: HostSandboxes,
    umask: u32,
}

/// A sandbox and the command in it.
struct Plans {
    sandbox: SandboxPlan,
    command: CommandPlan,
}

/// Why a check failed.
enum Failure {
    Launch(LaunchError),
    /// The check ran, but with a wrong result.
    Wrong {
        piece: Piece,
        what: String,
    },
}

impl Prober<'_> {
    fn plan(&self, workspace: WorkspaceMount, net: NetMode, proc: ProcMode, script: &str) -> Plans {
        let steps = view(ViewRequest {
            profile: Profile::Strict,
            workspace,
            home: None,
            git_config: None,
            search_path: "/usr/bin:/bin".as_ref(),
            net: &net,
            proc,
            extras: &[],
            repository: None,
            shown_as: ShownAs::Overlay,
            pinned: &[],
            secret: &[],
            secret_files: SecretFiles::None,
        });
        let sandbox = SandboxPlan {
            mountpoint: self.bench.dir.join("mnt"),
            view: steps,
            secret_files: Vec::new(),
            hostname: None,
            profile: Profile::Strict,
            net,
            confinement: Confinement::DEFAULT,
            limits: Limits::default(),
            commands: Commands::One,
            placeholders: Placeholders::default(),
        };
        let command = CommandPlan {
            argv: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/workspace".into(),
            umask: self.umask,
            stdio: Stdio::default(),
            streams: Streams::Captured { bytes_max: 4096 },
            timeout: ExecutionTimeout::Millis(10_000),
            grace: Duration::from_secs(1),
            limits: Limits::default(),
            spool_dir: Some(self.bench.dir.clone()),
        };
        Plans { sandbox, command }
    }

    fn run(&self, plans: &Plans) -> Result<(Completion, Upper), Failure> {
        let sandbox = self.sandboxes.open(&plans.sandbox).map_err(Failure::Launch)?;
        let mut exec = sandbox.exec(&plans.command).map_err(Failure::Launch)?;
        let completion = exec.wait().with(sandbox.stop());
        if completion.exit != Exit::Code(0) {
            let said =
                String::from_utf8_lossy(&completion.stderr.unwrap_or_default().bytes()).trim().to_owned();
            return Err(Failure::Wrong { piece: Piece::Process, what: said });
        }
        Ok((completion, sandbox.upper()))
    }

    fn check(&self, name: &str, required: bool, plans: Plans) -> DoctorCheck {
        check_result(name, required, self.run(&plans).map(drop))
    }

    /// Runs a command with this confinement. The workspace does not matter.
    fn confined(&self, confinement: Confinement, script: &str) -> Result<Completion, Failure> {
        let lowers = vec![self.bench.dir.join("lower")];
        let plain = WorkspaceMount::ReadOnly { path: "/workspace".into(), lowers };
        let mut plans = self.plan(plain, NetMode::Host, ProcMode::Private, script);
        plans.sandbox.confinement = confinement;
        Ok(self.run(&plans)?.0)
    }

    /// Checks in `/proc/self/status` that a filter is installed.
    fn seccomp(&self) -> Result<(), Failure> {
        let alone = Confinement { landlock: LandlockMode::Off, ..Confinement::DEFAULT };
        self.confined(alone, FILTER_HOLDS).map(drop)
    }

    fn refusals_reported(&self) -> Result<(), Failure> {
        let alone = Confinement { landlock: LandlockMode::Off, ..Confinement::DEFAULT };
        let completion = self.confined(alone, CHROOT)?;
        if completion.refused_calls.iter().any(|refused| refused.call == "chroot") {
            return Ok(());
        }
        let what =
            "calls are refused, but the kernel does not report which: another listener is installed, or it \
                    is older than Linux 5.0"
                .to_owned();
        Err(Failure::Wrong { piece: Piece::Process, what })
    }

    /// If Landlock supports scopes, the command cannot signal the first process, although it has the same user id.
    fn landlock(&self) -> Result<(), Failure> {
        const SCOPES_SINCE: u32 = 6;
        let alone = Confinement {
            seccomp: SeccompProfile::Off,
            landlock: LandlockMode::Required,
            userns: NestedUserns::Allowed,
        };
        let scoped = crate::sys::landlock_abi().is_some_and(|abi| abi >= SCOPES_SINCE);
        let script = if scoped { SCOPE_HOLDS } else { "true" };
        self.confined(alone, script).map(drop)
    }

    /// Writes to an overlay, and checks the resulting upper.
    fn overlay(&self, upper: UpperPlace) -> Result<(), Failure> {
        let plans = self.plan(self.bench.overlay(upper), NetMode::Host, ProcMode::Private, REPLACE);
        let (_, upper) = self.run(&plans)?;
        let top = match upper.memory() {
            Some(memory) => beneath::open(memory.as_fd(), b"upper/d", beneath::DIR),
            None => beneath::open_root(&self.bench.dir.join("disk/upper/d")),
        };
        let marks = top.and_then(|dir| xattr::read(dir.as_fd()));
        let opaque =
            marks.is_ok_and(|marks| marks.iter().any(|(name, value)| name == OPAQUE && value == b"y"));
        if opaque {
            return Ok(());
        }
        let what = "a replaced directory is not marked as opaque".to_owned();
        Err(Failure::Wrong { piece: Piece::Overlay, what })
    }
}

fn check_result(name: &str, required: bool, outcome: Result<(), Failure>) -> DoctorCheck {
    match outcome {
        Ok(()) => DoctorCheck::passed(name, required),
        Err(Failure::Wrong { piece, what }) => {
            let hint = piece.remedy(&std::io::Error::from(std::io::ErrorKind::Other));
            DoctorCheck::failed(name, required, piece.code(), what, hint)
        }
        Err(Failure::Launch(error)) => {
            DoctorCheck::failed(name, required, error.code(), with_causes(&error), error.remedy)
        }
    }
}

fn own_group() -> DoctorCheck {
    let name = "own control group";
    if own_cgroup() {
        return DoctorCheck::passed(name, false);
    }
    let missing =
        "no writable cgroup v2: limits on memory and processors are less precise, or need root".to_owned();
    DoctorCheck::failed(name, false, "sandbox.confinement", missing, None)
}

/// True if this process can create control groups below its own.
fn own_cgroup() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/cgroup") else { return false };
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else { return false };
    let dir = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let writable = |file: &str| rustix::fs::access(dir.join(file), rustix::fs::Access::WRITE_OK).is_ok();
    writable("cgroup.procs") && writable("cgroup.subtree_control")
}
