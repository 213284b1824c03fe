//! What a request's description leaves out: credentials, and values of secrets.

use std::collections::BTreeMap;

use avfs_types::redact;
use avfs_types::redact::{is_credential_name, redact_words};
use avfs_types::secrets::Secrets;

use super::{CommandText, RequestObject};
use crate::request::ExecutionRequest;

impl RequestObject {
    /// As it is written down: what looks like a credential is taken out of the command.
    #[must_use]
    pub fn redacted(self) -> Self {
        let command = match &self.command {
            CommandText::Argv(words) => CommandText::Argv(redact_words(words)),
            CommandText::Shell(line) => CommandText::Shell(redact(line).into_owned()),
        };
        // Its bytes would tell what its text does not.
        let command_base64 = self.command_base64.filter(|_| command == self.command);
        Self { command, command_base64, ..self }
    }
}

/// What the request sets, as far as it may be told. A value that is missing has to be given once more; one that is kept
/// cannot be taken back.
pub(crate) fn brought(request: &ExecutionRequest, secrets: &Secrets) -> BTreeMap<String, String> {
    let texts =
        request.environment.brought().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let harmless = texts.filter(|(name, value)| {
        let told = format!("{name}={value}");
        !is_credential_name(name) && redact(&told) == told && secrets.scrub_text(told.clone()) == told
    });
    harmless.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
