//! What a command wrote to a stream, bounded: the beginning and the end are kept, and what lies between is counted.

use std::collections::VecDeque;

use avfs_types::secrets::Secrets;

/// What a stream gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The beginning and the end, one behind the other where something was omitted.
    pub bytes: Vec<u8>,
    /// `None` if everything is there.
    pub omitted: Option<Omitted>,
}

/// The part of a stream that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// Where in [`Output::bytes`] it would be.
    pub offset: usize,
    /// Its size.
    pub bytes: u64,
}

impl Output {
    /// As much of some bytes as fits in `bytes_max`.
    #[must_use]
    pub fn bounded(bytes: &[u8], bytes_max: usize) -> Self {
        let mut buffer = OutputBuffer::new(bytes_max);
        buffer.add(bytes);
        buffer.finish()
    }

    /// The same in fewer bytes, half of them from the beginning and half from the end.
    #[must_use]
    pub fn shortened(&self, bytes_max: usize) -> Self {
        if self.bytes.len() <= bytes_max {
            return self.clone();
        }
        let (head, tail) = match self.omitted {
            Some(omitted) => self.bytes.split_at(omitted.offset.min(self.bytes.len())),
            None => (self.bytes.as_slice(), self.bytes.as_slice()),
        };
        let head_max = bytes_max.div_ceil(2);
        let head = &head[..head.len().min(head_max)];
        let tail = &tail[tail.len().saturating_sub(bytes_max - head_max)..];
        let whole = self.bytes.len() as u64 + self.omitted.map_or(0, |omitted| omitted.bytes);
        joined(head, tail, whole)
    }

    /// Whether a part of the stream is missing.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.omitted.is_some()
    }

    /// BLAKE3 of what is there, in hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        avfs_types::ids::to_hex(blake3::hash(&self.bytes).as_bytes())
    }

    /// The same without values of secrets, also those that the cut goes through.
    #[must_use]
    pub fn scrubbed(mut self, secrets: &Secrets) -> Self {
        let Some(Omitted { offset, bytes }) = self.omitted else {
            return Self { bytes: secrets.scrub(self.bytes), omitted: None };
        };
        let end = self.bytes.split_off(offset.min(self.bytes.len()));
        let mut kept = secrets.scrub_cut(self.bytes);
        let offset = kept.len();
        kept.extend(secrets.scrub_begun(end));
        Self { bytes: kept, omitted: Some(Omitted { offset, bytes }) }
    }
}

/// Collects an [`Output`]. Never holds more than its bound, half of it for the beginning and half for the end.
#[derive(Debug)]
pub struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    omitted: u64,
}

impl OutputBuffer {
    /// For at most this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let head_max = bytes_max.div_ceil(2);
        let (head, tail) = (Vec::new(), VecDeque::new());
        Self { head, tail, head_max, tail_max: bytes_max - head_max, omitted: 0 }
    }

    /// Takes the next bytes of the stream.
    pub fn add(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(head);
        let (skipped, rest) = rest.split_at(rest.len().saturating_sub(self.tail_max));
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.tail.extend(rest);
        self.omitted += (skipped.len() + over) as u64;
    }

    /// The stream has ended.
    #[must_use]
    pub fn finish(self) -> Output {
        let Self { head: mut bytes, tail, omitted, .. } = self;
        let tail = Vec::from(tail);
        if omitted == 0 {
            bytes.extend_from_slice(&tail);
            return Output { bytes, omitted: None };
        }
        let whole = (bytes.len() + tail.len()) as u64 + omitted;
        joined(&bytes, &tail, whole)
    }
}

/// The beginning and the end of a stream that had `whole` bytes. A character that was cut in two goes: it would make
/// text something else.
fn joined(head: &[u8], tail: &[u8], whole: u64) -> Output {
    let (head, tail) = (&head[..head.len() - begun_at_end(head)], &tail[ended_at_start(tail)..]);
    let kept = (head.len() + tail.len()) as u64;
    let omitted = Some(Omitted { offset: head.len(), bytes: whole - kept });
    Output { bytes: [head, tail].concat(), omitted }
}

/// How many of the last bytes are the beginning of a UTF-8 character.
fn begun_at_end(bytes: &[u8]) -> usize {
    let is_begun = |length: &usize| {
        let end = bytes.len().checked_sub(*length).and_then(|from| bytes.get(from..));
        let error = end.and_then(|end| std::str::from_utf8(end).err());
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(is_begun).unwrap_or(0)
}

/// How many of the first bytes are the rest of a UTF-8 character.
fn ended_at_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(parts: &[&[u8]], bytes_max: usize) -> Output {
        let mut buffer = OutputBuffer::new(bytes_max);
        parts.iter().for_each(|part| buffer.add(part));
        buffer.finish()
    }

    #[test]
    fn beginning_and_end_are_kept_however_the_stream_is_cut_into_pieces() {
        let stream: Vec<u8> = (0..200).map(|number| b'a' + number % 26).collect();
        for bytes_max in [0, 1, 2, 7, 10, 199, 200, 201] {
            let whole = Output::bounded(&stream, bytes_max);
            assert!(whole.bytes.len() <= bytes_max);
            match whole.omitted {
                None => assert_eq!(whole.bytes, stream),
                Some(Omitted { offset, bytes }) => {
                    assert_eq!(whole.bytes.len() as u64 + bytes, 200);
                    assert_eq!(whole.bytes[..offset], stream[..offset]);
                    assert!(stream.ends_with(&whole.bytes[offset..]));
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
    fn characters_are_not_cut_in_two() {
        let stream = "ä€😀".repeat(20);
        for bytes_max in 0..stream.len() {
            let output = Output::bounded(stream.as_bytes(), bytes_max);
            assert!(std::str::from_utf8(&output.bytes).is_ok(), "{bytes_max}");
            let omitted = output.omitted.map_or(0, |omitted| omitted.bytes);
            assert_eq!(output.bytes.len() as u64 + omitted, stream.len() as u64);
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
        assert_eq!((kept.bytes.len(), kept.omitted), (20, Some(Omitted { offset: 10, bytes: 80 })));
        assert_eq!(Output::bounded(b"abc", 3).shortened(3).omitted, None);
        assert_eq!(Output::bounded(b"abc", 3).shortened(0).omitted, Some(Omitted { offset: 0, bytes: 3 }));
    }

    #[test]
    fn a_secret_that_the_cut_goes_through_leaves_nothing() {
        let secrets = Secrets::new([("TOKEN".to_owned(), &b"correct-horse"[..])]);
        let stream = b"..correct-horse..................correct-horse..";
        for bytes_max in 0..=stream.len() {
            let output = Output::bounded(stream, bytes_max).scrubbed(&secrets);
            let text = String::from_utf8(output.bytes).unwrap();
            for part in ["corr", "rrect", "hor", "rse"] {
                assert!(!text.contains(part), "{bytes_max}: {text}");
            }
        }
    }
}
