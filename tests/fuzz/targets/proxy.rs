//! Input of the proxy from a client: heads, bodies and SOCKS are parsed completely, byte by byte as at once, and only
//! addresses of the public network are dialled, whichever addresses a name resolves to.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;

use avfs_egress::{Body, Head, HttpAsk, Outside, Target, greeting, request, route, special};
use avfs_request::AllowList;

const BYTES_MAX: usize = 2048;

/// Parses prefixes, one byte longer each time: the first result is also the result for all bytes.
fn by_bytes<T: PartialEq + std::fmt::Debug, E: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<Option<T>, E>,
) {
    let whole = parse(bytes);
    for end in 0..bytes.len() {
        match parse(&bytes[..end]) {
            Ok(None) => {}
            said => {
                assert!(
                    said == whole || (said.is_err() && whole.is_err()),
                    "{end} bytes give {said:?}, all of them {whole:?}"
                );
                return;
            }
        }
    }
}

/// The content of the chunks, and whether the last chunk was read.
fn decoded(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    loop {
        let Some(line) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return (data, false) };
        let size =
            std::str::from_utf8(&bytes[..line]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.expect("the size of a re-encoded chunk");
        bytes = &bytes[line + 2..];
        if size == 0 {
            assert_eq!(bytes, b"\r\n", "nothing follows the last chunk");
            return (data, true);
        }
        data.extend_from_slice(&bytes[..size]);
        assert_eq!(&bytes[size..size + 2], b"\r\n");
        bytes = &bytes[size + 2..];
    }
}

fn body(bytes: &[u8]) {
    let (mut at_once, mut out) = (Body::chunked(), Vec::new());
    let taken = at_once.take(bytes, &mut out);
    let (mut slowly, mut out_slowly, mut taken_slowly) = (Body::chunked(), Vec::new(), Ok(0));
    for byte in bytes {
        match slowly.take(&[*byte], &mut out_slowly) {
            Ok(more) => taken_slowly = taken_slowly.map(|sum: usize| sum + more),
            Err(error) => {
                taken_slowly = Err(error);
                break;
            }
        }
    }
    assert_eq!(taken, taken_slowly);
    if taken.is_ok() {
        assert_eq!(at_once.is_done(), slowly.is_done());
        assert_eq!(decoded(&out), decoded(&out_slowly));
        assert_eq!(decoded(&out).1, at_once.is_done());
    }
}

fn head(bytes: &[u8]) {
    by_bytes(bytes, Head::parse);
    let Ok(Some(head)) = Head::parse(bytes) else { return };
    assert!(head.length <= bytes.len() && bytes[..head.length].ends_with(b"\r\n\r\n"));
    assert!(!head.shown.chars().any(char::is_control));
    let HttpAsk::Fetch { onward, .. } = &head.ask else { return };
    if head.target.is_err() {
        assert!(onward.is_empty());
        return;
    }
    let ends = onward.windows(4).filter(|part| *part == b"\r\n\r\n").count();
    assert!(ends == 1 && onward.ends_with(b"\r\n\r\n"), "exactly one head is forwarded");
    let text = String::from_utf8_lossy(onward).to_ascii_lowercase();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines.iter().all(|line| !line.contains(['\n', '\r', '\0'])), "{text:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("host:")).count(), 1, "{text:?}");
    let lengths = lines
        .iter()
        .filter(|line| line.starts_with("content-length:") || line.starts_with("transfer-encoding:"));
    assert!(lengths.count() <= 1, "{text:?}");
}

/// A name server whose answers are the bytes.
struct Says<'a>(&'a [u8]);

impl Outside for Says<'_> {
    type Error = ();

    fn resolve(&self, _: &str) -> Result<Vec<IpAddr>, ()> {
        let six = self
            .0
            .chunks_exact(16)
            .map(|part| <[u8; 16]>::try_from(part).map(|a| IpAddr::V6(Ipv6Addr::from(a))));
        let four = self
            .0
            .chunks_exact(4)
            .map(|part| <[u8; 4]>::try_from(part).map(|a| IpAddr::V4(Ipv4Addr::from(a))));
        six.chain(four).collect::<Result<_, _>>().map_err(drop)
    }

    fn own_addresses(&self) -> Result<Vec<IpAddr>, ()> {
        Ok(Vec::new())
    }
}

fn routed(target: &Target, bytes: &[u8]) {
    let list = AllowList::parse("*.test,example.com:8080").expect("a list");
    if let Ok(route) = route(&list, target, &Says(bytes)) {
        for address in route.addresses() {
            assert_eq!(special(address.ip()), None, "{address} is dialled");
            assert_eq!(address.port(), target.port);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => head(bytes),
        1 => body(bytes),
        2 => by_bytes(bytes, greeting),
        3 => {
            by_bytes(bytes, request);
            if let Ok(Some(ask)) = request(bytes) {
                assert!(ask.length <= bytes.len());
                if let Ok(target) = &ask.target {
                    routed(target, &bytes[ask.length..]);
                }
            }
        }
        _ => {
            if let Ok(target) = Target::parse(b"a.test:80", None) {
                routed(&target, bytes);
            }
            let _ = Target::parse(bytes, Some(80));
        }
    }
});
