//! Tried: a second request inside the bytes of the first, for a host that is not listed: with two lengths, chunks that
//! end early, bare line feeds, a different Host, or after an allowed request.
//! Stopped by: one request per connection, parsed strictly and written again; nothing after it is forwarded.

use crate::env::TestEnv;
use crate::lab::in_lab;

const SMUGGLE: &str = "
secret = b'GET http://private.test/smuggled HTTP/1.1\\r\\nHost: private.test\\r\\n\\r\\n'
head = b'POST http://public.test/ HTTP/1.1\\r\\nHost: public.test\\r\\n'
tries = {
    'pipelined': b'GET http://public.test/ HTTP/1.1\\r\\nHost: public.test\\r\\n\\r\\n' + secret,
    'two lengths': head + b'Content-Length: 0\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(secret) + secret,
    'length and chunks': head + b'Content-Length: %d\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n' % (5 + len(secret)) + secret,
    'chunks end early': head + b'Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + secret,
    'odd coding': head + b'Transfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n' + secret,
    'bare line feeds': b'GET http://public.test/ HTTP/1.1\\nHost: public.test\\n\\n' + secret,
    'folded': head + b'X: y\\r\\n Transfer-Encoding: chunked\\r\\n\\r\\n' + secret,
    'line in a target': b'CONNECT public.test:80\\r\\nX: HTTP/1.1\\r\\n\\r\\n' + secret,
    'userinfo': b'GET http://public.test@private.test/ HTTP/1.1\\r\\nHost: public.test\\r\\n\\r\\n',
    'two targets': b'CONNECT public.test:80 private.test:80 HTTP/1.1\\r\\n\\r\\n',
    'nul': b'CONNECT private.test\\x00.public.test:80 HTTP/1.1\\r\\n\\r\\n',
    'not listed': b'CONNECT private.test:80 HTTP/1.1\\r\\n\\r\\n' + secret,
}
for name, data in tries.items(): said(name, raw(data))
said('other host', raw(b'GET http://public.test/ HTTP/1.1\\r\\nHost: private.test\\r\\n\\r\\n'))";
const NAMES: &str = "public.test 93.184.216.34
private.test 10.1.2.3";

#[test]
fn smuggled_request_is_not_forwarded() {
    let env = TestEnv::with_project();
    let script = |start: &str| format!("{start} python3 -c \"$P\"; :");
    // Control: both servers exist, and a direct connection passes everything on.
    let direct = "s = socket.create_connection(('private.test', 80)); s.sendall(b'GET /smuggled HTTP/1.0\\r\\n\\r\\n'); said('direct', s.recv(4096))";
    let control = in_lab(&env, NAMES, &script("env"), direct);
    assert_eq!((control.hits("private"), control.answer.text().as_str()), (1, "direct private\n"));
    let seen = in_lab(&env, NAMES, &script("\"$RUN\" -q --net allow=public.test --"), SMUGGLE);
    assert_eq!(seen.answer.text().lines().count(), 13, "{:?}", seen.answer);
    assert_eq!(seen.hits("private"), 0, "{:?}", seen.answer);
    let heard = seen.hits.get("public").cloned().unwrap_or_default();
    assert!(!heard.is_empty(), "nothing was allowed: {:?}", seen.answer);
    for line in heard {
        assert!(!line.contains("smuggled") && !line.contains("private.test"), "{line}");
    }
}
