//! Without Rego: an existing script is rejected, since ignoring it would loosen the policy.

use std::path::Path;

use crate::error::PolicyError;
use crate::reading::{Asked, Judged};
use crate::verdict::{RulePlace, Verdict};

/// No script can exist.
#[derive(Clone, Debug)]
pub enum Script {}

impl Script {
    pub fn parse(file: &Path, _: &str) -> Result<Self, PolicyError> {
        Err(PolicyError::RegoLeftOut { file: file.to_owned() })
    }

    #[must_use]
    pub fn say(&self, _: &Asked<'_>, _: &Judged) -> Option<Verdict> {
        match *self {}
    }

    #[must_use]
    pub fn place(&self) -> RulePlace {
        match *self {}
    }
}
