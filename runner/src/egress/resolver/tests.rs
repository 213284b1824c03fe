use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::message::{Answer, Family, answer, query};
use super::*;

const CONFIG: &str = "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n";

/// The records of a zone: the owner, and an address or `=NAME` for an alias.
type Zone = &'static [(&'static str, &'static str)];

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

/// What a name server sends back for a query: every record of the zone, or a refusal of the name.
fn reply(query: &[u8], zone: Zone, truncated: bool) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let kind = query[end - 3];
    let known = zone.iter().any(|(owner, _)| query[12..].starts_with(&labels(owner)));
    let mut records = Vec::new();
    for (owner, value) in zone.iter().filter(|_| known && !truncated) {
        let (number, data) = match value.strip_prefix('=') {
            Some(alias) => (5_u8, labels(alias)),
            None => match value.parse().unwrap() {
                IpAddr::V4(address) => (1, address.octets().to_vec()),
                IpAddr::V6(address) => (28, address.octets().to_vec()),
            },
        };
        if number == 5 || number == kind {
            // The owner that was asked for is a pointer to the question.
            let pointer = query[12..].starts_with(&labels(owner));
            let owner = if pointer { vec![0xc0, 12] } else { labels(owner) };
            let length = u8::try_from(data.len()).unwrap();
            records.push([owner, vec![0, number, 0, 1, 0, 0, 0, 60, 0, length], data].concat());
        }
    }
    let flags = [0x81 | (u8::from(truncated) << 1), if known { 0x80 } else { 0x83 }];
    let count = u8::try_from(records.len()).unwrap();
    [&query[..2], &flags, &[0, 1, 0, count, 0, 0, 0, 0], &query[12..end], &records.concat()].concat()
}

/// A name server that answers `queries` queries over UDP.
fn serve(zone: Zone, queries: usize) -> (u16, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        for _ in 0..queries {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            // A forged answer, which another id gives away, changes nothing.
            let mut forged = reply(&buffer[..length], &[("a.test", "192.0.2.66")], false);
            forged[0] ^= 0xff;
            socket.send_to(&forged, from).unwrap();
            socket.send_to(&reply(&buffer[..length], zone, false), from).unwrap();
        }
    });
    (port, thread)
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn sorted(mut found: Vec<IpAddr>) -> Vec<IpAddr> {
    found.sort();
    found
}

#[test]
fn servers_are_asked_for_both_families_and_aliases_are_followed() {
    let zone: Zone =
        &[("a.test", "=b.test"), ("b.test", "127.0.0.9"), ("b.test", "::1"), ("c.test", "127.0.0.3")];
    let (port, server) = serve(zone, 2);
    let found = lookup_with("A.test", "", &Config::parse(CONFIG), port).unwrap();
    assert_eq!(sorted(found), addresses(&["127.0.0.9", "::1"]));
    server.join().unwrap();
}

#[test]
fn search_domains_complete_short_names() {
    let (port, server) = serve(&[("a.test", "127.0.0.9")], 4);
    let config = Config::parse(&format!("{CONFIG}search other.test test\n"));
    assert_eq!(lookup_with("a", "", &config, port).unwrap(), addresses(&["127.0.0.9"]));
    server.join().unwrap();
    assert_eq!(config.candidates("a"), ["a.other.test", "a.test", "a"]);
    assert_eq!(config.candidates("a.b"), ["a.b", "a.b.other.test", "a.b.test"]);
    assert_eq!(config.candidates("a."), ["a"]);
}

#[test]
fn unknown_names_are_not_found() {
    let (port, server) = serve(&[("a.test", "127.0.0.9")], 2);
    let error = lookup_with("b.test", "", &Config::parse(CONFIG), port).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    server.join().unwrap();
}

#[test]
fn a_closed_port_is_an_error_at_once() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = lookup_with("a.test", "", &Config::parse(CONFIG), port).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn truncated_answers_are_asked_for_again_over_tcp() {
    let zone: Zone = &[("a.test", "127.0.0.9")];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        for _ in 0..2 {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&reply(&buffer[..length], zone, true), from).unwrap();
        }
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut query = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut query).unwrap();
            let reply = reply(&query, zone, false);
            // In two pieces, so that the second has to be waited for.
            stream.write_all(&u16::try_from(reply.len()).unwrap().to_be_bytes()).unwrap();
            stream.write_all(&reply).unwrap();
        }
    });
    let found = lookup_with("a.test", "", &Config::parse(CONFIG), port).unwrap();
    assert_eq!(found, addresses(&["127.0.0.9"]));
    server.join().unwrap();
}

#[test]
fn hosts_come_before_servers() {
    let hosts = "127.0.0.1 localhost\n::1 localhost # comment\n10.0.0.1\tA.test other\n# 10.0.0.2 a.test\nbad a.test\n";
    // Port 0 cannot be asked.
    let config = Config::parse("");
    assert_eq!(lookup_with("a.TEST", hosts, &config, 0).unwrap(), addresses(&["10.0.0.1"]));
    assert_eq!(
        sorted(lookup_with("localhost", hosts, &config, 0).unwrap()),
        addresses(&["127.0.0.1", "::1"])
    );
    assert_eq!(sorted(lookup_with("x.localhost", "", &config, 0).unwrap()), addresses(&["127.0.0.1", "::1"]));
    assert_eq!(lookup_with("192.0.2.1", hosts, &config, 0).unwrap(), addresses(&["192.0.2.1"]));
    assert!(lookup_with("b.test", hosts, &config, 0).is_err());
}

#[test]
fn options_of_resolv_conf_are_read_within_their_limits() {
    let text = "; comment\nnameserver 192.0.2.1\nnameserver bad\nnameserver fe80::1%7\nnameserver ::2\nnameserver ::3\n\
                domain a\nsearch b. c\noptions ndots:99 timeout:0 attempts:9 use-vc rotate";
    let config = Config::parse(text);
    let servers: Vec<_> = config.servers(53).collect();
    let expected = ["192.0.2.1:53", "[fe80::1%7]:53", "[::2]:53"];
    assert_eq!(servers, expected.map(|text| text.parse::<SocketAddr>().unwrap()));
    assert_eq!((config.timeout.as_secs(), config.attempts, config.tcp), (1, 5, true));
    assert_eq!(config.candidates("a.x"), ["a.x.b", "a.x.c", "a.x"]);
    assert_eq!(Config::parse("").servers(53).collect::<Vec<_>>(), ["127.0.0.1:53".parse().unwrap()]);
}

#[test]
fn names_that_cannot_be_asked_for_are_rejected() {
    assert_eq!(query(1, "a..b", Family::V4), None);
    assert_eq!(query(1, "", Family::V4), None);
    assert_eq!(query(1, &"a".repeat(64), Family::V4), None);
    assert_eq!(query(1, &["a".repeat(63).as_str(); 5].join("."), Family::V4), None);
}

#[test]
fn malformed_answers_are_rejected_wherever_they_are_cut_or_changed() {
    let query = query(7, "a.test", Family::V4).unwrap();
    let whole = reply(&query, &[("a.test", "=b.test"), ("b.test", "127.0.0.9")], false);
    let read = |message: &[u8]| answer(message, 7, "a.test", Family::V4);
    assert_eq!(read(&whole), Some(Answer::Addresses(addresses(&["127.0.0.9"]))));
    for length in 0..whole.len() {
        assert_eq!(read(&whole[..length]), None, "cut to {length} bytes");
    }
    for position in 0..whole.len() {
        for value in 0..=255 {
            let mut changed = whole.clone();
            changed[position] = value;
            // Any outcome is right as long as there is one.
            let _ = read(&changed);
        }
    }
    let mut other = whole.clone();
    other[13] = b'x';
    assert_eq!(read(&other), None, "the answer to another question");
    let mut failed = whole.clone();
    failed[3] = 0x82;
    assert_eq!(read(&failed), Some(Answer::ServerFailed));
    // A pointer to itself.
    let mut endless = whole;
    let pointer = query.len();
    endless[pointer + 1] = u8::try_from(pointer).unwrap();
    assert_eq!(read(&endless), None);
}
