//! Tried: a listed name that resolves to a public address when it is checked and to a private one when it is dialled,
//! or to both at once.
//! Stopped by: a name is resolved once per connection, every address is checked, and only a checked one is dialled.

use crate::env::TestEnv;
use crate::lab::{PUBLIC, in_lab};

/// A client that resolves twice, as a careless proxy does.
const CARELESS: &str = "
checked = socket.getaddrinfo('rebind.test', 80, socket.AF_INET)[0][4][0]
dialled = socket.create_connection(('rebind.test', 80))
dialled.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
print(checked, dialled.recv(4096).decode().rsplit('\\n', 1)[-1])";

const TURNS: &str = "for turn in range(8): said(f'turn {turn}', connect('rebind.test:80'))
for turn in range(8): said(f'fetch {turn}', fetch('http://rebind.test/'))";

#[test]
fn changing_dns_answers_do_not_reach_private_addresses() {
    let env = TestEnv::with_project();
    let turning = format!("rebind.test {PUBLIC} 169.254.169.254");
    let control = in_lab(&env, &turning, "python3 -c \"$P\"; :", CARELESS);
    assert_eq!(control.answer.text(), format!("{PUBLIC} private\n"), "{:?}", control.answer);
    let run = "\"$RUN\" -q --net allow=rebind.test -- python3 -c \"$P\"; :";
    let answers = ["169.254.169.254", "127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1"];
    for private in answers {
        // Alternating; both at once, in either order.
        let by_turns = format!("rebind.test {}", format!("{PUBLIC} {private} ").repeat(20));
        let at_once = format!("rebind.test {PUBLIC}+{private} {private}+{PUBLIC}");
        for names in [by_turns, at_once] {
            let seen = in_lab(&env, &names, run, TURNS);
            assert_eq!(seen.hits("private"), 0, "{names}: {:?}", seen.answer);
            assert!(seen.hits("public") > 0, "{names}: {:?}", seen.answer);
            assert_eq!(seen.answer.text().lines().count(), 16, "{:?}", seen.answer);
        }
    }
}
