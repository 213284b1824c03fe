//! The image of a command: its candidate paths, arguments, environment and numbers.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs_engine::CommandPlan;

use super::{c_path, c_string};
use crate::sandbox::SandboxError;
use crate::stdio::InputFile;
use crate::sys::CommandImage;

/// The numbers of an image.
pub const UMASK: usize = 0;
/// In bytes; the maximum for no limit.
pub const FILE_SIZE: usize = 1;
pub const INPUT_DEVICE: usize = 2;
pub const INPUT_INODE: usize = 3;
pub const INPUT_OFFSET: usize = 4;

/// A file in memory with the image of a command. `input` is the regular file that init reopens as stdin.
pub fn image(
    plan: &CommandPlan,
    file_size: Option<u64>,
    input: Option<&InputFile>,
) -> Result<OwnedFd, SandboxError> {
    let mut image = image_of(&plan.argv, &plan.environment)?;
    image.cwd = c_path(&plan.cwd)?;
    image.numbers[UMASK] = plan.umask.into();
    image.numbers[FILE_SIZE] = file_size.unwrap_or(u64::MAX);
    if let Some(input) = input {
        image.input = input.path.clone();
        image.numbers[INPUT_DEVICE] = input.id.device;
        image.numbers[INPUT_INODE] = input.id.inode;
        image.numbers[INPUT_OFFSET] = input.offset;
    }
    image.write().map_err(SandboxError::host("create a file in memory"))
}

fn image_of(argv: &[OsString], environment: &[(OsString, OsString)]) -> Result<CommandImage, SandboxError> {
    let program = argv.first().map(OsString::as_os_str).unwrap_or_default();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let candidates = candidates(program, path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")));
    let variables =
        environment.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    Ok(CommandImage {
        candidates: candidates.iter().map(|path| c_path(path)).collect::<Result<_, _>>()?,
        arguments: argv.iter().map(|word| c_string(word.as_bytes())).collect::<Result<_, _>>()?,
        environment: variables.map(|variable| c_string(&variable)).collect::<Result<_, _>>()?,
        cwd: CString::default(),
        input: CString::default(),
        numbers: Default::default(),
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
        assert!(matches!(image_of(&words, &[]), Err(SandboxError::Nul { .. })));
    }
}
