//! Becoming another program.

use std::ffi::{CStr, CString};

use super::{Errno, last_errno};

/// Strings as execve(2) wants them: an array of pointers that ends with null. Made before the clone.
pub struct StringTable {
    pointers: Vec<*const libc::c_char>,
    /// What the pointers point to.
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
    /// Becomes the program; returns only with the reason why not.
    pub fn run(&self) -> Errno {
        let mut worst = Errno::NOENT;
        for (candidate, as_script) in self.candidates.iter().zip(&self.as_script) {
            match execve(candidate, &self.arguments, &self.environment) {
                // Inspection for further on, as a shell does; what is there but may not be run is told in the end.
                Errno::NOENT | Errno::NOTDIR => {}
                Errno::ACCESS => worst = Errno::ACCESS,
                Errno::NOEXEC => return execve(c"/bin/sh", as_script, &self.environment),
                errno => return errno,
            }
        }
        worst
    }
}

fn execve(file: &CStr, arguments: &StringTable, environment: &StringTable) -> Errno {
    // SAFETY: `file` is a C string; both tables hold pointers to living C strings and end with null, by the
    // constructor of StringTable.
    unsafe { libc::execve(file.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr()) };
    last_errno()
}
