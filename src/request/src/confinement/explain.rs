//! What a confined command is refused, for people who wonder why: seccomp's table, and what the other layers say.

use avfs_seccomp::{Nesting, REFUSALS, Refusal, STRICT_CALLS, STRICT_REFUSAL, Telling, UNIX_REFUSAL};

/// One thing that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `seccomp`, `landlock` or `kernel`.
    pub layer: &'static str,
    /// The profiles or modes that refuse it.
    pub by: &'static [&'static str],
    pub name: &'static str,
    pub calls: &'static [&'static str],
    /// Calls that are not refused, where `calls` would be all others.
    pub all_but: &'static [&'static str],
    /// Which of the calls; nothing if all of them.
    pub which: Option<&'static str>,
    /// What the program sees.
    pub answer: &'static str,
    /// Whether it is counted in the result.
    pub told: bool,
    pub why: &'static str,
    /// What lets it through.
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
    told: false,
    why: "",
    relax: "",
};

const BOTH: &[&str] = &["default", "strict"];

/// What is not refused by the name of a call.
const OTHERS: [Explanation; 6] = [
    Explanation {
        layer: "seccomp",
        by: BOTH,
        name: "other architectures",
        calls: &[],
        answer: "SIGSYS",
        why: "a call by the numbers of another architecture, such as a 32 bit program's, would not mean what it says",
        relax: "--seccomp off",
        ..NOTHING
    },
    Explanation {
        layer: "seccomp",
        by: BOTH,
        name: "unknown calls",
        calls: &[],
        answer: "ENOSYS",
        why: "x32's calls, and those that are newer than avfs-run: nobody has judged them",
        relax: "--seccomp off",
        ..NOTHING
    },
    Explanation {
        layer: "kernel",
        by: &["default"],
        name: "nested user namespaces",
        calls: &["unshare", "clone", "clone3"],
        answer: "ENOSPC",
        why: "/proc/sys/user/max_user_namespaces is 0 inside, also where no filter refuses the calls",
        relax: "--allow-userns",
        ..NOTHING
    },
    Explanation {
        layer: "landlock",
        by: &["auto", "required"],
        name: "writing elsewhere",
        calls: &[],
        answer: "EACCES",
        why: "only the workspace, the home, /tmp, /var/tmp, /dev, /proc and what --rw, --tmpfs and caches show can be \
         written to; most of the rest is mounted read-only as well, and says EROFS",
        relax: "--rw PATH, or --landlock off",
        ..NOTHING
    },
    Explanation {
        layer: "landlock",
        by: &["auto", "required"],
        name: "signals to others",
        calls: &["kill", "tgkill", "pidfd_send_signal"],
        answer: "EPERM",
        why: "the sandbox's first process is of the same user, and no business of the command's (Linux 6.12)",
        relax: "--landlock off",
        ..NOTHING
    },
    Explanation {
        layer: "landlock",
        by: &["auto", "required"],
        name: "abstract sockets of others",
        calls: &["connect", "sendto", "sendmsg"],
        answer: "EPERM",
        why: "with --net host a session bus or X11 is a way out (Linux 6.12)",
        relax: "--landlock off",
        ..NOTHING
    },
];

/// Everything that is refused, by layer.
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
        told: refusal.telling == Telling::Told,
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
