//! Names and identities, parsed once at the edge: digests of content, and the names people give.
//!
//! A digest never changes meaning: each kind has its own hashing context, so that no object of one kind can
//! pass for another.

use std::fmt;

pub const DIGEST_BYTES: usize = 32;
/// Hex digits of a digest that are shown where people read it.
pub const SHORT_HEX_DIGITS: usize = 12;
/// The fewest hex digits that may stand for a version.
pub const PREFIX_HEX_DIGITS_MIN: usize = 4;
pub const NAME_BYTES_MAX: usize = 100;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    #[error("a {what} name may not be empty")]
    Empty { what: &'static str },
    #[error("{what} name {name:?} is {length} bytes long; at most {NAME_BYTES_MAX} are allowed")]
    TooLong { what: &'static str, name: String, length: usize },
    #[error("{what} name {name:?} contains {found:?}; letters, digits, '.', '_' and '-' are allowed")]
    BadCharacter { what: &'static str, name: String, found: char },
    #[error("{what} name {name:?} must start with a letter or a digit")]
    BadStart { what: &'static str, name: String },
}

impl crate::diagnose::Diagnose for NameError {
    fn code(&self) -> &'static str {
        "name.invalid"
    }

    fn hint(&self) -> Option<String> {
        Some("choose a name such as fix-1 or release_2.0".to_owned())
    }
}

fn check_name(what: &'static str, name: &str) -> Result<(), NameError> {
    let shown = || name.chars().take(40).collect::<String>();
    if name.is_empty() {
        return Err(NameError::Empty { what });
    }
    if let Some(found) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-".contains(*c)) {
        return Err(NameError::BadCharacter { what, name: shown(), found });
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { what, name: shown(), length: name.len() });
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(NameError::BadStart { what, name: shown() });
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            pub fn parse(name: &str) -> Result<Self, NameError> {
                check_name($what, name)?;
                Ok(Self(name.to_owned()))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::parse(name)
            }
        }
    };
}

name_type!(
    /// The name of a fork.
    ForkName,
    "fork"
);
name_type!(
    /// The name of a checkpoint, unique in its fork.
    CheckpointName,
    "checkpoint"
);
name_type!(
    /// The name of a vault that lives among the user's named vaults.
    VaultName,
    "vault"
);

impl ForkName {
    /// The fork every vault starts with.
    #[must_use]
    pub fn main() -> Self {
        Self("main".to_owned())
    }
}

/// Writes bytes as lower-case hex digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(*b)]).collect()
}

/// Reads an even number of hex digits.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    text.as_bytes().chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

macro_rules! digest_type {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub [u8; DIGEST_BYTES]);

        impl $type {
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; DIGEST_BYTES] {
                &self.0
            }

            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Some(Self(bytes.try_into().ok()?))
            }

            #[must_use]
            pub fn to_hex(&self) -> String {
                to_hex(&self.0)
            }

            #[must_use]
            pub fn short(&self) -> String {
                self.to_hex()[..SHORT_HEX_DIGITS].to_owned()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self.short())
            }
        }
    };
}

digest_type!(
    /// A blob: the plain BLAKE3 of a file's bytes (what `b3sum` prints), or of a chunk list's encoding.
    BlobId
);
digest_type!(
    /// A directory or a page of one, times included: its storage identity.
    TreeId
);
digest_type!(
    /// A directory or a page of one without modification times: what "equal content" compares.
    ContentId
);
digest_type!(
    /// A version's record.
    VersionId
);
digest_type!(
    /// A row of the audit log, chained to the row before it.
    AuditDigest
);

/// Names the files of one tree that are one file with several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestKind {
    ChunkList,
    Tree,
    Content,
    Version,
    Audit,
    Link,
}

impl DigestKind {
    const fn context(self) -> &'static str {
        match self {
            Self::ChunkList => "avfs 2026 chunk list v1",
            Self::Tree => "avfs 2026 tree v1",
            Self::Content => "avfs 2026 tree content v1",
            Self::Version => "avfs 2026 version v1",
            Self::Audit => "avfs 2026 audit v1",
            Self::Link => "avfs 2026 link v1",
        }
    }

    /// A hasher whose digests cannot collide with those of another kind.
    ///
    /// Deriving the key from the context costs a hash of its own, so each is derived once.
    #[must_use]
    pub fn hasher(self) -> blake3::Hasher {
        static HASHERS: [std::sync::OnceLock<blake3::Hasher>; 6] = [const { std::sync::OnceLock::new() }; 6];
        HASHERS[self as usize].get_or_init(|| blake3::Hasher::new_derive_key(self.context())).clone()
    }

    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> [u8; DIGEST_BYTES] {
        *self.hasher().update(bytes).finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_paths_or_refs_are_refused() {
        for bad in ["", "a/b", "..", ".", "a\0b", "a~1", "a@b", "a:b", "-x", "naïve"] {
            assert!(ForkName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(matches!(ForkName::parse(&"x".repeat(300)), Err(NameError::TooLong { length: 300, .. })));
        for good in ["main", "fix-1", "v2.0", "0", &"x".repeat(100)] {
            assert_eq!(ForkName::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn hex_round_trips_and_refuses_other_text() {
        assert_eq!(from_hex(&to_hex(&[0, 1, 0xfe, 0xff])).unwrap(), [0, 1, 0xfe, 0xff]);
        assert_eq!(from_hex("0g"), None);
        assert_eq!(from_hex("abc"), None);
    }

    #[test]
    fn kinds_of_digest_never_meet() {
        let kinds = [
            DigestKind::ChunkList,
            DigestKind::Tree,
            DigestKind::Content,
            DigestKind::Version,
            DigestKind::Audit,
            DigestKind::Link,
        ];
        let digests: std::collections::HashSet<_> = kinds.iter().map(|k| k.digest(b"same")).collect();
        assert_eq!(digests.len(), kinds.len());
    }
}
