//! Tests for heads that are accepted, and for ambiguous ones.

use proptest::prelude::*;

use crate::head::{Framing, HEAD_BYTES_MAX, Head, HeadError, HttpAsk};
use crate::target::HostError;

fn parse(text: &str) -> Result<Option<Head>, HeadError> {
    Head::parse(text.as_bytes())
}

/// The head that is forwarded to the server.
fn onward(text: &str) -> String {
    match parse(text).unwrap().unwrap().ask {
        HttpAsk::Fetch { onward, .. } => String::from_utf8(onward).unwrap(),
        HttpAsk::Connect => panic!("{text}: a tunnel"),
    }
}

#[test]
fn connect_parses_host_and_port_and_leaves_the_rest() {
    let head =
        parse("CONNECT Example.com:443 HTTP/1.1\r\nHost: other:1\r\n\r\n\x16\x03\x01").unwrap().unwrap();
    assert_eq!(head.target.unwrap().to_string(), "example.com:443");
    assert_eq!((head.ask, head.length), (HttpAsk::Connect, 51));
    let head = parse("CONNECT [::1]:22 HTTP/1.0\r\n\r\n").unwrap().unwrap();
    assert_eq!(head.target.unwrap().to_string(), "[::1]:22");
    for (target, why) in [
        ("example.com", HostError::Malformed),
        ("http://example.com:80", HostError::Malformed),
        ("a@example.com:443", HostError::Malformed),
        ("example.com:443:443", HostError::Malformed),
        ("2130706433:80", HostError::Odd),
        ("0x7f.1:80", HostError::Odd),
    ] {
        let head = parse(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).unwrap().unwrap();
        assert_eq!(head.target, Err(why), "{target}");
    }
}

#[test]
fn a_fetch_is_forwarded_with_its_target_host_and_without_hop_by_hop_fields() {
    let sent = "GET http://Example.com/a?b HTTP/1.1\r\nHost: evil.org\r\nAccept: */*\r\nProxy-Connection: Keep-Alive\r\n\
                Proxy-Authorization: Basic eDp5\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\
                TE: trailers\r\nCookie: \tc=d \r\n\r\n";
    assert_eq!(
        onward(sent),
        "GET /a?b HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nCookie: \tc=d \r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        onward("GET http://a.org:8080 HTTP/1.0\r\n\r\n"),
        "GET / HTTP/1.0\r\nHost: a.org:8080\r\nConnection: close\r\n\r\n"
    );
    assert!(
        onward("GET HTTP://[::1]:81?x HTTP/1.1\r\n\r\n")
            .starts_with("GET /?x HTTP/1.1\r\nHost: [::1]:81\r\n")
    );
}

#[test]
fn the_framing_of_a_body_is_unambiguous() {
    let framing = |fields: &str| {
        let head = parse(&format!("POST http://a.org/ HTTP/1.1\r\n{fields}\r\n\r\n"))?;
        match head.unwrap().ask {
            HttpAsk::Fetch { onward, framing } => Ok((framing, String::from_utf8(onward).unwrap())),
            HttpAsk::Connect => panic!("a tunnel"),
        }
    };
    let (read, sent) = framing("Content-Length: 12").unwrap();
    assert_eq!(read, Framing::Length(12));
    assert!(sent.ends_with("Content-Length: 12\r\nConnection: close\r\n\r\n"), "{sent}");
    let (read, sent) = framing("Transfer-Encoding: Chunked").unwrap();
    assert_eq!(read, Framing::Chunked);
    assert!(sent.ends_with("Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"), "{sent}");
    assert_eq!(framing("X: y").unwrap().0, Framing::None);
    for bad in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: 1\r\nContent-Length: 1",
        "Content-Length: 1\r\ncontent-length: 2",
        "Content-Length: 1, 1",
        "Content-Length: +1",
        "Content-Length: 0x1",
        "Content-Length: ",
        "Content-Length: 9999999999999999999",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        assert_eq!(framing(bad), Err(HeadError::Length), "{bad}");
    }
    let old = "POST http://a.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse(old), Err(HeadError::Length));
    let connect = "CONNECT a.org:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(parse(connect), Err(HeadError::Length));
}

#[test]
fn ambiguous_heads_are_rejected() {
    for (bad, why) in [
        ("GET http://a.org/ HTTP/1.1\n\n", HeadError::Line),
        ("GET http://a.org/ HTTP/1.1\r\nX: y\n\r\n\r\n", HeadError::Line),
        ("GET http://a.org/ HTTP/1.1\r\nX: y\rZ: z\r\n\r\n", HeadError::Line),
        ("GET http://a.org/\0 HTTP/1.1\r\n", HeadError::Line),
        ("GET http://a.org/ HTTP/1.1\r\nX: \0\r\n", HeadError::Line),
        ("GET http://a.org/ HTTP/1.1\r\nX: y\r\n folded\r\n\r\n", HeadError::Field),
        ("GET http://a.org/ HTTP/1.1\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n\r\n", HeadError::Field),
        ("GET http://a.org/ HTTP/1.1\r\nContent-Length : 5\r\n\r\n", HeadError::Field),
        ("GET http://a.org/ HTTP/1.1\r\n: x\r\n\r\n", HeadError::Field),
        ("GET http://a.org/ HTTP/1.1\r\nnothing\r\n\r\n", HeadError::Field),
        ("GET http://a.org/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", HeadError::Hosts),
        ("GET  http://a.org/ HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("GET http://a.org/ x HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("GET http://a.org/ HTTP/2.0\r\n\r\n", HeadError::RequestLine),
        ("GET http://a.org/\r\n\r\n", HeadError::RequestLine),
        ("GET\thttp://a.org/ HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("GET http://a.org/\u{fc} HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("\r\nGET http://a.org/ HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("GET http://user@a.org/ HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("GET http://a.org/#x HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        ("GET /path HTTP/1.1\r\nHost: a.org\r\n\r\n", HeadError::NotForAProxy),
        ("OPTIONS * HTTP/1.1\r\nHost: a.org\r\n\r\n", HeadError::NotForAProxy),
        ("GET https://a.org/ HTTP/1.1\r\n\r\n", HeadError::Scheme),
        ("GET ftp://a.org/ HTTP/1.1\r\n\r\n", HeadError::Scheme),
        ("GET a.org HTTP/1.1\r\n\r\n", HeadError::Scheme),
    ] {
        assert_eq!(parse(bad), Err(why), "{bad:?}");
    }
}

#[test]
fn heads_are_bounded() {
    let start = "GET http://a.org/ HTTP/1.1\r\n";
    assert_eq!(parse(&format!("{start}X: {}", "y".repeat(HEAD_BYTES_MAX))), Err(HeadError::TooLong));
    assert_eq!(parse(&format!("{start}{}\r\n", "X: y\r\n".repeat(201))), Err(HeadError::Fields));
    assert!(parse(&format!("{start}{}\r\n", "X: y\r\n".repeat(200))).unwrap().is_some());
    assert_eq!(
        parse(&format!("{} http://a.org/ HTTP/1.1\r\n\r\n", "G".repeat(33))),
        Err(HeadError::RequestLine)
    );
}

proptest! {
    /// No prefix is treated as complete, and data after the head does not change the result.
    #[test]
    fn bytes_after_the_head_are_not_consumed(path in "[a-z/?=&]{0,20}", value in "[ -~]{0,30}", more in any::<[u8; 8]>()) {
        let head = format!("GET http://a.org/{path} HTTP/1.1\r\nX-Y: {value}\r\n\r\n").into_bytes();
        for cut in 0..head.len() {
            prop_assert_eq!(Head::parse(&head[..cut]), Ok(None));
        }
        let read = Head::parse(&head).unwrap().unwrap();
        prop_assert_eq!(read.length, head.len());
        prop_assert_eq!(Head::parse(&[&head[..], &more].concat()).unwrap().unwrap(), read);
    }

    /// The forwarded bytes are exactly one head: no field of a client can end it early or add a second request.
    #[test]
    fn exactly_one_head_is_forwarded(bytes in proptest::collection::vec(
        prop_oneof![
            Just(b"\r\n".to_vec()), Just(b"\n".to_vec()), Just(b": ".to_vec()), Just(b"Host".to_vec()),
            Just(b"Content-Length: 3".to_vec()), Just(b"Transfer-Encoding: chunked".to_vec()),
            Just(b"GET http://b.org/ HTTP/1.1".to_vec()), Just(b" ".to_vec()), any::<[u8; 2]>().prop_map(|two| two.to_vec()),
        ], 0..12)) {
        let sent = [&b"GET http://a.org/ HTTP/1.1\r\n"[..], &bytes.concat(), b"\r\n\r\n"].concat();
        if let Ok(Some(Head { ask: HttpAsk::Fetch { onward, .. }, .. })) = Head::parse(&sent) {
            let ends: Vec<usize> = onward.windows(4).enumerate()
                .filter(|(_, four)| *four == b"\r\n\r\n").map(|(at, _)| at).collect();
            prop_assert_eq!(ends, vec![onward.len() - 4]);
            prop_assert!(onward.starts_with(b"GET / HTTP/1.1\r\nHost: a.org\r\n"));
            let text = String::from_utf8_lossy(&onward).to_ascii_lowercase();
            prop_assert_eq!(text.matches("\r\nhost:").count(), 1);
            let framings = text.matches("\r\ncontent-length:").count() + text.matches("\r\ntransfer-encoding:").count();
            prop_assert!(framings <= 1);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(Some(head)) = Head::parse(&bytes) {
            prop_assert!(head.length <= bytes.len());
        }
    }
}
