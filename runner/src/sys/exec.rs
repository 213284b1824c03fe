//! execve(2).

use std::ffi::{CStr, CString};

use rustix::fs::{Mode, OFlags, open};

use super::{Errno, last_errno};
use crate::stage::{CARRIAGE_RETURN, NO_INTERPRETER};

/// Strings in the form of execve(2): a null-terminated array of pointers. Created before the clone.
pub struct StringTable {
    pointers: Vec<*const libc::c_char>,
    /// The strings that the pointers refer to.
    _strings: Vec<CString>,
}

impl StringTable {
    #[must_use]
    pub fn new(strings: Vec<CString>) -> Self {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self { pointers, _strings: strings }
    }
}

/// A program with its arguments and environment.
pub struct Exec {
    /// Files to try, in order: one, or the command's name in each directory of PATH.
    pub candidates: Vec<CString>,
    pub arguments: StringTable,
    /// For a file without an interpreter line: `/bin/sh`, the file, its arguments; one for each candidate.
    pub as_script: Vec<StringTable>,
    pub environment: StringTable,
}

impl Exec {
    /// Executes the program; returns only on failure, with the reason.
    pub fn run(&self) -> Errno {
        let mut worst = Errno::NOENT;
        for (candidate, as_script) in self.candidates.iter().zip(&self.as_script) {
            match execve(candidate, &self.arguments, &self.environment) {
                // Continue the search, as a shell does. A file that exists but cannot be executed is reported at the
                // end.
                Errno::NOENT | Errno::NOTDIR => {
                    if let (Errno::NOENT, Some((bytes, length))) = (worst, start_of(candidate)) {
                        worst = missing_interpreter(&bytes[..length]);
                    }
                }
                Errno::ACCESS => worst = Errno::ACCESS,
                Errno::NOEXEC if is_binary(candidate) => return Errno::NOEXEC,
                Errno::NOEXEC => return execve(c"/bin/sh", as_script, &self.environment),
                errno => return errno,
            }
        }
        worst
    }
}

/// The number of bytes that are examined.
const LOOK_BYTES: usize = 128;

/// True for a program of another architecture, or any other file that is not a script: an ELF file, or a NUL byte in
/// the first line, which is bash's test. A file that cannot be read is left to the shell.
fn is_binary(file: &CStr) -> bool {
    start_of(file).is_some_and(|(bytes, length)| is_no_script(&bytes[..length]))
}

/// The first bytes of a file, and how many there are; `None` if it cannot be opened.
fn start_of(file: &CStr) -> Option<([u8; LOOK_BYTES], usize)> {
    let file = open(file, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).ok()?;
    let mut bytes = [0; LOOK_BYTES];
    let length = rustix::io::read(&file, &mut bytes).unwrap_or(0);
    Some((bytes, length.min(LOOK_BYTES)))
}

/// Why a file that starts like this and exists could not be executed with ENOENT.
fn missing_interpreter(bytes: &[u8]) -> Errno {
    let mut line = bytes.split(|byte| *byte == b'\n');
    match line.next() {
        Some(line) if line.starts_with(b"#!") && line.contains(&b'\r') => CARRIAGE_RETURN,
        Some(_) | None => NO_INTERPRETER,
    }
}

fn is_no_script(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") || bytes.iter().take_while(|byte| **byte != b'\n').any(|byte| *byte == 0)
}

fn execve(file: &CStr, arguments: &StringTable, environment: &StringTable) -> Errno {
    // SAFETY: `file` is a C string; both tables hold pointers to live C strings and are null-terminated, by the
    // constructor of StringTable.
    unsafe { libc::execve(file.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr()) };
    last_errno()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriage_return_ends_only_the_interpreter_line() {
        for (start, reason) in [
            (&b"#!/bin/sh\r\necho"[..], CARRIAGE_RETURN),
            (b"#!/bin/sh -e\r", CARRIAGE_RETURN),
            (b"#!/no/such\necho\r\n", NO_INTERPRETER),
            (b"\x7fELF\r", NO_INTERPRETER),
            (b"", NO_INTERPRETER),
        ] {
            assert_eq!(missing_interpreter(start), reason, "{start:?}");
        }
    }

    #[test]
    fn elf_files_and_files_with_a_nul_in_the_first_line_are_not_scripts() {
        for script in [&b""[..], b"echo hi", b"echo hi\n\0\0", b"\x7fEL"] {
            assert!(!is_no_script(script), "{script:?}");
        }
        for binary in [&b"\x7fELF"[..], b"\x7fELF\nab", b"MZ\0", b"\0"] {
            assert!(is_no_script(binary), "{binary:?}");
        }
    }
}
