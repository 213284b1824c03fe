//! The head of an HTTP request to a proxy: CONNECT, or a method with an absolute http:// URL.
//!
//! Strict where two parsers could disagree: line ends, lengths, folded lines. The head sent to the server is rebuilt
//! with the target as its Host, and without hop-by-hop fields.
//!
//! Does not use httparse: it accepts bare LF line ends, empty lines before the request line, and targets that are not
//! ASCII, so that every check here would still be needed; and it strips blanks in fields, which are forwarded
//! verbatim.

use crate::body::Body;
use crate::target::{HostError, Target, shown};

pub const HEAD_BYTES_MAX: usize = 32 * 1024;
const FIELDS_MAX: usize = 200;
const METHOD_BYTES_MAX: usize = 32;
const LENGTH_DIGITS_MAX: usize = 18;
const HTTP_PORT: u16 = 80;

/// Fields that are hop-by-hop, or are rebuilt.
const DROPPED: [&str; 13] = [
    "host",
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "http2-settings",
    "proxy-authentication-info",
];

/// Why a head is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the head is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("a line does not end in CR LF, or contains an invalid byte")]
    Line,
    #[error("the request line is malformed")]
    RequestLine,
    #[error("this is a proxy: use an absolute http:// URL, or CONNECT")]
    NotForAProxy,
    #[error("only http:// is supported; use CONNECT for anything else")]
    Scheme,
    #[error("a header field is malformed or folded")]
    Field,
    #[error("there are more than {FIELDS_MAX} header fields")]
    Fields,
    #[error("duplicate or invalid Content-Length or Transfer-Encoding")]
    Length,
    #[error("more than one Host field")]
    Hosts,
}

/// How the end of a request's body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    #[must_use]
    pub fn body(self) -> Body {
        match self {
            Self::None => Body::Done,
            Self::Length(length) => Body::of_length(length),
            Self::Chunked => Body::chunked(),
        }
    }
}

/// The kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAsk {
    /// A tunnel.
    Connect,
    /// One response: the head to forward, and the framing of the body.
    Fetch { onward: Vec<u8>, framing: Framing },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub target: Result<Target, HostError>,
    /// The host as it was written.
    pub shown: String,
    pub ask: HttpAsk,
    /// The length of the head; the data after it is the body, or belongs to the tunnel.
    pub length: usize,
}

struct Field<'a> {
    name: String,
    value: &'a [u8],
    line: &'a [u8],
}

impl Head {
    /// Parses the head; `None` if it is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, HeadError> {
        let Some(length) = end_of_head(bytes)? else { return Ok(None) };
        // Without the empty line and the line end before it.
        let mut lines = split_lines(&bytes[..length - 4]);
        let request_line = lines.next().unwrap_or_default();
        let (method, target, version) = read_request_line(request_line)?;
        let fields = lines.map(read_field).take(FIELDS_MAX + 1).collect::<Result<Vec<_>, _>>()?;
        if fields.len() > FIELDS_MAX {
            return Err(HeadError::Fields);
        }
        let framing = read_framing(&fields, version)?;
        if fields.iter().filter(|field| field.name == "host").count() > 1 {
            return Err(HeadError::Hosts);
        }
        if method == b"CONNECT" {
            // Some parsers would read a body here as part of the tunnel, others would not.
            if framing != Framing::None && framing != Framing::Length(0) {
                return Err(HeadError::Length);
            }
            let shown = shown(target);
            return Ok(Some(Self {
                target: Target::parse(target, None),
                shown,
                ask: HttpAsk::Connect,
                length,
            }));
        }
        let (authority, path) = read_address(target)?;
        let shown = shown(authority);
        let target = Target::parse(authority, Some(HTTP_PORT));
        let onward = match &target {
            Ok(target) => write_head(method, target, &path, version, &fields, framing),
            Err(_) => Vec::new(),
        };
        Ok(Some(Self { target, shown, ask: HttpAsk::Fetch { onward, framing }, length }))
    }
}

/// The end of the head. Checks every byte: the bytes before the end must be valid in a head.
fn end_of_head(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut before = 0;
    let mut line_start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if at >= HEAD_BYTES_MAX {
            return Err(HeadError::TooLong);
        }
        match (before, *byte) {
            (b'\r', b'\n') if at == line_start + 1 => {
                // An empty line: the end, unless it is the first line.
                return if line_start == 0 { Err(HeadError::RequestLine) } else { Ok(Some(at + 1)) };
            }
            (b'\r', b'\n') => line_start = at + 1,
            (b'\r', _) | (_, b'\n') => return Err(HeadError::Line),
            (_, byte) if byte != b'\r' && byte != b'\t' && byte.is_ascii_control() => {
                return Err(HeadError::Line);
            }
            _ => {}
        }
        before = *byte;
    }
    Ok(None)
}

fn split_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Every LF follows a CR, and no CR is anywhere else.
    head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

fn read_request_line(line: &[u8]) -> Result<(&[u8], &[u8], Version), HeadError> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::RequestLine);
    };
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        _ => return Err(HeadError::RequestLine),
    };
    let good_method = is_token(method) && method.len() <= METHOD_BYTES_MAX;
    let good_target = !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
    if good_method && good_target { Ok((method, target, version)) } else { Err(HeadError::RequestLine) }
}

fn is_token(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

fn read_field(line: &[u8]) -> Result<Field<'_>, HeadError> {
    // A folded line begins with a blank, which no name does.
    let at = line.iter().position(|byte| *byte == b':').ok_or(HeadError::Field)?;
    let (name, value) = (&line[..at], &line[at + 1..]);
    if !is_token(name) {
        return Err(HeadError::Field);
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok(Field { name, value: value.trim_ascii(), line })
}

fn read_framing(fields: &[Field<'_>], version: Version) -> Result<Framing, HeadError> {
    let of =
        |name: &'static str| fields.iter().filter(move |field| field.name == name).map(|field| field.value);
    let (mut codings, mut lengths) = (of("transfer-encoding"), of("content-length"));
    match (codings.next(), codings.next(), lengths.next(), lengths.next()) {
        (None, _, None, _) => Ok(Framing::None),
        (Some(coding), None, None, _)
            if coding.eq_ignore_ascii_case(b"chunked") && version == Version::Http11 =>
        {
            Ok(Framing::Chunked)
        }
        (None, _, Some(length), None) => read_length(length).map(Framing::Length).ok_or(HeadError::Length),
        _ => Err(HeadError::Length),
    }
}

fn read_length(digits: &[u8]) -> Option<u64> {
    let plain = (1..=LENGTH_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

/// Splits a URL into the authority and the path.
fn read_address(address: &[u8]) -> Result<(&[u8], Vec<u8>), HeadError> {
    if address.starts_with(b"/") || address == b"*" {
        return Err(HeadError::NotForAProxy);
    }
    const SCHEME: usize = "http://".len();
    let (scheme, rest) = address.split_at_checked(SCHEME).ok_or(HeadError::Scheme)?;
    if !scheme.eq_ignore_ascii_case(b"http://") {
        return Err(HeadError::Scheme);
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A user name before an @ serves to mislead people; a fragment after a # is not sent to servers.
    if authority.contains(&b'@') || path.contains(&b'#') {
        return Err(HeadError::RequestLine);
    }
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    Ok((authority, [slash, path].concat()))
}

fn write_head(
    method: &[u8],
    target: &Target,
    path: &[u8],
    version: Version,
    fields: &[Field<'_>],
    framing: Framing,
) -> Vec<u8> {
    let version: &[u8] = match version {
        Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 => b" HTTP/1.1\r\n",
    };
    let host = match target.port {
        HTTP_PORT => target.host.to_string(),
        _ => target.to_string(),
    };
    let mut out = [method, b" ", path, version].concat();
    out.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
    let named = |field: &Field<'_>| String::from_utf8_lossy(field.value).to_ascii_lowercase();
    let connection: Vec<String> =
        fields.iter().filter(|field| field.name == "connection").map(named).collect();
    let for_this_hop = |name: &str| {
        DROPPED.contains(&name)
            || connection.iter().any(|value| value.split(',').any(|word| word.trim() == name))
    };
    for field in fields.iter().filter(|field| !for_this_hop(&field.name)) {
        out.extend_from_slice(field.line);
        out.extend_from_slice(b"\r\n");
    }
    match framing {
        Framing::None => {}
        Framing::Length(length) => out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes()),
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"Connection: close\r\n\r\n");
    out
}
