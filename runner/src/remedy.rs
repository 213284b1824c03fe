//! The features of a sandbox that a host may refuse, and what its administrator can do about each.

use caps::{CapSet, Capability};

/// A feature of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    Mounts,
    Overlay,
    Layers,
    Memory,
    /// A directory of the host, read-only.
    Shown,
    Proc,
    Net,
    Process,
    Userns,
    Landlock,
    Seccomp,
}

impl Piece {
    /// Stable: part of the JSON contract.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Mounts | Self::Shown => "sandbox.mounts",
            Self::Overlay => "mount.overlay_unsupported",
            Self::Layers => "mount.layers",
            Self::Memory => "mount.memory",
            Self::Proc => "sandbox.proc",
            Self::Net => "sandbox.net",
            Self::Process => "sandbox.process",
            Self::Userns => "sandbox.userns",
            Self::Landlock => "sandbox.landlock",
            Self::Seccomp => "sandbox.seccomp",
        }
    }

    /// What to do about a refusal on this host.
    #[must_use]
    pub fn remedy(self, why: &std::io::Error) -> Option<String> {
        let remedy = match self {
            Self::Overlay => {
                "the file system of the cache directory cannot hold an overlay's upper: set XDG_CACHE_HOME to \
                 ext4, xfs, btrfs or tmpfs, or use --scratch memory or --backend copy"
            }
            Self::Memory => "use --scratch disk",
            Self::Proc => {
                "the container's /proc is masked: in Docker run it with --security-opt systempaths=unconfined, \
                 in Podman with --security-opt unmask=ALL, in Kubernetes set procMount: Unmasked; or run without \
                 it: --allow-degraded"
            }
            Self::Net => "use --net host",
            Self::Userns => "use a seccomp profile, which also forbids them, or --allow-userns",
            Self::Landlock => "use --landlock off",
            Self::Seccomp => "use --seccomp off, which allows the command every system call",
            // Some hosts forbid user namespaces by granting no capabilities in them.
            Self::Mounts | Self::Process if why.kind() == std::io::ErrorKind::PermissionDenied => {
                return Some(for_namespaces());
            }
            Self::Mounts | Self::Process if why.kind() == std::io::ErrorKind::Unsupported => {
                "this needs Linux 5.12 or later"
            }
            Self::Shown => {
                return Some(
                    "a directory of --ro in which something is mounted cannot be shown without its sockets: name the \
                     directories below it that are needed, or show it with its sockets with --allow-degraded"
                        .to_owned(),
                );
            }
            Self::Mounts | Self::Layers | Self::Process => return None,
        };
        Some(format!("{remedy} (see: avfs doctor)"))
    }
}

fn sysctl(name: &str) -> Option<u64> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Why this host refuses user namespaces, as far as its settings show.
pub fn for_namespaces() -> String {
    // Set for every command. Another sandbox may have passed it on, but the advice is still worth a try.
    if std::env::var_os("AVFS_SANDBOX").is_some() {
        let refuses = |name| sysctl(&format!("user.max_{name}_namespaces")) == Some(0);
        // A run of root refuses cgroup namespaces only with --allow-userns; without it, it refuses all of them.
        let is_of_root = refuses("cgroup") || (refuses("user") && rustix::process::geteuid().is_root());
        return match is_of_root {
            true => {
                "this runs inside another avfs-run of root, which refuses cgroup namespaces and a second /proc even \
                 with --allow-userns: start the outer one as an ordinary user, with --allow-userns"
            }
            false => "this runs inside another avfs-run, which needs --allow-userns",
        }
        .to_owned();
    }
    // Since Linux 5.12 the kernel requires it before root can map itself to root of another namespace.
    let setfcap = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETFCAP).unwrap_or(true);
    if rustix::process::geteuid().is_root() && !setfcap {
        return "root lacks CAP_SETFCAP, which it needs to be root in a user namespace: in Docker run the \
                container with --cap-add SETFCAP; or run avfs as another user"
            .to_owned();
    }
    if sysctl("kernel.unprivileged_userns_clone") == Some(0) {
        return "allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned();
    }
    if sysctl("user.max_user_namespaces") == Some(0) {
        return "allow user namespaces: sudo sysctl -w user.max_user_namespaces=10000".to_owned();
    }
    if sysctl("kernel.apparmor_restrict_unprivileged_userns") == Some(1) {
        return "this host's AppArmor restricts user namespaces: install the .deb or the .rpm, or the AppArmor \
                profile of the archive (apparmor.d/avfs-run) or of the sources (scripts/apparmor/avfs-run) as its \
                first lines describe; or: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
            .to_owned();
    }
    "inside a container, allow the calls: in Docker run it with --security-opt seccomp=unconfined \
     --security-opt apparmor=unconfined; avfs doctor shows which step fails"
        .to_owned()
}
