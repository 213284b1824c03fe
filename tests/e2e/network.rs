//! Networks with an allow list: listed places are reached through the proxy with every protocol, and nothing else is.
//!
//! The servers are real ones on the loopback of the host, which differs from the loopback of the sandbox.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};

use crate::env::{TestEnv, wait_for};

/// Sends each word (bytes in hex) to the proxy and prints the whole answer (in hex). With `half` the client closes
/// its sending side afterwards.
const TALK: &str = r#"
import socket, sys
for word in sys.argv[3:]:
    s = socket.create_connection((sys.argv[2], 61080))
    s.sendall(bytes.fromhex(word))
    if sys.argv[1] == "half": s.shutdown(socket.SHUT_WR)
    out = b""
    try:
        while True:
            piece = s.recv(65536)
            if not piece: break
            out += piece
    except ConnectionResetError: out += b"<reset>"
    print(out.hex())
"#;

/// A server on the loopback of the host, and the data that its clients sent.
struct Server {
    port: u16,
    clients: Arc<Mutex<Vec<Client>>>,
}

/// One connection; connections are in the order in which they were accepted.
struct Client {
    port: u16,
    /// The data that the client sent, once the connection has ended.
    sent: Option<Vec<u8>>,
}

impl Server {
    /// Serves each connection in a separate thread.
    fn new(serve: impl Fn(&mut TcpStream) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let clients = Arc::new(Mutex::new(Vec::new()));
        let (serve, accepted) = (Arc::new(serve), Arc::clone(&clients));
        std::thread::spawn(move || {
            loop {
                let (mut stream, from) = listener.accept().unwrap();
                let number = {
                    let mut accepted = accepted.lock().unwrap();
                    accepted.push(Client { port: from.port(), sent: None });
                    accepted.len() - 1
                };
                let (serve, accepted) = (Arc::clone(&serve), Arc::clone(&accepted));
                std::thread::spawn(move || {
                    let sent = serve(&mut stream);
                    accepted.lock().unwrap()[number].sent = Some(sent);
                });
            }
        });
        Self { port, clients }
    }

    /// Answers one HTTP request at once, then reads until the client closes the connection.
    fn http() -> Self {
        Self::new(|stream| {
            let mut came = Vec::new();
            let mut buffer = [0; 4096];
            while !came.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut buffer).unwrap_or(0) {
                    0 => return came,
                    length => came.extend_from_slice(&buffer[..length]),
                }
            }
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut came);
            came
        })
    }

    /// Reads until end of file, and only then sends everything back.
    fn echo_at_the_end() -> Self {
        Self::new(|stream| {
            let mut came = Vec::new();
            let _ = stream.read_to_end(&mut came);
            let _ = stream.write_all(&came);
            let _ = stream.shutdown(Shutdown::Write);
            came
        })
    }

    /// The data that each client sent, once all connections so far have ended.
    fn seen(&self) -> Vec<String> {
        // Connections are accepted in order: once this one is, so are all before it.
        let last = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let own = last.local_addr().unwrap().port();
        drop(last);
        wait_for("all connections have ended", || {
            let clients = self.clients.lock().unwrap();
            clients.last().is_some_and(|client| client.port == own)
                && clients.iter().all(|client| client.sent.is_some())
        });
        let mut clients = self.clients.lock().unwrap();
        clients.pop();
        let sent = clients.iter().flat_map(|client| &client.sent);
        sent.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// What the client does after sending its request.
#[derive(Clone, Copy)]
enum After {
    Listens,
    ClosesItsHalf,
}

/// The answers of the proxy to some requests, and the connections in the envelope.
#[track_caller]
fn talk_at(
    env: &TestEnv,
    host: &str,
    list: &str,
    requests: &[&[u8]],
    after: After,
) -> (Vec<Vec<u8>>, Vec<Value>) {
    let net = format!("allow={list}");
    let after = match after {
        After::Listens => "whole",
        After::ClosesItsHalf => "half",
    };
    let requests: Vec<String> = requests.iter().map(|bytes| hex(bytes)).collect();
    let mut words = vec!["--json", "--net", &net, "--", "python3", "-c", TALK, after, host];
    words.extend(requests.iter().map(String::as_str));
    let envelope = env.run(&words).expect(0).envelope();
    let said: Vec<Vec<u8>> = envelope["result"]["stdout"].as_str().unwrap().lines().map(unhex).collect();
    assert_eq!(said.len(), requests.len(), "{envelope}");
    (said, envelope["result"]["connections"].as_array().unwrap().clone())
}

/// Like [`talk_at`] with the usual address; returns each answer with its connection.
#[track_caller]
fn talk_all(env: &TestEnv, list: &str, requests: &[String]) -> Vec<(String, Value)> {
    let bytes: Vec<&[u8]> = requests.iter().map(String::as_bytes).collect();
    let (said, connections) = talk_at(env, "127.0.0.1", list, &bytes, After::Listens);
    assert_eq!(connections.len(), requests.len());
    let said = said.iter().map(|said| String::from_utf8_lossy(said).into_owned());
    said.zip(connections).collect()
}

#[track_caller]
fn talk(env: &TestEnv, list: &str, text: &str) -> (String, Value) {
    talk_all(env, list, &[text.to_owned()]).remove(0)
}

/// One request over SOCKS5.
#[track_caller]
fn talk_socks(env: &TestEnv, host: &str, list: &str, request: &[u8], after: After) -> Vec<u8> {
    talk_at(env, host, list, &[request], after).0.remove(0)
}

fn socks(name: &str, port: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

#[test]
fn a_listed_place_is_reached_with_http_connect_and_socks() {
    let env = TestEnv::with_project();
    let server = Server::http();
    let port = server.port;
    let list = format!("127.0.0.1:{port}");
    let (said, connection) =
        talk(&env, &list, &format!("GET http://127.0.0.1:{port}/x HTTP/1.1\r\nA: b\r\n\r\n"));
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("hello"), "{said}");
    let sent = format!("GET /x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nA: b\r\nConnection: close\r\n\r\n");
    assert_eq!(server.seen(), [sent.as_str()]);
    assert_eq!(connection["host"], json!("127.0.0.1"));
    assert_eq!((&connection["port"], &connection["address"]), (&json!(port), &json!("127.0.0.1")));
    assert_eq!((&connection["verdict"], &connection["reason"]), (&json!("allowed"), &Value::Null));
    assert_eq!(
        (&connection["bytes_up"], &connection["bytes_down"]),
        (&json!(sent.len()), &json!(said.len()))
    );
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\n\r\n");
    let (said, _) = talk(&env, &list, &request);
    assert!(said.starts_with("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK"), "{said}");
    for host in ["127.0.0.1", "::1"] {
        let bytes = socks("127.0.0.1", port, b"GET /z HTTP/1.1\r\n\r\n");
        let said = talk_socks(&env, host, &list, &bytes, After::Listens);
        assert!(
            said.starts_with(&[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]) && said.ends_with(b"hello"),
            "{said:?}"
        );
    }
    // Data sent together with the request for a tunnel went through the tunnel once.
    assert_eq!(
        server.seen()[1..],
        ["GET /y HTTP/1.1\r\n\r\n", "GET /z HTTP/1.1\r\n\r\n", "GET /z HTTP/1.1\r\n\r\n"]
    );
}

#[test]
fn the_record_of_a_run_has_its_connections() {
    let env = TestEnv::with_project();
    talk(&env, "a.example", "CONNECT b.example:443 HTTP/1.1\r\n\r\n");
    let runs = env.avfs_result(&["runs", "list"]);
    let shown = env.avfs_result(&["runs", "show", runs["runs"][0]["id"].as_str().unwrap()]);
    let connections = shown["result"]["connections"].as_array().unwrap();
    assert_eq!((connections.len(), &connections[0]["host"]), (1, &json!("b.example")), "{shown}");
    assert_eq!(shown["request"]["net"], json!("allow=a.example"));
}

#[test]
fn a_name_that_resolves_to_loopback_needs_the_address_in_the_list_too() {
    let env = TestEnv::with_project();
    let server = Server::http();
    let port = server.port;
    let request = format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n");
    let (said, connection) = talk(&env, &format!("localhost:{port}"), &request);
    assert!(said.starts_with("HTTP/1.1 403 Forbidden\r\n") && said.contains("a loopback address"), "{said}");
    assert_eq!(connection["verdict"], json!("refused"));
    let address = connection["address"].as_str().unwrap();
    assert!(address == "127.0.0.1" || address == "::1", "{address}");
    let request_by_socks = socks("localhost", port, b"");
    let said = talk_socks(&env, "127.0.0.1", &format!("localhost:{port}"), &request_by_socks, After::Listens);
    assert_eq!(said[..4], [5, 0, 5, 2], "{said:?}");
    assert_eq!(server.seen(), [""; 0]);
    // Control: with the address the same request is answered.
    let (said, connection) = talk(&env, &format!("localhost:{port},127.0.0.1:{port},[::1]:{port}"), &request);
    assert!(said.ends_with("hello"), "{said}");
    assert_eq!((&connection["host"], &connection["address"]), (&json!("localhost"), &json!("127.0.0.1")));
}

#[test]
fn unusual_notations_of_an_address_are_refused() {
    let env = TestEnv::with_project();
    let server = Server::http();
    let port = server.port;
    let list = format!("localhost:{port},*.nip.io:{port}");
    let hosts = [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "127.0.0.1",
        "[::1]",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
        "[::]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "\u{ff11}\u{ff12}7.0.0.1",
    ];
    let requests = hosts.map(|host| format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n"));
    for (host, (said, connection)) in hosts.into_iter().zip(talk_all(&env, &list, &requests)) {
        // A request line that is not ASCII is malformed.
        let (status, verdict) =
            if host.is_ascii() { ("HTTP/1.1 403 ", "refused") } else { ("HTTP/1.1 400 ", "failed") };
        assert!(said.starts_with(status), "{host}: {said}");
        assert_eq!(connection["verdict"], json!(verdict), "{host}");
    }
    assert_eq!(server.seen(), [""; 0]);
}

#[test]
fn a_refusal_is_reported_to_the_program_and_once_to_the_caller() {
    let env = TestEnv::with_project();
    let request = "GET http://evil.example:8080/ HTTP/1.1\r\n\r\n";
    let (said, _) = talk(&env, "a.example", request);
    assert!(said.contains("evil.example:8080 is refused: it is not in the allow list"), "{said}");
    assert!(said.contains("--net allow=a.example,evil.example:8080"), "{said}");
    let twice = format!(
        "python3 -c '{TALK}' whole 127.0.0.1 {request} {request} >/dev/null",
        request = hex(request.as_bytes())
    );
    let answer = env.shell(&["--net", "allow=a.example"], &twice).expect(0);
    let lines: Vec<&str> = answer.stderr.lines().filter(|line| line.contains("evil.example")).collect();
    let [refused, flag] = lines.as_slice() else { panic!("{answer:?}") };
    assert!(
        refused.ends_with("evil.example:8080 was refused: it is not in the allow list (2 times)"),
        "{refused}"
    );
    assert!(flag.ends_with("--net allow=a.example,evil.example:8080"), "{flag}");
}

#[test]
fn a_server_receives_one_request_and_nothing_after_it() {
    let env = TestEnv::with_project();
    let server = Server::http();
    let port = server.port;
    let list = format!("127.0.0.1:{port}");
    let second = "GET /second HTTP/1.1\r\nHost: x\r\n\r\n";
    let at =
        |fields: &str, rest: &str| format!("POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{fields}\r\n{rest}");
    for (fields, body, arrived) in [
        ("", "", "\r\n\r\n"),
        ("Content-Length: 3\r\n", "abc", "\r\n\r\nabc"),
        (
            "Transfer-Encoding: chunked\r\n",
            "3;x=y\r\nabc\r\n0\r\nT: t\r\n\r\n",
            "\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
    ] {
        let before = server.seen().len();
        let (said, _) = talk(&env, &list, &at(fields, &format!("{body}{second}")));
        assert!(said.ends_with("hello"), "{fields}: {said}");
        let seen = server.seen();
        assert_eq!(seen.len(), before + 1, "{fields}");
        assert!(seen[before].ends_with(arrived) && !seen[before].contains("second"), "{:?}", seen[before]);
    }
    let before = server.seen().len();
    let bad = [
        at("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        at("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"),
        at("X: y\r\n folded\r\n", ""),
        at("X: y\n", ""),
        at("Transfer-Encoding : chunked\r\n", ""),
        at("X: \0\r\n", ""),
        format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nContent-Length: 40\r\n\r\n{second}"),
    ];
    for (bad, (said, connection)) in bad.iter().zip(talk_all(&env, &list, &bad)) {
        assert!(said.starts_with("HTTP/1.1 400 "), "{bad:?}: {said}");
        assert_eq!(connection["verdict"], json!("failed"), "{bad:?}");
    }
    assert_eq!(server.seen().len(), before);
}

#[test]
fn a_half_close_is_forwarded_in_both_directions() {
    let env = TestEnv::with_project();
    let server = Server::echo_at_the_end();
    let list = format!("127.0.0.1:{}", server.port);
    let data = vec![b'x'; 300_000];
    let start = format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n", server.port);
    let script = format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', 61080))\ns.sendall({start:?}.encode() + b'x' * 300000)\n\
         s.shutdown(socket.SHUT_WR)\nout = b''\nwhile True:\n  p = s.recv(65536)\n  if not p: break\n  out += p\nprint(len(out))"
    );
    let answer = env.run(&["--net", &format!("allow={list}"), "--", "python3", "-c", &script]).expect(0);
    let head = "HTTP/1.1 200 Connection established\r\n\r\n".len();
    assert_eq!(answer.text().trim(), (head + data.len()).to_string());
    assert!(server.seen() == [String::from_utf8(data).unwrap()], "the server has not received all of it");
    let small = socks("127.0.0.1", server.port, b"both ways");
    let said = talk_socks(&env, "127.0.0.1", &list, &small, After::ClosesItsHalf);
    assert!(said.ends_with(b"both ways"), "{said:?}");
}

#[test]
fn the_proxy_is_the_only_way_out() {
    let env = TestEnv::with_project();
    let server = Server::http();
    let direct = format!(
        "import socket\ntry:\n  socket.create_connection(('127.0.0.1', {}))\n  print('reached')\nexcept OSError as e: print(e.errno)",
        server.port
    );
    let list = format!("allow=127.0.0.1:{}", server.port);
    let run =
        |net: &str, script: &str| env.run(&["--net", net, "--", "python3", "-c", script]).expect(0).text();
    assert_eq!(run(&list, &direct).trim(), "111");
    // Control: with the host's network the server is reachable.
    assert_eq!(run("host", &direct).trim(), "reached");
    let elsewhere = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                     try: s.sendto(b'x', ('192.0.2.1', 53)); print('sent')\nexcept OSError as e: print(e.errno)";
    assert_eq!(run(&list, elsewhere).trim(), "101");
    // The port of the proxy is in use, so no process inside can impersonate the proxy.
    let takes = "import socket\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
                 try: s.bind(('127.0.0.1', 61080)); print('taken')\nexcept OSError as e: print(e.errno)";
    assert_eq!(run(&list, takes).trim(), "98");
}

#[test]
fn a_hanging_connection_does_not_delay_the_end_of_the_run() {
    let env = TestEnv::with_project();
    // The server never ends its connections.
    let server = Server::new(|_| {
        loop {
            std::thread::park();
        }
    });
    let list = format!("allow=127.0.0.1:{}", server.port);
    let script = format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', 61080))\n\
         s.sendall(b'CONNECT 127.0.0.1:{} HTTP/1.1\\r\\n\\r\\n')\ns.recv(100)\nt = socket.create_connection(('127.0.0.1', 61080))\n",
        server.port
    );
    let envelope = env.run(&["--json", "--net", &list, "--", "python3", "-c", &script]).expect(0).envelope();
    wait_for("the server was reached", || server.clients.lock().unwrap().len() == 1);
    assert_eq!(envelope["result"]["connections"].as_array().unwrap().len(), 1);
}

#[test]
fn many_connections_are_served_and_those_not_listed_are_counted() {
    let env = TestEnv::with_project();
    let server = Server::echo_at_the_end();
    let script = format!(
        "import socket\ndef ask():\n  s = socket.create_connection(('127.0.0.1', 61080))\n\
         \x20 s.sendall(b'CONNECT 127.0.0.1:{} HTTP/1.1\\r\\n\\r\\nx')\n  return s\n\
         def end(s):\n  s.shutdown(socket.SHUT_WR)\n  out = b''\n  while True:\n    p = s.recv(1000)\n    if not p: break\n    out += p\n\
         \x20 s.close()\n  return out.endswith(b'x')\n\
         # More at once than are taken at once; the first ones make room.\nall = [ask() for i in range(300)]\n\
         print(sum(end(s) for s in all))\nprint(sum(end(ask()) for i in range(705)))",
        server.port
    );
    let list = format!("allow=127.0.0.1:{}", server.port);
    let envelope = env.run(&["--json", "--net", &list, "--", "python3", "-c", &script]).expect(0).envelope();
    let result = &envelope["result"];
    assert_eq!(result["stdout"], json!("300\n705\n"));
    assert_eq!(result["connections"].as_array().unwrap().len(), 1000);
    assert_eq!(result["connections_left_off"], json!(5));
}

#[test]
fn an_unreachable_server_is_a_failure_and_not_a_refusal() {
    let env = TestEnv::with_project();
    // Bound, so that no other process gets the port, and not listening.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap().port();
    let list = format!("127.0.0.1:{port}");
    let (said, connection) = talk(&env, &list, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n"));
    assert!(said.starts_with("HTTP/1.1 502 "), "{said}");
    assert_eq!(connection["verdict"], json!("failed"));
    let said = talk_socks(&env, "127.0.0.1", &list, &socks("127.0.0.1", port, b""), After::Listens);
    assert_eq!(said[..4], [5, 0, 5, 5]);
}

#[test]
fn proxy_variables_are_set_only_with_an_allow_list_and_values_of_the_user_take_precedence() {
    let env = TestEnv::with_project();
    let shown = |options: &[&str]| env.ok(options, "env | grep -i _proxy= | sort");
    assert_eq!(
        shown(&["--net", "allow=a.example", "--env", "http_proxy=http://x", "--env", "ALL_PROXY="]),
        "ALL_PROXY=\nHTTPS_PROXY=http://127.0.0.1:61080\nHTTP_PROXY=http://127.0.0.1:61080\n\
         NO_PROXY=localhost,127.0.0.1,::1\nall_proxy=socks5h://127.0.0.1:61080\nhttp_proxy=http://x\n\
         https_proxy=http://127.0.0.1:61080\nno_proxy=localhost,127.0.0.1,::1\n"
    );
    let none = env.shell(&[], "env | grep -i _proxy=; true").expect(0);
    assert_eq!(none.text(), "");
}

/// On a host whose names resolve to addresses that an attacker would choose.
#[test]
fn names_that_resolve_to_private_addresses_are_refused() {
    let env = TestEnv::with_project();
    let server = Server::http();
    let port = server.port;
    let hosts = env.at("hosts");
    let places = [
        ("meta.example", "169.254.169.254", "a link-local address"),
        ("private.example", "10.0.0.1", "a private address"),
        ("home.example", "127.0.0.1", "a loopback address"),
        ("nobody.example", "0.0.0.0", "the unspecified address"),
        ("unique.example", "fd00::1", "a private address"),
        ("mapped.example", "::ffff:127.0.0.1", "a loopback address"),
        ("tunnel.example", "2002:7f00:1::1", "a tunnel to a non-public address"),
    ];
    let lines = places.map(|(name, address, _)| format!("{address} {name}\n"));
    std::fs::write(&hosts, lines.concat()).unwrap();
    let requests = places
        .map(|(name, _, _)| hex(format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n").as_bytes()))
        .join(" ");
    let mut command = env.clean("unshare".as_ref());
    command.args(["-Urm", "sh", "-uc"]);
    command.arg("mount --bind \"$HOSTS\" /etc/hosts && exec \"$RUN\" --json --net \"$NET\" -- python3 -c \"$TALK\" whole 127.0.0.1 $REQUESTS");
    command
        .env("HOSTS", &hosts)
        .env("RUN", crate::env::runner())
        .env("NET", format!("allow=*.example:{port}"));
    command.env("REQUESTS", requests).env("TALK", TALK);
    let envelope = env.answer(&mut command).expect(0).envelope();
    let connections = envelope["result"]["connections"].as_array().unwrap();
    for (connection, (name, _, why)) in connections.iter().zip(places) {
        let reason = connection["reason"].as_str().unwrap_or_default();
        assert_eq!(
            (&connection["host"], &connection["verdict"]),
            (&json!(name), &json!("refused")),
            "{connection}"
        );
        assert!(reason.contains(why), "{name}: {reason}");
    }
    assert_eq!((connections.len(), server.seen().len()), (places.len(), 0));
}
