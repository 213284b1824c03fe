//! Choices that are written as one word: on the command line, in the configuration, in the envelope.

use crate::diagnose::Diagnose;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{found:?} is not a {what}; choose one of: {choices}")]
pub struct WordError {
    pub what: &'static str,
    pub found: String,
    pub choices: String,
}

impl Diagnose for WordError {
    fn code(&self) -> &'static str {
        "value.invalid"
    }

    fn hint(&self) -> Option<String> {
        None
    }
}

/// An enum whose variants have one word each.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $type:ident, $what:literal, { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type {
            $($(#[$vdoc])* $variant),+
        }

        impl $type {
            /// Every one, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::WordError;

            fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    other => Err($crate::WordError {
                        what: $what,
                        found: other.chars().take(40).collect(),
                        choices: Self::WORDS.join(", "),
                    }),
                }
            }
        }
    };
}
