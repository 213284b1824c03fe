//! Hints for policy files.

use std::path::Path;

use avfs_policy::PolicyError;
use avfs_types::diagnose::shell_word;

use super::request::for_toml;
use crate::hint;

hint!(PolicyError, |error, _| {
    let test = |file: &Path| format!("avfs policy test {}", shell_word(file.as_os_str()));
    Some(match error {
        Self::File(fault) => for_toml(&fault.problem)
            .unwrap_or_else(|| format!("correct it, then test it with: {}", test(&fault.file))),
        Self::Missing { place, .. } => format!("add it, then test it with: {}", test(&place.file)),
        Self::Example(failed) => {
            format!("list all failing examples with: {}", test(&failed.place.file))
        }
        Self::RegoLeftOut { .. } => "remove the file, or build avfs with: cargo build --features rego".into(),
        Self::Rego { file, .. } => format!("correct it, then test it with: {}", test(file)),
    })
});
