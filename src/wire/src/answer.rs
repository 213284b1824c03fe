//! The object that every verb prints with `--json`.

use serde::{Deserialize, Serialize};

use avfs_types::Word;
use avfs_types::secrets::Secrets;

/// The output of every verb of `avfs` with `--json`: one object on one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// Always [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).
    pub schema_version: u32,
    /// The verb, such as `fork.create`.
    pub kind: Word,
    /// True if the verb succeeded.
    pub success: bool,
    /// The result; its form depends on `kind`. Null for most errors, but some have a result.
    pub result: Option<T>,
    /// Null if `success` is true.
    pub error: Option<ErrorBody>,
}

/// Why the verb failed, or why the answer is "no".
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct ErrorBody {
    /// A stable code; never renamed.
    pub code: String,
    /// One sentence, followed by its causes after colons.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl ErrorBody {
    /// Removes the values of secrets.
    #[must_use]
    pub fn without(self, secrets: &Secrets) -> Self {
        Self {
            message: secrets.scrub_text(self.message),
            hint: self.hint.map(|hint| secrets.scrub_text(hint)),
            ..self
        }
    }
}
