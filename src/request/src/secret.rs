//! What `--secret` asks for: a variable, or a file that only the command sees.
//!
//! Never tells a value, nor a path that was given for one: people mistake one for the other.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use avfs_types::command_line::shown_word;
use avfs_types::diagnose::Diagnose;

use crate::environment::EnvChoice;

/// Where secrets that are files are found inside.
pub const SECRETS_DIR: &str = "/run/secrets";
/// What tells where one is, behind its name.
const FILE_SUFFIX: &str = "_FILE";
/// What is asked for where a variable is to be a file.
const AS_FILE: &[u8] = b"file";
/// A key or a token; what is larger is data.
pub const SECRET_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the name of a secret is letters, digits and underscores, and begins with no digit")]
    BadName,
    #[error("the file that was given for the secret {name} cannot be read")]
    Unreadable {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("there is no variable {name} to give as a secret")]
    Unset { name: String },
    #[error("the secret {name} has more than {SECRET_BYTES_MAX} bytes")]
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

/// One `--secret`, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretWord {
    /// `NAME`: a variable.
    Variable(OsString),
    /// `NAME=file`: the variable's value as a file.
    InFile(OsString),
    /// `NAME=PATH`: a file of the host.
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

    /// What it hands over, by name; of a file of the host the path counts too.
    #[must_use]
    pub fn handed_over(&self, cwd: &Path) -> Vec<String> {
        match self {
            Self::Variable(name) | Self::InFile(name) => vec![shown_word(name)],
            Self::File { name, path } => {
                vec![shown_word(name), shown_word(real(&cwd.join(path)).as_os_str())]
            }
        }
    }

    /// What is given to the command: a file is read now, from where `cwd` leads.
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

/// A link is no other place.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// At most one byte more than is allowed, so that too much is noticed.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where a secret is found inside.
#[must_use]
pub fn path_inside(name: &OsStr) -> PathBuf {
    Path::new(SECRETS_DIR).join(name)
}

/// The variable that tells it.
#[must_use]
pub fn file_variable(name: &OsStr) -> OsString {
    let mut variable = name.to_owned();
    variable.push(FILE_SUFFIX);
    variable
}

/// A secret that the command finds as a file, which lies in memory only.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretFile {
    pub name: OsString,
    pub bytes: Vec<u8>,
    /// The file of the host they come from; nothing for a variable.
    pub source: Option<PathBuf>,
}

impl std::fmt::Debug for SecretFile {
    /// Its bytes are nobody's business.
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
    fn a_word_names_a_variable_or_a_file() {
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
    fn a_file_is_read_up_to_a_bound() {
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
    fn a_value_given_in_place_of_a_path_is_not_told() {
        let error = parse("KEY=hunter2-hunter2").unwrap().choice(Path::new("/nowhere")).unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(told.contains("KEY") && !told.contains("hunter2"), "{told}");
    }
}
