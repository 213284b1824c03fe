//! Bytes and times as JSON can say them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Timestamp;
use crate::hostfs::stat::FileTime;
use crate::vault::path::TreePath;

/// RFC 3339 in UTC.
#[must_use]
pub fn time_text(at: Timestamp) -> String {
    time_of_file(FileTime::from_nanos(at.0))
}

/// RFC 3339 in UTC; seconds since 1970 after an `@` where no calendar reaches.
#[must_use]
pub fn time_of_file(time: FileTime) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    match jiff::Timestamp::new(time.seconds, nanos) {
        Ok(stamp) => stamp.to_string(),
        Err(_) => format!("@{}.{:09}", time.seconds, time.nanos),
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4_usize {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or(0);
            text.push(if place <= group.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

/// Reads standard base64 with padding.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.as_bytes().chunks(4);
    let last = groups.len().checked_sub(1);
    for (at, group) in groups.enumerate() {
        let digits = group.iter().rposition(|byte| *byte != b'=')? + 1;
        if group.len() != 4 || digits < 2 || (digits < 4 && Some(at) != last) {
            return None;
        }
        let mut bits = 0_u32;
        for byte in &group[..digits] {
            let digit = DIGITS.iter().position(|digit| digit == byte)?;
            bits = bits << 6 | u32::try_from(digit).ok()?;
        }
        bits <<= 6 * (4 - digits);
        bytes.extend_from_slice(&bits.to_be_bytes()[1..digits]);
    }
    Some(bytes)
}

/// A path: as it is where it is UTF-8; otherwise escaped, with its bytes beside it.
#[derive(Clone, Debug, Serialize, JsonSchema, PartialEq, Eq)]
pub struct PathText {
    pub path: String,
    /// Only for a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

impl PathText {
    #[must_use]
    pub fn of(path: &TreePath) -> Self {
        if path.is_root() {
            return Self { path: ".".to_owned(), path_base64: None };
        }
        match std::str::from_utf8(path.as_bytes()) {
            Ok(text) => Self { path: text.to_owned(), path_base64: None },
            Err(_) => Self { path: path.to_string(), path_base64: Some(base64(path.as_bytes())) },
        }
    }
}

impl From<&TreePath> for PathText {
    fn from(path: &TreePath) -> Self {
        Self::of(path)
    }
}

/// Bytes that are usually text: as text where they are UTF-8, otherwise replaced characters and base64.
#[must_use]
pub fn text_or_base64(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(base64(bytes))),
    }
}

/// The end of a text: so many bytes at most.
#[must_use]
pub fn tail(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        for bad in ["Z", "Zg=", "Zg", "====", "Zg==Zg==", "Z?==", "=m8="] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }

    #[test]
    fn times_have_their_nanoseconds() {
        assert_eq!(time_text(Timestamp(1_500_000_000)), "1970-01-01T00:00:01.5Z");
        let far = FileTime { seconds: i64::MAX, nanos: 1 };
        assert_eq!(time_of_file(far), "@9223372036854775807.000000001");
    }

    #[test]
    fn paths_that_are_not_text_keep_their_bytes() {
        let odd = PathText::of(&TreePath::parse(b"a\xff").unwrap());
        assert_eq!((odd.path.as_str(), odd.path_base64.as_deref()), ("a\\xff", Some("Yf8=")));
        assert_eq!(PathText::of(&TreePath::parse(b"a\nb").unwrap()).path, "a\nb");
    }
}
