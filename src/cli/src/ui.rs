//! The output of commands: text for people, or one JSON object for scripts.
//!
//! Data goes to stdout, everything else to stderr, both through `avfs-terminal`, which escapes text from outside.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use avfs_hostfs::size_limit;
use avfs_ops::review::Conflicts;
use avfs_ops::{Notices, OpError};
use avfs_present::{Avfs, Hint, error_body, usage_lines};
use avfs_request::spec::SCHEMA_VERSION;
use avfs_terminal::{Painted, Tone, ask, error_line, line, stderr, stderr_is_terminal, stdout};
use avfs_types::printable::Text;
use avfs_types::{exit_code, printable};
use avfs_wire::{Envelope, ErrorBody, ResultObject};

use crate::error::EdgeError;

/// The error codes of wrong usage, wherever it is detected.
const CALLED_WRONGLY: [&str; 6] =
    ["usage", "name.invalid", "path.invalid", "path.outside", "ref.invalid", "value.invalid"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Human,
    Json,
}

/// A failed write of the answer, after the command itself has completed.
pub fn after_the_fact(failure: OpError) -> OpError {
    match failure {
        OpError::Error(error) if error.code() == "io.output" => OpError::from(EdgeError::Unanswered(error)),
        OpError::Error(_) | OpError::Body(_) | OpError::ReceiverGone => failure,
    }
}

/// The result of a command: its exit code, or the failure.
pub type Outcome = Result<u8, OpError>;

/// Prints clap's message. The arguments in it have no hidden characters.
#[expect(clippy::disallowed_methods, reason = "the caller escapes hidden characters in the arguments")]
pub fn print_clap(error: &clap::Error) -> std::io::Result<()> {
    error.print().and_then(|()| stdout().flush())
}

#[derive(Clone, Debug)]
pub struct Ui {
    pub format: Format,
    kind: String,
    /// The prefix of commands in hints, for the same vault.
    pub avfs: Avfs,
    out_colour: bool,
    err_colour: bool,
}

impl Ui {
    /// The same for the answer of another verb.
    pub fn of_kind(&self, kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..self.clone() }
    }

    pub fn new(format: Format, kind: String) -> Self {
        let colour = |choice| choice != anstream::ColorChoice::Never;
        Self {
            format,
            kind,
            avfs: Avfs::default(),
            out_colour: colour(anstream::AutoStream::choice(&stdout())),
            err_colour: colour(anstream::AutoStream::choice(&stderr())),
        }
    }

    /// The same, for a command with this --vault option.
    pub fn for_vault(self, vault: Option<&OsStr>) -> Self {
        Self { avfs: Avfs::on(vault), ..self }
    }

    /// The stream for data.
    pub fn out(&self) -> Out {
        let stdout = stdout();
        let terminal = stdout.is_terminal();
        Out { stream: BufWriter::new(stdout.lock()), colour: self.out_colour, terminal }
    }

    /// Prints a positive answer: the result as JSON, or the text that `human` writes.
    pub fn answer<T: Serialize>(
        &self,
        result: &T,
        human: impl FnOnce(&mut Out) -> Result<(), OpError>,
    ) -> Outcome {
        self.say(result, None, human)
    }

    /// Prints a negative answer: there is a result, but the exit code is not 0.
    pub fn answer_no<T: Serialize>(
        &self,
        result: &T,
        why: &ErrorBody,
        human: impl FnOnce(&mut Out) -> Result<(), OpError>,
    ) -> Outcome {
        self.say(result, Some(why), human)
    }

    /// Answers that nothing was written because of conflicts. For people, the error lists them.
    pub fn refuse<T: Serialize>(&self, refused: Conflicts<T>) -> Outcome {
        let Conflicts { result, error } = refused;
        match self.format {
            Format::Json => self.answer_no(&result, &error_body(&*error, &self.avfs), |_| Ok(())),
            Format::Human => Err(OpError::Error(error)),
        }
    }

    fn say<T: Serialize>(
        &self,
        result: &T,
        why_not: Option<&ErrorBody>,
        human: impl FnOnce(&mut Out) -> Result<(), OpError>,
    ) -> Outcome {
        let mut out = self.out();
        let written = match self.format {
            Format::Human => human(&mut out),
            Format::Json => out.envelope(&self.kind, Some(result), why_not),
        };
        written.and_then(|()| out.flush()).map_err(after_the_fact)?;
        Ok(if why_not.is_none() { exit_code::OK } else { exit_code::FAILED })
    }

    /// Prints a note for people. In JSON format the answer has the information.
    pub fn note(&self, text: fmt::Arguments<'_>) {
        if self.format == Format::Human {
            error_line(format_args!("{text}"));
        }
    }

    /// Whether a person can be asked: stdin and stderr are a terminal.
    pub fn can_ask(&self) -> bool {
        self.format == Format::Human && std::io::stdin().is_terminal() && stderr_is_terminal()
    }

    /// Prints a question; the answer is typed on the same line.
    pub fn ask(&self, text: fmt::Arguments<'_>) {
        ask(text);
    }

    /// Prints the output of a command, for --verbose.
    pub fn note_output(&self, ran: &ResultObject) {
        for (name, text, encoding) in
            [("stdout", &ran.stdout, &ran.stdout_encoding), ("stderr", &ran.stderr, &ran.stderr_encoding)]
        {
            match &**encoding {
                "utf-8" => {
                    text.to_string().lines().for_each(|line| self.note(format_args!("    {line}")));
                }
                _ => self.note(format_args!("    ({name} is not text)")),
            }
        }
    }

    /// Prints the error, if any, and returns the exit code.
    pub fn conclude(&self, outcome: Outcome) -> u8 {
        match outcome {
            Ok(code) => code,
            Err(OpError::ReceiverGone) => exit_code::OK,
            Err(OpError::Error(error)) => {
                let error = with_cause(error);
                self.print_error(&*error);
                code_for(error.code())
            }
            Err(OpError::Body(error)) => {
                self.print_error_body(&error);
                code_for(&error.code)
            }
        }
    }

    /// Prints the error, its causes and the hint.
    pub fn print_error(&self, error: &dyn Hint) {
        match self.format {
            Format::Json => self.print_error_json(&error_body(error, &self.avfs)),
            Format::Human => {
                self.labelled(Tone::Failure, "error:", error);
                let mut cause = error.source();
                while let Some(found) = cause {
                    self.labelled(Tone::Deleted, "caused by:", found);
                    cause = found.source();
                }
                self.print_hint(error.hint(&self.avfs).as_deref());
            }
        }
    }

    /// Like [`Self::print_error`], for an error that is already in its wire form.
    pub fn print_error_body(&self, error: &ErrorBody) {
        match self.format {
            Format::Json => self.print_error_json(error),
            Format::Human => self.print_error_human(error),
        }
    }

    fn print_error_human(&self, error: &ErrorBody) {
        self.labelled(Tone::Failure, "error:", &error.message);
        self.print_hint(error.hint.as_deref());
    }

    /// Prints an error of clap with a hint in the form of the other errors, in place of its last line.
    pub fn print_usage_error(&self, error: &clap::Error, hint: &str) {
        let text = error.render().to_string();
        for line in usage_lines(&text) {
            match line.strip_prefix("error: ") {
                Some(message) => self.labelled(Tone::Failure, "error:", message),
                None => error_line(format_args!("{line}")),
            }
        }
        self.print_hint(Some(hint));
    }

    fn print_hint(&self, hint: Option<&str>) {
        if let Some(hint) = hint {
            self.labelled(Tone::Hint, "hint:", hint);
        }
    }

    fn labelled(&self, tone: Tone, label: &str, text: impl fmt::Display) {
        let label = Painted::of(self.err_colour.then_some(tone), label);
        error_line(format_args!("{label} {text}"));
    }

    pub fn print_error_json(&self, error: &ErrorBody) {
        let mut out = self.out();
        match out.envelope::<()>(&self.kind, None, Some(error)).and_then(|()| out.flush()) {
            Ok(()) | Err(OpError::ReceiverGone) => {}
            // If the answer cannot be written to stdout, print the error to stderr so that it is not lost.
            Err(OpError::Error(_) | OpError::Body(_)) => self.print_error_human(error),
        }
    }
}

impl Notices for Ui {
    fn note(&self, text: fmt::Arguments<'_>) {
        Self::note(self, text);
    }

    fn warn(&self, text: fmt::Arguments<'_>) {
        error_line(format_args!("warning: {text}"));
    }
}

/// The exit code of an error.
fn code_for(error: &str) -> u8 {
    // Conflicting options, and arguments that are only found to be wrong later.
    if CALLED_WRONGLY.contains(&error) {
        return exit_code::USAGE;
    }
    // `interrupted`, or `VERB.interrupted` of verbs with their own message.
    if error.rsplit('.').next() == Some("interrupted") { exit_code::INTERRUPTED } else { exit_code::FAILED }
}

/// If the file size limit was reached, reports that as the error: SQLite only reports a disk error.
fn with_cause(error: Box<dyn Hint>) -> Box<dyn Hint> {
    let of_the_host = error.code().ends_with(".io")
        || ["vault.sqlite", "vault.disk_full", "io.output"].contains(&error.code());
    if of_the_host && size_limit::met() {
        return Box::new(EdgeError::FileSizeLimit(error));
    }
    error
}

/// Buffered stdout; the caller flushes it.
pub struct Out {
    stream: BufWriter<StdoutLock<'static>>,
    colour: bool,
    terminal: bool,
}

impl Out {
    /// Writes exactly one line, regardless of the values in it.
    pub fn line(&mut self, text: fmt::Arguments<'_>) -> Result<(), OpError> {
        self.stream.write_all(line(text).as_bytes()).map_err(OpError::of_output)
    }

    /// Text in its tone if colours are enabled.
    pub fn paint(&self, tone: Tone, text: impl fmt::Display) -> Painted {
        Painted::of(self.colour.then_some(tone), text)
    }

    /// The bytes of a file: verbatim in a pipe, escaped on a terminal.
    pub fn content<T>(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        if !self.terminal {
            return write(&mut self.stream);
        }
        let mut text = Text::new(&mut self.stream);
        let written = write(&mut text)?;
        text.finish().map_err(OpError::of_output)?;
        Ok(written)
    }

    /// A line of a patch, without its line end: verbatim in a pipe, escaped on a terminal.
    pub fn content_line(&mut self, tone: Option<Tone>, line: &[u8]) -> Result<(), OpError> {
        if self.colour || self.terminal {
            let text = printable::text_of(line);
            let painted = Painted::of(tone.filter(|_| self.colour), &text);
            return self.line(format_args!("{painted}"));
        }
        let stream = &mut self.stream;
        stream.write_all(line).and_then(|()| stream.write_all(b"\n")).map_err(OpError::of_output)
    }

    /// Bytes generated by avfs: a manual page, a completion script, the schema.
    pub fn own_bytes(&mut self, bytes: &[u8]) -> Result<(), OpError> {
        self.stream.write_all(bytes).map_err(OpError::of_output)
    }

    /// Writes a value as one line of JSON.
    pub fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), OpError> {
        printable::json_line(value).and_then(|line| self.stream.write_all(&line)).map_err(OpError::of_output)
    }

    pub fn flush(&mut self) -> Result<(), OpError> {
        self.stream.flush().map_err(OpError::of_output)
    }

    /// Like [`Self::line`], for a list that takes long: the first line is flushed at once.
    pub fn list_line(&mut self, number: usize, text: fmt::Arguments<'_>) -> Result<(), OpError> {
        self.line(text)?;
        if number == 0 { self.flush() } else { Ok(()) }
    }

    fn envelope<T: Serialize>(
        &mut self,
        kind: &str,
        result: Option<&T>,
        error: Option<&ErrorBody>,
    ) -> Result<(), OpError> {
        let success = error.is_none();
        let (kind, error) = (kind.to_owned().into(), error.cloned());
        let envelope = Envelope { schema_version: SCHEMA_VERSION, kind, success, result, error };
        // Written directly: a list of changes may be too long to hold as text.
        printable::write_json_line(&envelope, &mut self.stream).map_err(OpError::of_output)
    }
}
