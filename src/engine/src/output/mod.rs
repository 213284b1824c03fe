//! Bounded output of a command: the beginning and the end are kept, and the bytes in between are counted.
//!
//! A long stream is kept in an unnamed file and read in pieces, so that memory use does not depend on the
//! amount of output.

mod store;

use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use avfs_types::secrets::Secrets;

use self::store::{MEMORY_BYTES, PIECE_BYTES, Store};

/// The captured output of a stream.
#[derive(Clone, Debug, Default)]
pub struct Output {
    store: Arc<Store>,
    /// The positions of its bytes in the store, in order: the beginning, and the end if a part was omitted.
    parts: Vec<Range<u64>>,
    /// `None` if the output is complete.
    pub omitted: Option<Omitted>,
}

/// The part of a stream that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// Its offset in [`Output::bytes`].
    pub offset: usize,
    /// Its size.
    pub bytes: u64,
}

impl PartialEq for Output {
    fn eq(&self, other: &Self) -> bool {
        self.omitted == other.omitted && self.bytes() == other.bytes()
    }
}

impl From<Vec<u8>> for Output {
    /// A complete stream.
    fn from(bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        Self { store: Arc::new(Store::Memory(bytes)), parts: one_range(0..length), omitted: None }
    }
}

fn one_range(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

impl Output {
    /// At most `bytes_max` of these bytes.
    #[cfg(test)]
    #[must_use]
    pub fn bounded(bytes: &[u8], bytes_max: usize) -> Self {
        let mut buffer = OutputBuffer::new(bytes_max, None);
        buffer.add(bytes);
        buffer.finish()
    }

    /// The bytes of a stream with an omitted part.
    #[must_use]
    pub fn lacking(bytes: Vec<u8>, omitted: Option<Omitted>) -> Self {
        Self { omitted, ..Self::from(bytes) }
    }

    /// Number of kept bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }

    /// Passes all bytes to `each`, in pieces.
    pub fn read(&self, mut each: impl FnMut(&[u8])) {
        self.read_range(0..self.length(), &mut each);
    }

    /// Reads all bytes; unlike [`Output::read`], it reports a failed read.
    #[must_use]
    pub fn reader(&self) -> OutputReader<'_> {
        OutputReader { output: self, offset: 0 }
    }

    /// Writes all bytes to `to`.
    pub fn write_to(&self, to: &mut dyn Write) -> std::io::Result<()> {
        let mut reader = self.reader();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(()),
                length => to.write_all(&piece[..length])?,
            }
        }
    }

    fn read_range(&self, wanted: Range<u64>, each: &mut dyn FnMut(&[u8])) {
        let mut begins = 0;
        for part in &self.parts {
            let ends = begins + (part.end - part.start);
            let (from, to) = (wanted.start.max(begins), wanted.end.min(ends));
            if from < to {
                self.store.read(part.start + (from - begins)..part.start + (to - begins), each);
            }
            begins = ends;
        }
    }

    fn range(&self, wanted: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.read_range(wanted, &mut |piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// All bytes at once: for output that is known to be small, or must be in memory.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.range(0..self.length())
    }

    /// The last bytes, at most `bytes_max`.
    #[must_use]
    pub fn end(&self, bytes_max: usize) -> Vec<u8> {
        let length = self.length();
        self.range(length.saturating_sub(bytes_max as u64)..length)
    }

    /// True if all kept bytes are UTF-8.
    #[must_use]
    pub fn is_text(&self) -> bool {
        let (mut begun, mut is_text) = (Vec::new(), true);
        self.read(|piece| {
            if is_text {
                begun.extend_from_slice(piece);
                let whole = begun.len() - begun_at_end(&begun);
                is_text = std::str::from_utf8(&begun[..whole]).is_ok();
                begun.drain(..whole);
            }
        });
        is_text && begun.is_empty()
    }

    /// The same output in fewer bytes, half of them from the beginning and half from the end.
    #[must_use]
    pub fn shortened(&self, bytes_max: usize) -> Self {
        let length = self.length();
        if length <= bytes_max as u64 {
            return self.clone();
        }
        let cut = self.omitted.map(|omitted| omitted.offset as u64);
        let head_max = bytes_max.div_ceil(2);
        let head = self.range(0..cut.unwrap_or(length).min(head_max as u64));
        let from = cut.unwrap_or(0).max(length.saturating_sub((bytes_max - head_max) as u64));
        let tail = self.range(from..length);
        let whole = length + self.omitted.map_or(0, |omitted| omitted.bytes);
        let (head_cut, tail_cut) = (head.len() - begun_at_end(&head), ended_at_start(&tail));
        let kept = [&head[..head_cut], &tail[tail_cut..]].concat();
        let omitted = Some(Omitted { offset: head_cut, bytes: whole - kept.len() as u64 });
        Self { omitted, ..Self::from(kept) }
    }

    /// Whether a part of the stream is missing.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.omitted.is_some()
    }

    /// BLAKE3 of the kept bytes, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        self.read(|piece| {
            hasher.update(piece);
        });
        avfs_types::ids::to_hex(hasher.finalize().as_bytes())
    }

    /// The same output without values of secrets, including values that the cut splits.
    #[must_use]
    pub fn scrubbed(self, secrets: &Secrets) -> Self {
        if !secrets.scrubs() {
            return self;
        }
        let length = self.length();
        // The replacement of a value may be longer than the value.
        let mut kept = OutputBuffer::new(usize::MAX, self.store.dir().map(Path::to_owned));
        let Some(Omitted { offset, bytes }) = self.omitted else {
            let mut pending = Vec::new();
            self.scrub_range(0..length, &mut pending, secrets, &mut kept);
            kept.add(&secrets.scrub(pending));
            return kept.finish();
        };
        let cut = (offset as u64).min(length);
        let mut pending = Vec::new();
        self.scrub_range(0..cut, &mut pending, secrets, &mut kept);
        kept.add(&secrets.scrub_cut(pending));
        let offset = usize::try_from(kept.head).unwrap_or(usize::MAX);
        let longest = secrets.longest() as u64;
        let begun = length.min(cut + longest);
        let mut pending = secrets.without_end(self.range(cut..begun));
        self.scrub_range(begun..length, &mut pending, secrets, &mut kept);
        kept.add(&secrets.scrub(pending));
        Self { omitted: Some(Omitted { offset, bytes }), ..kept.finish() }
    }

    fn scrub_range(
        &self,
        range: Range<u64>,
        pending: &mut Vec<u8>,
        secrets: &Secrets,
        kept: &mut OutputBuffer,
    ) {
        self.read_range(range, &mut |piece| {
            pending.extend_from_slice(piece);
            if pending.len() as u64 > MEMORY_BYTES {
                kept.add(&secrets.scrub_piece(pending));
            }
        });
    }
}

/// Reads the kept bytes of an [`Output`].
#[derive(Debug)]
pub struct OutputReader<'a> {
    output: &'a Output,
    /// The number of bytes read.
    offset: u64,
}

impl Read for OutputReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut begins = 0;
        for part in &self.output.parts {
            let ends = begins + (part.end - part.start);
            if self.offset < ends {
                let at = part.start + (self.offset - begins);
                let wanted = buffer.len().min(usize::try_from(part.end - at).unwrap_or(usize::MAX));
                let length = self.output.store.read_at(at, &mut buffer[..wanted])?;
                self.offset += length as u64;
                return Ok(length);
            }
            begins = ends;
        }
        Ok(0)
    }
}

/// Collects an [`Output`]. Never holds more than its limit, half of it for the beginning and half for the end:
/// the store has the beginning, followed by a ring buffer for the end.
#[derive(Debug)]
pub struct OutputBuffer {
    store: Store,
    dir: Option<PathBuf>,
    /// Bytes in the beginning.
    head: u64,
    /// Bytes received after the beginning.
    after: u64,
    head_max: u64,
    tail_max: u64,
    /// Bytes received after writing to the store failed.
    lost: u64,
    /// Why writing to the store failed.
    broken: Option<std::io::Error>,
}

impl OutputBuffer {
    /// A buffer for at most `bytes_max` bytes. Output that does not fit in memory is kept in a file in `dir`,
    /// if given.
    #[must_use]
    pub fn new(bytes_max: usize, dir: Option<PathBuf>) -> Self {
        let bytes_max = (bytes_max as u64).min(i64::MAX as u64);
        let head_max = bytes_max.div_ceil(2);
        let (store, tail_max) = (Store::default(), bytes_max - head_max);
        Self { store, dir, head: 0, after: 0, head_max, tail_max, lost: 0, broken: None }
    }

    /// Appends the next bytes of the stream.
    pub fn add(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.head_max - self.head).unwrap_or(usize::MAX);
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        if self.put(self.head, head) {
            self.head += head.len() as u64;
        }
        let tail_max = usize::try_from(self.tail_max).unwrap_or(usize::MAX);
        let (skipped, rest) = rest.split_at(rest.len().saturating_sub(tail_max));
        self.after += skipped.len() as u64;
        let mut rest = rest;
        while !rest.is_empty() && tail_max > 0 {
            let at = self.after % self.tail_max;
            let room = usize::try_from(self.tail_max - at).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            if self.put(self.head_max + at, now) {
                self.after += now.len() as u64;
            }
            rest = later;
        }
    }

    /// False if the bytes are lost: the disk is full, and later output is not kept either.
    fn put(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if self.broken.is_none()
            && let Err(error) = self.store.write(offset, bytes, self.dir.as_deref())
        {
            tracing::warn!(%error, "cannot keep output on disk: the rest is omitted");
            self.broken = Some(error);
        }
        if self.broken.is_some() {
            self.lost += bytes.len() as u64;
        }
        self.broken.is_none()
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(self) -> Output {
        let Self { store, head, after, head_max, tail_max, lost, .. } = self;
        let tail = after.min(tail_max);
        let mut parts = one_range(0..head);
        // The ring buffer, from its oldest byte.
        let oldest = if after > tail_max && tail_max > 0 { after % tail_max } else { 0 };
        parts.push(head_max + oldest..head_max + tail);
        parts.push(head_max..head_max + oldest);
        parts.retain(|part| part.start < part.end);
        let output = Output { store: Arc::new(store), parts, omitted: None };
        let missing = after - tail + lost;
        if missing == 0 { output } else { output.cut(head, missing) }
    }
}

/// Adds the bytes. Unlike [`OutputBuffer::add`], a write fails if the disk is full.
impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.add(bytes);
        match self.broken.take() {
            None => Ok(bytes.len()),
            Some(error) => {
                let again = std::io::Error::new(error.kind(), error.to_string());
                self.broken = Some(error);
                Err(again)
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// Marks bytes as missing after the first `head` bytes. Removes a UTF-8 character split by the cut, which
    /// would make the text invalid.
    fn cut(mut self, head: u64, missing: u64) -> Self {
        let length = self.length();
        let before = begun_at_end(&self.range(head.saturating_sub(4)..head)) as u64;
        let after = ended_at_start(&self.range(head..length.min(head + 4))) as u64;
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut begins = 0;
        for part in &self.parts {
            let ends = begins + (part.end - part.start);
            for (from, to) in [(begins, ends.min(head - before)), (begins.max(head + after), ends)] {
                if from < to {
                    parts.push(part.start + (from - begins)..part.start + (to - begins));
                }
            }
            begins = ends;
        }
        self.parts = parts;
        let offset = usize::try_from(head - before).unwrap_or(usize::MAX);
        self.omitted = Some(Omitted { offset, bytes: missing + before + after });
        self
    }
}

/// Number of bytes at the end that form an incomplete UTF-8 character.
fn begun_at_end(bytes: &[u8]) -> usize {
    let is_begun = |length: &usize| {
        let end = bytes.len().checked_sub(*length).and_then(|from| bytes.get(from..));
        let error = end.and_then(|end| std::str::from_utf8(end).err());
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(is_begun).unwrap_or(0)
}

/// Number of bytes at the start that continue a UTF-8 character.
fn ended_at_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(parts: &[&[u8]], bytes_max: usize) -> Output {
        let mut buffer = OutputBuffer::new(bytes_max, None);
        parts.iter().for_each(|part| buffer.add(part));
        buffer.finish()
    }

    #[test]
    fn beginning_and_end_are_kept_for_any_division_into_pieces() {
        let stream: Vec<u8> = (0..200).map(|number| b'a' + number % 26).collect();
        for bytes_max in [0, 1, 2, 7, 10, 199, 200, 201] {
            let whole = Output::bounded(&stream, bytes_max);
            assert!(whole.bytes().len() <= bytes_max);
            match whole.omitted {
                None => assert_eq!(whole.bytes(), stream),
                Some(Omitted { offset, bytes }) => {
                    assert_eq!(whole.bytes().len() as u64 + bytes, 200);
                    assert_eq!(whole.bytes()[..offset], stream[..offset]);
                    assert!(stream.ends_with(&whole.bytes()[offset..]));
                    assert!(offset == bytes_max.div_ceil(2));
                }
            }
            for size in [1, 3, 64, 199] {
                let parts: Vec<&[u8]> = stream.chunks(size).collect();
                assert_eq!(kept(&parts, bytes_max), whole, "{bytes_max} in pieces of {size}");
            }
        }
    }

    #[test]
    fn characters_are_not_split() {
        let stream = "ä€😀".repeat(20);
        for bytes_max in 0..stream.len() {
            let output = Output::bounded(stream.as_bytes(), bytes_max);
            assert!(std::str::from_utf8(&output.bytes()).is_ok(), "{bytes_max}");
            let omitted = output.omitted.map_or(0, |omitted| omitted.bytes);
            assert_eq!(output.bytes().len() as u64 + omitted, stream.len() as u64);
        }
    }

    #[test]
    fn output_is_shortened_from_the_middle() {
        let stream: Vec<u8> = (0..100).map(|number| b'a' + number % 26).collect();
        for first_max in [30, 61, 100] {
            let kept = Output::bounded(&stream, first_max).shortened(20);
            assert_eq!(kept, Output::bounded(&stream, 20), "{first_max}");
        }
        let text = "ä".repeat(50);
        let kept = Output::bounded(text.as_bytes(), 100).shortened(21);
        assert_eq!((kept.bytes().len(), kept.omitted), (20, Some(Omitted { offset: 10, bytes: 80 })));
        assert_eq!(Output::bounded(b"abc", 3).shortened(3).omitted, None);
        assert_eq!(Output::bounded(b"abc", 3).shortened(0).omitted, Some(Omitted { offset: 0, bytes: 3 }));
    }

    #[test]
    fn secret_split_by_the_cut_is_removed_completely() {
        let secrets = Secrets::new([("TOKEN".to_owned(), &b"correct-horse"[..])]);
        let stream = b"..correct-horse..................correct-horse..";
        for bytes_max in 0..=stream.len() {
            let output = Output::bounded(stream, bytes_max).scrubbed(&secrets);
            let text = String::from_utf8(output.bytes()).unwrap();
            for part in ["corr", "rrect", "hor", "rse"] {
                assert!(!text.contains(part), "{bytes_max}: {text}");
            }
        }
    }

    #[test]
    fn long_stream_reads_the_same_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (memory_bytes, piece) = (usize::try_from(MEMORY_BYTES).unwrap(), 300_007);
        let stream: Vec<u8> =
            (0..3 * memory_bytes).map(|at| b'a' + u8::try_from(at * at % 26).unwrap()).collect();
        for bytes_max in [2 * memory_bytes + 11, 3 * memory_bytes, usize::MAX] {
            let mut buffer = OutputBuffer::new(bytes_max, Some(dir.path().to_owned()));
            stream.chunks(piece).for_each(|part| buffer.add(part));
            let kept = buffer.finish();
            assert!(matches!(*kept.store, Store::File(..)));
            assert_eq!(kept, Output::bounded(&stream, bytes_max), "{bytes_max}");
            assert!(kept.is_text() && kept.end(5) == stream[stream.len() - 5..]);
            let mut written = Vec::new();
            kept.write_to(&mut written).unwrap();
            assert!(written == kept.bytes());
            assert_eq!(kept.shortened(100), Output::bounded(&stream, 100));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn secrets_are_removed_from_a_long_stream() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::new([("TOKEN".to_owned(), &b"correct-horse"[..])]);
        let memory_bytes = usize::try_from(MEMORY_BYTES).unwrap();
        for shift in 0..26 {
            let text =
                [&b".".repeat(shift)[..], &b"correct-horse.............".repeat(memory_bytes / 20)].concat();
            let mut buffer = OutputBuffer::new(usize::MAX, Some(dir.path().to_owned()));
            buffer.add(&text);
            let scrubbed = buffer.finish().scrubbed(&secrets).bytes();
            assert!(scrubbed == secrets.scrub(text), "{shift}");
        }
    }

    #[test]
    fn text_is_recognized_for_any_division_into_pieces() {
        let text = "€".repeat(PIECE_BYTES);
        assert!(Output::from(text.clone().into_bytes()).is_text());
        let cut = text.as_bytes()[..text.len() - 1].to_vec();
        assert!(!Output::from(cut).is_text());
        assert!(Output::default().is_text() && !Output::from(vec![b'a', 0xff]).is_text());
    }

    #[test]
    fn missing_directory_omits_the_rest() {
        let mut buffer = OutputBuffer::new(usize::MAX, Some("/no/such/directory".into()));
        let part = vec![b'x'; 1 << 20];
        (0..6).for_each(|_| buffer.add(&part));
        let kept = buffer.finish();
        assert_eq!((kept.length(), kept.omitted.unwrap().bytes), (4 << 20, 2 << 20));
        // A writer that must not lose any bytes fails instead.
        let mut buffer = OutputBuffer::new(usize::MAX, Some("/no/such/directory".into()));
        (0..4).for_each(|_| buffer.write_all(&part).unwrap());
        assert_eq!(buffer.write_all(&part).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
