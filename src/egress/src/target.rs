//! The destination of a connection, as a client writes it.
//!
//! A host is a plain name or an address in its canonical form. Text that a resolver might interpret as an address,
//! although it is not written as one, is rejected before any lookup.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The maximum length of a name.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// The maximum length of a host in messages.
const SHOWN_BYTES_MAX: usize = NAME_BYTES_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// In lower case, without a trailing dot.
    Name(String),
    /// Never an IPv4-mapped IPv6 address.
    Address(IpAddr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

/// Why a text is not a valid host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("missing host")]
    Empty,
    #[error("the name is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    #[error("the name is not ASCII; write it with xn--")]
    NotAscii,
    #[error(
        "ambiguous number; write an IPv4 address as four decimal numbers, and an IPv6 address in brackets"
    )]
    Odd,
    #[error("neither a name nor an address")]
    Malformed,
}

impl Host {
    pub fn parse(text: &[u8]) -> Result<Self, HostError> {
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if !text.is_ascii() {
            return Err(HostError::NotAscii);
        }
        let text = std::str::from_utf8(text).map_err(|_| HostError::NotAscii)?;
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if inner.is_some() || text.contains(':') {
            let address = inner.unwrap_or(text).parse::<Ipv6Addr>().map_err(|_| HostError::Malformed)?;
            return Ok(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        Self::name(text)
    }

    fn name(text: &str) -> Result<Self, HostError> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.len() > NAME_BYTES_MAX {
            return Err(HostError::TooLong);
        }
        let is_label = |label: &str| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if !name.split('.').all(is_label) {
            return Err(HostError::Malformed);
        }
        if ends_in_number(&name) {
            return Err(HostError::Odd);
        }
        Ok(Self::Name(name))
    }
}

/// True if the last label is a number, as in all forms that inet_aton(3) accepts as an address: 2130706433, 0x7f.1,
/// 127.1, 0177.0.0.1. No domain ends in a number.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || last.bytes().all(|byte| byte.is_ascii_digit())
}

impl Target {
    /// Parses `HOST:PORT`; `unsaid` is the default port, if there is one.
    pub fn parse(text: &[u8], unsaid: Option<u16>) -> Result<Self, HostError> {
        let (host, port) = match text.iter().rposition(|byte| *byte == b':') {
            // A colon of an address in brackets.
            Some(at) if !text[at..].contains(&b']') => (&text[..at], Some(&text[at + 1..])),
            Some(_) | None => (text, None),
        };
        // Without brackets, the port cannot be distinguished from a part of the address.
        if host.contains(&b':') && !host.starts_with(b"[") {
            return Err(HostError::Malformed);
        }
        let port = match port {
            Some(digits) => read_port(digits).ok_or(HostError::Malformed)?,
            None => unsaid.ok_or(HostError::Malformed)?,
        };
        Ok(Self { host: Host::parse(host)?, port })
    }
}

fn read_port(digits: &[u8]) -> Option<u16> {
    let plain = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()?;
    (number > 0).then_some(number)
}

/// Text of a client, sanitized for printing and storing.
pub(super) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]);
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(text: &str) -> Result<String, HostError> {
        Host::parse(text.as_bytes()).map(|host| host.to_string())
    }

    #[test]
    fn names_are_lowercased_and_addresses_are_canonical() {
        for (text, read) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("localhost", "localhost"),
            ("_srv.a-b.xn--bcher-kva.de", "_srv.a-b.xn--bcher-kva.de"),
            ("3com.1st", "3com.1st"),
            ("0xcafe.com", "0xcafe.com"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("::1", "[::1]"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("[0:0:0:0:0:ffff:7f00:1]", "127.0.0.1"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(read), "{text}");
        }
    }

    #[test]
    fn unusual_forms_of_addresses_are_rejected() {
        for odd in
            ["2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.", "0x", "1.2.3.4.5"]
                .into_iter()
                .chain(["00000000177.1", "a.0x7f", "256.1.1.1", "127.0.0.01", "0X7F.1"])
        {
            assert_eq!(host(odd), Err(HostError::Odd), "{odd}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for (bad, why) in [
            ("", HostError::Empty),
            (".", HostError::Malformed),
            ("a..b", HostError::Malformed),
            ("a.com..", HostError::Malformed),
            ("a b", HostError::Malformed),
            ("a@b", HostError::Malformed),
            ("a%00.com", HostError::Malformed),
            ("a\0.com", HostError::Malformed),
            ("*.com", HostError::Malformed),
            ("[::1", HostError::Malformed),
            ("[127.0.0.1]", HostError::Malformed),
            ("[fe80::1%lo]", HostError::Malformed),
            ("b\u{fc}cher.de", HostError::NotAscii),
            ("\u{ff11}27.0.0.1", HostError::NotAscii),
        ] {
            assert_eq!(host(bad), Err(why), "{bad:?}");
        }
        assert_eq!(host(&"a".repeat(64)), Err(HostError::Malformed));
        assert_eq!(host(&["a"; 150].join(".")), Err(HostError::TooLong));
    }

    #[test]
    fn ports_are_plain_numbers() {
        let read = |text: &str, unsaid| Target::parse(text.as_bytes(), unsaid).map(|it| it.to_string());
        assert_eq!(read("a.com:443", None).as_deref(), Ok("a.com:443"));
        assert_eq!(read("[::1]:8", None).as_deref(), Ok("[::1]:8"));
        assert_eq!(read("[::1]", Some(80)).as_deref(), Ok("[::1]:80"));
        assert_eq!(read("a.com", Some(80)).as_deref(), Ok("a.com:80"));
        for bad in
            ["a.com", "a.com:", "a.com:0", "a.com:65536", "a.com:+1", "a.com: 1", "a.com:000001", "::1:80"]
        {
            assert_eq!(read(bad, None), Err(HostError::Malformed), "{bad}");
        }
    }

    proptest! {
        /// Formatting and parsing round-trips, and no accepted name could be interpreted as an address by the system.
        #[test]
        fn hosts_round_trip(text in "[a-fx0-9.:\\[\\]_-]{0,20}") {
            if let Ok(host) = Host::parse(text.as_bytes()) {
                prop_assert_eq!(Host::parse(host.to_string().as_bytes()).unwrap(), host.clone());
                if let Host::Name(name) = host {
                    let last = name.rsplit('.').next().unwrap();
                    prop_assert!(last.bytes().any(|byte| !byte.is_ascii_digit()));
                }
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Target::parse(&bytes, Some(80));
        }
    }
}
