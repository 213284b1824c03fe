//! The body of a request: separated from the data that follows it, and re-encoded.
//!
//! Chunks are decoded and encoded again, so that no later parser can see another end of the body than we do.
//! Extensions and trailers are dropped.

/// The length of a line of chunked coding, including its extensions.
const LINE_BYTES_MAX: usize = 1024;
const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// The number of hexadecimal digits in a chunk size.
const SIZE_DIGITS_MAX: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("invalid chunk size")]
    Size,
    #[error("a chunk does not end at its size")]
    End,
    #[error("a line between chunks is malformed or too long")]
    Line,
}

/// The rest of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Length(u64),
    Chunked(Chunked),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunked {
    at: At,
    line: Vec<u8>,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    Data(u64),
    /// The line end after a chunk's data.
    DataEnd,
    Trailer,
}

impl Body {
    #[must_use]
    pub fn of_length(length: u64) -> Self {
        if length == 0 { Self::Done } else { Self::Length(length) }
    }

    #[must_use]
    pub fn chunked() -> Self {
        Self::Chunked(Chunked { at: At::Size, line: Vec::new(), trailer_bytes: 0 })
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Moves the part of `bytes` that belongs to the body to `out`; returns its length.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, BodyError> {
        match self {
            Self::Done => Ok(0),
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                out.extend_from_slice(&bytes[..taken]);
                *left -= u64::try_from(taken).unwrap_or(*left);
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(taken)
            }
            Self::Chunked(chunked) => {
                let (taken, ended) = chunked.take(bytes, out)?;
                if ended {
                    *self = Self::Done;
                }
                Ok(taken)
            }
        }
    }
}

impl Chunked {
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), BodyError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.at {
                At::Data(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let (data, after) = rest.split_at(taken);
                    out.extend_from_slice(format!("{taken:x}\r\n").as_bytes());
                    out.extend_from_slice(data);
                    out.extend_from_slice(b"\r\n");
                    rest = after;
                    let left = left - u64::try_from(taken).unwrap_or(left);
                    self.at = if left == 0 { At::DataEnd } else { At::Data(left) };
                }
                At::Size | At::DataEnd | At::Trailer => {
                    let Some(line) = self.line(&mut rest)? else { break };
                    if self.next(&line)? {
                        out.extend_from_slice(b"0\r\n\r\n");
                        return Ok((bytes.len() - rest.len(), true));
                    }
                }
            }
        }
        Ok((bytes.len() - rest.len(), false))
    }

    /// A whole line without its end, from the buffered bytes and these.
    fn line(&mut self, rest: &mut &[u8]) -> Result<Option<Vec<u8>>, BodyError> {
        while let Some((byte, after)) = rest.split_first() {
            *rest = after;
            match (*byte, self.line.last()) {
                (b'\n', Some(b'\r')) => {
                    self.line.pop();
                    return Ok(Some(std::mem::take(&mut self.line)));
                }
                // A line must end in CR LF.
                (b'\n' | 0, _) | (_, Some(b'\r')) => return Err(BodyError::Line),
                (byte, _) if self.line.len() < LINE_BYTES_MAX => self.line.push(byte),
                _ => return Err(BodyError::Line),
            }
        }
        Ok(None)
    }

    /// True if the body is complete.
    fn next(&mut self, line: &[u8]) -> Result<bool, BodyError> {
        match self.at {
            At::Size => {
                self.at = match size(line)? {
                    0 => At::Trailer,
                    size => At::Data(size),
                };
            }
            At::DataEnd if line.is_empty() => self.at = At::Size,
            At::DataEnd | At::Data(_) => return Err(BodyError::End),
            At::Trailer if line.is_empty() => return Ok(true),
            At::Trailer => {
                self.trailer_bytes += line.len();
                if self.trailer_bytes > TRAILER_BYTES_MAX {
                    return Err(BodyError::Line);
                }
            }
        }
        Ok(false)
    }
}

fn size(line: &[u8]) -> Result<u64, BodyError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let proper = (1..=SIZE_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| proper);
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(BodyError::Size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(mut body: Body, bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), BodyError> {
        let mut out = Vec::new();
        let taken = body.take(bytes, &mut out)?;
        Ok((out, taken, body.is_done()))
    }

    #[test]
    fn a_length_is_exact() {
        assert_eq!(take(Body::of_length(3), b"abcGET"), Ok((b"abc".to_vec(), 3, true)));
        assert_eq!(take(Body::of_length(9), b"abc"), Ok((b"abc".to_vec(), 3, false)));
        assert_eq!(take(Body::of_length(0), b"abc"), Ok((Vec::new(), 0, true)));
    }

    #[test]
    fn chunks_are_reencoded_without_extensions_and_trailers() {
        let sent = b"3;name=\"x\"\r\nabc\r\n000A\r\n0123456789\r\n0\r\nX-Trailer: y\r\n\r\nGET /";
        let came = b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n".to_vec();
        assert_eq!(take(Body::chunked(), sent), Ok((came, sent.len() - 5, true)));
    }

    #[test]
    fn ambiguous_chunks_are_rejected() {
        for (bad, why) in [
            (&b"3\nabc\r\n0\r\n\r\n"[..], BodyError::Line),
            (b"3\r\nabcd\r\n", BodyError::End),
            (b"3\r\nabc\n0\r\n\r\n", BodyError::Line),
            (b"0x3\r\nabc", BodyError::Size),
            (b"+3\r\nabc", BodyError::Size),
            (b" 3\r\nabc", BodyError::Size),
            (b"3 \r\nabc", BodyError::Size),
            (b"\r\nabc", BodyError::Size),
            (b"-1\r\n", BodyError::Size),
            (b"ffffffffffffffffff\r\n", BodyError::Size),
            (b"3\r\r\nabc", BodyError::Line),
            (b"3;\0\r\nabc", BodyError::Line),
            (b"0\r\na\rb\r\n\r\n", BodyError::Line),
        ] {
            assert_eq!(take(Body::chunked(), bad), Err(why), "{}", bad.escape_ascii());
        }
        let long = [b"3;".to_vec(), vec![b'x'; LINE_BYTES_MAX]].concat();
        assert_eq!(take(Body::chunked(), &long), Err(BodyError::Line));
        let trailers = [b"0\r\n".to_vec(), b"a: bbbbbbbbbbbb\r\n".repeat(1000)].concat();
        assert_eq!(take(Body::chunked(), &trailers), Err(BodyError::Line));
    }

    proptest! {
        /// The way the bytes are split does not change the body or the remaining bytes.
        #[test]
        fn splits_do_not_change_the_result(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in proptest::collection::vec(1_usize..9, 0..200),
        ) {
            let mut sent = Vec::new();
            for chunk in &chunks {
                sent.extend_from_slice(format!("{:X};x\r\n", chunk.len()).as_bytes());
                sent.extend_from_slice(chunk);
                sent.extend_from_slice(b"\r\n");
            }
            sent.extend_from_slice(b"0\r\nT: x\r\n\r\n");
            let length = sent.len();
            sent.extend_from_slice(b"GET http://next/ HTTP/1.1\r\n");
            let (mut body, mut out, mut at) = (Body::chunked(), Vec::new(), 0);
            for cut in cuts.into_iter().chain([sent.len()]) {
                let end = (at + cut).min(sent.len());
                at += body.take(&sent[at..end], &mut out).unwrap();
            }
            prop_assert!(body.is_done());
            prop_assert_eq!(at, length);
            // The output is itself chunked, with the same content.
            let mut read = Vec::new();
            let mut rest = &out[..];
            loop {
                let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
                let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
                if size == 0 {
                    prop_assert_eq!(&rest[end..], b"\r\n\r\n");
                    break;
                }
                read.extend_from_slice(&rest[end + 2..end + 2 + size]);
                rest = &rest[end + 4 + size..];
            }
            prop_assert_eq!(read, chunks.concat());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            if let Ok(taken) = Body::chunked().take(&bytes, &mut out) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
