//! Parses `--secret`: a variable, or a file that only the command sees.
//!
//! Never shows a value, nor a path given for a secret: users may pass a value where a path is expected.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use avfs_types::command_line::shown_word;
use avfs_types::diagnose::Diagnose;

use crate::environment::EnvChoice;

/// The directory of secret files in the sandbox.
pub const SECRETS_DIR: &str = "/run/secrets";
/// The suffix of the variable that holds the path of a secret file.
const FILE_SUFFIX: &str = "_FILE";
/// The value that requests a variable as a file.
const AS_FILE: &[u8] = b"file";
/// Enough for a key or a token; anything larger is data.
pub const SECRET_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("invalid name of a secret: expected letters, digits and underscores, not starting with a digit")]
    BadName,
    #[error("cannot read the file given for the secret {name}")]
    Unreadable {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot pass {name} as a secret: the variable is not set")]
    Unset { name: String },
    #[error("the secret {name} is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong { name: String },
}

impl Diagnose for SecretError {
    fn code(&self) -> &'static str {
        match self {
            Self::BadName => "secret.bad_name",
            Self::Unreadable { .. } => "secret.unreadable",
            Self::Unset { .. } => "secret.unset",
            Self::TooLong { .. } => "secret.too_long",
        }
    }
}

/// A parsed `--secret`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretWord {
    /// `NAME`: a variable.
    Variable(OsString),
    /// `NAME=file`: the variable's value as a file.
    InFile(OsString),
    /// `NAME=PATH`: a host file.
    File { name: OsString, path: PathBuf },
}

impl SecretWord {
    pub fn parse(word: &OsStr) -> Result<Self, SecretError> {
        let bytes = word.as_bytes();
        let (name, rest) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if name.first().is_none_or(u8::is_ascii_digit) || !name.iter().all(is_part) {
            return Err(SecretError::BadName);
        }
        let name = OsString::from_vec(name.to_vec());
        Ok(match rest {
            None => Self::Variable(name),
            Some(AS_FILE) => Self::InFile(name),
            Some(path) => Self::File { name, path: PathBuf::from(OsStr::from_bytes(path)) },
        })
    }

    /// The names of everything it hands over, including the path of a host file.
    #[must_use]
    pub fn handed_over(&self, cwd: &Path) -> Vec<String> {
        match self {
            Self::Variable(name) | Self::InFile(name) => vec![shown_word(name)],
            Self::File { name, path } => {
                vec![shown_word(name), shown_word(real(&cwd.join(path)).as_os_str())]
            }
        }
    }

    /// Returns the value to pass to the command; a file is read now, relative to `cwd`.
    pub fn choice(self, cwd: &Path) -> Result<EnvChoice, SecretError> {
        Ok(match self {
            Self::Variable(name) => EnvChoice::Secret(name),
            Self::InFile(name) => EnvChoice::SecretInFile(name),
            Self::File { name, path } => {
                let path = cwd.join(path);
                let shown = || name.to_string_lossy().into_owned();
                let bytes =
                    read(&path).map_err(|source| SecretError::Unreadable { name: shown(), source })?;
                if bytes.len() > SECRET_BYTES_MAX {
                    return Err(SecretError::TooLong { name: shown() });
                }
                EnvChoice::SecretFile(SecretFile { name, bytes, source: Some(real(&path)) })
            }
        })
    }
}

/// Resolves symlinks, so that a symlink does not count as a different path.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads one byte more than the maximum, so that the caller detects a file that is too long.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of a secret in the sandbox.
#[must_use]
pub fn path_inside(name: &OsStr) -> PathBuf {
    Path::new(SECRETS_DIR).join(name)
}

/// The variable that holds that path.
#[must_use]
pub fn file_variable(name: &OsStr) -> OsString {
    let mut variable = name.to_owned();
    variable.push(FILE_SUFFIX);
    variable
}

/// A secret that the command gets as a file, which is stored in memory only.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretFile {
    pub name: OsString,
    pub bytes: Vec<u8>,
    /// The host file that the bytes come from; `None` for a variable.
    pub source: Option<PathBuf>,
}

impl std::fmt::Debug for SecretFile {
    /// Leaves out the bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretFile").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &str) -> Result<SecretWord, SecretError> {
        SecretWord::parse(OsStr::new(word))
    }

    #[test]
    fn a_secret_is_a_variable_or_a_file() {
        assert_eq!(parse("A_1").unwrap(), SecretWord::Variable("A_1".into()));
        assert_eq!(parse("_a=file").unwrap(), SecretWord::InFile("_a".into()));
        let file = |path: &str| SecretWord::File { name: "A".into(), path: path.into() };
        for path in ["./file", "File", "/x=y", ""] {
            assert_eq!(parse(&format!("A={path}")).unwrap(), file(path));
        }
        for bad in ["", "=file", "1A", "A-B", "A/../B", "A B=file", "\u{e9}"] {
            assert_eq!(parse(bad).unwrap_err().code(), "secret.bad_name", "{bad}");
        }
    }

    #[test]
    fn a_secret_file_has_a_maximum_size() {
        let dir = tempfile::tempdir().unwrap();
        let put =
            |name: &str, bytes: usize| std::fs::write(dir.path().join(name), vec![b'x'; bytes]).unwrap();
        put("most", SECRET_BYTES_MAX);
        put("more", SECRET_BYTES_MAX + 1);
        let choice = |path: &str| parse(&format!("KEY={path}")).unwrap().choice(dir.path());
        let most = choice("most").unwrap();
        assert!(matches!(most, EnvChoice::SecretFile(file) if file.bytes.len() == SECRET_BYTES_MAX));
        assert_eq!(choice("more").unwrap_err().code(), "secret.too_long");
        assert_eq!(choice(".").unwrap_err().code(), "secret.unreadable");
    }

    #[test]
    fn a_value_given_as_a_path_is_not_shown() {
        let error = parse("KEY=hunter2-hunter2").unwrap().choice(Path::new("/nowhere")).unwrap_err();
        let printed = format!("{error} {error:?}");
        assert!(printed.contains("KEY") && !printed.contains("hunter2"), "{printed}");
    }
}
