//! Tried: asking a host daemon that runs commands as root, through its socket in /run.
//! Stopped by: /run is not in the view; with `--profile host` the filter refuses such sockets.

use crate::attempt::own_host;
use crate::env::TestEnv;

const SCRIPT: &str = "set -e; mount -t tmpfs t /run; mkdir -p /var/run 2>/dev/null || :
python3 -c \"import os, socket, time; s = socket.socket(socket.AF_UNIX); s.bind('/run/new'); s.listen(); os.rename('/run/new', '/run/docker.sock'); time.sleep(1000)\" &
daemon=$!; while [ ! -S /run/docker.sock ]; do sleep 0.01; done; ";
const ASK: &str = "import socket
for path in ('/run/docker.sock', '/var/run/docker.sock'):
    tried(path, lambda: socket.socket(socket.AF_UNIX).connect(path))";

#[test]
fn daemon_sockets_cannot_be_reached() {
    let env = TestEnv::with_project();
    let with = |start: &str| {
        own_host(&env, &format!("{SCRIPT} {start} -- python3 -c \"$P\" || :; kill $daemon"), ASK)
    };
    crate::attempt::assert_all_gained(&with("env"), &["/run/docker.sock"]);
    let names = ["/run/docker.sock", "/var/run/docker.sock"];
    crate::attempt::assert_nothing_gained(&with("\"$RUN\" -q"), &names);
    // With `--profile host` the sockets are visible, but without the host's network the command cannot connect to them.
    let shown = with("\"$RUN\" -q --profile host");
    assert_eq!(crate::attempt::gained(&shown), [""; 0], "{shown:?}");
    crate::attempt::assert_all_gained(&with("\"$RUN\" -q --profile host --seccomp off"), &names[..1]);
}
