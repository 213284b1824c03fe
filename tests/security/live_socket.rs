//! Tried: talking to a server of the host by its socket in the live workspace, which lies beneath the run.
//! Stopped by: an overlay does not pass a socket on: the name is there, and nobody listens.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;

const CONNECT: &str =
    "import socket\ntried('connect', lambda: socket.socket(socket.AF_UNIX).connect('socket'))";

#[test]
fn a_socket_in_the_workspace_is_deaf() {
    let env = TestEnv::with_project();
    // A short name: the project's path may be longer than an address of a socket.
    let make = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen(); time.sleep(1000)";
    let mut server = crate::attempt::outside(&env, make).spawn().unwrap();
    crate::env::wait_for("the socket", || natively(&env, CONNECT).text() == "connect gained\n");
    let mut outcomes = Vec::new();
    for options in [&["--base", "live"][..], &["--base", "cached"], &["--backend", "copy"]] {
        outcomes.push((options, inside(&env, options, CONNECT).text()));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    for (options, text) in outcomes {
        assert!(text.starts_with("connect E"), "{options:?}: {text}");
    }
}
