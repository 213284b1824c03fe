//! Values in JSON: a type with `FromStr` and `Display` is a string, an amount may also be a number.

/// Implements `Serialize` and `Deserialize`, and with the feature `schema` also `JsonSchema`, for types that are
/// strings in JSON.
///
/// ```
/// use avfs_types::ids::ForkName;
///
/// let fork: ForkName = serde_json::from_str("\"fix-1\"")?;
/// assert_eq!(serde_json::to_string(&fork)?, "\"fix-1\"");
/// assert!(serde_json::from_str::<ForkName>("\"a b\"").is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[macro_export]
macro_rules! text_values {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::external::serde::Serialize for $type {
            fn serialize<S: $crate::external::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> $crate::external::serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::external::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err($crate::external::serde::de::Error::custom)
            }
        }

        $crate::value_schema!($type, { "type": "string" });
    )+};
}

/// Does the same for limits, which in JSON are numbers if possible, or strings such as `2GiB` and `none`.
#[macro_export]
macro_rules! amount_values {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::external::serde::Serialize for $type {
            fn serialize<S: $crate::external::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self.to_string().parse() {
                    Ok(number) => to.serialize_u64(number),
                    Err(_) => to.collect_str(self),
                }
            }
        }

        impl<'de> $crate::external::serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::external::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::Amount::deserialize(from)?.0.parse().map_err($crate::external::serde::de::Error::custom)
            }
        }

        $crate::value_schema!($type, {});
    )+};
}

/// Implements `JsonSchema` if the feature `schema` is enabled.
#[cfg(feature = "schema")]
#[doc(hidden)]
#[macro_export]
macro_rules! value_schema {
    ($type:ty, $schema:tt) => {
        impl $crate::external::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(
                _: &mut $crate::external::schemars::SchemaGenerator,
            ) -> $crate::external::schemars::Schema {
                $crate::external::schemars::json_schema!($schema)
            }
        }
    };
}

/// Does nothing without the feature `schema`.
#[cfg(not(feature = "schema"))]
#[doc(hidden)]
#[macro_export]
macro_rules! value_schema {
    ($type:ty, $schema:tt) => {};
}

/// The text of a number or a string in JSON.
#[doc(hidden)]
pub struct Amount(pub String);

impl<'de> serde::Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        Ok(Self(value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    }
}

text_values!(crate::ids::ForkName, crate::ids::ApprovalPrefix, crate::reference::Reference);
amount_values!(crate::Limit);

#[cfg(test)]
mod tests {
    use crate::Limit;
    use crate::ids::ForkName;

    #[test]
    fn errors_have_the_position_of_the_value() {
        let error = serde_json::from_str::<Vec<ForkName>>("[\"a\",\n \"b c\"]").unwrap_err();
        assert_eq!((error.line(), error.column()), (2, 7));
        assert!(error.to_string().starts_with("fork name \"b c\""), "{error}");
    }

    #[test]
    fn an_amount_is_a_number_or_a_string() {
        let limit = |text: &str| serde_json::from_str::<Limit>(text).ok();
        assert_eq!(limit("5"), Some(Limit(Some(5))));
        assert_eq!(limit("\"2KiB\""), Some(Limit(Some(2048))));
        assert_eq!(limit("\"none\""), Some(Limit(None)));
        assert_eq!(limit("true"), None);
        assert_eq!(limit("1.5"), None);
    }
}
