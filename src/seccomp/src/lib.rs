//! The system calls that the seccomp profiles refuse, and why: one table, from which the filters are compiled and
//! which `avfs doctor --explain-denials` prints.
//!
//! A separate crate, because the runner's build script compiles the filters from it. It never installs a filter.
//!
//! ```
//! use avfs_seccomp::{Answer, REFUSALS};
//!
//! let mounts = REFUSALS.iter().find(|refusal| refusal.calls.contains(&"mount")).unwrap();
//! assert_eq!(mounts.answer, Answer::NotPermitted);
//! assert_eq!(mounts.answer.name(), "EPERM");
//! ```
#![forbid(unsafe_code)]

/// Calls that are refused for the same reason.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub name: &'static str,
    pub calls: &'static [&'static str],
    pub when: When,
    /// The condition in words; empty if always refused.
    pub which: &'static str,
    pub answer: Answer,
    pub reported: Reported,
    /// Whether a sandbox within the sandbox needs it.
    pub nesting: Nesting,
    pub why: &'static str,
}

/// The condition under which the calls are refused. Arguments are counted from 0 and compared by their low 32 bits,
/// since the kernel ignores the rest of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    AnyBit { argument: u8, bits: &'static [u32] },
    OneOf { argument: u8, values: &'static [u32] },
    NoneOf { argument: u8, values: &'static [u32] },
}

/// The errno that the program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    NotPermitted,
    NoSuchCall,
    NoSuchFamily,
}

impl Answer {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotPermitted => "EPERM",
            Self::NoSuchCall => "ENOSYS",
            Self::NoSuchFamily => "EAFNOSUPPORT",
        }
    }

    /// The errno, which is the same on every architecture with filters.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::NotPermitted => 1,
            Self::NoSuchCall => 38,
            Self::NoSuchFamily => 97,
        }
    }
}

/// Whether a refusal is counted and shown. Calls that programs try routinely are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    Unneeded,
    /// Allowed with `--allow-userns`.
    Needed,
}

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;

/// CLONE_NEW*: mount, cgroup, uts, ipc, user, pid, net.
const NEW_NAMESPACES: &[u32] =
    &[0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// The same and CLONE_NEWTIME, whose bit is part of the exit signal in clone(2).
const NEW_NAMESPACES_UNSHARED: &[u32] =
    &[0x80, 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];

/// Calls of which the supervisor is notified before the kernel executes them, because it may have to prepare for
/// them: overlayfs does not rename directories of a lower layer.
pub const WATCHED_CALLS: &[&str] = &["rename", "renameat", "renameat2"];

/// Refused by `default` and by `strict`.
pub const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "mounts",
        calls: &[
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "move_mount",
            "open_tree",
            "open_tree_attr",
            "fsopen",
            "fsconfig",
            "fsmount",
            "fspick",
            "mount_setattr",
        ],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Needed,
        why: "mounting parses images and options in the kernel, and would change the command's view",
    },
    Refusal {
        name: "namespaces",
        calls: &["setns"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Needed,
        why: "a process that enters or creates a user namespace is root in it, which exposes much more of the kernel",
    },
    Refusal {
        name: "namespaces",
        calls: &["unshare"],
        when: When::AnyBit { argument: 0, bits: NEW_NAMESPACES_UNSHARED },
        which: "with a CLONE_NEW* flag",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Needed,
        why: "a process that enters or creates a user namespace is root in it, which exposes much more of the kernel",
    },
    Refusal {
        name: "namespaces",
        calls: &["clone"],
        when: When::AnyBit { argument: 0, bits: NEW_NAMESPACES },
        which: "with a CLONE_NEW* flag",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Needed,
        why: "a process that enters or creates a user namespace is root in it, which exposes much more of the kernel",
    },
    Refusal {
        name: "clone3",
        calls: &["clone3"],
        when: When::Always,
        which: "",
        answer: Answer::NoSuchCall,
        reported: Reported::No,
        nesting: Nesting::Needed,
        why: "its flags are in memory, which a filter cannot read; C libraries fall back to clone",
    },
    Refusal {
        name: "other processes",
        calls: &["ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "inspecting and controlling other processes is a common sandbox escape",
    },
    Refusal {
        name: "programs in the kernel",
        calls: &["bpf", "userfaultfd", "perf_event_open"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "large parts of the kernel that few programs need and many attacks use",
    },
    Refusal {
        name: "io_uring",
        calls: &["io_uring_setup", "io_uring_enter", "io_uring_register"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "calls made through its rings bypass the filter",
    },
    Refusal {
        name: "keys",
        calls: &["keyctl", "add_key", "request_key"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "the kernel's keyrings are not separated by namespaces",
    },
    Refusal {
        name: "kernel code",
        calls: &["init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "loads or replaces the kernel's own code",
    },
    Refusal {
        name: "file handles",
        calls: &["open_by_handle_at", "name_to_handle_at"],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "opens files by handle, bypassing the directories that hide them",
    },
    Refusal {
        name: "the machine",
        calls: &[
            "reboot",
            "swapon",
            "swapoff",
            "acct",
            "syslog",
            "quotactl",
            "quotactl_fd",
            "lookup_dcookie",
            "fanotify_init",
            "fanotify_mark",
            "settimeofday",
            "clock_settime",
            "iopl",
            "ioperm",
        ],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "administers the machine: its power, clock, log, swap, quotas and ports",
    },
    Refusal {
        name: "relics",
        calls: &[
            "modify_ldt",
            "uselib",
            "nfsservctl",
            "_sysctl",
            "sysfs",
            "ustat",
            "create_module",
            "get_kernel_syms",
            "query_module",
        ],
        when: When::Always,
        which: "",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "obsolete kernel code that current programs do not call",
    },
    Refusal {
        name: "personalities",
        calls: &["personality"],
        // Linux, 32 bits, an old version's name, both, fixed addresses, and the query of the current value.
        when: When::NoneOf { argument: 0, values: &[0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff] },
        which: "other than Linux, 32 bits, fixed addresses",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "memory layouts of other systems disable protections, such as the unmapped first page",
    },
    Refusal {
        name: "terminal input",
        calls: &["ioctl"],
        // TIOCSTI, TIOCLINUX, TIOCSETD.
        when: When::OneOf { argument: 1, values: &[0x5412, 0x541c, 0x5423] },
        which: "TIOCSTI, TIOCLINUX, TIOCSETD",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "pushes input into a terminal, or loads a line discipline for it",
    },
    Refusal {
        name: "leases",
        calls: &["fcntl"],
        // F_SETLEASE, F_NOTIFY; F_SETDELEG, a lease since Linux 6.19.
        when: When::OneOf { argument: 1, values: &[1024, 1026, 1040] },
        which: "F_SETLEASE, F_SETDELEG, F_NOTIFY",
        answer: Answer::NotPermitted,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "a program of the host that opens a leased file waits, 45 seconds by default",
    },
    Refusal {
        name: "socket families",
        calls: &["socket", "socketpair"],
        when: When::NoneOf { argument: 0, values: &[AF_UNIX, AF_INET, AF_INET6, AF_NETLINK] },
        which: "of families other than UNIX, INET, INET6 and NETLINK",
        answer: Answer::NoSuchFamily,
        reported: Reported::Yes,
        nesting: Nesting::Unneeded,
        why: "rare protocols (vsock, packet, alg, tipc, …): loaded on demand, seldom audited; vsock reaches the \
              host of a virtual machine past every network namespace",
    },
];

/// Replaces the rule for `socket` if sockets of the host are visible and the command does not have its network.
pub const UNIX_REFUSAL: Refusal = Refusal {
    name: "unix sockets",
    calls: &["socket"],
    when: When::NoneOf { argument: 0, values: &[AF_INET, AF_INET6, AF_NETLINK] },
    which: "of families other than INET, INET6 and NETLINK",
    answer: Answer::NoSuchFamily,
    reported: Reported::Yes,
    nesting: Nesting::Unneeded,
    why: "with --profile host the sockets of the host's services are visible, and each is a way around --net",
};

/// Refused by `strict`: every call that neither its own list nor [`REFUSALS`] names.
pub const STRICT_REFUSAL: Refusal = Refusal {
    name: "anything else",
    calls: &[],
    when: When::Always,
    which: "",
    answer: Answer::NotPermitted,
    reported: Reported::Yes,
    nesting: Nesting::Unneeded,
    why: "strict allows only calls that ordinary programs, compilers, interpreters and package managers make",
};

/// The calls that `strict` allows. Those of [`REFUSALS`] that depend on an argument are allowed if the argument is.
#[rustfmt::skip]
pub const STRICT_CALLS: &[&str] = &[
    // Files.
    "read", "write", "open", "openat", "openat2", "creat", "close", "close_range", "stat", "fstat", "lstat", "newfstatat", "statx",
    "lseek", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "access", "faccessat", "faccessat2",
    "dup", "dup2", "dup3", "pipe", "pipe2", "fcntl", "flock", "fsync", "fdatasync", "sync", "syncfs", "sync_file_range",
    "truncate", "ftruncate", "fallocate", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "rename", "renameat", "renameat2",
    "mkdir", "mkdirat", "rmdir", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "readlink", "readlinkat",
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "umask", "mknod", "mknodat",
    "utime", "utimes", "futimesat", "utimensat", "statfs", "fstatfs", "sendfile", "copy_file_range", "splice", "tee",
    "readahead", "fadvise64", "setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr",
    "flistxattr", "removexattr", "lremovexattr", "fremovexattr", "setxattrat", "getxattrat", "listxattrat", "removexattrat",
    "file_getattr", "file_setattr", "statmount", "listmount", "inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
    // Memory.
    "mmap", "mprotect", "munmap", "brk", "mremap", "msync", "mincore", "madvise", "mlock", "mlock2", "munlock", "mlockall", "munlockall",
    "memfd_create", "mseal", "pkey_mprotect", "pkey_alloc", "pkey_free", "mbind", "set_mempolicy", "get_mempolicy", "map_shadow_stack",
    "membarrier", "shmget", "shmat", "shmctl", "shmdt",
    // Processes and threads.
    "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "kill", "tkill", "tgkill", "getpid", "getppid",
    "gettid", "set_tid_address", "set_robust_list", "get_robust_list", "futex", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue",
    "rseq", "sched_yield", "sched_setparam", "sched_getparam", "sched_setscheduler", "sched_getscheduler", "sched_get_priority_max",
    "sched_get_priority_min", "sched_rr_get_interval", "sched_setaffinity", "sched_getaffinity", "sched_setattr", "sched_getattr",
    "getcpu", "getpriority", "setpriority", "ioprio_get", "ioprio_set", "getrlimit", "setrlimit", "prlimit64", "getrusage", "times",
    "prctl", "arch_prctl", "set_thread_area", "get_thread_area", "setpgid", "getpgid", "getpgrp", "setsid", "getsid", "pidfd_open",
    "pidfd_send_signal", "uretprobe",
    // Users. Without capabilities, these only affect the process itself.
    "getuid", "getgid", "geteuid", "getegid", "setuid", "setgid", "setreuid", "setregid", "getgroups", "setgroups", "setresuid",
    "getresuid", "setresgid", "getresgid", "setfsuid", "setfsgid", "capget", "capset",
    // Signals and time.
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "rt_sigsuspend", "sigaltstack", "restart_syscall", "signalfd", "signalfd4", "pause", "alarm", "getitimer", "setitimer", "nanosleep",
    "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time", "timer_create", "timer_settime", "timer_gettime",
    "timer_getoverrun", "timer_delete", "timerfd_create", "timerfd_settime", "timerfd_gettime",
    // Waiting and communication.
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
    "eventfd", "eventfd2", "connect", "accept", "accept4", "bind", "listen", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg",
    "recvmmsg", "shutdown", "getsockname", "getpeername", "setsockopt", "getsockopt", "semget", "semop", "semtimedop", "semctl",
    "msgget", "msgsnd", "msgrcv", "msgctl",
    // System information, and further confinement.
    "uname", "sysinfo", "getrandom", "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
];
