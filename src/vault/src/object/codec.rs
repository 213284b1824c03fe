//! The encoding of objects: variable-length integers, byte strings and digests.
//!
//! Each value has exactly one encoding, so that equal objects have equal digests; a decoder refuses every other
//! form.

use avfs_types::clock::FileTime;
use avfs_types::encode::put_number;
use avfs_types::ids::DIGEST_BYTES;

/// Why stored bytes cannot be decoded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the record does.
    #[error("it ends too early")]
    Short,
    /// A number is too large, or not encoded in its shortest form.
    #[error("a number is not in its shortest form or too large")]
    Number,
    /// A number is not a known value: the number, and the kind of value expected.
    #[error("{0} is not a known {1}")]
    Unknown(u64, &'static str),
    /// This many bytes follow the record.
    #[error("{0} bytes after its end")]
    Trailing(usize),
    /// The record violates this rule.
    #[error("{0}")]
    Rule(&'static str),
}

pub(crate) fn put_time(out: &mut Vec<u8>, time: FileTime) {
    put_number(out, (time.seconds.cast_unsigned() << 1) ^ (time.seconds >> 63).cast_unsigned());
    put_number(out, u64::from(time.nanos));
}

pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(DecodeError::Number);
            }
            n |= part << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(DecodeError::Number) } else { Ok(n) };
            }
        }
        Err(DecodeError::Number)
    }

    pub(crate) fn small(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| DecodeError::Number)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.number()?).map_err(|_| DecodeError::Number)?;
        self.take(length)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Short)
    }

    pub(crate) fn digest(&mut self) -> Result<[u8; DIGEST_BYTES], DecodeError> {
        self.array()
    }

    pub(crate) fn time(&mut self) -> Result<FileTime, DecodeError> {
        let zigzag = self.number()?;
        let seconds = (zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed());
        let nanos = self.small()?;
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::Number);
        }
        Ok(FileTime { seconds, nanos })
    }

    /// Bytes not read yet: a bound for how many items can follow.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_and_times_round_trip(n: u64, seconds: i64, nanos in 0_u32..1_000_000_000) {
            let mut out = Vec::new();
            put_number(&mut out, n);
            put_time(&mut out, FileTime { seconds, nanos });
            let mut decoder = Decoder::new(&out);
            prop_assert_eq!(decoder.number().unwrap(), n);
            prop_assert_eq!(decoder.time().unwrap(), FileTime { seconds, nanos });
            prop_assert!(decoder.end().is_ok());
        }

        #[test]
        fn decoded_bytes_encode_to_themselves(bytes: Vec<u8>) {
            let mut decoder = Decoder::new(&bytes);
            if let Ok(n) = decoder.number() {
                let mut again = Vec::new();
                put_number(&mut again, n);
                prop_assert_eq!(&bytes[..again.len()], &again[..]);
            }
        }
    }

    #[test]
    fn a_padded_number_is_refused() {
        assert_eq!(Decoder::new(&[0x80, 0x00]).number(), Err(DecodeError::Number));
        assert_eq!(Decoder::new(&[0xff; 10]).number(), Err(DecodeError::Number));
    }
}
