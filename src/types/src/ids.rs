//! Names and ids, parsed once at the edge: digests of content, and the names that people choose.
//!
//! A digest never changes meaning: each kind has its own hashing context, so that an object of one kind never has the
//! digest of another kind.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Bytes of a BLAKE3 digest.
pub const DIGEST_BYTES: usize = 32;
/// Hex digits of a digest that are shown to people.
pub const SHORT_HEX_DIGITS: usize = 12;
/// The minimum number of hex digits that identify a version or a run.
pub const PREFIX_HEX_DIGITS_MIN: usize = 4;
/// Random bytes of a run's id.
pub(crate) const RUN_ID_BYTES: usize = 5;
/// Hex digits of a run's id.
pub const RUN_ID_HEX_DIGITS: usize = 2 * RUN_ID_BYTES;
/// The maximum length of the name of a fork, checkpoint, recording or vault, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// A text that is not a valid name. `what` is the kind of name: `fork`, `checkpoint`, `recording` or `vault`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty.
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
    #[error(
        "{what} name {name:?} contains {found:?}; letters, digits, '.', '_' and '-' are allowed, in a fork name also '/'"
    )]
    BadCharacter {
        /// The kind of name.
        what: &'static str,
        /// The first 40 characters of the name.
        name: String,
        /// The first character that is not allowed.
        found: char,
    },
    /// The name of a fork begins or ends with a slash, or has two of them in a row.
    #[error("{what} name {name:?} may not begin or end with '/', or contain '//'")]
    BadSlash {
        /// The kind of name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The name starts with `.`, `_` or `-`.
    #[error("{what} name {name:?} must start with a letter or a digit")]
    BadStart {
        /// The kind of name.
        what: &'static str,
        /// The first 40 characters of the name.
        name: String,
    },
    /// The name of a new fork that reads as something else.
    #[error("a new fork cannot be named {name:?}: {reading}")]
    Misleading {
        /// The name.
        name: String,
        /// What it reads as.
        reading: &'static str,
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
    if !name.is_empty() && name.split('/').any(str::is_empty) {
        return Err(NameError::BadSlash { what, name: name.to_owned() });
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
            /// Checks a name: 1 to [`NAME_BYTES_MAX`] bytes of ASCII letters, digits, `.`, `_` and `-`, starting with a
            /// letter or a digit. The name of a fork may have several such parts separated by `/`.
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
    /// The name of one of the user's named vaults.
    VaultName,
    "vault",
    check_name
);

impl CheckpointName {
    /// The name of a checkpoint saved by a run.
    #[must_use]
    pub fn of_run(what: &'static str, run: &RunId) -> Self {
        Self(format!("{what}-{run}"))
    }
}

impl ForkName {
    /// The fork that every vault starts with.
    #[must_use]
    pub fn main() -> Self {
        Self("main".to_owned())
    }

    /// Fails for a name that no new fork can have, because it would hide a run or a version, or read as one. Forks with
    /// such a name that exist already can be used.
    pub fn check_new(&self) -> Result<(), NameError> {
        let name = self.as_str();
        let is_hex = name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let reading = match (name, name.len()) {
            ("last", _) => "last is the newest run",
            ("run", _) => "run: is the start of the name of a run",
            ("HEAD", _) => "HEAD belongs to git",
            (_, RUN_ID_HEX_DIGITS) if is_hex => "it has the form of the id of a run",
            (_, length) if is_hex && length == 2 * DIGEST_BYTES => "it has the form of the id of a version",
            (_, _) => return Ok(()),
        };
        Err(NameError::Misleading { name: name.to_owned(), reading })
    }

    /// The fork created for one run.
    #[must_use]
    pub fn of_run(run: &RunId) -> Self {
        Self(format!("run-{run}"))
    }
}

/// The kind of a random id.
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
            /// Creates an id from random bytes, which the caller provides; equal bytes give equal ids.
            #[must_use]
            pub fn from_random(bytes: [u8; RUN_ID_BYTES]) -> Self {
                Self(to_hex(&bytes))
            }

            /// Parses a complete id.
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
            /// Parses at least [`PREFIX_HEX_DIGITS_MIN`] hex digits, in either case; for a run also `last`, or `last~N`
            /// for the N-th run before the newest.
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

            /// The hex digits of the prefix, in lower case; or `last` with its suffix.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The number of runs before the newest; `None` for a prefix of hex digits.
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
    /// The id of a run: hex digits of random bytes, in lower case.
    RunId,
    /// The first digits of a run's id, or all of them, as people type it; a leading `run:` is ignored.
    RunPrefix,
    Drawn::Run
);
drawn_id!(
    /// The id of an approval, random like that of a run.
    ApprovalId,
    /// The first digits of an approval's id, or all of them.
    ApprovalPrefix,
    Drawn::Approval
);

drawn_id!(
    /// The id of a batch, random like that of a run.
    BatchId,
    /// The first digits of a batch's id, or all of them.
    BatchPrefix,
    Drawn::Batch
);

/// Encodes bytes as lower-case hex digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Decodes an even number of hex digits, in either case.
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

            /// Returns `None` unless there are exactly [`DIGEST_BYTES`] bytes.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Some(Self(bytes.try_into().ok()?))
            }

            /// The whole digest as lower-case hex digits.
            #[must_use]
            pub fn to_hex(&self) -> String {
                to_hex(&self.0)
            }

            /// The first 12 hex digits, for people. Not unique: never use it for a lookup.
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
    /// The digest of a blob: the plain BLAKE3 of a file's bytes (as printed by `b3sum`), or of the encoding of a chunk
    /// list.
    BlobId
);
digest_type!(
    /// The digest of a directory or a page of one, including times: its identity in the store.
    TreeId
);
digest_type!(
    /// The digest of a directory or a page of one without modification times: equal for equal content.
    ContentId
);
digest_type!(
    /// The digest of a version's record.
    VersionId
);
digest_type!(
    /// The digest of everything that a request asks for, except the values of secrets.
    RequestDigest
);
digest_type!(
    /// The digest of the bytes of a command list.
    ListDigest
);
digest_type!(
    /// The key of a cached result: a digest of everything it depends on.
    MemoKey
);
digest_type!(
    /// The digest of one input of a cached result.
    PartDigest
);
digest_type!(
    /// The digest of a row of the audit log, chained to the row before it.
    AuditDigest
);

/// Identifies the names in a tree that are hard links to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub [u8; 16]);

/// The kind of data that is digested. Each kind has its own BLAKE3 context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestKind {
    /// The list of chunks of a large file.
    ChunkList,
    /// A directory or a page of one, including times.
    Tree,
    /// A directory or a page of one, without modification times.
    Content,
    /// The record of a version.
    Version,
    /// A row of the audit log.
    Audit,
    /// A group of hard links.
    Link,
    /// A request.
    Request,
    /// The key of a cached result.
    Memo,
    /// One input of a cached result.
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
    /// Deriving the key from the context costs a hash, so each key is derived once.
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

/// The item of a batch that a run belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchItem {
    /// The batch that the item belongs to.
    pub batch: BatchId,
    /// The position of the item in the list, from 0.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_paths_or_refs_are_rejected() {
        for bad in ["", "a//b", "/b", "a/", "..", ".", "a\0b", "a~1", "a@b", "a:b", "-x", "naïve"] {
            assert!(ForkName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        for bad in ["/", "/b", "a/", "a//b"] {
            assert!(matches!(ForkName::parse(bad), Err(NameError::BadSlash { .. })), "{bad:?}");
        }
        assert!(matches!(ForkName::parse(""), Err(NameError::Empty { .. })));
        assert!(matches!(ForkName::parse(&"x".repeat(300)), Err(NameError::TooLong { length: 300, .. })));
        for good in ["main", "fix-1", "v2.0", "0", &"x".repeat(100)] {
            assert_eq!(ForkName::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_new_fork_has_no_name_that_reads_as_a_run_or_a_version() {
        let check = |name: &str| ForkName::parse(name).unwrap().check_new();
        for bad in ["last", "run", "HEAD", "0123456789", "ABCDEFabcd", &"a1".repeat(32)] {
            assert!(matches!(check(bad), Err(NameError::Misleading { .. })), "{bad:?} was accepted");
        }
        for good in
            ["last-1", "runs", "head", "cafe", "012345678", "0123456789a", "012345678g", "a/0123456789"]
        {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn run_ids_are_strict_and_prefixes_are_lenient() {
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
    fn hex_round_trips_and_rejects_other_text() {
        assert_eq!(from_hex(&to_hex(&[0, 1, 0xfe, 0xff])).unwrap(), [0, 1, 0xfe, 0xff]);
        assert_eq!(from_hex("aBFf").unwrap(), [0xab, 0xff]);
        assert_eq!(from_hex("0g"), None);
        assert_eq!(from_hex("abc"), None);
    }

    #[test]
    fn digests_of_different_kinds_differ() {
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
