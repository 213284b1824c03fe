//! A list in a file: checked in one pass, then read one item at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use avfs_hostfs::random;
use avfs_request::spec::REQUEST_BYTES_MAX;
use avfs_types::ids::ListDigest;
use avfs_wire::{ListHeader, ListItem};

use super::error::{ListError, ListPlace};
use super::line::{Form, Wrong, header, is_silent, item};
use super::needs::Needs;

/// The path that stands for standard input.
pub const STDIN: &str = "-";
/// Maximum items of a list: an endless one is refused before its index takes much memory.
const ITEMS_MAX: u32 = 2_000_000;
/// Maximum lines of a list, including empty lines and comments.
const LINES_MAX: u32 = 10_000_000;

/// The position of an item, with a seal to detect changes made after the check.
#[derive(Debug)]
struct Entry {
    offset: u64,
    length: u32,
    line: u32,
    /// Offset of its id in `ids`.
    id: u32,
    /// The first bytes of the digest of its line.
    seal: [u8; 4],
}

/// A list that was checked. Keeps only a few bytes per item.
#[derive(Debug)]
pub struct ListFile {
    path: PathBuf,
    file: File,
    form: Form,
    header: Option<ListHeader>,
    digest: ListDigest,
    entries: Vec<Entry>,
    /// The ids of all items, concatenated.
    ids: String,
    needs: Needs,
}

impl ListFile {
    /// Reads and checks a whole list. Input that cannot be read twice, such as standard input (`-`), is copied
    /// to an unnamed file in `spool_dir`.
    pub fn open(path: &Path, spool_dir: &Path) -> Result<Self, ListError> {
        let unreadable = |source| ListError::Unreadable { file: path.to_owned(), source };
        if path == Path::new(STDIN) {
            return Self::spooled(path, &mut io::stdin().lock(), spool_dir);
        }
        let file = File::open(path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Self::spooled(path, &mut BufReader::with_capacity(1 << 16, file), spool_dir);
        }
        let mut reading = Reading::new(path);
        let mut lines = BufReader::with_capacity(1 << 16, &file);
        let mut line = Vec::new();
        while read_line(&mut lines, &mut line).map_err(unreadable)? {
            reading.take(&line)?;
        }
        reading.finish(file)
    }

    /// Checks each line before copying it, so that endless input is rejected at its first invalid line.
    pub(super) fn spooled(path: &Path, lines: &mut impl BufRead, dir: &Path) -> Result<Self, ListError> {
        let failed = |source| ListError::Spool { file: path.to_owned(), dir: dir.to_owned(), source };
        let mut copy = BufWriter::with_capacity(1 << 16, without_a_name(dir).map_err(failed)?);
        let mut reading = Reading::new(path);
        let mut line = Vec::new();
        let unreadable = |source| ListError::Unreadable { file: path.to_owned(), source };
        while read_line(lines, &mut line).map_err(unreadable)? {
            reading.take(&line)?;
            copy.write_all(&line).map_err(failed)?;
        }
        let file = copy.into_inner().map_err(|error| failed(error.into_error()))?;
        reading.finish(file)
    }

    #[must_use]
    pub fn header(&self) -> Option<&ListHeader> {
        self.header.as_ref()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Digest of the whole file: a batch can only be resumed with the list it was started with.
    #[must_use]
    pub fn digest(&self) -> ListDigest {
        self.digest
    }

    /// The id of an item. Items are numbered from 0. Empty if the item does not exist.
    #[must_use]
    pub fn id(&self, number: usize) -> &str {
        let start = |number: usize| self.entries.get(number).map(|entry| entry.id as usize);
        let Some(from) = start(number) else { return "" };
        self.ids.get(from..start(number + 1).unwrap_or(self.ids.len())).unwrap_or_default()
    }

    /// The numbers of the items that an item needs.
    #[must_use]
    pub fn needs(&self, number: usize) -> &[u32] {
        self.needs.of(number)
    }

    /// The line of an item, for messages.
    #[must_use]
    pub fn line(&self, number: usize) -> u32 {
        self.entries.get(number).map_or(0, |entry| entry.line)
    }

    /// Reads an item again.
    ///
    /// # Panics
    /// If the item does not exist.
    pub fn item(&self, number: usize) -> Result<ListItem, ListError> {
        let entry = &self.entries[number];
        let place = || ListPlace { file: self.path.clone(), line: entry.line, column: None };
        let mut line = vec![0; entry.length as usize];
        self.file.read_exact_at(&mut line, entry.offset).map_err(|source| {
            match source.kind() == io::ErrorKind::UnexpectedEof {
                true => ListError::Changed { place: place() },
                false => ListError::Unreadable { file: self.path.clone(), source },
            }
        })?;
        if seal(&line) != entry.seal {
            return Err(ListError::Changed { place: place() });
        }
        item(&line, self.form, counted(number)).map_err(|wrong| list_error(wrong, place()))
    }
}

/// A list while it is being read.
struct Reading {
    path: PathBuf,
    digest: blake3::Hasher,
    form: Option<Form>,
    header: Option<ListHeader>,
    offset: u64,
    line: u32,
    entries: Vec<Entry>,
    ids: String,
    numbers: HashMap<Box<str>, u32>,
    needs: Needs,
    /// Needs that name an item which has not been read yet: their slot, the item that needs it, and the needed id.
    awaited: Vec<(usize, u32, Box<str>)>,
}

impl Reading {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            digest: blake3::Hasher::new(),
            form: None,
            header: None,
            offset: 0,
            line: 0,
            entries: Vec::new(),
            ids: String::new(),
            numbers: HashMap::new(),
            needs: Needs::default(),
            awaited: Vec::new(),
        }
    }

    fn place(&self, line: u32) -> ListPlace {
        ListPlace { file: self.path.clone(), line, column: None }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), ListError> {
        let offset = self.offset;
        self.digest.update(line);
        self.offset += line.len() as u64;
        self.line = self.line.saturating_add(1);
        let place = self.place(self.line);
        if self.line > LINES_MAX {
            return Err(ListError::TooManyLines { file: self.path.clone(), max: LINES_MAX });
        }
        if line.len() > REQUEST_BYTES_MAX {
            return Err(ListError::LineTooLong { place });
        }
        if is_silent(line) {
            return Ok(());
        }
        let form = match self.form {
            Some(form) => form,
            None => {
                let form = *self.form.insert(Form::of(line));
                if form == Form::Json {
                    self.header = header(line).map_err(|wrong| list_error(wrong, place.clone()))?;
                    if self.header.is_some() {
                        return Ok(());
                    }
                }
                form
            }
        };
        let number = self.entries.len();
        if counted(number) > ITEMS_MAX {
            return Err(ListError::TooMany { file: self.path.clone(), max: ITEMS_MAX });
        }
        let item = item(line, form, counted(number)).map_err(|wrong| list_error(wrong, place))?;
        let length = u32::try_from(line.len()).unwrap_or(u32::MAX);
        self.keep(item, Entry { offset, length, line: self.line, id: 0, seal: seal(line) })
    }

    fn keep(&mut self, item: ListItem, entry: Entry) -> Result<(), ListError> {
        let number = counted(self.entries.len()) - 1;
        let place = self.place(entry.line);
        if let Some(first) = self.numbers.insert(item.id.as_str().into(), number) {
            let first = self.entries.get(first as usize).map_or(0, |entry| entry.line);
            return Err(ListError::Duplicate { place, id: item.id, first });
        }
        let id = u32::try_from(self.ids.len());
        let id = id.map_err(|_| ListError::TooMany { file: self.path.clone(), max: number })?;
        self.ids.push_str(&item.id);
        self.entries.push(Entry { id, ..entry });
        let first_slot = self.needs.next_slot();
        let mut numbers = Vec::with_capacity(item.needs.len());
        for need in item.needs {
            match self.numbers.get(need.as_str()) {
                Some(known) => numbers.push(*known),
                None => {
                    self.awaited.push((first_slot + numbers.len(), number, need.into_boxed_str()));
                    numbers.push(number);
                }
            }
        }
        self.needs.push(numbers);
        Ok(())
    }

    fn finish(mut self, file: File) -> Result<ListFile, ListError> {
        for (slot, number, need) in std::mem::take(&mut self.awaited) {
            match self.numbers.get(&need) {
                Some(known) => self.needs.set(slot, *known),
                None => return Err(self.unknown_need(number, need)),
            }
        }
        // From here on, entries and ids are looked up in the list.
        drop(std::mem::take(&mut self.numbers));
        let list = ListFile {
            path: self.path,
            file,
            form: self.form.unwrap_or(Form::Plain),
            header: self.header,
            digest: ListDigest(*self.digest.finalize().as_bytes()),
            entries: self.entries,
            ids: self.ids,
            needs: self.needs,
        };
        match list.needs.cycle() {
            None => Ok(list),
            Some(items) => {
                let ids = items.into_iter().map(|number| list.id(number).to_owned()).collect();
                Err(ListError::Cycle { file: list.path, ids })
            }
        }
    }

    fn unknown_need(&self, number: u32, need: Box<str>) -> ListError {
        let entry = self.entries.get(number as usize);
        let id = self.numbers.iter().find(|(_, known)| **known == number).map(|(id, _)| id.to_string());
        let place = self.place(entry.map_or(0, |entry| entry.line));
        ListError::UnknownNeed { place, id: id.unwrap_or_default(), need: need.into_string() }
    }
}

/// The number of an item, counted from 1.
fn counted(number: usize) -> u32 {
    u32::try_from(number + 1).unwrap_or(u32::MAX)
}

fn seal(line: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = *blake3::hash(line).as_bytes();
    [a, b, c, d]
}

fn list_error(wrong: Wrong, place: ListPlace) -> ListError {
    match wrong {
        Wrong::Json { column, problem, near } => {
            ListError::Line { place: ListPlace { column, ..place }, problem, near }
        }
        Wrong::Newer { version } => ListError::Newer { place, version },
    }
}

/// Reads one line including its newline, or one byte more than the maximum. False at the end of the file.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    from.take(REQUEST_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    Ok(!line.is_empty())
}

/// Creates an unnamed file, for a copy of input that cannot be read twice.
fn without_a_name(dir: &Path) -> io::Result<File> {
    let name = dir.join(format!("avfs-list-{}", random::suffix()?));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}
