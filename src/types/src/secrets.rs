//! The values of secrets, which no version and no stored or displayed text may contain, and the search for them.
//!
//! Finds the values and their common encodings: Base64 and Base32 at any offset of a longer text, hexadecimal,
//! percent-encoding, `\x` and `\u` escapes, and JSON strings. The search ignores case, since host names and hexadecimal
//! digits have no case. Never shows a value, only its name.

use data_encoding::{BASE32_NOPAD, BASE64_NOPAD, BASE64URL_NOPAD, Encoding, HEXLOWER};
use memchr::memmem::Finder;

/// Shorter values are not removed: they would match everywhere.
pub(crate) const SCRUBBED_BYTES_MIN: usize = 4;
/// Shorter values are not searched for in files, and their encodings not in text.
pub(crate) const SEARCHED_BYTES_MIN: usize = 8;
/// Longer values are searched for verbatim only: a file of keys is not usually encoded as one word.
const ENCODED_BYTES_MAX: usize = 64 << 10;
/// The amount of content that is searched at once.
const WINDOW_BYTES: usize = 1 << 20;
const SCRUBBED: &[u8] = b"[secret]";
/// The line lengths of Base64: of base64(1) and in mails, and in key files.
const LINE_DIGITS: [usize; 2] = [76, 64];

/// One encoding of a value, in lower case.
struct Form {
    name: usize,
    finder: Finder<'static>,
    searched: bool,
}

/// A set of values with their names.
#[derive(Default)]
pub struct Secrets {
    names: Vec<String>,
    /// Longest first, so that a value that contains another one is found before it.
    forms: Vec<Form>,
    /// The length of the longest form that is searched for in files.
    searched_bytes_max: usize,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}

impl Secrets {
    /// Takes secrets as pairs of a name, which messages show, and a value, which they never show.
    #[must_use]
    pub fn new<'v>(values: impl IntoIterator<Item = (String, &'v [u8])>) -> Self {
        let mut secrets = Self::default();
        for (name, value) in values {
            let number = secrets.names.len();
            secrets.names.push(name);
            let mut forms = forms(value);
            forms.iter_mut().for_each(|form| form.make_ascii_lowercase());
            forms.sort_unstable();
            forms.dedup();
            secrets.forms.extend(forms.into_iter().map(|form| Form {
                name: number,
                searched: form.len() >= SEARCHED_BYTES_MIN,
                finder: Finder::new(&form).into_owned(),
            }));
        }
        secrets.forms.sort_by_key(|form| std::cmp::Reverse(form.finder.needle().len()));
        let searched = secrets.forms.iter().filter(|form| form.searched);
        secrets.searched_bytes_max = searched.map(|form| form.finder.needle().len()).max().unwrap_or(0);
        secrets
    }

    /// Names of the secrets that are searched for in files.
    pub fn searched(&self) -> impl Iterator<Item = &str> {
        let numbered = self.names.iter().enumerate();
        numbered.filter(|(number, _)| self.is_searched(*number)).map(|(_, name)| name.as_str())
    }

    /// Names of the secrets that are too short to be searched for in files.
    pub fn not_searched(&self) -> impl Iterator<Item = &str> {
        let numbered = self.names.iter().enumerate();
        numbered.filter(|(number, _)| !self.is_searched(*number)).map(|(_, name)| name.as_str())
    }

    fn is_searched(&self, number: usize) -> bool {
        self.forms.iter().any(|form| form.searched && form.name == number)
    }

    /// True if there is nothing to search for in files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.searched_bytes_max == 0
    }

    /// The name of a secret whose value these bytes contain.
    #[must_use]
    pub fn held_by(&self, bytes: &[u8]) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        let lower = bytes.to_ascii_lowercase();
        let mut searched = self.forms.iter().filter(|form| form.searched);
        searched.find(|form| form.finder.find(&lower).is_some()).map(|form| self.names[form.name].as_str())
    }

    /// Searches content that arrives in pieces.
    #[must_use]
    pub fn watch(&self) -> Watch<'_> {
        Watch { secrets: self, pending: Vec::new(), found: None }
    }

    /// Returns the text with every value replaced.
    #[must_use]
    pub fn scrub(&self, text: Vec<u8>) -> Vec<u8> {
        if self.forms.is_empty() {
            return text;
        }
        let lower = text.to_ascii_lowercase();
        self.forms.iter().fold((text, lower), |texts, form| replace(texts, &form.finder)).0
    }

    /// True if there is any value to remove from text.
    #[must_use]
    pub fn scrubs(&self) -> bool {
        !self.forms.is_empty()
    }

    /// The length of the longest form of a value, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.forms.first().map_or(0, |form| form.finder.needle().len())
    }

    /// As [`Secrets::scrub`], for text that arrives in pieces: returns the complete part of `pending`, and leaves in it
    /// the bytes in which a value may have started.
    #[must_use]
    pub fn scrub_piece(&self, pending: &mut Vec<u8>) -> Vec<u8> {
        let begun = self.longest().saturating_sub(1);
        let Some(cut) = pending.len().checked_sub(begun).filter(|cut| *cut > begun) else {
            return Vec::new();
        };
        // A value that spans the cut, the longest one first.
        let around = cut - begun;
        let lower = pending[around..].to_ascii_lowercase();
        let across = self.forms.iter().find_map(|form| {
            let length = form.finder.needle().len();
            let mut found = form.finder.find_iter(&lower).map(|at| around + at..around + at + length);
            found.find(|found| found.start < cut && cut < found.end)
        });
        let across = across.unwrap_or(cut..cut);
        let rest = pending.split_off(across.end);
        let value = pending.split_off(across.start);
        let mut scrubbed = self.scrub(std::mem::replace(pending, rest));
        scrubbed.extend(self.scrub(value));
        scrubbed
    }

    /// Removes every value from a host name; replaces the whole name if a value spans several labels.
    #[must_use]
    pub fn scrub_host(&self, host: String) -> String {
        let scrubbed = self.scrub_text(host);
        let joined = scrubbed.replace('.', "");
        if self.held_by(joined.as_bytes()).is_some() { "[secret]".to_owned() } else { scrubbed }
    }

    /// As [`Secrets::scrub`], for text that is cut off at its end: also removes the start of a value there.
    #[must_use]
    pub fn scrub_cut(&self, mut text: Vec<u8>) -> Vec<u8> {
        let longest = self.forms.first().map_or(0, |form| form.finder.needle().len());
        let end = text[text.len().saturating_sub(longest)..].to_ascii_lowercase();
        let begun = self.forms.iter().map(|form| begun_at_end(&end, form.finder.needle()));
        let begun = begun.max().unwrap_or(0);
        text.truncate(text.len() - begun);
        self.scrub(text)
    }

    /// As [`Secrets::scrub`], for text that is cut off at its start: also removes the end of a value there.
    #[must_use]
    pub fn scrub_begun(&self, text: Vec<u8>) -> Vec<u8> {
        self.scrub(self.without_end(text))
    }

    /// Removes the end of a value from the start of the text.
    #[must_use]
    pub fn without_end(&self, mut text: Vec<u8>) -> Vec<u8> {
        let longest = self.forms.first().map_or(0, |form| form.finder.needle().len());
        let start = text[..text.len().min(longest)].to_ascii_lowercase();
        let ended = self.forms.iter().map(|form| ended_at_start(&start, form.finder.needle()));
        text.drain(..ended.max().unwrap_or(0));
        text
    }

    /// As [`Secrets::scrub`], for a `String`.
    #[must_use]
    pub fn scrub_text(&self, text: String) -> String {
        if self.forms.is_empty() {
            return text;
        }
        // A value may end within a character.
        String::from_utf8_lossy(&self.scrub(text.into_bytes())).into_owned()
    }
}

/// A search through content that arrives in pieces.
pub struct Watch<'s> {
    secrets: &'s Secrets,
    /// Content that is not searched yet, preceded by bytes in which a value may have started.
    pending: Vec<u8>,
    found: Option<&'s str>,
}

impl<'s> Watch<'s> {
    /// Takes the next bytes of the stream. A secret may span any number of calls.
    pub fn take(&mut self, bytes: &[u8]) {
        if self.found.is_some() || self.secrets.is_empty() {
            return;
        }
        self.pending.extend_from_slice(bytes);
        // Twice the longest form, so that each byte is searched at most twice.
        if self.pending.len() >= WINDOW_BYTES.max(2 * self.secrets.searched_bytes_max) {
            self.look();
        }
    }

    /// Takes this many zeros.
    pub fn take_zeros(&mut self, count: u64) {
        // More zeros than the longest value make no difference.
        let most = self.secrets.searched_bytes_max;
        let count = usize::try_from(count).map_or(most, |count| count.min(most));
        self.take(&vec![0; count]);
    }

    /// The name of a secret found so far.
    #[must_use]
    pub fn found(&self) -> Option<&'s str> {
        self.found
    }

    /// The name of a secret in the whole stream.
    #[must_use]
    pub fn finish(mut self) -> Option<&'s str> {
        self.look();
        self.found
    }

    fn look(&mut self) {
        self.found = self.found.or_else(|| self.secrets.held_by(&self.pending));
        let begun = self.secrets.searched_bytes_max.saturating_sub(1).min(self.pending.len());
        self.pending.drain(..self.pending.len() - begun);
    }
}

/// The forms in which a value may be written.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    // Files end with a newline, which programs strip.
    let core = value.trim_ascii();
    if core.len() < SCRUBBED_BYTES_MIN {
        return if value.len() < SCRUBBED_BYTES_MIN { Vec::new() } else { vec![value.to_vec()] };
    }
    let mut forms = vec![core.to_vec()];
    if !(SEARCHED_BYTES_MIN..=ENCODED_BYTES_MAX).contains(&core.len()) {
        return forms;
    }
    for encoding in [&BASE64_NOPAD, &BASE64URL_NOPAD] {
        forms.extend((0..3).map(|ahead| in_digits(core, ahead, encoding)));
        let whole = in_digits(core, 0, encoding);
        forms.extend(LINE_DIGITS.map(|line| whole.chunks(line).collect::<Vec<_>>().join(&b'\n')));
    }
    forms.extend((0..5).map(|ahead| in_digits(core, ahead, &BASE32_NOPAD)));
    let hex = HEXLOWER.encode(core).into_bytes();
    let escaped = |mark: &[u8], stays: &dyn Fn(u8) -> bool| -> Vec<u8> {
        let digits = core.iter().zip(hex.chunks(2));
        digits.flat_map(|(byte, hex)| if stays(*byte) { vec![*byte] } else { [mark, hex].concat() }).collect()
    };
    let in_url = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    forms.extend([
        hex.clone(),
        escaped(b"%", &|_| false),
        escaped(b"%", &in_url),
        // In a path, slashes are not encoded.
        escaped(b"%", &|byte| in_url(byte) || byte == b'/'),
        escaped(b"\\x", &|_| false),
        escaped(b"\\x", &|byte| byte.is_ascii_graphic() || byte == b' '),
    ]);
    if let Ok(text) = std::str::from_utf8(core) {
        let quoted = serde_json::Value::from(text).to_string();
        let quoted = &quoted[1..quoted.len() - 1];
        let in_ascii = |c: char| if c.is_ascii() { c.to_string() } else { unicode_escapes(c) };
        forms.push(quoted.as_bytes().to_vec());
        forms.push(quoted.chars().map(in_ascii).collect::<String>().into_bytes());
        forms.push(text.chars().map(unicode_escapes).collect::<String>().into_bytes());
    }
    forms
}

/// A character as `\u` escapes of JSON and JavaScript.
fn unicode_escapes(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// The Base64 or Base32 digits that depend on these bytes only, with `ahead` other bytes before them and any after.
fn in_digits(value: &[u8], ahead: usize, encoding: &Encoding) -> Vec<u8> {
    let width = encoding.bit_width();
    let bytes = [&[0; 4][..ahead], value].concat();
    let own = (ahead * 8).div_ceil(width)..bytes.len() * 8 / width;
    encoding.encode(&bytes).as_bytes()[own].to_vec()
}

/// The length of the start of `value` at the end of the text.
fn begun_at_end(text: &[u8], value: &[u8]) -> usize {
    (1..value.len().min(text.len() + 1)).rev().find(|length| text.ends_with(&value[..*length])).unwrap_or(0)
}

/// The length of the end of `value` at the start of the text.
fn ended_at_start(text: &[u8], value: &[u8]) -> usize {
    let mut lengths = (1..value.len().min(text.len() + 1)).rev();
    lengths.find(|length| text.starts_with(&value[value.len() - length..])).unwrap_or(0)
}

/// A text and its lower-case copy, both with the matches in the copy replaced.
fn replace((text, lower): (Vec<u8>, Vec<u8>), what: &Finder<'_>) -> (Vec<u8>, Vec<u8>) {
    let found: Vec<usize> = what.find_iter(&lower).collect();
    if found.is_empty() {
        return (text, lower);
    }
    let without = |text: &[u8]| {
        let mut replaced = Vec::with_capacity(text.len());
        let mut kept = 0;
        for at in &found {
            replaced.extend_from_slice(&text[kept..*at]);
            replaced.extend_from_slice(SCRUBBED);
            kept = at + what.needle().len();
        }
        replaced.extend_from_slice(&text[kept..]);
        replaced
    };
    (without(&text), without(&lower))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALUE: &[u8] = b"s3cr3t/va1ue+with?all";

    fn secrets(values: &[(&str, &[u8])]) -> Secrets {
        Secrets::new(values.iter().map(|(name, value)| ((*name).to_owned(), *value)))
    }

    fn scrubbed(secrets: &Secrets, text: &str) -> String {
        String::from_utf8(secrets.scrub(text.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn values_are_removed_longest_first() {
        let secrets = secrets(&[("TOKEN", b"abcd"), ("AWS_KEY", b"abcd1234")]);
        assert_eq!(
            scrubbed(&secrets, "x abcd1234 y abcd abcdabcd"),
            "x [secret] y [secret] [secret][secret]"
        );
        let cuts = [("x abcd12", "x "), ("x ABCD1234", "x [secret]"), ("x Ab", "x "), ("x ~", "x ~")];
        for (cut, left) in cuts {
            assert_eq!(secrets.scrub_cut(cut.into()), left.as_bytes(), "{cut}");
        }
        let begun = [("cd1234 x", " x"), ("ABCD1234 x", "[secret] x"), ("d x", " x"), ("~ x", "~ x")];
        for (begun, left) in begun {
            assert_eq!(secrets.scrub_begun(begun.into()), left.as_bytes(), "{begun}");
        }
    }

    #[test]
    fn short_values_are_not_searched_for() {
        let few = secrets(&[("A", b"abc"), ("B", b""), ("C", b"  \n")]);
        assert!(few.is_empty() && few.held_by(b"abc").is_none());
        assert_eq!(scrubbed(&few, "abc"), "abc");
        let seven = secrets(&[("A", b"abcdefg")]);
        assert!(seven.is_empty() && seven.held_by(b"abcdefg").is_none());
        assert_eq!(scrubbed(&seven, "xabcdefgx"), "x[secret]x");
    }

    #[test]
    fn encoded_values_are_found() {
        let secrets = secrets(&[("TOKEN", VALUE)]);
        for (name, text) in [
            ("hex", "733363723374 2f766131".replace(' ', "") + "75652b776974683f616c6c"),
            ("upper hex", "7333637233742F76613175652B776974683F616C6C".to_owned()),
            ("percent", "s3cr3t%2Fva1ue%2Bwith%3Fall".to_owned()),
            ("percent in a path", "s3cr3t/va1ue%2Bwith%3Fall".to_owned()),
            ("lower percent", "s3cr3t%2fva1ue%2bwith%3fall".to_owned()),
            ("all of it percent", VALUE.iter().map(|byte| format!("%{byte:02X}")).collect()),
            ("\\x", VALUE.iter().map(|byte| format!("\\x{byte:02X}")).collect()),
            ("\\u", VALUE.iter().map(|byte| format!("\\u{byte:04x}")).collect()),
            ("upper case", "S3CR3T/VA1UE+WITH?ALL".to_owned()),
            ("base32", BASE32_NOPAD.encode(VALUE)),
            ("lower base32", BASE32_NOPAD.encode(&[b"user:", VALUE, b"!"].concat()).to_lowercase()),
            ("base64", BASE64_NOPAD.encode(VALUE)),
            ("url base64", BASE64URL_NOPAD.encode(VALUE)),
            ("second byte", BASE64_NOPAD.encode(&[b":", VALUE, b"\n"].concat())),
            ("third byte", BASE64_NOPAD.encode(&[b"u:", VALUE, b"@"].concat())),
            ("url third byte", BASE64URL_NOPAD.encode(&[b"u:", VALUE].concat())),
        ] {
            let text = format!("a {text} b");
            assert_eq!(secrets.held_by(text.as_bytes()), Some("TOKEN"), "{name}");
            let left = scrubbed(&secrets, &text);
            assert!(
                left.contains("[secret]") && secrets.held_by(left.as_bytes()).is_none(),
                "{name}: {left}"
            );
        }
        assert_eq!(secrets.held_by(b"s3cr3t/va1ue+with?al"), None);
    }

    #[test]
    fn a_key_of_several_lines_is_found_in_every_encoding() {
        let key = format!("-----BEGIN\n{}\n{}\n-----END\n", "aB3+".repeat(16), "c/D4".repeat(12));
        let secrets = secrets(&[("KEY", key.as_bytes())]);
        let core = key.trim();
        let broken = |line: usize| {
            let digits = BASE64_NOPAD.encode(core.as_bytes());
            digits
                .as_bytes()
                .chunks(line)
                .map(|line| format!("{}\n", String::from_utf8_lossy(line)))
                .collect()
        };
        for text in [key.clone(), core.to_owned(), core.replace('\n', "\\n"), broken(76), broken(64)] {
            assert_eq!(secrets.held_by(text.as_bytes()), Some("KEY"), "{text}");
        }
        assert_eq!(scrubbed(&secrets, &format!("x{key}y")), "x[secret]\ny");
    }

    #[test]
    fn text_that_is_not_ascii_is_found_escaped() {
        let secrets = secrets(&[("KEY", "gehe\u{ed}m-\u{1f511}-\u{fc}ber".as_bytes())]);
        for text in
            ["gehe\\u00edm-\\ud83d\\udd11-\\u00fcber", "gehe\\xc3\\xadm-\\xf0\\x9f\\x94\\x91-\\xc3\\xbcber"]
        {
            assert_eq!(secrets.held_by(text.as_bytes()), Some("KEY"), "{text}");
        }
    }

    #[test]
    fn a_value_in_a_host_name_is_removed() {
        let secrets = secrets(&[("TOKEN", b"Sword-Fish-In-A-Name")]);
        for (host, shown) in [
            ("sword-fish-in-a-name.example.org", "[secret].example.org"),
            ("sword-fish-.in-a-name.example.org", "[secret]"),
            ("fish.example.org", "fish.example.org"),
        ] {
            assert_eq!(secrets.scrub_host(host.to_owned()), shown);
        }
    }

    #[test]
    fn a_value_is_never_shown() {
        let secrets = secrets(&[("TOKEN", VALUE)]);
        assert_eq!(format!("{secrets:?}"), "[\"TOKEN\"]");
    }

    proptest! {
        #[test]
        fn the_search_does_not_depend_on_the_size_of_pieces(
            before in 0..3 * WINDOW_BYTES,
            pieces in prop::collection::vec(1..400_000_usize, 1..12),
            there in any::<bool>(),
        ) {
            let secrets = secrets(&[("OTHER", b"something else"), ("TOKEN", VALUE)]);
            let mut content = vec![b'x'; before];
            content.extend_from_slice(if there { VALUE } else { b"nothing" });
            content.resize(content.len() + 100_000, b'y');
            let mut watch = secrets.watch();
            let mut rest = content.as_slice();
            for length in pieces.iter().cycle() {
                let (piece, behind) = rest.split_at((*length).min(rest.len()));
                watch.take(piece);
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(watch.finish(), there.then_some("TOKEN"));
        }

        #[test]
        fn any_base64_or_base32_that_holds_a_value_is_found(
            value in prop::collection::vec(any::<u8>(), 12..40),
            before in prop::collection::vec(any::<u8>(), 0..7),
            after in prop::collection::vec(any::<u8>(), 0..7),
        ) {
            prop_assume!(value.trim_ascii().len() >= SEARCHED_BYTES_MIN);
            let secrets = secrets(&[("V", &value)]);
            let bytes = [before, value, after].concat();
            for text in [BASE64_NOPAD.encode(&bytes), BASE32_NOPAD.encode(&bytes)] {
                prop_assert_eq!(secrets.held_by(text.as_bytes()), Some("V"));
            }
        }
    }

    #[test]
    fn zeros_of_a_hole_are_part_of_a_value() {
        let secrets = secrets(&[("Z", &[7, 0, 0, 0, 0, 0, 0, 0, 0, 200])]);
        for (zeros, found) in [(8, Some("Z")), (7, None), (9, None), (1 << 40, None)] {
            let mut watch = secrets.watch();
            watch.take(&[1, 7]);
            watch.take_zeros(zeros);
            watch.take(&[200, 1]);
            assert_eq!(watch.finish(), found, "{zeros}");
        }
    }
}
