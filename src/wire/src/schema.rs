//! The JSON Schema of every `--json` output: one document, one definition for each kind.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use avfs_request::spec::{RunSpec, SCHEMA_VERSION};

use crate::answer::ErrorBody;
use crate::batch::{BatchAnswer, BatchItemResult};
use crate::compact::CompactEnvelope;
use crate::execution::ExecutionEnvelope;
use crate::list::{ListHeader, ListItem};
use crate::replay::{Replay, ReplayItemResult};
use crate::{approvals, attempts, cache, policy, recordings, results, runs, upkeep};

/// A kind and the generator of its result's schema.
pub struct Kind {
    /// The verb, such as `fork.create`.
    pub name: &'static str,
    result: fn(&mut SchemaGenerator) -> Schema,
    /// Reads a result with the type that writes it, and writes it again.
    #[cfg(test)]
    again: fn(Value) -> serde_json::Result<Value>,
}

const fn kind<T: JsonSchema + Serialize + DeserializeOwned>(name: &'static str) -> Kind {
    Kind {
        name,
        result: |generator| generator.subschema_for::<T>(),
        #[cfg(test)]
        again: |value| serde_json::to_value(serde_json::from_value::<T>(value)?),
    }
}

/// All kinds of answers.
pub const KINDS: &[Kind] = &[
    kind::<results::Init>("init"),
    kind::<results::VaultList>("vault.list"),
    kind::<results::VaultInfo>("vault.info"),
    kind::<results::VaultTrust>("vault.trust"),
    kind::<results::VaultCopy>("vault.copy"),
    kind::<results::VaultDelete>("vault.delete"),
    kind::<results::Import>("import"),
    kind::<results::Export>("export"),
    kind::<results::Materialize>("materialize"),
    kind::<results::ForkOne>("fork.create"),
    kind::<results::ForkList>("fork.list"),
    kind::<results::ForkTree>("fork.tree"),
    kind::<results::ForkOne>("fork.delete"),
    kind::<results::CheckpointOne>("checkpoint.save"),
    kind::<results::CheckpointList>("checkpoint.list"),
    kind::<results::CheckpointInfo>("checkpoint.info"),
    kind::<results::Edited>("checkpoint.restore"),
    kind::<results::CheckpointOne>("checkpoint.delete"),
    kind::<results::Edited>("restore"),
    kind::<results::Log>("log"),
    kind::<results::Show>("show"),
    kind::<results::Entries>("ls"),
    kind::<results::Cat>("cat"),
    kind::<results::Entries>("tree"),
    kind::<results::Entries>("find"),
    kind::<results::Grep>("grep"),
    kind::<results::Edited>("write"),
    kind::<results::Edited>("mkdir"),
    kind::<results::Edited>("rm"),
    kind::<results::Edited>("mv"),
    kind::<results::Edited>("cp"),
    kind::<results::Diff>("diff"),
    kind::<results::Status>("status"),
    kind::<runs::RunsList>("runs.list"),
    kind::<runs::RunShown>("runs.show"),
    kind::<runs::Apply>("apply"),
    kind::<runs::Unapply>("unapply"),
    kind::<runs::Sync>("sync"),
    kind::<runs::Discard>("discard"),
    kind::<runs::Recover>("recover"),
    kind::<runs::Doctor>("doctor"),
    kind::<runs::Undo>("undo"),
    kind::<runs::Redo>("redo"),
    kind::<BatchAnswer>("batch"),
    kind::<Replay>("replay"),
    kind::<attempts::Bisect>("bisect"),
    kind::<attempts::Race>("race"),
    kind::<approvals::ApprovalsList>("approvals.list"),
    kind::<approvals::ApprovalsShow>("approvals.show"),
    kind::<approvals::ApprovalsAnswer>("approvals.approve"),
    kind::<approvals::ApprovalsAnswer>("approvals.deny"),
    kind::<cache::CacheExplain>("cache.explain"),
    kind::<cache::CacheForget>("cache.forget"),
    kind::<cache::CacheList>("cache.list"),
    kind::<recordings::RecordExport>("record.export"),
    kind::<recordings::RecordList>("record.list"),
    kind::<recordings::RecordOne>("record.delete"),
    kind::<recordings::RecordOne>("record.start"),
    kind::<recordings::RecordStop>("record.stop"),
    kind::<upkeep::AuditList>("audit.list"),
    kind::<upkeep::AuditVerify>("audit.verify"),
    kind::<upkeep::AuditExport>("audit.export"),
    kind::<upkeep::Gc>("gc"),
    kind::<upkeep::Prune>("prune"),
    kind::<upkeep::Compact>("compact"),
    kind::<upkeep::Fsck>("fsck"),
    kind::<upkeep::Stats>("stats"),
    kind::<upkeep::Du>("du"),
    kind::<upkeep::Clean>("clean"),
    kind::<upkeep::QuotaShow>("quota.show"),
    kind::<upkeep::QuotaShow>("quota.set"),
    kind::<upkeep::ConfigShow>("config.show"),
    kind::<policy::PolicyCheck>("policy.check"),
    kind::<policy::PolicyExplain>("policy.explain"),
    kind::<policy::PolicyTest>("policy.test"),
    kind::<upkeep::SchemaResult>("schema"),
    kind::<upkeep::Completions>("completions"),
    kind::<upkeep::Man>("man"),
    // For unknown verbs.
    kind::<()>("usage"),
];

/// The whole document. `$defs` holds `fork.create` and so on next to the types they use.
#[must_use]
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let error = generator.subschema_for::<ErrorBody>();
    let envelopes: Vec<(&str, Value)> = KINDS
        .iter()
        .map(|kind| (kind.name, envelope(kind.name, &(kind.result)(&mut generator), &error)))
        .collect();
    // The envelopes of avfs-run have more fields than a result.
    let execution = generator.subschema_for::<ExecutionEnvelope>();
    let compact = generator.subschema_for::<CompactEnvelope>();
    // The lines of avfs batch --results, and of avfs replay --results.
    generator.subschema_for::<BatchItemResult>();
    generator.subschema_for::<ReplayItemResult>();
    let mut definitions = generator.take_definitions(true);
    definitions.extend(inputs());
    let names = envelopes.iter().map(|(name, _)| *name);
    let mut choices: Vec<Value> = names.map(|name| json!({ "$ref": format!("#/$defs/{name}") })).collect();
    choices.push(execution.to_value());
    choices.push(compact.to_value());
    definitions.extend(envelopes.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The output of avfs with --json",
        "oneOf": choices,
        "$defs": definitions,
    })
}

/// The schemas of the input: no envelope refers to them, and they differ in which fields are optional.
fn inputs() -> serde_json::Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    generator.subschema_for::<RunSpec>();
    generator.subschema_for::<ListHeader>();
    generator.subschema_for::<ListItem>();
    generator.take_definitions(true)
}

fn envelope(name: &str, result: &Schema, error: &Schema) -> Value {
    json!({
        "type": "object",
        "required": ["schema_version", "kind", "success", "result", "error"],
        "properties": {
            "schema_version": { "const": SCHEMA_VERSION },
            "kind": { "const": name },
            "success": { "type": "boolean" },
            "result": { "anyOf": [result, { "type": "null" }] },
            "error": { "anyOf": [error, { "type": "null" }] },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that matches a schema. `choice` selects among alternatives, and whether lists are empty and optional
    /// keys absent; with 12 choices, each of up to four alternatives occurs.
    fn example(schema: &Value, defs: &Value, choice: usize, optional: bool) -> Value {
        let nested = |schema: &Value| example(schema, defs, choice, optional);
        let pick = |all: &[Value]| {
            let present: Vec<&Value> =
                all.iter().filter(|it| !(optional && (it["type"] == "null" || **it == "null"))).collect();
            present[choice % present.len()].clone()
        };
        let has_items = optional || choice.is_multiple_of(2);
        if let Some(name) = schema["$ref"].as_str() {
            return nested(&defs[name.trim_start_matches("#/$defs/")]);
        }
        if let Some(all) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            return nested(&pick(all));
        }
        if let Some(all) = schema["enum"].as_array() {
            return pick(all);
        }
        if !schema["const"].is_null() {
            return schema["const"].clone();
        }
        let form = &schema["type"];
        let form = form.as_array().map_or_else(|| form.clone(), |all| pick(all));
        match form.as_str() {
            // Stored values, which can be any JSON.
            None => [json!("text"), Value::Null][choice % 2].clone(),
            Some("null") => Value::Null,
            Some("boolean") => json!(has_items),
            Some("integer") => json!(7),
            Some("number") => json!(1.5),
            Some("string") => json!("text"),
            Some("array") => json!([nested(&schema["items"])][..usize::from(has_items)]),
            Some("object") => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let mut object = serde_json::Map::new();
                for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
                    let optional = !required.iter().any(|name| name == key);
                    if !optional || choice.is_multiple_of(2) {
                        object.insert(key.clone(), example(schema, defs, choice, optional));
                    }
                }
                if schema["additionalProperties"].is_object() {
                    object.insert("key".to_owned(), nested(&schema["additionalProperties"]));
                }
                Value::Object(object)
            }
            Some(other) => panic!("{other} in {schema}"),
        }
    }

    #[test]
    fn every_answer_is_read_with_the_type_that_writes_it() {
        let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let others = [
            kind::<ExecutionEnvelope>("execution"),
            kind::<CompactEnvelope>("execution.compact"),
            kind::<BatchItemResult>("a line of batch"),
            kind::<ReplayItemResult>("a line of replay"),
        ];
        let all: Vec<(&Kind, Value)> = KINDS
            .iter()
            .chain(&others)
            .map(|kind| (kind, (kind.result)(&mut generator).to_value()))
            .collect();
        let defs = Value::Object(generator.take_definitions(true));
        for (kind, schema) in all {
            for choice in 0..12 {
                let written = example(&schema, &defs, choice, false);
                let read = (kind.again)(written.clone());
                assert_eq!(read.map_err(|error| format!("{error}: {written}")), Ok(written), "{}", kind.name);
            }
        }
    }

    #[test]
    fn schema_json_is_up_to_date() {
        let now = format!("{:#}\n", document());
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.json");
        if std::env::var_os("AVFS_GOLDEN_REGENERATE").is_some() {
            std::fs::write(&file, &now).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap();
        let again = "AVFS_GOLDEN_REGENERATE=1 cargo test -p avfs-wire --features schema";
        assert!(written == now, "the types have changed; regenerate src/wire/schema.json with: {again}");
    }

    #[test]
    fn every_kind_has_its_own_definition() {
        let document = document();
        for kind in KINDS {
            assert!(document["$defs"][kind.name].is_object(), "{} has no definition", kind.name);
        }
        let names: std::collections::HashSet<_> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
    }
}
