//! References to versions as people type them. The vault resolves them.

use crate::diagnose::Diagnose;
use crate::ids::{CheckpointName, ForkName, VersionId};

/// A text that is not a reference.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid reference {reference:?}: {reason}")]
pub struct BadReference {
    /// The first 80 characters of the text.
    pub reference: String,
    /// Why the text is not a reference, for the error message.
    pub reason: &'static str,
}

impl Diagnose for BadReference {
    fn code(&self) -> &'static str {
        "ref.invalid"
    }
}
/// A reference as typed: `BASE` followed by any number of `~N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The start of the reference.
    pub base: Base,
    /// How many first parents to go back: the sum of all `~N`.
    pub back: u64,
    text: String,
}

/// The start of a reference, before any `~N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The name of a fork, or the first digits of a version's id.
    Name(String),
    /// `FORK@CHECKPOINT`: the version that the checkpoint pins.
    Checkpoint(ForkName, CheckpointName),
    /// `run:ID`: the version that the run made. Holds the text after `run:`, unchecked.
    Run(String),
}

impl Reference {
    /// The reference as typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks the syntax of a reference. The vault checks whether its target exists.
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        let bad = |reason| BadReference { reference: text.chars().take(80).collect(), reason };
        let mut parts = text.split('~');
        let base = parts.next().unwrap_or_default();
        let mut back = 0_u64;
        for part in parts {
            let steps = if part.is_empty() {
                1
            } else {
                part.parse().map_err(|_| bad("expected a number after ~"))?
            };
            back = back.saturating_add(steps);
        }
        let base = if let Some(run) = base.strip_prefix("run:") {
            if run.is_empty() {
                return Err(bad("expected the id of a run after run:"));
            }
            Base::Run(run.to_owned())
        } else if let Some((fork, checkpoint)) = base.split_once('@') {
            let fork =
                ForkName::parse(fork).map_err(|_| bad("the part before @ is not the name of a fork"))?;
            let name = CheckpointName::parse(checkpoint)
                .map_err(|_| bad("the part after @ is not the name of a checkpoint"))?;
            Base::Checkpoint(fork, name)
        } else {
            ForkName::parse(base)
                .map_err(|_| bad("expected the name of a fork or the digits of a version"))?;
            Base::Name(base.to_owned())
        };
        Ok(Self { base, back, text: text.to_owned() })
    }

    /// The fork, if the reference consists only of the name of a fork.
    #[must_use]
    pub fn fork_name(&self) -> Option<ForkName> {
        match &self.base {
            Base::Name(name) if self.back == 0 => ForkName::parse(name).ok(),
            Base::Name(_) | Base::Checkpoint(..) | Base::Run(_) => None,
        }
    }
}

impl From<VersionId> for Reference {
    fn from(id: VersionId) -> Self {
        let text = id.to_hex();
        Self { base: Base::Name(text.clone()), back: 0, text }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Reference {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<Self, BadReference> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_distinguished_by_their_form() {
        let parse = |text: &str| Reference::parse(text);
        assert_eq!(parse("main").unwrap().fork_name(), Some(ForkName::main()));
        assert_eq!(parse("main~2~").unwrap().back, 3);
        assert_eq!(parse("run:7").unwrap().base, Base::Run("7".to_owned()));
        assert!(matches!(parse("f@c~1").unwrap().base, Base::Checkpoint(..)));
        assert_eq!(parse("fix/login~1").unwrap().base, Base::Name("fix/login".to_owned()));
        for bad in ["", "~1", "main~x", "run:", "a@", "@b", "a//b", "/a", "a b"] {
            assert!(matches!(parse(bad), Err(BadReference { .. })), "{bad:?} was accepted");
        }
    }
}
