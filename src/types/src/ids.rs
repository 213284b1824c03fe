//! Names and identities, parsed once at the edge: digests of content, and the names people give.
//!
//! A digest never changes meaning: each kind has its own hashing context, so that no object of one kind can
//! pass for another.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Bytes of a BLAKE3 digest.
pub const DIGEST_BYTES: usize = 32;
/// Hex digits of a digest that are shown where people read it.
pub(crate) const SHORT_HEX_DIGITS: usize = 12;
/// The fewest hex digits that may stand for a version or a run.
pub const PREFIX_HEX_DIGITS_MIN: usize = 4;
/// Random bytes behind a run's id.
pub(crate) const RUN_ID_BYTES: usize = 5;
/// Hex digits of a run's id.
pub const RUN_ID_HEX_DIGITS: usize = 2 * RUN_ID_BYTES;
/// The most bytes that a name of a fork, checkpoint, recording or vault may have.
pub const NAME_BYTES_MAX: usize = 100;

/// A text that is not a valid name. `what` is the kind of name: `fork`, `checkpoint`, `recording` or `vault`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    /// The name has no characters.
    #[error("a {what} name may not be empty")]
    Empty {
        /// The kind of name.
        what: &'static str,
    },
    /// The name has more than [`NAME_BYTES_MAX`] bytes.
    #[error("{what} name {name:?} is {length} bytes long; at most {NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// The kind of name.
        what: &'static str,
        /// The first 40 characters of the name.
        name: String,
        /// Bytes of the whole name.
        length: usize,
    },
    /// The name contains a character that is not allowed.
    #[error("{what} name {name:?} contains {found:?}; letters, digits, '.', '_' and '-' are allowed")]
    BadCharacter {
        /// The kind of name.
        what: &'static str,
        /// The first 40 characters of the name.
        name: String,
        /// The first character that is not allowed.
        found: char,
    },
    /// The name starts with `.`, `_` or `-`.
    #[error("{what} name {name:?} must start with a letter or a digit")]
    BadStart {
        /// The kind of name.
        what: &'static str,
        /// The first 40 characters of the name.
        name: String,
    },
}

impl crate::diagnose::Diagnose for NameError {
    fn code(&self) -> &'static str {
        "name.invalid"
    }
}

/// Checks a name whose parts are separated by slashes, as in `feature/login`.
fn check_path_name(what: &'static str, name: &str) -> Result<(), NameError> {
    if name.len() > NAME_BYTES_MAX {
        let shown = name.chars().take(40).collect();
        return Err(NameError::TooLong { what, name: shown, length: name.len() });
    }
    name.split('/').try_for_each(|part| check_name(what, part))
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
    ($(#[$doc:meta])* $type:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            /// Checks a name: 1 to [`NAME_BYTES_MAX`] bytes of ASCII letters, digits, `.`, `_` and `-`, of which the
            /// first is a letter or a digit. The name of a fork may have several such parts with `/` between them.
            pub fn parse(name: &str) -> Result<Self, NameError> {
                $check($what, name)?;
                Ok(Self(name.to_owned()))
            }

            /// The name as text.
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
    "fork",
    check_path_name
);
name_type!(
    /// The name of a checkpoint, unique in its fork.
    CheckpointName,
    "checkpoint",
    check_name
);
name_type!(
    /// The name of a recording.
    RecordingName,
    "recording",
    check_name
);
name_type!(
    /// The name of a vault that lives among the user's named vaults.
    VaultName,
    "vault",
    check_name
);

impl CheckpointName {
    /// A checkpoint made by a run.
    #[must_use]
    pub fn of_run(what: &'static str, run: &RunId) -> Self {
        Self(format!("{what}-{run}"))
    }
}

impl ForkName {
    /// The fork every vault starts with.
    #[must_use]
    pub fn main() -> Self {
        Self("main".to_owned())
    }

    /// The fork made for one run.
    #[must_use]
    pub fn of_run(run: &RunId) -> Self {
        Self(format!("run-{run}"))
    }
}

/// What an id of random digits names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// A run.
    Run,
    /// An approval.
    Approval,
    /// A batch.
    Batch,
}

impl Drawn {
    const fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Approval => "approval",
            Self::Batch => "batch",
        }
    }
}

/// A text that is neither the id of a run, approval or batch nor a prefix of one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not the id of {} {}", if *what == Drawn::Approval { "an" } else { "a" }, what.word())]
pub struct DrawnIdError {
    /// The kind of id that was expected.
    pub what: Drawn,
    text: String,
}

impl crate::diagnose::Diagnose for DrawnIdError {
    fn code(&self) -> &'static str {
        "ref.invalid"
    }
}

fn check_digits(
    what: Drawn,
    text: &str,
    digits: std::ops::RangeInclusive<usize>,
) -> Result<(), DrawnIdError> {
    let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex && digits.contains(&text.len()) {
        return Ok(());
    }
    Err(DrawnIdError { what, text: text.chars().take(40).collect() })
}

/// `last`, or `last~N`.
fn steps_back(text: &str) -> Option<u64> {
    match text.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

macro_rules! drawn_id {
    ($(#[$doc:meta])* $type:ident, $(#[$prefix_doc:meta])* $prefix:ident, $what:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            /// Makes an id from random bytes. The caller draws them; equal bytes give equal ids.
            #[must_use]
            pub fn from_random(bytes: [u8; RUN_ID_BYTES]) -> Self {
                Self(to_hex(&bytes))
            }

            /// Reads a whole id.
            pub fn parse(text: &str) -> Result<Self, DrawnIdError> {
                check_digits($what, text, RUN_ID_HEX_DIGITS..=RUN_ID_HEX_DIGITS)?;
                Ok(Self(text.to_owned()))
            }

            /// The hex digits of the id.
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

        $(#[$prefix_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $prefix(String);

        impl $prefix {
            /// Reads at least [`PREFIX_HEX_DIGITS_MIN`] hex digits, in either case; of a run also `last`, and `last~N`
            /// for the one N before it.
            pub fn parse(text: &str) -> Result<Self, DrawnIdError> {
                let label = $what.word();
                let digits = text.strip_prefix(label).and_then(|rest| rest.strip_prefix(':')).unwrap_or(text);
                if $what == Drawn::Run && steps_back(digits).is_some() {
                    return Ok(Self(digits.to_owned()));
                }
                let digits = digits.to_ascii_lowercase();
                check_digits($what, &digits, PREFIX_HEX_DIGITS_MIN..=RUN_ID_HEX_DIGITS)
                    .map_err(|_| DrawnIdError { what: $what, text: text.chars().take(40).collect() })?;
                Ok(Self(digits))
            }

            /// The hex digits of the prefix, in lower case; or `last` and what follows it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// How many before the newest one; nothing where digits name it.
            #[must_use]
            pub fn steps_back(&self) -> Option<u64> {
                steps_back(&self.0)
            }
        }

        impl From<&$type> for $prefix {
            fn from(id: &$type) -> Self {
                Self(id.0.clone())
            }
        }

        impl fmt::Display for $prefix {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $prefix {
            type Err = DrawnIdError;

            fn from_str(text: &str) -> Result<Self, DrawnIdError> {
                Self::parse(text)
            }
        }
    };
}

impl RunPrefix {
    /// The newest run.
    #[must_use]
    pub fn last() -> Self {
        Self("last".to_owned())
    }
}

drawn_id!(
    /// The id of a run: lower-case hex digits of random bytes, which the caller draws.
    RunId,
    /// The first digits of a run's id, or all of them, as people type it; `run:` before it means nothing.
    RunPrefix,
    Drawn::Run
);
drawn_id!(
    /// The id of an approval, drawn like a run's.
    ApprovalId,
    /// The first digits of an approval's id, or all of them.
    ApprovalPrefix,
    Drawn::Approval
);

drawn_id!(
    /// The id of a batch, drawn like a run's.
    BatchId,
    /// The first digits of a batch's id, or all of them.
    BatchPrefix,
    Drawn::Batch
);

/// Writes bytes as lower-case hex digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Reads an even number of hex digits, in either case.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
}

macro_rules! digest_type {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub [u8; DIGEST_BYTES]);

        impl $type {
            /// The bytes of the digest.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; DIGEST_BYTES] {
                &self.0
            }

            /// `None` unless there are exactly [`DIGEST_BYTES`] bytes.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Some(Self(bytes.try_into().ok()?))
            }

            /// All of the digest as lower-case hex digits.
            #[must_use]
            pub fn to_hex(&self) -> String {
                to_hex(&self.0)
            }

            /// The first 12 hex digits, for people. Not unique: never look anything up by it.
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
    /// Everything that is asked for by one request, the values of secrets apart.
    RequestDigest
);
digest_type!(
    /// Of a list of commands, as its bytes are.
    ListDigest
);
digest_type!(
    /// What a remembered result is found by: everything it depends on.
    MemoKey
);
digest_type!(
    /// One of the things a remembered result depends on.
    PartDigest
);
digest_type!(
    /// A row of the audit log, chained to the row before it.
    AuditDigest
);

/// Names the files of one tree that are one file with several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub [u8; 16]);

/// What a digest is taken of. Each kind has a BLAKE3 context of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestKind {
    /// The list of the chunks of a large file.
    ChunkList,
    /// A directory or a page of one, times included.
    Tree,
    /// A directory or a page of one, without modification times.
    Content,
    /// The record of a version.
    Version,
    /// A row of the audit log.
    Audit,
    /// A group of hardlinked files.
    Link,
    /// A request.
    Request,
    /// The key of a remembered result.
    Memo,
    /// One of the things that a remembered result depends on.
    MemoPart,
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
            Self::Request => "avfs 2026 request v1",
            Self::Memo => "avfs 2026 memo v1",
            Self::MemoPart => "avfs 2026 memo part v1",
        }
    }

    /// A hasher whose digests cannot collide with those of another kind.
    ///
    /// Deriving the key from the context costs a hash of its own, so each is derived once.
    #[must_use]
    pub fn hasher(self) -> blake3::Hasher {
        static HASHERS: [std::sync::OnceLock<blake3::Hasher>; 9] = [const { std::sync::OnceLock::new() }; 9];
        HASHERS[self as usize].get_or_init(|| blake3::Hasher::new_derive_key(self.context())).clone()
    }

    /// Digests `bytes` in one call.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> [u8; DIGEST_BYTES] {
        *self.hasher().update(bytes).finalize().as_bytes()
    }
}

/// One item of a batch, as the run says that was made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchItem {
    /// The batch that the item belongs to.
    pub batch: BatchId,
    /// Its place in the list, from 0.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_paths_or_refs_are_refused() {
        for bad in ["", "a//b", "/b", "a/", "..", ".", "a\0b", "a~1", "a@b", "a:b", "-x", "naïve"] {
            assert!(ForkName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(matches!(ForkName::parse(&"x".repeat(300)), Err(NameError::TooLong { length: 300, .. })));
        for good in ["main", "fix-1", "v2.0", "0", &"x".repeat(100)] {
            assert_eq!(ForkName::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn run_ids_are_whole_and_prefixes_are_forgiving() {
        assert_eq!(RunId::from_random([0, 1, 0xab, 0xcd, 0xff]).as_str(), "0001abcdff");
        assert_eq!(RunId::parse("0001abcdff"), Ok(RunId::from_random([0, 1, 0xab, 0xcd, 0xff])));
        for bad in ["", "0001abcdf", "0001abcdff0", "0001ABCDFF", "0001abcdfg", "run:0001abcdff"] {
            assert!(RunId::parse(bad).is_err(), "{bad:?} was accepted");
        }
        for (text, digits) in [("0001", "0001"), ("run:00aB", "00ab"), ("0001ABCDFF", "0001abcdff")] {
            assert_eq!(RunPrefix::parse(text).unwrap().as_str(), digits);
        }
        for bad in ["", "run:", "001", "0001abcdff0", "main", "run:run:0001", "last~", "last~x", "last1"] {
            assert!(RunPrefix::parse(bad).is_err(), "{bad:?} was accepted");
        }
        for (text, back) in [("last", Some(0)), ("run:last~2", Some(2)), ("0001", None)] {
            assert_eq!(RunPrefix::parse(text).unwrap().steps_back(), back);
        }
        assert!(ApprovalPrefix::parse("last").is_err());
    }

    #[test]
    fn hex_round_trips_and_refuses_other_text() {
        assert_eq!(from_hex(&to_hex(&[0, 1, 0xfe, 0xff])).unwrap(), [0, 1, 0xfe, 0xff]);
        assert_eq!(from_hex("aBFf").unwrap(), [0xab, 0xff]);
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
            DigestKind::Request,
        ];
        let digests: std::collections::HashSet<_> = kinds.iter().map(|k| k.digest(b"same")).collect();
        assert_eq!(digests.len(), kinds.len());
    }
}
