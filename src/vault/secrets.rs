//! Values that no version and no text of ours may hold, and where bytes hold one.
//!
//! Found are the values themselves and the ways programs usually write them: Base64 at any place of a longer text,
//! hexadecimal, percent-encoded, as a string of JSON. Never shows a value: what is told is its name.

use memchr::memmem::Finder;

/// Shorter values would be found everywhere.
pub const SCRUBBED_BYTES_MIN: usize = 4;
/// Shorter values are not looked for in files, nor encoded ones in text.
pub const SEARCHED_BYTES_MIN: usize = 8;
/// Longer values are looked for as they are, not encoded: nobody writes a file of keys as one word.
const ENCODED_BYTES_MAX: usize = 64 << 10;
/// Content that is looked through at once.
const WINDOW_BYTES: usize = 1 << 20;
const SCRUBBED: &[u8] = b"[secret]";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Where Base64 is broken into lines: by base64(1) and in mails, and in key files.
const LINE_DIGITS: [usize; 2] = [76, 64];

/// One way in which a value may be written.
struct Form {
    name: usize,
    finder: Finder<'static>,
    searched: bool,
}

/// A set of values, by their names.
#[derive(Default)]
pub struct Secrets {
    names: Vec<String>,
    /// Longest first: a value that holds another is found before it.
    forms: Vec<Form>,
    /// Bytes of the longest form that is looked for in files.
    searched_bytes_max: usize,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}

impl Secrets {
    #[must_use]
    pub fn new<'v>(values: impl IntoIterator<Item = (String, &'v [u8])>) -> Self {
        let mut secrets = Self::default();
        for (name, value) in values {
            let number = secrets.names.len();
            secrets.names.push(name);
            let mut forms = forms(value);
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

    /// Names of the secrets that are looked for in files.
    pub fn searched(&self) -> impl Iterator<Item = &str> {
        let numbered = self.names.iter().enumerate();
        numbered.filter(|(number, _)| self.is_searched(*number)).map(|(_, name)| name.as_str())
    }

    /// Names of those that are too short for it.
    pub fn not_searched(&self) -> impl Iterator<Item = &str> {
        let numbered = self.names.iter().enumerate();
        numbered.filter(|(number, _)| !self.is_searched(*number)).map(|(_, name)| name.as_str())
    }

    fn is_searched(&self, number: usize) -> bool {
        self.forms.iter().any(|form| form.searched && form.name == number)
    }

    /// True if there is nothing to look for in files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.searched_bytes_max == 0
    }

    /// The name of a secret whose value these bytes hold.
    #[must_use]
    pub fn held_by(&self, bytes: &[u8]) -> Option<&str> {
        let mut searched = self.forms.iter().filter(|form| form.searched);
        searched.find(|form| form.finder.find(bytes).is_some()).map(|form| self.names[form.name].as_str())
    }

    /// Looks through content that comes in pieces.
    #[must_use]
    pub fn watch(&self) -> Watch<'_> {
        Watch { secrets: self, pending: Vec::new(), found: None }
    }

    /// The text with every value taken out.
    #[must_use]
    pub fn scrub(&self, text: Vec<u8>) -> Vec<u8> {
        self.forms.iter().fold(text, |text, form| replace(text, &form.finder))
    }

    /// The same for text that was cut off somewhere: the beginning of a value at its end goes too.
    #[must_use]
    pub fn scrub_cut(&self, mut text: Vec<u8>) -> Vec<u8> {
        let begun = self.forms.iter().map(|form| begun_at_end(&text, form.finder.needle()));
        let begun = begun.max().unwrap_or(0);
        text.truncate(text.len() - begun);
        self.scrub(text)
    }

    /// As [`Secrets::scrub`], for what is text and stays text.
    #[must_use]
    pub fn scrub_text(&self, text: String) -> String {
        if self.forms.is_empty() {
            return text;
        }
        // A value need not be whole characters.
        String::from_utf8_lossy(&self.scrub(text.into_bytes())).into_owned()
    }
}

/// Content on its way past the values.
pub struct Watch<'s> {
    secrets: &'s Secrets,
    /// What was not looked through yet, and before it what a value may have begun in.
    pending: Vec<u8>,
    found: Option<&'s str>,
}

impl<'s> Watch<'s> {
    pub fn take(&mut self, bytes: &[u8]) {
        if self.found.is_some() || self.secrets.is_empty() {
            return;
        }
        self.pending.extend_from_slice(bytes);
        // Twice the longest: each byte is looked at twice at most.
        if self.pending.len() >= WINDOW_BYTES.max(2 * self.secrets.searched_bytes_max) {
            self.look();
        }
    }

    /// Takes as many zeros.
    pub fn take_zeros(&mut self, count: u64) {
        // More than the longest value has make no difference.
        let most = self.secrets.searched_bytes_max;
        let count = usize::try_from(count).map_or(most, |count| count.min(most));
        self.take(&vec![0; count]);
    }

    /// The name of a secret that was found so far.
    #[must_use]
    pub fn found(&self) -> Option<&'s str> {
        self.found
    }

    /// The name of a secret that was found.
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

/// The ways in which a value may be written.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    // Files end with a line's end, and programs cut it off.
    let core = value.trim_ascii();
    if core.len() < SCRUBBED_BYTES_MIN {
        return if value.len() < SCRUBBED_BYTES_MIN { Vec::new() } else { vec![value.to_vec()] };
    }
    let mut forms = vec![core.to_vec()];
    if !(SEARCHED_BYTES_MIN..=ENCODED_BYTES_MAX).contains(&core.len()) {
        return forms;
    }
    for digits in [DIGITS, URL_DIGITS] {
        forms.extend([0, 1, 2].map(|ahead| base64(core, ahead, digits)));
        let whole = base64(core, 0, digits);
        forms.extend(LINE_DIGITS.map(|line| whole.chunks(line).collect::<Vec<_>>().join(&b'\n')));
    }
    let hex = |digits: &[u8; 16]| core.iter().flat_map(|byte| hex_digits(*byte, digits)).collect();
    // In a path slashes stay.
    let percent = |digits: &[u8; 16], plain: &[u8]| {
        core.iter().flat_map(|byte| percent_encoded(*byte, digits, plain)).collect()
    };
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        forms.extend([hex(digits), percent(digits, b"-._~"), percent(digits, b"-._~/")]);
    }
    if let Ok(text) = std::str::from_utf8(core) {
        let quoted = serde_json::Value::from(text).to_string();
        forms.push(quoted.as_bytes()[1..quoted.len() - 1].to_vec());
    }
    forms
}

/// The digits that stand for these bytes alone, with so many others ahead of them, and any behind.
fn base64(value: &[u8], ahead: usize, digits: &[u8; 64]) -> Vec<u8> {
    let bytes = [&[0; 2][..ahead], value].concat();
    let own = (ahead * 8).div_ceil(6)..bytes.len() * 8 / 6;
    let digit = |place: usize| {
        let (at, bit) = (place * 6 / 8, place * 6 % 8);
        let pair = u16::from_be_bytes([bytes[at], bytes.get(at + 1).copied().unwrap_or(0)]);
        digits[usize::from(pair >> (10 - bit) & 63)]
    };
    own.map(digit).collect()
}

fn hex_digits(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

fn percent_encoded(byte: u8, digits: &[u8; 16], plain: &[u8]) -> Vec<u8> {
    if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
        return vec![byte];
    }
    let [high, low] = hex_digits(byte, digits);
    vec![b'%', high, low]
}

/// How much of the text's end is the beginning of a value.
fn begun_at_end(text: &[u8], value: &[u8]) -> usize {
    (1..value.len().min(text.len() + 1)).rev().find(|length| text.ends_with(&value[..*length])).unwrap_or(0)
}

fn replace(text: Vec<u8>, what: &Finder<'_>) -> Vec<u8> {
    let mut found = what.find_iter(&text).peekable();
    if found.peek().is_none() {
        return text;
    }
    let mut replaced = Vec::with_capacity(text.len());
    let mut kept = 0;
    for at in found {
        replaced.extend_from_slice(&text[kept..at]);
        replaced.extend_from_slice(SCRUBBED);
        kept = at + what.needle().len();
    }
    replaced.extend_from_slice(&text[kept..]);
    replaced
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

    /// Base64 the long way.
    fn plain_base64(bytes: &[u8]) -> String {
        let mut bits = String::new();
        bytes.iter().for_each(|byte| bits.push_str(&format!("{byte:08b}")));
        let digits = bits.as_bytes().chunks(6).map(|group| {
            let group = format!("{:0<6}", std::str::from_utf8(group).unwrap());
            char::from(DIGITS[usize::from_str_radix(&group, 2).unwrap()])
        });
        digits.collect()
    }

    #[test]
    fn values_are_taken_out_longest_first() {
        let secrets = secrets(&[("TOKEN", b"abcd"), ("AWS_KEY", b"abcd1234")]);
        assert_eq!(
            scrubbed(&secrets, "x abcd1234 y abcd abcdabcd"),
            "x [secret] y [secret] [secret][secret]"
        );
        for (cut, left) in [("x abcd12", "x "), ("x abcd1234", "x [secret]"), ("x ab", "x "), ("x y", "x y")]
        {
            assert_eq!(secrets.scrub_cut(cut.into()), left.as_bytes(), "{cut}");
        }
    }

    #[test]
    fn short_values_are_not_looked_for() {
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
        let url = |text: &str| text.replace('+', "-").replace('/', "_");
        for (name, text) in [
            ("hex", "733363723374 2f766131".replace(' ', "") + "75652b776974683f616c6c"),
            ("upper hex", "7333637233742F76613175652B776974683F616C6C".to_owned()),
            ("percent", "s3cr3t%2Fva1ue%2Bwith%3Fall".to_owned()),
            ("percent in a path", "s3cr3t/va1ue%2Bwith%3Fall".to_owned()),
            ("lower percent", "s3cr3t%2fva1ue%2bwith%3fall".to_owned()),
            ("base64", plain_base64(VALUE)),
            ("url base64", url(&plain_base64(VALUE))),
            ("second byte", plain_base64(&[b":", VALUE, b"\n"].concat())),
            ("third byte", plain_base64(&[b"u:", VALUE, b"@"].concat())),
            ("url third byte", url(&plain_base64(&[b"u:", VALUE].concat()))),
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
    fn a_key_of_many_lines_is_found_in_all_its_coats() {
        let key = format!("-----BEGIN\n{}\n{}\n-----END\n", "aB3+".repeat(16), "c/D4".repeat(12));
        let secrets = secrets(&[("KEY", key.as_bytes())]);
        let core = key.trim();
        let broken = |line: usize| {
            let digits = plain_base64(core.as_bytes());
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
    fn a_value_is_never_shown() {
        let secrets = secrets(&[("TOKEN", VALUE)]);
        assert_eq!(format!("{secrets:?}"), "[\"TOKEN\"]");
    }

    proptest! {
        #[test]
        fn pieces_are_looked_through_as_the_whole_is(
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
        fn any_base64_that_holds_a_value_is_found(
            value in prop::collection::vec(any::<u8>(), 12..40),
            before in prop::collection::vec(any::<u8>(), 0..7),
            after in prop::collection::vec(any::<u8>(), 0..7),
        ) {
            prop_assume!(value.trim_ascii().len() >= SEARCHED_BYTES_MIN);
            let secrets = secrets(&[("V", &value)]);
            let text = plain_base64(&[before, value, after].concat());
            prop_assert_eq!(secrets.held_by(text.as_bytes()), Some("V"));
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
