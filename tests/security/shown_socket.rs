//! Tried: talking to a host server through a socket or a FIFO below a directory that `--ro` shows.
//! Stopped by: such directories are shown through an overlay, which does not connect sockets and FIFOs to the host.

use std::fs::File;
use std::os::unix::net::UnixListener;

use serde_json::json;

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, own_host};
use crate::env::TestEnv;

/// Changes into the directory: its path may be too long for a socket address.
fn talk(dir: &std::path::Path) -> String {
    format!(
        "import socket
os.chdir({dir:?})
tried('socket', lambda: socket.socket(socket.AF_UNIX).connect('socket'))
tried('pipe', lambda: os.close(os.open('pipe', os.O_WRONLY | os.O_NONBLOCK)))"
    )
}

#[test]
fn sockets_below_a_read_only_directory_cannot_be_used() {
    let env = TestEnv::with_project();
    let services = env.at("s");
    std::fs::create_dir(&services).unwrap();
    let _server = UnixListener::bind(services.join("socket")).unwrap();
    let pipe = services.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
    std::fs::write(services.join("file"), "shown\n").unwrap();
    let talk = talk(&services);
    let shown = services.to_str().unwrap();
    assert_all_gained(&inside(&env, &["--rw", shown], &talk), &["socket", "pipe"]);
    assert_nothing_gained(&inside(&env, &["--ro", shown], &talk), &["socket", "pipe"]);
    assert_eq!(env.ok(&["--ro", shown], &format!("cat {shown}/file")), "shown\n");
    assert_eq!(env.json(&["--ro", shown], "true")["result"]["notes"], json!([]));
    // A socket that is named itself was requested explicitly.
    let named = services.join("socket");
    assert_all_gained(&inside(&env, &["--ro", named.to_str().unwrap()], &talk), &["socket"]);
}

/// The kernel does not accept a directory as a layer if the host has mounted something in it.
#[test]
fn directories_with_mounts_are_bound_only_with_allow_degraded() {
    let env = TestEnv::with_project();
    let dir = env.at("s");
    std::fs::create_dir_all(dir.join("mounted")).unwrap();
    let script = format!(
        "set -e; cd {0}; mount -t tmpfs t mounted; echo deep > mounted/file; cd {1}; code=0; \"$RUN\" --ro {0} -- true || code=$?; test $code = 121; \"$RUN\" --allow-degraded --ro {0} -- cat {0}/mounted/file",
        dir.display(),
        env.project().display()
    );
    let answer = own_host(&env, &script, "").expect(0);
    assert_eq!(answer.text(), "deep\n");
    assert!(answer.stderr.contains("sockets in them can be used"), "{answer:?}");
}
