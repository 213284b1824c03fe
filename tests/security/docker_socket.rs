//! Tried: asking a daemon of the host, which runs what it is told as root, by its socket in /run.
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
fn the_sockets_of_daemons_are_not_there() {
    let env = TestEnv::with_project();
    let with = |start: &str| {
        own_host(&env, &format!("{SCRIPT} {start} -- python3 -c \"$P\" || :; kill $daemon"), ASK)
    };
    crate::attempt::assert_all_gained(&with("env"), &["/run/docker.sock"]);
    let names = ["/run/docker.sock", "/var/run/docker.sock"];
    crate::attempt::assert_nothing_gained(&with("\"$RUN\" -q"), &names);
    // Where everything is shown they are in sight; without a network of the host there is nothing to call them with.
    let shown = with("\"$RUN\" -q --profile host");
    assert_eq!(crate::attempt::gained(&shown), [""; 0], "{shown:?}");
    crate::attempt::assert_all_gained(&with("\"$RUN\" -q --profile host --seccomp off"), &names[..1]);
}
