//! Writing to the standard streams.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stderr, Stdout, Write};

use avfs_types::printable::{self, Text};

use crate::painted;

#[expect(clippy::disallowed_methods, reason = "the functions of this crate escape what they write")]
fn out() -> Stdout {
    io::stdout()
}

#[expect(clippy::disallowed_methods, reason = "the functions of this crate escape what they write")]
fn err() -> Stderr {
    io::stderr()
}

#[must_use]
pub fn stderr_is_terminal() -> bool {
    err().is_terminal()
}

#[must_use]
pub fn stdout_is_terminal() -> bool {
    out().is_terminal()
}

/// Standard output, for callers that write lines of [`line()`], JSON, or what a command wrote.
#[must_use]
pub fn stdout() -> Stdout {
    out()
}

/// Standard error, for the same.
#[must_use]
pub fn stderr() -> Stderr {
    err()
}

/// One line, escaped, with its line end.
#[must_use]
pub fn line(text: fmt::Arguments<'_>) -> String {
    painted::line(text)
}

/// Writes bytes that are safe to print, or that a command wrote, to stdout.
pub fn pass_on(bytes: &[u8]) -> io::Result<()> {
    let mut out = out().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// The same, to stderr.
fn pass_on_error(bytes: &[u8]) -> io::Result<()> {
    err().lock().write_all(bytes)
}

/// Writes a line to stderr. Errors are ignored: stderr may be closed.
pub fn error_line(text: fmt::Arguments<'_>) {
    let _ = pass_on_error(painted::line(text).as_bytes());
}

/// Lines, escaped, each with its line end.
pub fn lines<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) -> String {
    lines.into_iter().map(|line| printable::line(line.as_ref()).into_owned() + "\n").collect()
}

/// Writes lines to stderr, at once. Errors are ignored: stderr may be closed.
pub fn error_lines<T: AsRef<str>>(several: impl IntoIterator<Item = T>) {
    let _ = pass_on_error(lines(several).as_bytes());
}

/// Prints a question to stderr; the answer is typed on the same line.
pub fn ask(text: fmt::Arguments<'_>) {
    let _ = pass_on_error(painted::line(text).trim_end_matches('\n').as_bytes());
}

/// Writes a text of several lines to stderr, escaped, with a line end after the last line. Errors are ignored: stderr
/// may be closed.
#[derive(Default)]
pub struct ErrorText {
    /// A carriage return whose next byte is unknown: it is a part of a line end, or is escaped.
    has_return: bool,
    /// True if the text does not end with a line end.
    is_in_line: bool,
    text: Option<Text<BufWriter<Stderr>>>,
}

impl ErrorText {
    fn put(&mut self, bytes: &[u8]) {
        let _ = self.text.get_or_insert_with(|| Text::new(BufWriter::new(err()))).write_all(bytes);
    }

    pub fn finish(mut self) {
        if self.has_return {
            self.put(b"\r");
        }
        if let Some(text) = self.text.take() {
            let _ = text.finish();
        }
        if self.is_in_line {
            let _ = err().write_all(b"\n");
        }
    }
}

impl Write for ErrorText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(last) = bytes.last() else { return Ok(0) };
        let mut rest = bytes;
        if std::mem::take(&mut self.has_return) && rest.first() != Some(&b'\n') {
            self.put(b"\r");
        }
        while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
            self.put(&rest[..at]);
            rest = &rest[at + 1..];
        }
        self.has_return = *last == b'\r';
        self.put(rest.strip_suffix(b"\r").unwrap_or(rest));
        self.is_in_line = *last != b'\n';
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
