//! The supported part of SOCKS5: no authentication, CONNECT only. RFC 1928.
//!
//! Each parser returns `None` until enough bytes are available; bytes after the message are not touched.

use crate::target::{Host, HostError, Target, shown};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The reply to a greeting.
pub const GREETED: [u8; 2] = [VERSION, NO_AUTHENTICATION];
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// Why bytes are not a supported request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    #[error("it is not SOCKS5")]
    Version,
    #[error("the client requires authentication")]
    Method,
    #[error("only CONNECT is supported")]
    Command,
    #[error("unknown address type")]
    AddressKind,
    #[error("the request is malformed")]
    Malformed,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Succeeded,
    Failed,
    /// Refused by the allow list.
    Refused,
    NetworkUnreachable,
    HostUnreachable,
    ConnectionRefused,
    TimedOut,
    Command,
    AddressKind,
}

impl Reply {
    /// The reply; the address in it is not used by clients.
    #[must_use]
    pub const fn bytes(self) -> [u8; 10] {
        let code = match self {
            Self::Succeeded => 0,
            Self::Failed => 1,
            Self::Refused => 2,
            Self::NetworkUnreachable => 3,
            Self::HostUnreachable => 4,
            Self::ConnectionRefused => 5,
            Self::TimedOut => 6,
            Self::Command => 7,
            Self::AddressKind => 8,
        };
        [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
    }
}

/// The length of the greeting, once it is complete.
pub fn greeting(bytes: &[u8]) -> Result<Option<usize>, SocksError> {
    let [version, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(SocksError::Version);
    }
    let [count, rest @ ..] = rest else { return Ok(None) };
    let Some(methods) = rest.get(..usize::from(*count)) else { return Ok(None) };
    if methods.contains(&NO_AUTHENTICATION) { Ok(Some(2 + methods.len())) } else { Err(SocksError::Method) }
}

/// A parsed request: the target, the host as it was written, and the length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocksAsk {
    pub target: Result<Target, HostError>,
    pub shown: String,
    pub port: u16,
    pub length: usize,
}

/// Parses the request; `None` if it is incomplete.
pub fn request(bytes: &[u8]) -> Result<Option<SocksAsk>, SocksError> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let [version, command, reserved, kind] = *head;
    if version != VERSION || reserved != 0 {
        return Err(SocksError::Malformed);
    }
    if command != CONNECT {
        return Err(SocksError::Command);
    }
    let (host, rest) = match kind {
        IPV4 => match rest.split_first_chunk::<4>() {
            Some((address, rest)) => (Ok(Host::Address((*address).into())), rest),
            None => return Ok(None),
        },
        IPV6 => match rest.split_first_chunk::<16>() {
            Some((address, rest)) => {
                let address = std::net::IpAddr::from(*address);
                (Ok(Host::Address(address.to_canonical())), rest)
            }
            None => return Ok(None),
        },
        NAME => {
            let Some((length, rest)) = rest.split_first() else { return Ok(None) };
            let Some((name, rest)) = rest.split_at_checked(usize::from(*length)) else { return Ok(None) };
            (Host::parse(name).map_err(|error| (error, shown(name))), rest)
        }
        _ => return Err(SocksError::AddressKind),
    };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
    let port = u16::from_be_bytes(*port);
    let length = bytes.len() - rest.len();
    Ok(Some(match host {
        Ok(_) if port == 0 => return Err(SocksError::Malformed),
        Ok(host) => SocksAsk { shown: host.to_string(), target: Ok(Target { host, port }), port, length },
        Err((error, shown)) => SocksAsk { target: Err(error), shown, port, length },
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_request(name: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![VERSION, CONNECT, 0, NAME, u8::try_from(name.len()).unwrap()];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn greetings_must_offer_no_authentication() {
        assert_eq!(greeting(&[5, 1, 0]), Ok(Some(3)));
        assert_eq!(greeting(&[5, 3, 2, 1, 0, 9]), Ok(Some(5)));
        assert_eq!(greeting(&[5, 1, 2]), Err(SocksError::Method));
        assert_eq!(greeting(&[5, 0]), Err(SocksError::Method));
        assert_eq!(greeting(&[4, 1, 0]), Err(SocksError::Version));
        for part in [&[][..], &[5], &[5, 2], &[5, 2, 0]] {
            assert_eq!(greeting(part), Ok(None));
        }
    }

    #[test]
    fn requests_have_three_address_types() {
        let read = |bytes: &[u8]| request(bytes).unwrap().unwrap();
        let ask = read(&[5, 1, 0, IPV4, 127, 0, 0, 1, 0, 80]);
        assert_eq!((ask.target.unwrap().to_string().as_str(), ask.length), ("127.0.0.1:80", 10));
        let mut six = vec![5, 1, 0, IPV6];
        six.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1, 0, 80]);
        assert_eq!(read(&six).target.unwrap().to_string(), "127.0.0.1:80");
        let mut named = name_request(b"Example.com", 443);
        named.extend_from_slice(b"early");
        let ask = read(&named);
        assert_eq!(
            (ask.target.unwrap().to_string().as_str(), ask.length),
            ("example.com:443", named.len() - 5)
        );
        // A name may be an address too, and ambiguous ones are rejected as well.
        assert_eq!(read(&name_request(b"::1", 1)).target.unwrap().to_string(), "[::1]:1");
        let ask = read(&name_request(b"0x7f.1", 1));
        assert_eq!((ask.target, ask.shown.as_str()), (Err(HostError::Odd), "0x7f.1"));
        assert_eq!(read(&name_request(b"a\0b", 1)).target, Err(HostError::Malformed));
    }

    #[test]
    fn other_requests_are_rejected_with_a_reason() {
        assert_eq!(request(&[5, 2, 0, 1]), Err(SocksError::Command));
        assert_eq!(request(&[5, 3, 0, 1]), Err(SocksError::Command));
        assert_eq!(request(&[5, 1, 0, 2]), Err(SocksError::AddressKind));
        assert_eq!(request(&[5, 1, 1, 1]), Err(SocksError::Malformed));
        assert_eq!(request(&[4, 1, 0, 1]), Err(SocksError::Malformed));
        assert_eq!(request(&[5, 1, 0, IPV4, 1, 1, 1, 1, 0, 0]), Err(SocksError::Malformed));
    }

    proptest! {
        /// Later bytes do not change the result, and no prefix is treated as complete.
        #[test]
        fn the_end_of_a_request_is_exact(name in "[a-z.]{1,40}", port in 1_u16.., more in any::<[u8; 4]>()) {
            let whole = name_request(name.as_bytes(), port);
            for cut in 0..whole.len() {
                prop_assert_eq!(request(&whole[..cut]), Ok(None));
            }
            let read = request(&whole).unwrap().unwrap();
            prop_assert_eq!(read.length, whole.len());
            prop_assert_eq!(request(&[&whole[..], &more].concat()).unwrap().unwrap(), read);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = greeting(&bytes);
            if let Ok(Some(ask)) = request(&bytes) {
                prop_assert!(ask.length <= bytes.len());
            }
        }
    }
}
