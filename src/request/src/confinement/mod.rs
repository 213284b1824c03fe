//! What a command may ask the kernel for, beside what it sees: asked for, and what was enforced.
//!
//! Values only: nothing here talks to the kernel.

mod explain;

pub use explain::{Explanation, explanations};

use avfs_types::words;

words!(
    /// Which system calls are refused; each one refuses more than the one before it.
    SeccompProfile, "seccomp profile", {
        Off = "off",
        /// Those that ordinary programs do not need and that attack the kernel.
        Default = "default",
        /// All but those that ordinary programs need.
        Strict = "strict",
    }
);

words!(
    /// Whether Landlock holds the command to its view a second time; each one is stricter than the one before it.
    LandlockMode, "Landlock mode", {
        Off = "off",
        /// Where the kernel has it.
        Auto = "auto",
        /// Without it nothing is run.
        Required = "required",
    }
);

words!(
    /// Whether the command may make user namespaces of its own.
    NestedUserns, "way with user namespaces", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    pub seccomp: SeccompProfile,
    pub landlock: LandlockMode,
    pub userns: NestedUserns,
}

impl Confinement {
    pub const DEFAULT: Self = Self {
        seccomp: SeccompProfile::Default,
        landlock: LandlockMode::Auto,
        userns: NestedUserns::Refused,
    };

    /// The first option that takes away something every command is held by; nothing if none does.
    #[must_use]
    pub const fn opened_by(self) -> Option<&'static str> {
        match (self.seccomp, self.landlock, self.userns) {
            (SeccompProfile::Off, _, _) => Some("--seccomp off"),
            (_, LandlockMode::Off, _) => Some("--landlock off"),
            (_, _, NestedUserns::Allowed) => Some("--allow-userns"),
            (
                SeccompProfile::Default | SeccompProfile::Strict,
                LandlockMode::Auto | LandlockMode::Required,
                NestedUserns::Refused,
            ) => None,
        }
    }
}

/// What was enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    pub seccomp: SeccompProfile,
    /// The version of Landlock that holds.
    pub landlock_abi: Option<u32>,
    pub userns: NestedUserns,
}

impl Confined {
    /// Before anything is.
    pub const NOTHING: Self =
        Self { seccomp: SeccompProfile::Off, landlock_abi: None, userns: NestedUserns::Allowed };
}

/// Calls that a note names; the result has all of them.
const NOTED_MAX: usize = 5;

/// A system call that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCall {
    pub call: String,
    pub count: u64,
}

/// What was refused, in one line; nothing if nothing was.
pub fn refused_text(calls: &[RefusedCall]) -> Option<String> {
    let named = calls.iter().take(NOTED_MAX).map(|RefusedCall { call, count }| match count {
        1 => call.clone(),
        _ => format!("{call} ({count} times)"),
    });
    let mut named: Vec<String> = named.collect();
    if named.is_empty() {
        return None;
    }
    if let Some(more @ 1..) = calls.len().checked_sub(NOTED_MAX) {
        named.push(format!("and {more} more"));
    }
    Some(format!("seccomp refused {}; see: avfs doctor --explain-denials", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_told_in_one_line() {
        let call = |call: &str, count| RefusedCall { call: call.to_owned(), count };
        assert_eq!(refused_text(&[]), None);
        let text = refused_text(&[call("mount", 2), call("ptrace", 1)]).unwrap();
        assert_eq!(text, "seccomp refused mount (2 times), ptrace; see: avfs doctor --explain-denials");
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| call(name, 1)).to_vec();
        assert!(refused_text(&many).unwrap().starts_with("seccomp refused a, b, c, d, e, and 2 more;"));
    }
}
