//! The one object every verb prints with `--json`.

use serde::{Deserialize, Serialize};

use avfs_types::secrets::Secrets;

/// What every verb of `avfs` prints with `--json`: one object on one line.
#[derive(Debug, Serialize)]
pub struct Envelope<'a, T: Serialize> {
    /// Always [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).
    pub schema_version: u32,
    /// The verb, such as `fork.create`.
    pub kind: &'a str,
    /// True if the verb did what was asked.
    pub success: bool,
    /// The answer; its form depends on `kind`. Null on most errors, but some come with a result.
    pub result: Option<&'a T>,
    /// Null if `success` is true.
    pub error: Option<&'a ErrorBody>,
}

/// What failed, or why the answer is "no".
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// Stable: never renamed.
    pub code: String,
    /// One sentence, with its causes after colons.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl ErrorBody {
    /// The same without the values of secrets.
    #[must_use]
    pub fn without(self, secrets: &Secrets) -> Self {
        Self {
            message: secrets.scrub_text(self.message),
            hint: self.hint.map(|hint| secrets.scrub_text(hint)),
            ..self
        }
    }
}
