//! The confinement of a command by the kernel, apart from its view: as requested, and as enforced.
//!
//! Values only: nothing here talks to the kernel.

mod explain;

pub use explain::{Explanation, explanations};

use avfs_types::words;

words!(
    /// Which system calls are refused; each profile refuses more than the one before it.
    SeccompProfile, "seccomp profile", {
        Off = "off",
        /// Calls that ordinary programs do not need and that attacks on the kernel use.
        Default = "default",
        /// All calls except those that ordinary programs need.
        Strict = "strict",
    }
);

words!(
    /// Whether Landlock also enforces file access; each mode is stricter than the one before it.
    LandlockMode, "Landlock mode", {
        Off = "off",
        /// If the kernel supports it.
        Auto = "auto",
        /// The run fails if the kernel does not support it.
        Required = "required",
    }
);

words!(
    /// Whether the command may create user namespaces.
    NestedUserns, "user namespace mode", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

/// The requested confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    pub seccomp: SeccompProfile,
    pub landlock: LandlockMode,
    pub userns: NestedUserns,
}

impl Default for Confinement {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Confinement {
    pub const DEFAULT: Self = Self {
        seccomp: SeccompProfile::Default,
        landlock: LandlockMode::Auto,
        userns: NestedUserns::Refused,
    };

    /// The first option that removes a protection which every command has by default; `None` if there is no such
    /// option.
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

/// The enforced confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    pub seccomp: SeccompProfile,
    /// The ABI version of Landlock; `None` if Landlock is not enforced.
    pub landlock_abi: Option<u32>,
    pub userns: NestedUserns,
}

impl Confined {
    /// Nothing is enforced yet.
    pub const NOTHING: Self =
        Self { seccomp: SeccompProfile::Off, landlock_abi: None, userns: NestedUserns::Allowed };
}

/// The maximum number of calls that a note names; the result lists all of them.
const NOTED_MAX: usize = 5;

/// A system call that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCall {
    pub call: String,
    pub count: u64,
}

/// Describes the refused calls in one line; `None` if there are no refused calls.
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
    fn refused_calls_are_described_in_one_line() {
        let call = |call: &str, count| RefusedCall { call: call.to_owned(), count };
        assert_eq!(refused_text(&[]), None);
        let text = refused_text(&[call("mount", 2), call("ptrace", 1)]).unwrap();
        assert_eq!(text, "seccomp refused mount (2 times), ptrace; see: avfs doctor --explain-denials");
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| call(name, 1)).to_vec();
        assert!(refused_text(&many).unwrap().starts_with("seccomp refused a, b, c, d, e, and 2 more;"));
    }
}
