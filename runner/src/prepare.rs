//! From a launch plan to what init interprets: C strings and numbers, so that nothing is allocated after
//! the clone.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs::runtime::{
    Access, Confined, Confinement, LaunchPlan, NestedUserns, NetMode, Profile, SeccompProfile, SecretFile,
    TmpfsSize, UpperPlace, UpperRoot, ViewStep, WorkspaceMount,
};
use rustix::process::Rlimit;

use crate::confine::{Filter, Landlock, Seal, UnixSockets, seals};
use crate::launch::LaunchError;
use crate::limits::Keeper;
use crate::sys::{CloneFlags, Exec, MountAttr, StringTable};

/// Read-only parts of /proc for a user whom the kernel takes for the host's root by its id alone.
const PROC_SEALED: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// The kernel's setting, in /proc.
const USERNS_MAX: &str = "sys/user/max_user_namespaces";
/// Memory comes in pages, and the largest there are have this many bytes.
const SECRET_ROOM_BYTES: usize = 64 << 10;
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// One call or a few of them; paths of the view are relative to the new root, which is the working directory.
pub enum Op {
    Mkdir {
        path: CString,
        mode: u32,
    },
    /// An empty file to mount a file on.
    Touch {
        path: CString,
    },
    Symlink {
        path: CString,
        target: CString,
    },
    Bind {
        source: CString,
        path: CString,
        attr: MountAttr,
    },
    /// Read-only what is there already, if it is.
    Seal {
        path: CString,
    },
    Mount {
        kind: CString,
        path: CString,
        options: CString,
        exec: Execution,
    },
    /// A value for a file of the kernel's.
    Set {
        path: CString,
        value: CString,
    },
    /// The overlay of the layers that were opened before.
    Overlay {
        path: CString,
    },
    /// One layer alone, read-only.
    Layer {
        path: CString,
    },
    /// Writes to the kernel's setting that no user namespaces may be made in this one.
    NoUserNamespaces {
        path: CString,
        otherwise: Otherwise,
    },
    Hide {
        path: CString,
    },
    MountPoint {
        parent: CString,
        path: CString,
    },
    /// A file with this content, for its owner to read.
    Secret {
        path: CString,
        bytes: Vec<u8>,
    },
    /// Remounts a file system of ours so that nothing can be made in it.
    SealMount {
        path: CString,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Allowed,
    Refused,
}

/// What holds if the kernel's setting cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The filter refuses the calls too.
    Filtered,
    Allowed,
}

/// The layers of the workspace.
pub struct Layers {
    /// Topmost first.
    pub lowers: Vec<CString>,
    pub upper: Upper,
}

pub enum Upper {
    None,
    Disk { upper: CString, work: CString },
    Memory { at: CString, options: CString, root: UpperFace },
}

impl Upper {
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }
}

/// [`UpperRoot`] as C strings.
pub struct UpperFace {
    pub mode: u32,
    pub mtime: (i64, u32),
    pub xattrs: Vec<(CString, Vec<u8>)>,
    pub whiteouts: Vec<CString>,
}

pub struct Prepared {
    pub mountpoint: CString,
    pub ops: Vec<Op>,
    /// For each operation the step of the view it belongs to.
    pub step_of: Vec<u16>,
    pub layers: Option<Layers>,
    pub namespaces: CloneFlags,
    pub loopback: bool,
    /// Whether somebody outside takes connections from inside.
    pub wants_listener: bool,
    /// The supervisor gets a descriptor of /proc.
    pub shows_proc: bool,
    pub exec: Exec,
    pub cwd: CString,
    pub umask: u32,
    pub landlock: Option<Landlock>,
    pub filter: Option<Filter>,
    /// The processors it has are its limit, so it must not take others.
    pub pinned: bool,
    /// How large a file of its may become.
    pub file_size: Option<Rlimit>,
    /// What holds once all of it is done.
    pub confined: Confined,
}

fn c_string(bytes: &[u8]) -> Result<CString, LaunchError> {
    CString::new(bytes).map_err(|_| LaunchError::Nul { text: String::from_utf8_lossy(bytes).into_owned() })
}

fn c_path(path: &Path) -> Result<CString, LaunchError> {
    c_string(path.as_os_str().as_bytes())
}

/// A path of the view, as seen from the new root.
fn inner(path: &Path) -> Result<CString, LaunchError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.as_os_str().is_empty() { c_string(b".") } else { c_path(relative) }
}

pub fn prepare(plan: &LaunchPlan, keeper: &Keeper, umask: u32) -> Result<Prepared, LaunchError> {
    let Confinement { seccomp, landlock, userns } = plan.confinement;
    let mut compiler = Compiler {
        ops: Vec::new(),
        step_of: Vec::new(),
        layers: None,
        step: 0,
        secret_files: &plan.secret_files,
        tmpfs: TmpfsBounds { bytes: plan.limits.tmpfs_bytes(), files: plan.limits.files, view: &plan.view },
        pid_max: keeper.pid_max(),
        userns,
        otherwise: match seccomp {
            SeccompProfile::Off => Otherwise::Allowed,
            SeccompProfile::Default | SeccompProfile::Strict => Otherwise::Filtered,
        },
    };
    if !plan.view.iter().any(|step| matches!(step, ViewStep::Proc { .. })) {
        compiler.no_user_namespaces(c_path(Path::new("/proc").join(USERNS_MAX).as_path())?);
    }
    for (number, step) in plan.view.iter().enumerate() {
        compiler.step = u16::try_from(number).unwrap_or(u16::MAX);
        compiler.compile(step)?;
    }
    let isolated = [CloneFlags::MOUNT, CloneFlags::PID, CloneFlags::IPC, CloneFlags::UTS, CloneFlags::CGROUP];
    let mut namespaces = isolated.into_iter().fold(CloneFlags::USER, CloneFlags::and);
    if plan.net.is_apart() {
        namespaces = namespaces.and(CloneFlags::NET);
    }
    let landlock = Landlock::choose(landlock, userns, &plan.view);
    let landlock = landlock.map_err(|gap| LaunchError::Landlock { gap })?;
    Ok(Prepared {
        mountpoint: c_path(&plan.mountpoint)?,
        ops: compiler.ops,
        step_of: compiler.step_of,
        layers: compiler.layers,
        namespaces,
        loopback: plan.net.is_apart(),
        wants_listener: matches!(plan.net, NetMode::Allow(_)),
        shows_proc: keeper.wants_processes(),
        exec: exec_of(&plan.command, &plan.environment)?,
        cwd: c_path(&plan.cwd)?,
        umask,
        confined: Confined { seccomp, landlock_abi: landlock.as_ref().map(Landlock::abi), userns },
        landlock,
        filter: Filter::choose(seccomp, unix_sockets(plan), userns),
        pinned: keeper.pins_processors(),
        file_size: keeper.file_size(),
    })
}

/// Refused where sockets of the host's services are in sight, and the host's network is not meant to be reached.
fn unix_sockets(plan: &LaunchPlan) -> UnixSockets {
    match plan.profile {
        Profile::Host if plan.net.is_apart() => UnixSockets::Refused,
        Profile::Host | Profile::Strict => UnixSockets::Allowed,
    }
}

struct Compiler<'p> {
    ops: Vec<Op>,
    step_of: Vec<u16>,
    layers: Option<Layers>,
    step: u16,
    secret_files: &'p [SecretFile],
    userns: NestedUserns,
    otherwise: Otherwise,
    tmpfs: TmpfsBounds<'p>,
    /// The highest process number, where one is set.
    pid_max: Option<u64>,
}

/// What each file system in memory may hold that nobody has given a size.
#[derive(Clone, Copy)]
struct TmpfsBounds<'p> {
    bytes: Option<u64>,
    files: Option<u64>,
    view: &'p [ViewStep],
}

impl TmpfsBounds<'_> {
    /// As options, after others.
    fn options(self, path: &Path) -> String {
        let option = |name: &str, value: Option<u64>| value.map(|value| format!(",{name}={value}"));
        // Nothing, to the kernel, is no bound.
        let bytes = self.bytes.map(|it| it.max(1));
        // Its own root is one too, and so is what the view makes there: neither is the command's.
        let files = self.files.map(|it| it.saturating_add(1).saturating_add(made_in(path, self.view)));
        [option("size", bytes), option("nr_inodes", files)].into_iter().flatten().collect()
    }
}

/// How many directories, files and links the view makes in the file system that is mounted there.
fn made_in(mounted: &Path, view: &[ViewStep]) -> u64 {
    let beneath = |path: &Path| path != mounted && path.starts_with(mounted);
    let made: Vec<Made<'_>> = view.iter().filter_map(made).filter(|made| beneath(made.path)).collect();
    // What is made beneath another mount is made in that.
    let elsewhere = |path: &Path| {
        made.iter().any(|it| it.covered == Covered::Yes && it.path != path && path.starts_with(it.path))
    };
    let paths: BTreeSet<&Path> = made.iter().map(|it| it.path).filter(|path| !elsewhere(path)).collect();
    u64::try_from(paths.len()).unwrap_or(u64::MAX)
}

/// A path that a step of the view makes.
struct Made<'p> {
    path: &'p Path,
    covered: Covered,
}

/// Whether something is mounted on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covered {
    Yes,
    No,
}

fn made(step: &ViewStep) -> Option<Made<'_>> {
    let (path, covered) = match step {
        ViewStep::Dir { path, .. } | ViewStep::Symlink { path, .. } | ViewStep::MountPoint { path } => {
            (path, Covered::No)
        }
        ViewStep::Bind { path, .. }
        | ViewStep::Tmpfs { path, .. }
        | ViewStep::Proc { path }
        | ViewStep::Devices { path }
        | ViewStep::Secrets { path }
        | ViewStep::Workspace(
            WorkspaceMount::Overlay { path, .. }
            | WorkspaceMount::ReadOnly { path, .. }
            | WorkspaceMount::Copy { path, .. },
        ) => (path, Covered::Yes),
        ViewStep::Hide { .. } | ViewStep::SealRoot => return None,
    };
    Some(Made { path, covered })
}

impl Compiler<'_> {
    fn push(&mut self, op: Op) {
        self.ops.push(op);
        self.step_of.push(self.step);
    }

    fn compile(&mut self, step: &ViewStep) -> Result<(), LaunchError> {
        match step {
            ViewStep::Dir { path, mode } => self.push(Op::Mkdir { path: inner(path)?, mode: *mode }),
            ViewStep::Symlink { path, target } => {
                self.push(Op::Symlink { path: inner(path)?, target: c_path(target)? });
            }
            ViewStep::Bind { source, path, access } => {
                self.bind(source, path, *access)?;
                match access {
                    Access::ReadWrite => self.seal_own_binary(source, path)?,
                    Access::ReadOnly | Access::Device => {}
                }
            }
            ViewStep::Tmpfs { path, mode, size } => {
                let options = match size {
                    TmpfsSize::Default => format!("mode={mode:o}{}", self.tmpfs.options(path)),
                    TmpfsSize::Bytes(bytes) => format!("mode={mode:o},size={bytes}"),
                };
                self.push(Op::Mkdir { path: inner(path)?, mode: 0o755 });
                self.mount("tmpfs", path, &options, Execution::Allowed)?;
            }
            ViewStep::Proc { path } => self.proc(path)?,
            ViewStep::Devices { path } => self.devices(path)?,
            ViewStep::Workspace(workspace) => self.workspace(workspace)?,
            ViewStep::Hide { path } => self.push(Op::Hide { path: inner(path)? }),
            ViewStep::MountPoint { path } => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                self.push(Op::MountPoint { parent: inner(parent)?, path: inner(path)? });
            }
            ViewStep::Secrets { path } => self.secrets(path)?,
            ViewStep::SealRoot => self.push(Op::SealMount { path: c_string(b".")? }),
        }
        Ok(())
    }

    fn mount(&mut self, kind: &str, path: &Path, options: &str, exec: Execution) -> Result<(), LaunchError> {
        let (kind, options) = (c_string(kind.as_bytes())?, c_string(options.as_bytes())?);
        self.push(Op::Mount { kind, path: inner(path)?, options, exec });
        Ok(())
    }

    fn bind(&mut self, source: &Path, path: &Path, access: Access) -> Result<(), LaunchError> {
        let at = inner(path)?;
        let is_dir = std::fs::metadata(source)
            .map_err(|error| LaunchError::Source { path: source.to_owned(), source: error })?
            .is_dir();
        self.push(if is_dir {
            Op::Mkdir { path: at.clone(), mode: 0o755 }
        } else {
            Op::Touch { path: at.clone() }
        });
        let quiet = MountAttr::NO_SUID.and(MountAttr::NO_DEV);
        let attr = match access {
            Access::ReadOnly => quiet.and(MountAttr::READ_ONLY),
            Access::ReadWrite => quiet,
            Access::Device => MountAttr::NO_SUID,
        };
        self.push(Op::Bind { source: c_path(source)?, path: at, attr });
        Ok(())
    }

    fn seal_own_binary(&mut self, source: &Path, path: &Path) -> Result<(), LaunchError> {
        // Where it cannot be told it cannot be found from inside either: there is no /proc, or no such file.
        let Ok(own) = std::env::current_exe() else { return Ok(()) };
        for Seal { source, path, access } in seals(&own, source, path) {
            self.bind(&source, &path, access)?;
        }
        Ok(())
    }

    fn proc(&mut self, path: &Path) -> Result<(), LaunchError> {
        self.push(Op::Mkdir { path: inner(path)?, mode: 0o755 });
        self.mount("proc", path, "", Execution::Refused)?;
        self.no_user_namespaces(inner(&path.join(USERNS_MAX))?);
        if let Some(pid_max) = self.pid_max {
            let value = c_string(pid_max.to_string().as_bytes())?;
            self.push(Op::Set { path: inner(&path.join("sys/kernel/pid_max"))?, value });
        }
        if rustix::process::geteuid().is_root() {
            for part in PROC_SEALED {
                self.push(Op::Seal { path: inner(&path.join(part))? });
            }
        }
        Ok(())
    }

    fn no_user_namespaces(&mut self, path: CString) {
        match self.userns {
            NestedUserns::Refused => self.push(Op::NoUserNamespaces { path, otherwise: self.otherwise }),
            NestedUserns::Allowed => {}
        }
    }

    fn devices(&mut self, dev: &Path) -> Result<(), LaunchError> {
        self.push(Op::Mkdir { path: inner(dev)?, mode: 0o755 });
        self.mount("tmpfs", dev, "mode=755,size=64k", Execution::Refused)?;
        for device in DEVICES {
            let source = Path::new("/dev").join(device);
            if source.exists() {
                self.bind(&source, &dev.join(device), Access::Device)?;
            }
        }
        for (name, target) in DEVICE_LINKS {
            self.push(Op::Symlink { path: inner(&dev.join(name))?, target: c_string(target.as_bytes())? });
        }
        for name in ["pts", "shm"] {
            self.push(Op::Mkdir { path: inner(&dev.join(name))?, mode: 0o755 });
        }
        self.mount("devpts", &dev.join("pts"), "newinstance,ptmxmode=0666,mode=620", Execution::Refused)?;
        let shm = dev.join("shm");
        let shared = format!("mode=1777{}", self.tmpfs.options(&shm));
        self.mount("tmpfs", &shm, &shared, Execution::Refused)?;
        self.push(Op::SealMount { path: inner(dev)? });
        Ok(())
    }

    /// As large as they are, and for nobody but their owner, who cannot change them either.
    fn secrets(&mut self, dir: &Path) -> Result<(), LaunchError> {
        let files = self.secret_files;
        let bytes: usize =
            files.iter().map(|file| file.bytes.len().next_multiple_of(SECRET_ROOM_BYTES)).sum();
        let (bytes, inodes) = (bytes.max(SECRET_ROOM_BYTES), files.len() + 2);
        self.push(Op::Mkdir { path: inner(dir)?, mode: 0o755 });
        let options = format!("mode=500,size={bytes},nr_inodes={inodes}");
        self.mount("tmpfs", dir, &options, Execution::Refused)?;
        for file in files {
            let path = inner(&dir.join(&file.name))?;
            self.push(Op::Secret { path, bytes: file.bytes.clone() });
        }
        self.push(Op::SealMount { path: inner(dir)? });
        Ok(())
    }

    fn workspace(&mut self, workspace: &WorkspaceMount) -> Result<(), LaunchError> {
        let strings =
            |paths: &[PathBuf]| paths.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>();
        match workspace {
            WorkspaceMount::Overlay { path, lowers, upper } => {
                self.push(Op::Mkdir { path: inner(path)?, mode: 0o755 });
                self.push(Op::Overlay { path: inner(path)? });
                let upper = match upper {
                    UpperPlace::Disk { dir } => {
                        Upper::Disk { upper: c_path(&dir.join("upper"))?, work: c_path(&dir.join("work"))? }
                    }
                    UpperPlace::Memory { at, size_bytes, inodes, root } => Upper::Memory {
                        at: c_path(at)?,
                        options: c_string(
                            format!("mode=700,size={size_bytes},nr_inodes={inodes}").as_bytes(),
                        )?,
                        root: face(root)?,
                    },
                };
                self.layers = Some(Layers { lowers: strings(lowers)?, upper });
            }
            WorkspaceMount::ReadOnly { path, lowers } => {
                self.push(Op::Mkdir { path: inner(path)?, mode: 0o755 });
                let path = inner(path)?;
                // The kernel wants two layers or an upper.
                self.push(if lowers.len() == 1 { Op::Layer { path } } else { Op::Overlay { path } });
                self.layers = Some(Layers { lowers: strings(lowers)?, upper: Upper::None });
            }
            WorkspaceMount::Copy { path, source } => self.bind(source, path, Access::ReadWrite)?,
        }
        Ok(())
    }
}

fn face(root: &UpperRoot) -> Result<UpperFace, LaunchError> {
    let xattrs = root.xattrs.iter().map(|(name, value)| Ok((c_string(name)?, value.clone())));
    Ok(UpperFace {
        mode: root.mode,
        mtime: (root.mtime.seconds, root.mtime.nanos),
        xattrs: xattrs.collect::<Result<_, LaunchError>>()?,
        whiteouts: root.whiteouts.iter().map(|name| c_string(name)).collect::<Result<_, _>>()?,
    })
}

fn exec_of(command: &[OsString], environment: &[(OsString, OsString)]) -> Result<Exec, LaunchError> {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let candidates = candidates(program, path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")));
    let words = command.iter().map(|word| c_string(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let mut as_script = Vec::with_capacity(candidates.len());
    let candidates = candidates.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>()?;
    for candidate in &candidates {
        let mut script = vec![c_string(b"/bin/sh")?, candidate.clone()];
        script.extend(words.iter().skip(1).cloned());
        as_script.push(StringTable::new(script));
    }
    let mut pairs = Vec::with_capacity(environment.len());
    for (name, value) in environment {
        pairs.push(c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    Ok(Exec {
        candidates,
        arguments: StringTable::new(words),
        as_script,
        environment: StringTable::new(pairs),
    })
}

/// Where the program may be: in each directory of PATH, unless it is a path already.
fn candidates(program: &OsStr, path: &OsStr) -> Vec<PathBuf> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(program)];
    }
    let dirs = path.as_bytes().split(|byte| *byte == b':');
    // An empty part means the working directory, as it does to a shell.
    dirs.map(|dir| if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) })
        .map(|dir| dir.join(program))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_in_path_and_a_path_is_not() {
        let found = candidates(OsStr::new("make"), OsStr::new("/a::/b"));
        assert_eq!(found, [Path::new("/a/make"), Path::new("./make"), Path::new("/b/make")]);
        assert_eq!(candidates(OsStr::new("./x"), OsStr::new("/a")), [Path::new("./x")]);
    }

    #[test]
    fn what_the_view_makes_in_a_file_system_is_counted_once_and_there_only() {
        let dir = |path: &str| ViewStep::Dir { path: path.into(), mode: 0o755 };
        let tmpfs = |path: &str| ViewStep::Tmpfs { path: path.into(), mode: 0o755, size: TmpfsSize::Default };
        let view = [
            tmpfs("/home/u"),
            dir("/home/u/a"),
            ViewStep::Workspace(WorkspaceMount::ReadOnly { path: "/home/u/a/work".into(), lowers: vec![] }),
            ViewStep::MountPoint { path: "/home/u/a/work/cache".into() },
            tmpfs("/home/u/a/work/cache"),
            ViewStep::Symlink { path: "/home/u/link".into(), target: "a".into() },
            ViewStep::Hide { path: "/home/u/a/work/key".into() },
            tmpfs("/tmp"),
            dir("/tmpx"),
            ViewStep::SealRoot,
        ];
        let counts =
            ["/home/u", "/home/u/a/work/cache", "/tmp", "/dev/shm"].map(|at| made_in(at.as_ref(), &view));
        assert_eq!(counts, [3, 0, 0, 0]);
        let bounds = TmpfsBounds { bytes: Some(0), files: Some(100), view: &view };
        assert_eq!(bounds.options("/tmp".as_ref()), ",size=1,nr_inodes=101");
        assert_eq!(bounds.options("/home/u".as_ref()), ",size=1,nr_inodes=104");
    }

    #[test]
    fn a_word_with_a_nul_is_refused() {
        let words = [OsString::from("a\0b")];
        assert!(matches!(exec_of(&words, &[]), Err(LaunchError::Nul { .. })));
    }
}
