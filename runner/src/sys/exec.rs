//! A command for execve(2), in one block of memory: the image.
//!
//! The supervisor writes the image to a file in memory. The process that executes the command must not allocate, so it
//! maps the file, turns the offsets in the tables into pointers, and passes these to the kernel.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance};

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, memfd_create, open};

use super::{Errno, Result, last_errno};
use crate::stage::{CARRIAGE_RETURN, NO_INTERPRETER};

/// The numbers that an image has beside its strings.
pub const NUMBERS: usize = 5;

/// The words at the start of an image.
const LENGTH: usize = 0;
const CWD: usize = 1;
const INPUT: usize = 2;
const CANDIDATES: usize = 3;
const ARGUMENTS: usize = 4;
const ENVIRONMENT: usize = 5;
const SCRIPTS: usize = 6;
const SCRIPT_WORDS: usize = 7;
const FIRST_NUMBER: usize = 8;
const FIELDS: usize = FIRST_NUMBER + NUMBERS;
const WORD_BYTES: usize = size_of::<usize>();

/// A program with its arguments and environment, and what else its process needs to know.
pub struct CommandImage {
    /// Files to try, in order: one, or the command's name in each directory of PATH.
    pub candidates: Vec<CString>,
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    pub cwd: CString,
    /// The path of the file that init reopens as stdin; empty without such a file.
    pub input: CString,
    pub numbers: [u64; NUMBERS],
}

/// The words and strings of an image. Until it is mapped, a string is its offset in `strings`, plus one: zero ends a
/// table.
struct Writer {
    words: Vec<usize>,
    strings: Vec<u8>,
}

impl Writer {
    fn string(&mut self, string: &CStr) -> usize {
        self.strings.extend(string.to_bytes_with_nul());
        self.strings.len() - string.to_bytes_with_nul().len() + 1
    }

    fn strings(&mut self, strings: &[CString]) -> Vec<usize> {
        strings.iter().map(|string| self.string(string)).collect()
    }

    /// Adds a table, and returns its place.
    fn table(&mut self, strings: &[usize]) -> usize {
        let place = self.words.len();
        self.words.extend(strings.iter().chain(&[0]));
        place
    }
}

impl CommandImage {
    /// Writes the image to a file in memory.
    pub fn write(&self) -> Result<OwnedFd> {
        let file = memfd_create(c"command", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        let written = file.write_all(&self.bytes());
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(file.into())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer { words: vec![0; FIELDS], strings: Vec::new() };
        let [shell, cwd, input] = [c"/bin/sh", &self.cwd, &self.input].map(|string| writer.string(string));
        let [candidates, arguments, environment] =
            [&self.candidates, &self.arguments, &self.environment].map(|strings| writer.strings(strings));
        writer.words[CWD] = cwd;
        writer.words[INPUT] = input;
        writer.words[CANDIDATES] = writer.table(&candidates);
        writer.words[ARGUMENTS] = writer.table(&arguments);
        writer.words[ENVIRONMENT] = writer.table(&environment);
        // For a file without an interpreter line: `/bin/sh`, the file, its arguments; one table for each candidate.
        writer.words[SCRIPTS] = writer.words.len();
        for candidate in &candidates {
            let words = [&[shell, *candidate], arguments.get(1..).unwrap_or_default()].concat();
            writer.words[SCRIPT_WORDS] = words.len() + 1;
            writer.table(&words);
        }
        let Writer { mut words, strings } = writer;
        let strings_at = words.len() * WORD_BYTES;
        for word in words.iter_mut().skip(FIELDS).filter(|word| **word != 0) {
            *word += strings_at - 1;
        }
        words[CWD] += strings_at - 1;
        words[INPUT] += strings_at - 1;
        words[LENGTH] = words.len();
        let numbers = self.numbers.map(u64::to_ne_bytes).concat();
        let mut bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        bytes[FIRST_NUMBER * WORD_BYTES..FIELDS * WORD_BYTES].copy_from_slice(&numbers);
        bytes.extend(strings);
        bytes
    }
}

/// A mapped image. Neither allocates nor locks.
pub struct MappedCommand {
    start: *mut usize,
    bytes: usize,
    /// The number of fields and of words in the tables.
    words: usize,
}

impl MappedCommand {
    /// Maps an image that [`CommandImage::write`] wrote, and that no process changes any more.
    pub fn map(image: BorrowedFd<'_>) -> Result<Self> {
        let bytes = usize::try_from(fstat(image)?.st_size).map_err(|_| Errno::INVAL)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private mapping at an address that the kernel chooses.
        let start =
            unsafe { libc::mmap(null_mut(), bytes, protection, libc::MAP_PRIVATE, image.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let mut mapped = Self { start: start.cast(), bytes, words: FIELDS };
        if bytes < FIELDS * WORD_BYTES || mapped.word(LENGTH) > bytes / WORD_BYTES {
            return Err(Errno::INVAL);
        }
        mapped.words = mapped.word(LENGTH);
        let base = mapped.start.expose_provenance();
        for at in FIELDS..mapped.words {
            let offset = mapped.word(at);
            if offset != 0 {
                // SAFETY: `at` is below the number of words, all of which are in the private mapping.
                unsafe { mapped.start.add(at).write(base + offset) };
            }
        }
        Ok(mapped)
    }

    /// Zero for a word that the image does not have.
    fn word(&self, at: usize) -> usize {
        if at >= self.words {
            return 0;
        }
        // SAFETY: the word is in the mapping, which is aligned to pages and lives as long as `self`.
        unsafe { self.start.add(at).read() }
    }

    pub fn number(&self, at: usize) -> u64 {
        self.word(FIRST_NUMBER + at.min(NUMBERS - 1)) as u64
    }

    pub fn cwd(&self) -> &CStr {
        self.string(self.start.expose_provenance() + self.word(CWD))
    }

    pub fn input(&self) -> &CStr {
        self.string(self.start.expose_provenance() + self.word(INPUT))
    }

    fn string(&self, address: usize) -> &CStr {
        // SAFETY: the writer of the image ends each string, and has put this one into it.
        unsafe { CStr::from_ptr(with_exposed_provenance::<c_char>(address)) }
    }

    /// A table of pointers that ends with a null pointer.
    fn table(&self, at: usize) -> *const *const c_char {
        // SAFETY: the tables are in the mapping.
        unsafe { self.start.add(at).cast_const().cast() }
    }

    /// The candidates, each with the arguments of the shell for a file without an interpreter line.
    fn candidates(&self) -> impl Iterator<Item = (&CStr, *const *const c_char)> {
        let (first, scripts, length) = (self.word(CANDIDATES), self.word(SCRIPTS), self.word(SCRIPT_WORDS));
        let addresses = (0..).map(move |number| (number, self.word(first + number)));
        let addresses = addresses.take_while(|(_, address)| *address != 0);
        addresses.map(move |(number, address)| (self.string(address), self.table(scripts + number * length)))
    }

    /// Executes the program; returns only on failure, with the reason.
    pub fn run(&self) -> Errno {
        let arguments = self.table(self.word(ARGUMENTS));
        let mut worst = Errno::NOENT;
        for (candidate, as_script) in self.candidates() {
            match self.execve(candidate, arguments) {
                // Continue the search, as a shell does. A file that exists but cannot be executed is reported at the
                // end.
                Errno::NOENT | Errno::NOTDIR => {
                    if let (Errno::NOENT, Some((bytes, length))) = (worst, start_of(candidate)) {
                        worst = missing_interpreter(&bytes[..length]);
                    }
                }
                Errno::ACCESS => worst = Errno::ACCESS,
                Errno::NOEXEC if is_binary(candidate) => return Errno::NOEXEC,
                Errno::NOEXEC => return self.execve(c"/bin/sh", as_script),
                errno => return errno,
            }
        }
        worst
    }

    fn execve(&self, file: &CStr, arguments: *const *const c_char) -> Errno {
        let environment = self.table(self.word(ENVIRONMENT));
        // SAFETY: `file` is a C string; both tables hold pointers to C strings of the mapping and end with a null
        // pointer.
        unsafe { libc::execve(file.as_ptr(), arguments, environment) };
        last_errno()
    }
}

impl Drop for MappedCommand {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing else refers to.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_mapped_image_has_the_strings_and_numbers_of_the_command() {
        let strings =
            |words: &[&str]| words.iter().map(|word| CString::new(*word).unwrap()).collect::<Vec<_>>();
        let image = CommandImage {
            candidates: strings(&["/a/x", "/b/x"]),
            arguments: strings(&["x", "", "2"]),
            environment: strings(&["A=1"]),
            cwd: c"/work".to_owned(),
            input: CString::default(),
            numbers: [1, u64::MAX, 3, 4, 5],
        };
        let file = image.write().unwrap();
        let mapped = MappedCommand::map(file.as_fd()).unwrap();
        assert_eq!((mapped.cwd(), mapped.input()), (c"/work", c""));
        assert_eq!([0, 1, 2, 3, 4].map(|at| mapped.number(at)), image.numbers);
        let words = |first: usize| {
            let addresses = (first..).map(|at| mapped.word(at)).take_while(|address| *address != 0);
            addresses.map(|address| mapped.string(address).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(mapped.word(CANDIDATES)), image.candidates);
        assert_eq!(words(mapped.word(ARGUMENTS)), image.arguments);
        assert_eq!(words(mapped.word(ENVIRONMENT)), image.environment);
        assert_eq!(words(mapped.word(SCRIPTS)), strings(&["/bin/sh", "/a/x", "", "2"]));
        let second = mapped.word(SCRIPTS) + mapped.word(SCRIPT_WORDS);
        assert_eq!(words(second), strings(&["/bin/sh", "/b/x", "", "2"]));
        assert_eq!(mapped.candidates().count(), 2);
    }

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
