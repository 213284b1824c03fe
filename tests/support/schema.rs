//! Validates every JSON answer that a test sees against the schema of its kind from `avfs schema`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// By name: compiling a validator takes far longer than using it.
static VALIDATORS: LazyLock<Mutex<BTreeMap<String, Validator>>> = LazyLock::new(Mutex::default);

/// Fails unless an answer matches the schema.
#[track_caller]
pub fn validate(avfs: &Path, value: &Value) {
    let kind = value["kind"].as_str().unwrap_or_default();
    let name = match kind {
        "execution" => "ExecutionEnvelope",
        "execution.compact" => "CompactEnvelope",
        other => other,
    };
    validate_as(avfs, name, value);
    assert_eq!(value["schema_version"], json!(1));
}

/// Fails unless a value matches the definition of this name in the schema.
#[track_caller]
pub fn validate_as(avfs: &Path, name: &str, value: &Value) {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let output = Command::new(avfs).arg("schema").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    });
    assert!(schema["$defs"][name].is_object(), "the schema has no definition {name:?}: {value}");
    // A test that failed has poisoned the lock, and left the map unchanged.
    let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = validators.entry(name.to_owned()).or_insert_with(|| {
        let mut defs = Map::new();
        add_definition(&schema["$defs"], name, &mut defs);
        let one = json!({ "$ref": format!("#/$defs/{name}"), "$defs": defs });
        jsonschema::validator_for(&one).unwrap()
    });
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?} in {value}");
}

/// Adds a definition and those it refers to.
fn add_definition(all: &Value, name: &str, to: &mut Map<String, Value>) {
    if to.contains_key(name) {
        return;
    }
    to.insert(name.to_owned(), all[name].clone());
    let mut parts = vec![&all[name]];
    while let Some(part) = parts.pop() {
        match part {
            Value::Object(fields) => parts.extend(fields.values()),
            Value::Array(items) => parts.extend(items),
            Value::String(text) => {
                if let Some(other) = text.strip_prefix("#/$defs/") {
                    add_definition(all, other, to);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
