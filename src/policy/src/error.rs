//! Errors in a policy file.

use std::path::PathBuf;

use avfs_types::diagnose::Diagnose;
use avfs_types::toml_source::{Fault, Problem};

use crate::examples::FailedExample;
use crate::verdict::RulePlace;

/// A file with an error is rejected as a whole: half a policy would be less strict.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PolicyError {
    #[error(transparent)]
    File(#[from] Fault),
    #[error("{place}: the rule lacks the key {key}")]
    Missing { place: RulePlace, key: &'static str },
    #[error(transparent)]
    Example(#[from] FailedExample),
    #[error("{}: this avfs was built without Rego", file.display())]
    RegoLeftOut { file: PathBuf },
    #[error("{}:{line}: {problem}", file.display())]
    Rego { file: PathBuf, line: usize, problem: String },
}

impl Diagnose for PolicyError {
    fn code(&self) -> &'static str {
        match self {
            Self::File(fault) => match &fault.problem {
                Problem::Syntax(_) => "policy.syntax",
                Problem::UnknownKey { .. } => "policy.unknown_key",
                Problem::WrongType { .. } => "policy.wrong_type",
                Problem::BadValue { .. } => "policy.bad_value",
            },
            Self::Missing { .. } => "policy.missing_key",
            Self::Example(_) => "policy.example",
            Self::RegoLeftOut { .. } => "policy.rego_left_out",
            Self::Rego { .. } => "policy.rego",
        }
    }
}
