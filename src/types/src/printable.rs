//! Makes untrusted text printable: control, bidirectional and invisible characters become visible escapes.
//!
//! All escaping is done here. File names, messages, commands and settings may be hostile; code that prints them writes
//! lines through [`line()`], longer texts through [`Text`] and JSON through [`json_line`].

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

/// True for characters that control a terminal or are invisible: control characters, line and paragraph separators, and
/// characters that Unicode displays as nothing (`Default_Ignorable_Code_Point`, which includes the bidirectional
/// controls, and in addition the annotation and hieroglyph format controls).
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text on one line: all hidden characters except tabs are escaped, including newlines, so that no value can forge a
/// line.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\t')
}

/// A text of several lines: newlines and tabs are kept.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\t' | '\n'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_hidden(c) && !stays(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) && !stays(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Bytes as text: only bytes that are not UTF-8 are escaped.
#[must_use]
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    Cow::Owned(text)
}

/// The words of a command line in printable form; `None` if no word needs escaping.
#[must_use]
pub fn words(words: &[OsString]) -> Option<Vec<OsString>> {
    let shown = words.iter().map(|word| line(&text_of(word.as_bytes())).into_owned().into());
    let shown: Vec<OsString> = shown.collect();
    (shown != words).then_some(shown)
}

/// A writer that escapes text like [`lines`], regardless of how the bytes are split into writes.
pub struct Text<W: Write> {
    to: W,
    /// The start of a character whose remaining bytes have not been written yet.
    begun: Vec<u8>,
}

impl<W: Write> Text<W> {
    /// A writer that passes printable text to `to`.
    pub const fn new(to: W) -> Self {
        Self { to, begun: Vec::new() }
    }

    /// Writes the bytes of an incomplete character at the end of the text.
    pub fn finish(mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.begun);
        self.to.write_all(text_of(&rest).as_bytes())
    }
}

impl<W: Write> Write for Text<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        self.begun = all.split_off(all.len() - begun_at_end(&all));
        self.to.write_all(lines(&text_of(&all)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The number of trailing bytes that are the start of a character.
fn begun_at_end(bytes: &[u8]) -> usize {
    let is_begun = |length: &usize| {
        let end = bytes.len().checked_sub(*length).and_then(|from| bytes.get(from..));
        let error = end.and_then(|end| std::str::from_utf8(end).err());
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(is_begun).unwrap_or(0)
}

/// A value as one line of JSON, with hidden characters as `\u` escapes: any reader gets the same value back.
pub fn json_line<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    write_json_line(value, &mut text)?;
    Ok(text)
}

/// Writes the same directly to `to`, for values that may be large.
pub fn write_json_line<T: Serialize + ?Sized>(value: &T, mut to: impl Write) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut to, Visible))?;
    to.write_all(b"\n")
}

struct Visible;

impl serde_json::ser::Formatter for Visible {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.is_ascii() && !fragment.contains('\u{7f}') {
            return to.write_all(fragment.as_bytes());
        }
        let mut units = [0; 2];
        for c in fragment.chars() {
            if is_hidden(c) {
                c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(to, "\\u{unit:04x}"))?;
            } else {
                to.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text with many hidden characters.
    fn hostile() -> impl Strategy<Value = String> {
        let hidden = prop::sample::select(
            "\u{1b}\n\r\t\0\u{7f}\u{9b}\u{ad}\u{61c}\u{115f}\u{200b}\u{200d}\u{2028}\u{202e}\u{2066}\u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{e0041}"
                .chars()
                .collect::<Vec<_>>(),
        );
        prop::collection::vec(prop_oneof![hidden, any::<char>()], 0..40).prop_map(String::from_iter)
    }

    #[test]
    fn hidden_characters_become_visible() {
        assert_eq!(
            line("a\n\x1b[31m\r\u{9b}\u{202e}\u{e0041}b\tc"),
            "a\\n\\u{1b}[31m\\r\\u{9b}\\u{202e}\\u{e0041}b\tc"
        );
        assert_eq!(lines("a\nb\r\n"), "a\nb\\r\n");
        assert!(matches!(line("naïve \\ 漢字 🙂\t…"), Cow::Borrowed(_)));
        assert_eq!(text_of(b"a\xff\x1b"), "a\\xff\x1b");
        let text = "\u{202e}\u{e0041}\u{7f}\u{1b}é\"".to_owned();
        let json = "\"\\u202e\\udb40\\udc41\\u007f\\u001bé\\\"\"\n";
        assert_eq!(String::from_utf8(json_line(&text).unwrap()).unwrap(), json);
    }

    /// Unicode's general category Cf, except for visible signs: those around a number, and two of Kaithi.
    #[test]
    fn every_format_character_is_hidden() {
        let formats =
            regex::Regex::new(r"[\p{Cf}\p{Cc}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]").unwrap();
        let drawn = regex::Regex::new(r"\p{Prepended_Concatenation_Mark}").unwrap();
        let mut encoded = [0; 4];
        for c in '\0'..=char::MAX {
            let text = c.encode_utf8(&mut encoded);
            if formats.is_match(text) && !drawn.is_match(text) {
                assert!(is_hidden(c), "{:x}", u32::from(c));
            }
        }
    }

    proptest! {
        #[test]
        fn no_hidden_character_is_left(text in hostile()) {
            prop_assert!(!line(&text).chars().any(|c| is_hidden(c) && c != '\t'));
            prop_assert!(!lines(&text).chars().any(|c| is_hidden(c) && !matches!(c, '\t' | '\n')));
            prop_assert_eq!(lines(&text).lines().count(), text.split_terminator('\n').count());
        }

        #[test]
        fn json_round_trips(text in hostile()) {
            let written = String::from_utf8(json_line(&text).unwrap()).unwrap();
            prop_assert!(!written.trim_end().chars().any(is_hidden), "{}", written);
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        }

        #[test]
        fn output_does_not_depend_on_the_size_of_writes(
            bytes in prop_oneof![
                hostile().prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..60),
            ],
            length in 1_usize..5,
        ) {
            let mut pieces = Vec::new();
            let mut text = Text::new(&mut pieces);
            bytes.chunks(length).for_each(|piece| text.write_all(piece).unwrap());
            text.finish().unwrap();
            prop_assert_eq!(String::from_utf8(pieces).unwrap(), lines(&text_of(&bytes)).into_owned());
        }
    }
}
