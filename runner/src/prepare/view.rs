//! Compiles the steps of a view to operations.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use avfs_engine::{Access, Lookup, SandboxPlan, TmpfsSize, UpperPlace, UpperRoot, ViewStep, WorkspaceMount};
use avfs_request::{Confinement, NestedUserns, SeccompProfile, SecretFile};

use super::ops::{Execution, IfThere, Layers, Op, Otherwise, Upper, UpperFace};
use super::tmpfs::TmpfsBounds;
use super::{c_path, c_string, inner};
use crate::confine::{Seal, seals};
use crate::sandbox::SandboxError;
use crate::sys::MountAttr;

/// Parts of /proc made read-only for a user whom the kernel treats as the host's root because of the uid.
const PROC_SEALED: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// The kernel parameter, in /proc.
const USERNS_MAX: &str = "sys/user/max_user_namespaces";
/// The same for cgroup namespaces.
const CGROUPNS_MAX: &str = "sys/user/max_cgroup_namespaces";
/// Memory is allocated in pages; this is the largest page size.
const SECRET_ROOM_BYTES: usize = 64 << 10;
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// A compiled view.
pub struct Compiled {
    pub ops: Vec<Op>,
    /// For each operation, the index of the step of the view it belongs to.
    pub step_of: Vec<u16>,
    pub layers: Option<Layers>,
}

/// Compiles the steps of a plan; `pid_max` is the highest pid, if limited.
pub fn compile(plan: &SandboxPlan, pid_max: Option<u64>, own: &Path) -> Result<Compiled, SandboxError> {
    let Confinement { seccomp, userns, .. } = plan.confinement;
    let mut compiler = Compiler {
        ops: Vec::new(),
        step_of: Vec::new(),
        layers: None,
        step: 0,
        own,
        secret_files: &plan.secret_files,
        tmpfs: TmpfsBounds { bytes: plan.limits.tmpfs_bytes(), files: plan.limits.files, view: &plan.view },
        pid_max,
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
    Ok(Compiled { ops: compiler.ops, step_of: compiler.step_of, layers: compiler.layers })
}

struct Compiler<'p> {
    ops: Vec<Op>,
    step_of: Vec<u16>,
    layers: Option<Layers>,
    step: u16,
    own: &'p Path,
    secret_files: &'p [SecretFile],
    userns: NestedUserns,
    otherwise: Otherwise,
    tmpfs: TmpfsBounds<'p>,
    /// The highest pid, if limited.
    pid_max: Option<u64>,
}

impl Compiler<'_> {
    fn push(&mut self, op: Op) {
        self.ops.push(op);
        self.step_of.push(self.step);
    }

    fn compile(&mut self, step: &ViewStep) -> Result<(), SandboxError> {
        match step {
            ViewStep::Dir { path, mode } => self.push(Op::Mkdir { path: inner(path)?, mode: *mode }),
            ViewStep::Symlink { path, target } => {
                self.push(Op::Symlink { path: inner(path)?, target: c_path(target)? });
            }
            ViewStep::File { path, bytes } => {
                let (path, if_there) = (inner(path)?, IfThere::Keep);
                self.push(Op::File { path, bytes: bytes.clone(), mode: 0o600, if_there });
            }
            ViewStep::Bind { source, path, access, lookup } => {
                self.bind(source, path, *access, *lookup)?;
                match access {
                    Access::ReadWrite => self.seal_own_binaries(source, path)?,
                    Access::ReadOnly | Access::Device => {}
                }
            }
            ViewStep::Overlaid { source, path, file } => {
                self.push(Op::Mkdir { path: inner(path)?, mode: 0o755 });
                self.push(Op::Overlaid { source: c_path(source)?, path: inner(path)?, file: *file });
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
            ViewStep::Pin { path } => self.push(Op::Pin { path: inner(path)? }),
            ViewStep::MountPoint { path } => self.push(Op::MountPoint { path: inner(path)? }),
            ViewStep::Secrets { path } => self.secrets(path)?,
            ViewStep::Seal { path } => self.push(Op::SealMount { path: inner(path)? }),
        }
        Ok(())
    }

    fn mount(&mut self, kind: &str, path: &Path, options: &str, exec: Execution) -> Result<(), SandboxError> {
        let (kind, options) = (c_string(kind.as_bytes())?, c_string(options.as_bytes())?);
        self.push(Op::Mount { kind, path: inner(path)?, options, exec });
        Ok(())
    }

    fn bind(
        &mut self,
        source: &Path,
        path: &Path,
        access: Access,
        lookup: Lookup,
    ) -> Result<(), SandboxError> {
        let at = inner(path)?;
        let is_dir = match lookup {
            Lookup::Same { is_dir, .. } => is_dir,
            Lookup::FollowLinks | Lookup::NoLinks => std::fs::metadata(source)
                .map_err(|error| SandboxError::Source { path: source.to_owned(), source: error })?
                .is_dir(),
        };
        self.push(if is_dir {
            Op::Mkdir { path: at.clone(), mode: 0o755 }
        } else {
            Op::Touch { path: at.clone() }
        });
        let quiet = MountAttr::NO_SUID.and(MountAttr::NO_DEV);
        let attr = match access {
            Access::ReadOnly => quiet.and(MountAttr::READ_ONLY),
            Access::ReadWrite => quiet,
            // Writing to a device works through a read-only mount too; changing its mode or owner does not.
            Access::Device => MountAttr::NO_SUID.and(MountAttr::READ_ONLY),
        };
        self.push(Op::Bind { source: c_path(source)?, path: at, attr, lookup });
        Ok(())
    }

    /// Both binaries are usually in one directory, and either may be executed next.
    fn seal_own_binaries(&mut self, source: &Path, path: &Path) -> Result<(), SandboxError> {
        // If the path is unknown (no /proc, or a deleted file), the file cannot be found from inside either.
        let Ok(own) = self.own.canonicalize().or_else(|_| std::fs::read_link(self.own)) else {
            return Ok(());
        };
        let beside = ["avfs", "avfs-run"].map(|name| own.with_file_name(name));
        let beside = beside.iter().filter(|it| it.symlink_metadata().is_ok_and(|found| found.is_file()));
        let mut sealed: Vec<Seal> = Vec::new();
        for seal in beside.chain([&own]).flat_map(|file| seals(file, source, path)) {
            // Mounting a directory a second time would show its content unsealed.
            if !sealed.contains(&seal) {
                self.bind(&seal.source, &seal.path, seal.access, Lookup::NoLinks)?;
                sealed.push(seal);
            }
        }
        Ok(())
    }

    fn proc(&mut self, path: &Path) -> Result<(), SandboxError> {
        self.push(Op::Mkdir { path: inner(path)?, mode: 0o755 });
        self.mount("proc", path, "", Execution::Refused)?;
        self.no_user_namespaces(inner(&path.join(USERNS_MAX))?);
        if let Some(pid_max) = self.pid_max {
            let value = c_string(pid_max.to_string().as_bytes())?;
            self.push(Op::Set { path: inner(&path.join("sys/kernel/pid_max"))?, value });
        }
        if rustix::process::geteuid().is_root() {
            if self.userns == NestedUserns::Allowed {
                // Root could mount the control groups in a cgroup namespace, and lift its own limits.
                let path = inner(&path.join(CGROUPNS_MAX))?;
                self.push(Op::Set { path, value: c_string(b"0")? });
            }
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

    fn devices(&mut self, dev: &Path) -> Result<(), SandboxError> {
        self.push(Op::Mkdir { path: inner(dev)?, mode: 0o755 });
        self.mount("tmpfs", dev, "mode=755,size=64k", Execution::Refused)?;
        for device in DEVICES {
            let source = Path::new("/dev").join(device);
            if source.exists() {
                self.bind(&source, &dev.join(device), Access::Device, Lookup::FollowLinks)?;
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

    /// A tmpfs just large enough for the secrets, readable only by their owner, who cannot change them either.
    fn secrets(&mut self, dir: &Path) -> Result<(), SandboxError> {
        let files = self.secret_files;
        let bytes: usize =
            files.iter().map(|file| file.bytes.len().next_multiple_of(SECRET_ROOM_BYTES)).sum();
        let (bytes, inodes) = (bytes.max(SECRET_ROOM_BYTES), files.len() + 2);
        self.push(Op::Mkdir { path: inner(dir)?, mode: 0o755 });
        let options = format!("mode=500,size={bytes},nr_inodes={inodes}");
        self.mount("tmpfs", dir, &options, Execution::Refused)?;
        for file in files {
            let path = inner(&dir.join(&file.name))?;
            self.push(Op::File { path, bytes: file.bytes.clone(), mode: 0o400, if_there: IfThere::Fail });
        }
        self.push(Op::SealMount { path: inner(dir)? });
        Ok(())
    }

    fn workspace(&mut self, workspace: &WorkspaceMount) -> Result<(), SandboxError> {
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
                // The kernel requires two layers or an upper.
                self.push(if lowers.len() == 1 { Op::Layer { path } } else { Op::Overlay { path } });
                self.layers = Some(Layers { lowers: strings(lowers)?, upper: Upper::None });
            }
            WorkspaceMount::Copy { path, source } => {
                self.bind(source, path, Access::ReadWrite, Lookup::FollowLinks)?
            }
        }
        Ok(())
    }
}

fn face(root: &UpperRoot) -> Result<UpperFace, SandboxError> {
    let xattrs = root.xattrs.iter().map(|(name, value)| Ok((c_string(name)?, value.clone())));
    Ok(UpperFace {
        mode: root.mode,
        mtime: (root.mtime.seconds, root.mtime.nanos),
        xattrs: xattrs.collect::<Result<_, SandboxError>>()?,
        whiteouts: root.whiteouts.iter().map(|name| c_string(name)).collect::<Result<_, _>>()?,
    })
}
