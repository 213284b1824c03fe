//! Choices that are written as one word: on the command line, in the configuration, in the envelope.

use std::borrow::Cow;

use crate::diagnose::Diagnose;

/// A word in JSON: written by one of our enums, and read from another process, which may have a later version.
pub type Word = Cow<'static, str>;

/// A text that is not one of the words of an enum.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid {what} {found:?}: expected one of {choices}")]
pub struct WordError {
    /// The kind of word, such as `action`.
    pub what: &'static str,
    /// The first 40 characters of the text.
    pub found: String,
    /// The accepted words, separated by commas.
    pub choices: String,
}

impl Diagnose for WordError {
    fn code(&self) -> &'static str {
        "value.invalid"
    }
}

/// Declares a public enum whose variants have one word each, with `Display` and `FromStr`.
///
/// Takes the name of the enum, the kind of word (used in the error), and the variants with their words:
///
/// ```
/// avfs_types::words!(
///     /// How sure a rule is.
///     Fit, "fit", {
///         /// The rule matches.
///         Sure = "sure",
///         /// The rule may match.
///         Maybe = "may",
///     }
/// );
/// assert_eq!("may".parse(), Ok(Fit::Maybe));
/// assert_eq!(Fit::WORDS, ["sure", "may"]);
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $type:ident, $what:literal, { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type {
            $($(#[$vdoc])* $variant),+
        }

        impl $type {
            /// All variants, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The words of all variants, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word of this variant; parsing it returns the variant.
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
