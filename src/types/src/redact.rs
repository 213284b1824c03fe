//! Removes text that looks like a credential from text that is stored.
//!
//! A pure function in one pass: each byte is read a bounded number of times, for any input. It never modifies text that
//! is executed or compared, only the record of it. Redacting a text twice gives the same result as once.
//!
//! The removed text is always part of one word and has no meaning to a shell: people approve commands by this text, and
//! a command must not be able to hide behind something that looks like a key.

use std::borrow::Cow;
use std::ops::Range;

/// The replacement for a credential.
pub const REDACTED: &str = "[redacted]";

/// A credential that is recognized by its prefix.
struct Token {
    prefix: &'static str,
    /// The bytes that may follow the prefix, and their minimum number.
    body: fn(u8) -> bool,
    bytes_min: usize,
    edge: Edge,
    looks: Looks,
}

/// What may precede a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Any byte: nothing else has this prefix.
    Any,
    /// Not a letter, digit or underscore.
    Word,
}

/// What the body must look like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    Any,
    /// Upper case, lower case and digits: ordinary words do not contain all three.
    Random,
}

const fn token(prefix: &'static str, body: fn(u8) -> bool, bytes_min: usize, edge: Edge) -> Token {
    Token { prefix, body, bytes_min, edge, looks: Looks::Any }
}

const TOKENS: [Token; 32] = [
    // GitHub
    token("ghp_", is_word, 30, Edge::Any),
    token("gho_", is_word, 30, Edge::Any),
    token("ghu_", is_word, 30, Edge::Any),
    token("ghs_", is_word, 30, Edge::Any),
    token("ghr_", is_word, 30, Edge::Any),
    token("github_pat_", is_word, 22, Edge::Any),
    // GitLab
    token("glpat-", is_url_digit, 20, Edge::Any),
    token("gldt-", is_url_digit, 20, Edge::Any),
    token("glrt-", is_url_digit, 20, Edge::Any),
    token("glptt-", is_url_digit, 20, Edge::Any),
    // Slack
    token("xoxa-", is_url_digit, 10, Edge::Any),
    token("xoxb-", is_url_digit, 10, Edge::Any),
    token("xoxc-", is_url_digit, 10, Edge::Any),
    token("xoxd-", is_url_digit, 10, Edge::Any),
    token("xoxe-", is_url_digit, 10, Edge::Any),
    token("xoxo-", is_url_digit, 10, Edge::Any),
    token("xoxp-", is_url_digit, 10, Edge::Any),
    token("xoxr-", is_url_digit, 10, Edge::Any),
    token("xoxs-", is_url_digit, 10, Edge::Any),
    token("xapp-", is_url_digit, 20, Edge::Any),
    // Google
    token("AIza", is_url_digit, 35, Edge::Any),
    // Anthropic, OpenAI, and services with the same format
    token("sk-ant-", is_url_digit, 20, Edge::Word),
    token("sk-proj-", is_url_digit, 20, Edge::Word),
    token("sk-svcacct-", is_url_digit, 20, Edge::Word),
    Token { prefix: "sk-", body: is_url_digit, bytes_min: 20, edge: Edge::Word, looks: Looks::Random },
    // Stripe
    token("sk_live_", is_word, 16, Edge::Word),
    token("rk_live_", is_word, 16, Edge::Word),
    token("sk_test_", is_word, 16, Edge::Word),
    // Package registries
    token("npm_", is_letter_or_digit, 36, Edge::Any),
    token("pypi-", is_url_digit, 50, Edge::Any),
    token("hf_", is_letter_or_digit, 30, Edge::Word),
    token("dckr_pat_", is_url_digit, 20, Edge::Any),
];

/// A variable with one of these in its name counts as a credential, regardless of its value.
const CREDENTIAL_NAMES: [&str; 8] = ["TOKEN", "SECRET", "PASS", "KEY", "CRED", "AUTH", "COOKIE", "PRIVATE"];

/// The same, only as a whole word of the name: PATH is not a personal access token.
const CREDENTIAL_WORDS: [&str; 13] = [
    "PWD",
    "PW",
    "PAT",
    "PSK",
    "JWT",
    "BEARER",
    "OTP",
    "SESSION",
    "MNEMONIC",
    "WEBHOOK",
    "DSN",
    "CONNECTION_STRING",
    "CONN_STR",
];

/// Parts of names that contain such words and are not credentials: the author of something, and the session of a
/// desktop.
const HARMLESS_PARTS: [&str; 5] =
    ["AUTHOR_", "XDG_SESSION_", "DBUS_SESSION_", "DESKTOP_SESSION", "SESSION_MANAGER"];

/// Names before a password in a connection string such as `Server=x;Password=y`, in lower case.
const PASSWORD_KEYS: [&str; 2] = ["password=", "pwd="];

/// True if a variable of this name is likely to hold a credential.
#[must_use]
pub fn is_credential_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let name = HARMLESS_PARTS.iter().fold(upper, |name, part| name.replace(part, ""));
    let words = format!("_{name}_");
    // PWD alone is the working directory.
    CREDENTIAL_NAMES.iter().any(|part| name.contains(part))
        || (name != "PWD" && CREDENTIAL_WORDS.iter().any(|word| words.contains(&format!("_{word}_"))))
}

/// True if the value of a variable is likely to contain a credential.
#[must_use]
pub fn is_credential_value(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let has_password = |key: &str| {
        lower.match_indices(key).any(|(at, _)| {
            let next = lower.as_bytes().get(at + key.len());
            is_edge(lower.as_bytes(), at) && next.is_some_and(|byte| !b";&, \t\n".contains(byte))
        })
    };
    redact(value) != value || PASSWORD_KEYS.iter().any(|key| has_password(key))
}

/// The number of bytes of the body by which a token is recognized.
const TOKEN_BEGIN_BYTES: usize = 64;
/// The prefixes of AWS access key ids; 16 upper-case letters and digits follow.
const AWS_KEY_IDS: [&str; 4] = ["AKIA", "ASIA", "ABIA", "ACCA"];
const AWS_KEY_ID_BYTES: usize = 16;
/// Names whose value is an AWS secret, in lower case.
const AWS_SECRETS: [&str; 5] =
    ["aws_secret_access_key", "aws_session_token", "aws_secret_key", "secretaccesskey", "sessiontoken"];
const AWS_SECRET_BYTES_MIN: usize = 16;
/// The maximum number of bytes between a name and its value in an assignment.
const BETWEEN_BYTES_MAX: usize = 8;
/// The schemes of HTTP authentication, in lower case.
const SCHEMES: [&str; 7] = ["bearer", "basic", "token", "digest", "negotiate", "apikey", "ntlm"];
const AUTHORIZATION: &str = "authorization";
/// The minimum length of each part of a JSON web token except the last.
const JWT_PART_BYTES_MIN: usize = 10;
const PEM_BEGIN: &[u8] = b"-----BEGIN ";
const PEM_DASHES: &[u8] = b"-----";
/// Longer than the label of any PEM block.
const PEM_LABEL_BYTES_MAX: usize = 64;
/// The headers of an older key with a passphrase.
const PEM_HEADERS: [&str; 2] = ["Proc-Type: ", "DEK-Info: "];
/// The end of a key's last line is useless without the other lines.
const PEM_LINE_BYTES_MIN: usize = 16;

/// Returns the text with everything that looks like a credential replaced.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    match redact_once(text) {
        Cow::Borrowed(text) => Cow::Borrowed(text),
        // A secret in a URL may contain a slash: the URL is recognized only after the secret is replaced.
        Cow::Owned(redacted) => Cow::Owned(redact_once(&redacted).into_owned()),
    }
}

fn redact_once(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // The end of the last credential: its replacement is not part of a word.
    let mut from = 0;
    let mut at = 0;
    while at < bytes.len() {
        if let Some((lines, end)) = private_key(bytes, at) {
            from = lines.last().map_or(from, |line| line.end);
            found.extend(lines);
            at = end;
        } else if let Some(credential) = credential_at(&bytes[from..], at - from) {
            let credential = from + credential.start..from + credential.end;
            (from, at) = (credential.end, credential.end);
            found.push(credential);
        } else {
            at += 1;
        }
    }
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut kept = 0;
    for credential in found {
        redacted.push_str(&text[kept..credential.start]);
        redacted.push_str(REDACTED);
        kept = credential.end;
    }
    redacted.push_str(&text[kept..]);
    Cow::Owned(redacted)
}

/// Redacts the words of a command: a name may be one word and its value the next.
#[must_use]
pub fn redact_words(words: &[String]) -> Vec<String> {
    // Neither a word of a command nor a credential contains a NUL byte.
    redact(&words.join("\0")).split('\0').map(str::to_owned).collect()
}

/// The range to remove, if a credential, or the name before one, starts at `at`. Both ends are character boundaries,
/// since they are next to ASCII bytes.
fn credential_at(text: &[u8], at: usize) -> Option<Range<usize>> {
    match text[at] {
        b':' => password_in_url(text, at),
        b'a' => authorization(text, at).or_else(|| aws_secret(text, at)),
        b'A' => aws_key_id(text, at)
            .or_else(|| token_at(text, at))
            .or_else(|| authorization(text, at))
            .or_else(|| aws_secret(text, at)),
        b'S' => aws_secret(text, at),
        b's' => token_at(text, at).or_else(|| aws_secret(text, at)),
        b'e' => web_token(text, at),
        b'g' | b'x' | b'r' | b'n' | b'p' | b'h' | b'd' => token_at(text, at),
        _ => None,
    }
}

fn token_at(text: &[u8], at: usize) -> Option<Range<usize>> {
    TOKENS.iter().find_map(|token| {
        let rest = text[at..].strip_prefix(token.prefix.as_bytes())?;
        if token.edge == Edge::Word && !is_edge(text, at) {
            return None;
        }
        // Only an actual token is read to its end, so that the time stays linear.
        let begin = &rest[..rest.len().min(TOKEN_BEGIN_BYTES)];
        let begin = &begin[..run(begin, token.body)];
        let fits = begin.len() >= token.bytes_min && (token.looks == Looks::Any || is_random(begin));
        fits.then(|| at..at + token.prefix.len() + run(rest, token.body))
    })
}

fn aws_key_id(text: &[u8], at: usize) -> Option<Range<usize>> {
    let rest = AWS_KEY_IDS.iter().find_map(|prefix| text[at..].strip_prefix(prefix.as_bytes()))?;
    let is_capital = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let fits = rest.get(..AWS_KEY_ID_BYTES)?.iter().all(is_capital) && is_edge(text, at);
    fits.then(|| at..text.len() - rest.len() + AWS_KEY_ID_BYTES)
}

fn aws_secret(text: &[u8], at: usize) -> Option<Range<usize>> {
    let name = AWS_SECRETS.iter().find(|name| starts_with_word(&text[at..], name))?;
    let behind = at + name.len();
    let is_between = |byte: u8| matches!(byte, b'"' | b'\'' | b'=' | b':' | b' ' | b'\t' | b'\0' | b'\\');
    let between = run(&text[behind..], is_between);
    if !(1..=BETWEEN_BYTES_MAX).contains(&between) {
        return None;
    }
    let value = behind + between;
    let length = run(&text[value..], |byte| is_letter_or_digit(byte) || b"/+=".contains(&byte));
    (length >= AWS_SECRET_BYTES_MIN).then(|| value..value + length)
}

fn authorization(text: &[u8], at: usize) -> Option<Range<usize>> {
    if !starts_with_word(&text[at..], AUTHORIZATION) {
        return None;
    }
    let is_between = |byte: u8| matches!(byte, b'"' | b'\'' | b'=' | b':' | b' ' | b'\t' | b'\\');
    let behind = at + AUTHORIZATION.len();
    let between = run(&text[behind..], is_between);
    if !(1..=BETWEEN_BYTES_MAX).contains(&between) {
        return None;
    }
    let named = behind + between;
    let scheme = SCHEMES.iter().find(|scheme| starts_with_word(&text[named..], scheme))?;
    let spaces = run(&text[named + scheme.len()..], |byte| byte == b' ' || byte == b'\t');
    let value = named + scheme.len() + spaces;
    let length = run(&text[value..], is_inert);
    (spaces > 0 && length > 0).then(|| value..value + length)
}

/// The password in `://USER:PASSWORD@`.
fn password_in_url(text: &[u8], at: usize) -> Option<Range<usize>> {
    let begin = at + 3;
    if !text[at..].starts_with(b"://") {
        return None;
    }
    let is_part = |byte: u8| is_inert(byte) && !matches!(byte, b'/' | b'?' | b'#');
    let authority = &text[begin..begin + run(&text[begin..], is_part)];
    let user = &authority[..authority.iter().rposition(|byte| *byte == b'@')?];
    let colon = user.iter().position(|byte| *byte == b':')?;
    (colon + 1 < user.len()).then(|| begin + colon + 1..begin + user.len())
}

/// Three parts separated by dots, the first of which is JSON; more parts if the token is encrypted.
fn web_token(text: &[u8], at: usize) -> Option<Range<usize>> {
    // A token starts only where no Base64 digit precedes it.
    let begins = at == 0 || !is_url_digit(text[at - 1]);
    if !text[at..].starts_with(b"eyJ") || !begins {
        return None;
    }
    let mut end = at;
    for _ in 0..2 {
        let part = run(&text[end..], is_url_digit);
        if part < JWT_PART_BYTES_MIN || text.get(end + part) != Some(&b'.') {
            return None;
        }
        end += part + 1;
    }
    end += run(&text[end..], |byte| is_url_digit(byte) || byte == b'.');
    Some(at..end)
}

/// The lines of a private key in PEM form, as one range each, and the offset of their end.
fn private_key(text: &[u8], at: usize) -> Option<(Vec<Range<usize>>, usize)> {
    let label = text[at..].strip_prefix(PEM_BEGIN)?;
    let label = &label[..label.len().min(PEM_LABEL_BYTES_MAX)];
    let (label, behind) =
        label.split_at(run(label, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '));
    memchr::memmem::find(label, b"PRIVATE KEY").filter(|_| behind.starts_with(PEM_DASHES))?;
    let mut lines = Vec::new();
    let mut end = at + PEM_BEGIN.len() + label.len();
    end += run(&text[end..], |byte| byte == b'-');
    loop {
        end += between_lines(&text[end..]);
        if PEM_HEADERS.iter().any(|header| text[end..].starts_with(header.as_bytes())) {
            end += run(&text[end..], |byte| byte.is_ascii_graphic() && byte != b'\\' || byte == b' ');
            continue;
        }
        let length = run(&text[end..], |byte| is_letter_or_digit(byte) || b"/+=".contains(&byte));
        if length == 0 {
            return Some((lines, end));
        }
        if length >= PEM_LINE_BYTES_MIN {
            lines.push(end..end + length);
        }
        end += length;
    }
}

/// The length of newlines, including those escaped in a string, and of other whitespace.
fn between_lines(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match &text[at..] {
            [b'\\', b'n' | b'r', ..] => at += 2,
            [byte, ..] if byte.is_ascii_whitespace() => at += 1,
            _ => return at,
        }
    }
}

/// The number of leading bytes that satisfy `is`.
fn run(text: &[u8], is: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|byte| !is(*byte)).unwrap_or(text.len())
}

fn is_letter_or_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_word(byte: u8) -> bool {
    is_letter_or_digit(byte) || byte == b'_'
}

/// True for a digit of URL-safe Base64.
fn is_url_digit(byte: u8) -> bool {
    is_word(byte) || byte == b'-'
}

/// True for a byte that is not a space, a quote or otherwise special to a shell; bytes outside of ASCII never are.
fn is_inert(byte: u8) -> bool {
    !byte.is_ascii() || (byte.is_ascii_graphic() && !b"\"'`$\\;&|<>()".contains(&byte))
}

/// True where a word may start.
fn is_edge(text: &[u8], at: usize) -> bool {
    at == 0 || !is_word(text[at - 1])
}

fn is_random(body: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| body.iter().any(is);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// True if the text starts with `word`, which is in lower case.
fn starts_with_word(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_credentials_are_recognized() {
        for name in
            ["MYSQL_PWD", "GITHUB_PAT", "APP_JWT", "X_BEARER", "SLACK_WEBHOOK_URL", "SENTRY_DSN", "Api_Key"]
        {
            assert!(is_credential_name(name), "{name}");
        }
        for name in [
            "APP_DB_PW",
            "APP_PSK",
            "APP_SESSION",
            "SESSION_ID",
            "APP_MNEMONIC",
            "APP_CONNECTION_STRING",
            "db_conn_str",
            "XDG_SESSION_TOKEN",
        ] {
            assert!(is_credential_name(name), "{name}");
        }
        for name in ["PWD", "OLDPWD", "PATH", "MYSQL_HOST", "GIT_AUTHOR_NAME", "PATTERN", "OTPIONS"] {
            assert!(!is_credential_name(name), "{name}");
        }
        for name in [
            "APP_PWM",
            "SESSIONS_MAX",
            "CONNECTION_STRINGS",
            "CONNECTION",
            "XDG_SESSION_TYPE",
            "DBUS_SESSION_BUS_ADDRESS",
            "DESKTOP_SESSION",
        ] {
            assert!(!is_credential_name(name), "{name}");
        }
    }

    #[test]
    fn values_with_a_password_are_recognized() {
        for value in [
            "Server=x;Password=Sup3rS3cret!;",
            "password=x",
            "host=db user=me PASSWORD=x",
            "Uid=me;Pwd={a;b}",
            "https://x.org/?pwd=x",
            "https://me:hush@x.org",
        ] {
            assert!(is_credential_value(value), "{value}");
        }
        for value in
            ["", "Server=x", "Server=x;Password=;", "password", "nopassword=1", "old_pwd=/home", "pwd= x"]
        {
            assert!(!is_credential_value(value), "{value}");
        }
    }

    /// Digits of all kinds. Test credentials are composed at run time, so that secret scanners do not report this file.
    fn body(length: usize) -> String {
        "aB3dE6gH9".chars().cycle().take(length).collect()
    }

    fn capitals(length: usize) -> String {
        body(length).to_ascii_uppercase()
    }

    /// Texts with the expected result.
    fn corpus() -> Vec<(String, String)> {
        let mut corpus: Vec<(String, String)> = Vec::new();
        let mut add = |text: String, left: &str| corpus.push((text, left.to_owned()));
        for prefix in ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"] {
            add(
                format!("git push https://{prefix}{}@host/x", body(36)),
                "git push https://[redacted]@host/x",
            );
        }
        add(format!("T=github_pat_{}_{} make", body(22), body(59)), "T=[redacted] make");
        add(format!("\"glpat-{}\"", body(20)), "\"[redacted]\"");
        add(format!("xoxb-{}-{}.", "1".repeat(12), body(24)), "[redacted].");
        add(format!("key=AIza{}&q=1", body(35)), "key=[redacted]&q=1");
        add(format!("sk-ant-api03-{}-{}AA", body(40), body(40)), "[redacted]");
        add(format!("--key sk-{} x", body(48)), "--key [redacted] x");
        add(format!("sk-proj-{}", body(60)), "[redacted]");
        add(format!("echo npm_{}|cat", body(36)), "echo [redacted]|cat");
        add(format!("pypi-AgEI{}", body(60)), "[redacted]");
        add(format!("AKIA{} b", capitals(16)), "[redacted] b");
        add(format!("id=ASIA{}", capitals(16)), "id=[redacted]");
        add(format!("AKIA{}AKIA{}", capitals(16), capitals(16)), "[redacted][redacted]");
        add(format!("s3://u:aws_secret_key={}/{}@h", body(10), body(10)), "s3://u:[redacted]@h");
        add(format!("AWS_SECRET_ACCESS_KEY={}/+ make", body(38)), "AWS_SECRET_ACCESS_KEY=[redacted] make");
        add(format!("aws_secret_access_key = {}", body(40)), "aws_secret_access_key = [redacted]");
        add(format!("{{\"SecretAccessKey\": \"{}\"}}", body(40)), "{\"SecretAccessKey\": \"[redacted]\"}");
        add(format!("eyJ{}.eyJ{}.{}!", body(20), body(30), body(43)), "[redacted]!");
        add("-H 'Authorization: Bearer abc.def' u".into(), "-H 'Authorization: Bearer [redacted]' u");
        add("authorization: basic dTpw\nx".into(), "authorization: basic [redacted]\nx");
        add("{\"Authorization\": \"Token 0a1b\"}".into(), "{\"Authorization\": \"Token [redacted]\"}");
        add("Proxy-Authorization: Basic eA==".into(), "Proxy-Authorization: Basic [redacted]");
        add("psql postgres://u:p@ss:w@db:5432/x".into(), "psql postgres://u:[redacted]@db:5432/x");
        add("https://:x@h é".into(), "https://:[redacted]@h é");
        for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
            let key = |one: &str, other: &str| {
                let (begin, end) = (format!("{kind}PRIVATE KEY-----"), format!("{kind}PRIVATE KEY-----"));
                format!("a -----BEGIN {begin}\n{one}\n{other}==\n-----END {end}\nb")
            };
            add(key(&body(64), &body(30)), &key(REDACTED, REDACTED).replace("==", ""));
        }
        let (begin, headers) = ("-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED\nDEK-Info: A,0");
        add(format!("{begin}\n{headers}\n\n{}", body(64)), &format!("{begin}\n{headers}\n\n{REDACTED}"));
        add(format!("'{begin}\\n{}\\n'", body(64)), &format!("'{begin}\\n{REDACTED}\\n'"));
        corpus
    }

    #[test]
    fn credentials_are_removed() {
        for (text, left) in corpus() {
            assert_eq!(redact(&text), left, "{text}");
        }
    }

    #[test]
    fn text_without_credentials_is_unchanged() {
        for text in [
            "",
            "make test && git commit -m 'ghp_ is how they begin'",
            "pip install sk-learn-contrib-something-longer-than-that",
            "task-0123456789abcdefABCDEF0123 disk-0A1b2c3d4e5f6g7h8i9j0k",
            "npm_config_registry=https://registry.npmjs.org npm_lifecycle_event=build",
            "pypi-server --port 8080",
            "AKIAIS A WORD, AND SO IS XAKIAIOSFODNN7EXAMPLE AND AKIAIOSFODNN7EXAMPl",
            "export AWS_SECRET_ACCESS_KEY=$KEY; echo aws_secret_access_key",
            "aws_secret_access_key is what it is called, and internationalization is a word",
            "curl -H \"Authorization: Bearer $TOKEN\" -H 'Authorization: Bearer ${TOKEN}' u",
            "curl -H \"Authorization: Bearer $(cat token)\" u",
            "the authorization: basic",
            "git clone https://git@github.com/a/b.git ssh://git@host:22/x http://[::1]:80/@x",
            "git clone https://$USER:${PASS}@host/x",
            "see https://example.org/a:b@c and mail a@b.c: it's fine",
            "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
            "-----BEGIN PUBLIC KEY-----\nMII\n-----END PUBLIC KEY-----",
            "eyJ.eyJ.eyJ. eyJhbGciOiJIUzI1NiJ9.short.x",
            "3f9ae0c1d2b3a4958677 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "naïve ‘text’ – with characters: 日本語",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}: {}", redact(text));
        }
    }

    #[test]
    fn a_command_cannot_hide_in_a_credential() {
        for (text, shown) in [
            ("curl http://a:x;reboot;@h", "reboot"),
            ("curl http://a:x$(reboot)@h http://a:`reboot`@h", "$(reboot)"),
            ("echo Authorization: Bearer x;reboot", ";reboot"),
            ("-----BEGIN PRIVATE KEY-----\nrm -rf src\n-----END PRIVATE KEY-----", "rm -rf src"),
            ("-----BEGIN PRIVATE KEY-----; reboot", "; reboot"),
            ("-----BEGIN PRIVATE KEY-----\nDEK-Info: \nreboot now", "reboot now"),
        ] {
            assert!(redact(text).contains(shown), "{text}: {}", redact(text));
        }
    }

    #[test]
    fn a_value_may_be_the_next_word() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let secret = body(40);
        let key = "-----BEGIN PRIVATE KEY-----\n";
        let given = words(&["aws", "configure", "set", "aws_secret_access_key", &secret, key, &secret]);
        let left = ["aws", "configure", "set", "aws_secret_access_key", REDACTED, key, &secret];
        assert_eq!(redact_words(&given), left);
        assert_eq!(redact_words(&words(&["", "a", ""])), ["", "a", ""]);
    }

    #[test]
    fn time_is_linear_in_the_length_of_the_text() {
        // Each would exceed the timeout of a test if bytes were read again from every position.
        for unit in [
            "eyJ",
            "eyJaaaaaaaaaaa.",
            "-----BEGIN ",
            "://a",
            "://:@",
            "ghp_",
            "authorization: ",
            "sk-a",
            "$",
            "sk-",
            "eyJ-",
            "eyJ.",
            "AKIA",
            "AKIAAAAAAAAAAAAAAAAA",
            "aws_secret_key=",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            let text = unit.repeat((1 << 18) / unit.len());
            drop(redact(&text));
        }
    }

    proptest! {
        #[test]
        fn redaction_is_idempotent(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(corpus().into_iter().map(|(text, _)| text).collect::<Vec<_>>()),
                    prop::sample::select(
                        ["ghp_", "eyJ", ".", "://", ":", "@", "AKIA", "-----", "PRIVATE KEY", " ", "sk-", "=", "\0",
                         "authorization", "bearer ", "-----BEGIN ", "-----END ", "[redacted]", "$", "{", "}", "`"]
                            .map(str::to_owned).to_vec()),
                    "[a-zA-Z0-9_./+=-]{0,60}",
                    "\\PC{0,5}",
                ],
                0..12,
            )
        ) {
            let once = redact(&parts.concat()).into_owned();
            prop_assert_eq!(&redact(&once), &once);
        }
    }
}
