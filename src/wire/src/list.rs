//! The lines of a command list (docs/LISTS.md): a header, and items, each of which is a request with additional keys of
//! the list.
//!
//! Unknown keys are rejected; adding a key requires a new [`LIST_VERSION`].

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use avfs_request::spec::RunSpec;

/// The version of the format.
pub const LIST_VERSION: u64 = 1;

/// The first line of a recorded list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListHeader {
    /// The version of the format.
    pub avfs_list: u64,
    /// The id of the vault in which the list was recorded, in hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault_id: Option<String>,
    /// When the list was recorded, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<String>,
    /// The path at which the commands saw the workspace, unless an item sets another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The source of the list, as named in the command that recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// One command of a list: every key of a request, and these.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ListItem {
    /// Unique in the list; by default the number of the item, from 1.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "IdForm"))]
    pub id: String,
    /// The items that must succeed before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<IdForm>"))]
    pub needs: Vec<String>,
    /// The state that the recorded command started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ListStart>,
    /// The recorded outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<ListExpected>,
    /// How often to retry the item if it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Differences that are ignored when the item is replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<ListNoise>,
    /// The recorded run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The request; its keys are part of this object.
    #[serde(flatten, serialize_with = "said_only")]
    pub request: RunSpec,
}

/// The state that a command started from; digests in hex digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListStart {
    /// The id of the version.
    pub version: Option<String>,
    /// The digest of the tree.
    pub tree: Option<String>,
    /// The digest of the tree without modification times.
    pub content: Option<String>,
}

/// The outcome of a command. A null field is unknown, and is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListExpected {
    /// The exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that killed the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// BLAKE3 of standard output.
    pub stdout: Option<String>,
    /// BLAKE3 of standard error.
    pub stderr: Option<String>,
    /// The digest of the tree after the command.
    pub tree: Option<String>,
    /// The digest of that tree without modification times.
    pub content: Option<String>,
    /// The version that the command made; the version it started from if it changed nothing.
    pub version: Option<String>,
}

/// Differences between two runs that are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListNoise {
    /// Ignore modification times.
    pub mtimes: bool,
    /// Paths in the workspace to ignore, as globs.
    pub paths: Vec<String>,
    /// Replacements in both outputs before they are compared.
    pub output: Vec<OutputNoise>,
}

/// Replaces every match of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputNoise {
    /// A regular expression.
    pub pattern: String,
    /// The replacement of a match; `$1` is its first group.
    #[serde(default)]
    pub replace: String,
}

/// Serializes only the keys of a request that are set.
pub(super) fn said_only<S: Serializer>(request: &RunSpec, serializer: S) -> Result<S::Ok, S::Error> {
    request.said().map_err(serde::ser::Error::custom)?.serialize(serializer)
}

impl<'de> Deserialize<'de> for ListItem {
    /// Passes all keys that are not the list's to the request, which rejects unknown keys. serde cannot flatten a type
    /// that denies unknown keys, and would lose the position of an error.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = ListItem;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an item: an object with a command")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListItem, A::Error> {
        let mut own = Own::default();
        let request = RunSpec::deserialize(MapAccessDeserializer::new(Split { map, own: &mut own }))?;
        let Own { id, needs, start, expected, retries, noise, run } = own;
        Ok(ListItem {
            id: id.unwrap_or_default().0,
            needs: needs.unwrap_or_default().into_iter().map(|id| id.0).collect(),
            start: start.flatten(),
            expected: expected.flatten(),
            retries: retries.flatten(),
            noise: noise.flatten(),
            run: run.flatten(),
            request,
        })
    }
}

/// The keys of an item that are not part of its request.
#[derive(Default)]
struct Own {
    id: Option<IdText>,
    needs: Option<Vec<IdText>>,
    start: Option<Option<ListStart>>,
    expected: Option<Option<ListExpected>>,
    retries: Option<Option<u32>>,
    noise: Option<Option<ListNoise>>,
    run: Option<Option<String>>,
}

/// Removes the list's keys from an object while it is passed to the request.
struct Split<'o, A> {
    map: A,
    own: &'o mut Own,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Split<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Self { map, own } = self;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => once(&mut own.id, "id", map)?,
                "needs" => once(&mut own.needs, "needs", map)?,
                "start" => once(&mut own.start, "start", map)?,
                "expected" => once(&mut own.expected, "expected", map)?,
                "retries" => once(&mut own.retries, "retries", map)?,
                "noise" => once(&mut own.noise, "noise", map)?,
                "run" => once(&mut own.run, "run", map)?,
                _ => return seed.deserialize(key.into_deserializer()).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    key: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::duplicate_field(key));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// The forms of an id.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "used only for the schema")]
enum IdForm {
    Text(String),
    Number(u64),
}

/// An id is a string; a number stands for its digits.
#[derive(Default)]
struct IdText(String);

impl<'de> Deserialize<'de> for IdText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = IdText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a string, or a number from 1")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<IdText, E> {
                if text.is_empty() {
                    return Err(E::custom("an id may not be empty"));
                }
                Ok(IdText(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<IdText, E> {
                Ok(IdText(number.to_string()))
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}
