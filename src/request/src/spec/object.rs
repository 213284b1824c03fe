//! Removes credentials and the values of secrets from the JSON form of a request.

use std::collections::BTreeMap;

use avfs_types::redact;
use avfs_types::redact::{is_credential_name, is_credential_value, redact_words};
use avfs_types::secrets::Secrets;

use super::{CommandText, RequestObject};
use crate::request::ExecutionRequest;

impl RequestObject {
    /// Returns the form that is stored: anything that looks like a credential is removed from the command.
    #[must_use]
    pub fn redacted(self) -> Self {
        let command = match &self.command {
            CommandText::Argv(words) => CommandText::Argv(redact_words(words)),
            CommandText::Shell(line) => CommandText::Shell(redact(line).into_owned()),
        };
        // The bytes would reveal what the text does not.
        let command_base64 = self.command_base64.filter(|_| command == self.command);
        Self { command, command_base64, ..self }
    }
}

/// Returns the variables that the request sets and that may be stored. A value that is missing has to be given again; a
/// value that is stored cannot be withdrawn.
pub(crate) fn brought(request: &ExecutionRequest, secrets: &Secrets) -> BTreeMap<String, String> {
    let texts =
        request.environment.brought().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let harmless = texts.filter(|(name, value)| {
        let assignment = format!("{name}={value}");
        !is_credential_name(name)
            && !is_credential_value(value)
            && redact(&assignment) == assignment
            && secrets.scrub_text(assignment.clone()) == assignment
    });
    harmless.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
