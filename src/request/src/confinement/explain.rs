//! Explains what a confined command is refused: the table of seccomp, and the rules of the other layers.

use avfs_seccomp::{Nesting, REFUSALS, Refusal, Reported, STRICT_CALLS, STRICT_REFUSAL, UNIX_REFUSAL};

/// One refused operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `seccomp`, `landlock` or `kernel`.
    pub layer: &'static str,
    /// The profiles or modes that refuse it.
    pub by: &'static [&'static str],
    pub name: &'static str,
    pub calls: &'static [&'static str],
    /// The only calls that are allowed, if all other calls are refused.
    pub all_but: &'static [&'static str],
    /// Which uses of the calls are refused; `None` for all of them.
    pub which: Option<&'static str>,
    /// The error or signal that the program gets.
    pub answer: &'static str,
    /// Whether it is counted in the result.
    pub reported: bool,
    pub why: &'static str,
    /// The option that allows it.
    pub relax: &'static str,
}

const NOTHING: Explanation = Explanation {
    layer: "",
    by: &[],
    name: "",
    calls: &[],
    all_but: &[],
    which: None,
    answer: "",
    reported: false,
    why: "",
    relax: "",
};

const BOTH: &[&str] = &["default", "strict"];

/// Refusals that do not depend on the name of a call.
const OTHERS: [Explanation; 6] = [
    Explanation {
        layer: "seccomp",
        by: BOTH,
        name: "other architectures",
        calls: &[],
        answer: "SIGSYS",
        why: "system call numbers of another architecture, such as those of a 32-bit program, name different calls",
        relax: "--seccomp off",
        ..NOTHING
    },
    Explanation {
        layer: "seccomp",
        by: BOTH,
        name: "unknown calls",
        calls: &[],
        answer: "ENOSYS",
        why: "calls of x32, and calls that are newer than avfs-run, have not been reviewed",
        relax: "--seccomp off",
        ..NOTHING
    },
    Explanation {
        layer: "kernel",
        by: &["default"],
        name: "nested user namespaces",
        calls: &["unshare", "clone", "clone3"],
        answer: "ENOSPC",
        why: "/proc/sys/user/max_user_namespaces is 0 in the sandbox, even if no filter refuses the calls",
        relax: "--allow-userns",
        ..NOTHING
    },
    Explanation {
        layer: "landlock",
        by: &["auto", "required"],
        name: "writing elsewhere",
        calls: &[],
        answer: "EACCES",
        why: "only the workspace, the home, /tmp, /var/tmp, /dev, /proc and the paths of --rw, --tmpfs and caches are \
         writable; most other paths are also mounted read-only, and fail with EROFS",
        relax: "--rw PATH, or --landlock off",
        ..NOTHING
    },
    Explanation {
        layer: "landlock",
        by: &["auto", "required"],
        name: "signals to others",
        calls: &["kill", "tgkill", "pidfd_send_signal"],
        answer: "EPERM",
        why: "the init process of the sandbox runs as the same user and must not be signalled (Linux 6.12)",
        relax: "--landlock off",
        ..NOTHING
    },
    Explanation {
        layer: "landlock",
        by: &["auto", "required"],
        name: "abstract sockets of processes outside the sandbox",
        calls: &["connect", "sendto", "sendmsg"],
        answer: "EPERM",
        why: "with --net host, a session bus or X11 would be a way out of the sandbox (Linux 6.12)",
        relax: "--landlock off",
        ..NOTHING
    },
];

/// All refusals, by layer.
#[must_use]
pub fn explanations() -> Vec<Explanation> {
    let relax = |nesting: Nesting| match nesting {
        Nesting::Needed => "--allow-userns, or --seccomp off",
        Nesting::Unneeded => "--seccomp off",
    };
    let mut all: Vec<Explanation> =
        REFUSALS.iter().map(|refusal| of(refusal, BOTH, relax(refusal.nesting))).collect();
    all.push(of(&UNIX_REFUSAL, BOTH, "--net host, --profile strict, or --seccomp off"));
    let strict = of(&STRICT_REFUSAL, &["strict"], "--seccomp default");
    all.push(Explanation { all_but: STRICT_CALLS, ..strict });
    all.extend(OTHERS);
    all
}

fn of(refusal: &Refusal, by: &'static [&'static str], relax: &'static str) -> Explanation {
    Explanation {
        layer: "seccomp",
        by,
        name: refusal.name,
        calls: refusal.calls,
        which: (!refusal.which.is_empty()).then_some(refusal.which),
        answer: refusal.answer.name(),
        reported: refusal.reported == Reported::Yes,
        why: refusal.why,
        relax,
        ..NOTHING
    }
}

#[cfg(test)]
mod tests {
    use avfs_seccomp::When;

    use super::*;

    #[test]
    fn every_refusal_is_explained() {
        let all = explanations();
        for refusal in REFUSALS {
            let found = all.iter().any(|it| it.name == refusal.name && it.calls == refusal.calls);
            assert!(found, "{} is not explained", refusal.name);
            assert_eq!(refusal.which.is_empty(), refusal.when == When::Always, "{}", refusal.name);
        }
        assert!(all.iter().all(|it| !it.why.is_empty() && !it.relax.is_empty()));
    }
}
