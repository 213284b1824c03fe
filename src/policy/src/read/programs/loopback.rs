//! Addresses that certainly lead to this machine, which a command can reach without network access.
//!
//! Stricter than any program that accepts addresses: an address that programs interpret differently does not count.

// From `core`, which has addresses but nothing that connects.
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::read::options::may_split;
use crate::reading::Word;

/// Schemes whose host is at the same place as in `http`.
const SCHEMES: [&str; 6] = ["http", "https", "ftp", "ftps", "ws", "wss"];

/// True for `localhost`, an address of `127.0.0.0/8` or `[::1]`, with or without a scheme, a port and a path.
pub fn is_loopback(word: &Word) -> bool {
    match word {
        Word::Known(address) => is_address(address, End::OfWordToo),
        // `"http://localhost:8080/$name"`: the expansion comes after the host.
        Word::Unknown(written) if !may_split(word) => {
            written.strip_prefix('"').is_some_and(|address| is_address(address, End::Slash))
        }
        Word::Unknown(written) if is_bracketed(word) => is_address(written, End::OfWordToo),
        Word::Unknown(written) if is_query(word) => is_address(written, End::Slash),
        Word::Unknown(_) => false,
    }
}

/// `http://[::1]/x` without quotes: for a shell the brackets are a glob, but it matches no file name that can exist.
pub fn is_bracketed(word: &Word) -> bool {
    let Word::Unknown(written) = word else { return false };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '.' | '_' | '-');
    written.contains("[::1]") && written.replacen("[::1]", "", 1).chars().all(is_plain)
}

/// `localhost/x?y=1` without quotes: for a shell the `?` is a glob, but every file name that it can match begins with
/// the same address.
pub fn is_query(word: &Word) -> bool {
    let Word::Unknown(written) = word else { return false };
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '.' | '_' | '-' | '=' | '%' | '+' | ',' | '?')
    };
    written.chars().all(is_plain) && is_address(written, End::Slash)
}

/// What may end the host and port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Slash,
    OfWordToo,
}

fn is_address(address: &str, end: End) -> bool {
    let rest = match address.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            if !SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
                return false;
            }
            rest
        }
        Some(_) | None => address,
    };
    // A `?`, a `#` or a backslash ends the host for some programs and not for others.
    let (authority, slash) = match rest.split_once('/') {
        Some((authority, _)) => (authority, true),
        None => (rest, false),
    };
    (slash || end == End::OfWordToo) && is_authority(authority)
}

/// A host and an optional port; nothing else, so no `user@`.
fn is_authority(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => {
            if !host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback()) {
                return false;
            }
            match port.strip_prefix(':') {
                Some(port) => return is_port(port),
                None => return port.is_empty(),
            }
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let is_host = host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    is_host && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unambiguous_local_addresses_are_loopback() {
        for here in [
            "localhost",
            "LocalHost:8080",
            "http://localhost",
            "http://localhost/",
            "HTTPS://localhost:8443/x?y#z",
            "127.0.0.1",
            "http://127.8.9.1:80/@evil.com",
            "http://[::1]/",
            "[::1]:8080",
            "localhost/http://evil.com",
            "ws://localhost:1/x",
        ] {
            assert!(is_loopback(&Word::Known(here.to_owned())), "{here}");
        }
        for elsewhere in [
            "",
            "/",
            "http://",
            "localhost.evil.com",
            "http://localhost.evil.com/",
            "evil.localhost",
            "http://127.0.0.1@evil.com/",
            "http://localhost:80@evil.com/",
            "http://localhost:@evil.com/",
            "http://localhost#@evil.com/",
            "http://localhost?@evil.com/",
            "http://localhost\\@evil.com/",
            "http://localhost%2eevil.com/",
            "http:/localhost",
            "http:localhost",
            "gopher://localhost/",
            "http://{localhost,evil.com}/",
            "http://[::1].evil.com/",
            "http://[::1",
            "http://[::ffff:1.2.3.4]/",
            "http://127.1/",
            "http://127.0.0.1.evil.com/",
            "http://2130706433/",
            "http://localhost:99999/",
            "http://localhost:8o/",
            "http://localhost /",
            "http://локалхост/",
            "x://y://localhost/",
        ] {
            assert!(!is_loopback(&Word::Known(elsewhere.to_owned())), "{elsewhere}");
        }
        let written = |text: &str| is_loopback(&Word::Unknown(text.to_owned()));
        assert!(written("\"http://localhost:8080/$path\""));
        assert!(written("http://[::1]:8080/x") && !written("http://[::1]/*") && !written("http://[::1]x/"));
        assert!(written("localhost:3000/users?id=1") && written("http://127.0.0.1/a?b=%20,c"));
        for open in [
            "localhost?id=1",
            "localhost:30?0/x",
            "http://localhost/?x&y",
            "http://localhost/?$x",
            "http://localhost/{a,b}?",
            "http://localhost?@evil.com/",
        ] {
            assert!(!written(open), "{open}");
        }
        for open in
            ["\"http://localhost:$port/\"", "\"http://localhost$x/\"", "http://localhost/$x", "\"$x/\"", "$x"]
        {
            assert!(!written(open), "{open}");
        }
    }
}
