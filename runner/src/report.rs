//! What is said about a run that could not be set up.

use serde_json::{Value, json};

use crate::args::Args;

pub struct Report {
    pub message: String,
    pub envelope: Value,
}

const CODE: &str = "sandbox.not_available";
const MESSAGE: &str = "the sandbox is not part of this version of avfs-run; nothing was executed";
const HINT: &str = "work on a fork with the vault's own verbs: avfs fork create, avfs write, avfs diff";

pub fn not_available(args: &Args) -> Report {
    let command: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let envelope = json!({
        "schema_version": 1,
        "kind": "execution",
        "success": false,
        "state": "failed",
        "request": {
            "command": command,
            "command_mode": "argv",
            "vault": args.vault.as_ref().map(|vault| vault.to_string_lossy()),
            "fork": args.fork,
        },
        "decision": null,
        "result": null,
        "enforcement": null,
        "error": { "code": CODE, "message": MESSAGE, "hint": HINT },
    });
    Report { message: format!("error: {MESSAGE}\nhint: {HINT}"), envelope }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_envelope_names_the_request_and_the_error() {
        let args = Args::try_parse_from(["avfs-run", "--json", "--", "make", "test"]).unwrap();
        let envelope = not_available(&args).envelope;
        assert_eq!(envelope["request"]["command"], json!(["make", "test"]));
        assert_eq!(envelope["error"]["code"], CODE);
        assert_eq!(envelope["success"], json!(false));
    }
}
