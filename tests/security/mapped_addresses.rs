//! Tried: private IPv4 addresses embedded in IPv6: mapped, compatible, translated, 6to4; as an address, as a DNS
//! answer, and in the binary form of SOCKS.
//! Stopped by: the check applies to the address that is finally dialled.

use crate::env::TestEnv;
use crate::lab::in_lab;

const ASK: &str = "
def socks(address):
    packed = socket.inet_pton(socket.AF_INET6, address)
    return raw(b'\\x05\\x01\\x00\\x05\\x01\\x00\\x04' + packed + b'\\x00\\x50' + b'GET / HTTP/1.0\\r\\n\\r\\n')
for address in ('::ffff:127.0.0.1', '::ffff:10.1.2.3', '::127.0.0.1', '64:ff9b::7f00:1', '2002:7f00:1::', '::1', '::'):
    said('socks ' + address, socks(address))
    said('connect ' + address, connect(f'[{address}]:80'))
for number in range(5): said(f'name {number}', connect(f'm{number}.test:80'))";
const NAMES: &str = "m0.test ::ffff:127.0.0.1
m1.test ::ffff:10.1.2.3
m2.test ::127.0.0.1
m3.test ::1
m4.test ::";

#[test]
fn private_ipv4_address_embedded_in_ipv6_is_refused() {
    let env = TestEnv::with_project();
    // Control: the kernel connects a mapped address to its IPv4 address.
    let direct = "s = socket.create_connection(('::ffff:10.1.2.3', 80)); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); said('direct', s.recv(4096))";
    let script = |start: &str| format!("{start} python3 -c \"$P\"; :");
    let control = in_lab(&env, NAMES, &script("env"), direct);
    assert_eq!(control.answer.text(), "direct private\n", "{:?}", control.answer);
    let seen = in_lab(&env, NAMES, &script("\"$RUN\" -q --net 'allow=*.test' --"), ASK);
    assert_eq!(seen.hits("private"), 0, "{:?}", seen.answer);
    assert_eq!(seen.answer.text().lines().count(), 19, "{:?}", seen.answer);
    // Control: if it is listed, the address can be reached through the proxy.
    let listed = in_lab(
        &env,
        NAMES,
        &script("\"$RUN\" -q --net allow=10.1.2.3 --"),
        "said('listed', connect('10.1.2.3:80'))",
    );
    assert_eq!(listed.answer.text(), "listed private\n", "{:?}", listed.answer);
}
