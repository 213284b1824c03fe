//! The program to execute: its candidate paths, arguments and environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{c_path, c_string};
use crate::launch::SandboxError;
use crate::sys::{Exec, StringTable};

pub fn exec_of(command: &[OsString], environment: &[(OsString, OsString)]) -> Result<Exec, SandboxError> {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let candidates = candidates(program, path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")));
    let words = command.iter().map(|word| c_string(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let mut as_script = Vec::with_capacity(candidates.len());
    let candidates = candidates.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>()?;
    for candidate in &candidates {
        let mut script = vec![c_string(b"/bin/sh")?, candidate.clone()];
        script.extend(words.iter().skip(1).cloned());
        as_script.push(StringTable::new(script));
    }
    let mut pairs = Vec::with_capacity(environment.len());
    for (name, value) in environment {
        pairs.push(c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    Ok(Exec {
        candidates,
        arguments: StringTable::new(words),
        as_script,
        environment: StringTable::new(pairs),
    })
}

/// The candidate paths of the program: in each directory of PATH, unless it contains a slash.
fn candidates(program: &OsStr, path: &OsStr) -> Vec<PathBuf> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(program)];
    }
    let dirs = path.as_bytes().split(|byte| *byte == b':');
    // An empty component means the working directory, as in a shell.
    dirs.map(|dir| if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) })
        .map(|dir| dir.join(program))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_without_a_slash_are_searched_in_path() {
        let found = candidates(OsStr::new("make"), OsStr::new("/a::/b"));
        assert_eq!(found, [Path::new("/a/make"), Path::new("./make"), Path::new("/b/make")]);
        assert_eq!(candidates(OsStr::new("./x"), OsStr::new("/a")), [Path::new("./x")]);
    }

    #[test]
    fn an_argument_with_a_nul_is_rejected() {
        let words = [OsString::from("a\0b")];
        assert!(matches!(exec_of(&words, &[]), Err(SandboxError::Nul { .. })));
    }
}
