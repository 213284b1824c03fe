//! Tried: talking to a host server through its socket or FIFO in the live workspace, which is the lower layer of the
//! run.
//! Stopped by: an overlay does not connect them to the host: the names exist, but nothing listens.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;

const CONNECT: &str =
    "import socket\ntried('connect', lambda: socket.socket(socket.AF_UNIX).connect('socket'))";
const OPEN: &str = "tried('open', lambda: os.close(os.open('pipe', os.O_WRONLY | os.O_NONBLOCK)))";

#[test]
fn socket_in_the_workspace_cannot_be_reached() {
    let env = TestEnv::with_project();
    // A short name: the path of the project may be too long for a socket address.
    let make = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen(); time.sleep(1000)";
    let mut server = crate::attempt::outside(&env, make).spawn().unwrap();
    crate::env::wait_for("the socket", || natively(&env, CONNECT).text() == "connect gained\n");
    let mut outcomes = Vec::new();
    for options in [
        &["--base", "live"][..],
        &["--base", "cached"],
        &["--backend", "copy"],
        &["--readonly"],
        &["--readonly", "--backend", "copy"],
    ] {
        outcomes.push((options, inside(&env, options, CONNECT).text()));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    for (options, text) in outcomes {
        assert!(text.starts_with("connect E"), "{options:?}: {text}");
    }
}

#[test]
fn fifo_in_the_workspace_has_no_reader() {
    let env = TestEnv::with_project();
    let pipe = env.project().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    assert_eq!(natively(&env, OPEN).text(), "open gained\n");
    for options in [&["--base", "live"][..], &["--readonly"], &["--readonly", "--backend", "copy"]] {
        assert_eq!(inside(&env, options, OPEN).text(), "open ENXIO\n", "{options:?}");
    }
}
