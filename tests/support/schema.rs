//! Every answer in JSON that a test sees is held against what `avfs schema` says of its kind.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

/// Fails unless an answer is what the schema says.
#[track_caller]
pub fn validate(avfs: &Path, value: &Value) {
    let kind = value["kind"].as_str().unwrap_or_default();
    validate_as(avfs, if kind == "execution" { "ExecutionEnvelope" } else { kind }, value);
    assert_eq!(value["schema_version"], json!(1));
}

/// Fails unless it is what the schema has under a name.
#[track_caller]
pub fn validate_as(avfs: &Path, name: &str, value: &Value) {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let output = Command::new(avfs).arg("schema").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    });
    assert!(schema["$defs"][name].is_object(), "the schema does not know {name:?}: {value}");
    let one = json!({ "$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"] });
    let validator = jsonschema::validator_for(&one).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?} in {value}");
}
