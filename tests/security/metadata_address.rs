//! Tried: the address at which clouds serve credentials, as a number in every notation and by names that resolve to it.
//! Stopped by: an address needs its own rule; link-local addresses are refused for every name that resolves to them.

use crate::env::TestEnv;
use crate::lab::{PUBLIC, in_lab};

const ASK: &str = "
for host in ('169.254.169.254', '2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '169.254.43518', '[::ffff:169.254.169.254]',
             '[::ffff:a9fe:a9fe]', '[64:ff9b::a9fe:a9fe]', 'meta.test', 'META.test.', 'meta6.test', 'translated.test'):
    said('connect ' + host, connect(host + ':80'))
    said('fetch ' + host, fetch('http://' + host + '/latest/meta-data/'))
said('listed', connect('public.test:80'))";
const NAMES: &str = "meta.test 169.254.169.254
meta6.test ::ffff:169.254.169.254
translated.test 64:ff9b::a9fe:a9fe
public.test 93.184.216.34";

#[test]
fn metadata_address_is_refused_in_every_notation() {
    let env = TestEnv::with_project();
    let control = "fetched = socket.create_connection(('meta.test', 80)); fetched.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); said('direct', fetched.recv(4096))";
    let script = |start: &str| format!("{start} python3 -c \"$P\"; :");
    let outside = in_lab(&env, NAMES, &script("env"), control);
    assert_eq!(outside.answer.text(), "direct private\n", "{:?}", outside.answer);
    let seen = in_lab(&env, NAMES, &script("\"$RUN\" -q --net 'allow=*.test' --"), ASK);
    assert_eq!(seen.hits("private"), 0, "{:?}", seen.answer);
    let text = seen.answer.text();
    assert!(text.ends_with("listed public\n"), "{PUBLIC} was not reached: {:?}", seen.answer);
    assert_eq!(text.lines().count(), 25, "{text}");
    // If the list has the address itself, the user has allowed it explicitly.
    let listed = in_lab(
        &env,
        NAMES,
        &script("\"$RUN\" -q --net allow=169.254.169.254 --"),
        "said('listed', connect('169.254.169.254:80'))",
    );
    assert_eq!(listed.answer.text(), "listed private\n", "{:?}", listed.answer);
}
