//! Says what a command found: as text for people, or as one JSON object for scripts.
//!
//! Data goes to stdout, everything else to stderr. The only place that writes to either.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

use avfs::diagnose::{Diagnose, naming_vault, vault_words};
use avfs::exit_code;
use avfs::hostfs::size_limit;
use avfs::runtime::envelope::{Envelope, ErrorBody, SCHEMA_VERSION};
use avfs::vault::VaultError;
use owo_colors::{OwoColorize, Style};
use serde::Serialize;

use crate::crew::Ran;
use crate::error::EdgeError;
use crate::view::one_line;

/// The codes of a command that was called wrongly, wherever that is found.
const CALLED_WRONGLY: [&str; 5] = ["usage", "name.invalid", "path.invalid", "ref.invalid", "value.invalid"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Human,
    Json,
}

/// Why a command ended early.
pub enum Failure {
    Error(Box<dyn Diagnose>),
    /// What a worker failed at, as it told it.
    Told(ErrorBody),
    /// Nobody reads the answer any more, which is the reader's right.
    BrokenPipe,
}

impl<E: Diagnose + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error))
    }
}

impl Failure {
    /// What became of a write to stdout.
    pub fn output(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::from(EdgeError::Output(error))
    }

    /// A failure of an answer: whatever the command was to do is done by then.
    fn after_the_fact(self) -> Self {
        match self {
            Self::Error(error) if error.code() == "io.output" => Self::from(EdgeError::Unanswered(error)),
            Self::Error(_) | Self::Told(_) | Self::BrokenPipe => self,
        }
    }

    /// A failure of work that streams to stdout.
    pub fn while_streaming(error: VaultError) -> Self {
        if let VaultError::Output(error) = error {
            return Self::output(error);
        }
        Self::from(error)
    }
}

/// How a command ended: its exit code, unless it failed.
pub type Outcome = Result<u8, Failure>;

/// What a piece of text is, for those who see colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Added,
    Deleted,
    Changed,
    Id,
    Name,
    Dim,
    Strong,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Added => Style::new().green(),
            Self::Deleted => Style::new().red(),
            Self::Changed => Style::new().yellow(),
            Self::Id => Style::new().yellow(),
            Self::Name => Style::new().cyan(),
            Self::Dim => Style::new().dimmed(),
            Self::Strong => Style::new().bold(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Ui {
    pub format: Format,
    kind: String,
    /// ` --vault X` as it was typed: commands that are told to be called next are for the same vault.
    vault_words: String,
    out_colour: bool,
    err_colour: bool,
}

impl Ui {
    pub fn new(format: Format, kind: String) -> Self {
        let colour = |choice| choice != anstream::ColorChoice::Never;
        Self {
            format,
            kind,
            vault_words: String::new(),
            out_colour: colour(anstream::AutoStream::choice(&std::io::stdout())),
            err_colour: colour(anstream::AutoStream::choice(&std::io::stderr())),
        }
    }

    /// The same, for a command that was told its vault.
    pub fn for_vault(self, vault: Option<&OsStr>) -> Self {
        Self { vault_words: vault_words(vault), ..self }
    }

    /// The stream for data.
    pub fn out(&self) -> Out {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        Out { stream: BufWriter::new(stdout.lock()), colour: self.out_colour, terminal }
    }

    /// Answers "yes": the result as JSON, or what `human` writes.
    pub fn answer<T: Serialize>(
        &self,
        result: &T,
        human: impl FnOnce(&mut Out) -> Result<(), Failure>,
    ) -> Outcome {
        self.say(result, None, human)
    }

    /// Answers "no": the result is there, and the exit code says that it is not what was hoped for.
    pub fn answer_no<T: Serialize>(
        &self,
        result: &T,
        why: &ErrorBody,
        human: impl FnOnce(&mut Out) -> Result<(), Failure>,
    ) -> Outcome {
        self.say(result, Some(why), human)
    }

    fn say<T: Serialize>(
        &self,
        result: &T,
        why_not: Option<&ErrorBody>,
        human: impl FnOnce(&mut Out) -> Result<(), Failure>,
    ) -> Outcome {
        let mut out = self.out();
        let written = match self.format {
            Format::Human => human(&mut out),
            Format::Json => {
                let why_not = why_not.map(|error| error.clone().naming_vault(&self.vault_words));
                out.envelope(&self.kind, Some(result), why_not.as_ref())
            }
        };
        written.and_then(|()| out.flush()).map_err(Failure::after_the_fact)?;
        Ok(if why_not.is_none() { exit_code::OK } else { exit_code::FAILED })
    }

    /// A word to people beside the answer; scripts have it in theirs.
    pub fn note(&self, text: fmt::Arguments<'_>) {
        self.note_as_it_is(&naming_vault(&text.to_string(), &self.vault_words));
    }

    fn note_as_it_is(&self, text: &str) {
        if self.format == Format::Human {
            // Where stderr is closed nobody wants notes.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// What a command printed, for people who asked to see it.
    pub fn note_output(&self, ran: &Ran) {
        for (name, text, encoding) in
            [("stdout", &ran.stdout, &ran.stdout_encoding), ("stderr", &ran.stderr, &ran.stderr_encoding)]
        {
            match encoding.as_str() {
                "utf-8" => {
                    text.lines().for_each(|line| self.note_as_it_is(&format!("    {}", one_line(line))))
                }
                _ => self.note(format_args!("    ({name} is not text)")),
            }
        }
    }

    /// The exit code of an outcome, after telling what failed.
    pub fn conclude(&self, outcome: Outcome) -> u8 {
        match outcome {
            Ok(code) => code,
            Err(Failure::BrokenPipe) => exit_code::OK,
            Err(Failure::Error(error)) => {
                let error = with_cause(error);
                self.tell(&*error);
                code_for(error.code())
            }
            Err(Failure::Told(error)) => {
                self.tell_body(&error);
                code_for(&error.code)
            }
        }
    }

    /// Tells what failed, why, and what to do next.
    pub fn tell(&self, error: &dyn Diagnose) {
        match self.format {
            Format::Json => self.tell_json(&ErrorBody::of(error)),
            Format::Human => {
                let mut text = format!("{} {error}\n", self.label("error:", Style::new().red().bold()));
                let mut cause = error.source();
                while let Some(found) = cause {
                    text.push_str(&format!("{} {found}\n", self.label("caused by:", Style::new().red())));
                    cause = found.source();
                }
                text.extend(error.hint().map(|hint| self.hint(&hint)));
                let _ = std::io::stderr().lock().write_all(text.as_bytes());
            }
        }
    }

    /// As [`Self::tell`], of what is in words already.
    pub fn tell_body(&self, error: &ErrorBody) {
        match self.format {
            Format::Json => self.tell_json(error),
            Format::Human => self.tell_people(error),
        }
    }

    fn tell_people(&self, error: &ErrorBody) {
        let label = self.label("error:", Style::new().red().bold());
        let mut text = format!("{label} {}\n", error.message);
        text.extend(error.hint.as_deref().map(|hint| self.hint(hint)));
        // There is no further place to tell that telling failed.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }

    fn hint(&self, hint: &str) -> String {
        let hint = naming_vault(hint, &self.vault_words);
        format!("{} {hint}\n", self.label("hint:", Style::new().cyan().bold()))
    }

    pub fn tell_json(&self, error: &ErrorBody) {
        let mut out = self.out();
        match out
            .envelope::<()>(&self.kind, None, Some(&error.clone().naming_vault(&self.vault_words)))
            .and_then(|()| out.flush())
        {
            Ok(()) | Err(Failure::BrokenPipe) => {}
            // Where the answer cannot be written its error would be lost too.
            Err(Failure::Error(_) | Failure::Told(_)) => self.tell_people(error),
        }
    }

    fn label(&self, text: &str, style: Style) -> String {
        if self.err_colour { text.style(style).to_string() } else { text.to_owned() }
    }
}

/// The exit code of an error.
fn code_for(error: &str) -> u8 {
    // Options that do not go together, and words that only what they are about can show to be wrong.
    if CALLED_WRONGLY.contains(&error) {
        return exit_code::USAGE;
    }
    // `interrupted`, and `VERB.interrupted` of who has more to say about it.
    if error.rsplit('.').next() == Some("interrupted") { exit_code::INTERRUPTED } else { exit_code::FAILED }
}

/// Where a limit on the size of files was met, that is why: of SQLite it only comes as a failure of the disk.
fn with_cause(error: Box<dyn Diagnose>) -> Box<dyn Diagnose> {
    let of_the_host = error.code().ends_with(".io")
        || ["vault.sqlite", "vault.disk_full", "io.output"].contains(&error.code());
    if of_the_host && size_limit::met() {
        return Box::new(EdgeError::FileSizeLimit(error));
    }
    error
}

/// Stdout, buffered; whoever is done with it flushes it.
pub struct Out {
    stream: BufWriter<StdoutLock<'static>>,
    colour: bool,
    terminal: bool,
}

impl Out {
    pub fn line(&mut self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        writeln!(self.stream, "{text}").map_err(Failure::output)
    }

    /// Text in its tone where colours are wanted.
    pub fn paint(&self, tone: Tone, text: impl fmt::Display) -> String {
        if self.colour { text.style(tone.style()).to_string() } else { text.to_string() }
    }

    /// What to write before and after bytes that are to have a tone.
    pub fn brackets(&self, tone: Tone) -> (String, &'static str) {
        if self.colour {
            (tone.style().prefix_formatter().to_string(), "\x1b[0m")
        } else {
            (String::new(), "")
        }
    }

    /// Bytes of a file as they are.
    pub fn raw(&mut self) -> &mut dyn Write {
        &mut self.stream
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(Failure::output)
    }

    /// A line of a file, without its end: exact in a pipe; on a terminal it cannot move the cursor.
    pub fn content(&mut self, line: &[u8]) -> Result<(), Failure> {
        if !self.terminal {
            return self.bytes(line);
        }
        let safe: String = String::from_utf8_lossy(line)
            .chars()
            .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
            .collect();
        self.bytes(safe.as_bytes())
    }

    /// One value as a line of JSON.
    pub fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let written = serde_json::to_writer(&mut self.stream, value).map_err(std::io::Error::from);
        written.and_then(|()| self.stream.write_all(b"\n")).map_err(Failure::output)
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.stream.flush().map_err(Failure::output)
    }

    fn envelope<T: Serialize>(
        &mut self,
        kind: &str,
        result: Option<&T>,
        error: Option<&ErrorBody>,
    ) -> Result<(), Failure> {
        let success = error.is_none();
        let envelope = Envelope { schema_version: SCHEMA_VERSION, kind, success, result, error };
        self.json_line(&envelope)
    }
}
