//! Tried: making the supervisor follow symlinks of the workspace to the host, which its own root contains, by renaming
//! through them: to read a symlink of the host, to ask a file system of the host, or to wait for one for ever.
//! Stopped by: the supervisor resolves the paths of a rename in the root of the command, in a thread that nothing waits
//! for.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::attempt::{assert_all_gained, assert_nothing_gained, gained, inside, natively, own_host_command};
use crate::env::{Answer, Running, TestEnv};
use crate::support;

/// A directory `d`, and a symlink to a directory of the host.
fn with_link() -> (TestEnv, PathBuf) {
    let env = TestEnv::with_project();
    env.put("d/f", b"");
    let host = env.at("host");
    std::fs::create_dir(&host).unwrap();
    symlink(&host, env.project().join("out")).unwrap();
    (env, host)
}

#[test]
fn symlinks_of_the_host_are_not_read() {
    let (env, host) = with_link();
    std::fs::create_dir(host.join("real")).unwrap();
    let victim = host.join("inner");
    symlink("real", &victim).unwrap();
    let long_ago = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let was_read = || {
        use std::os::unix::fs::MetadataExt;
        victim.symlink_metadata().unwrap().atime() != 0
    };
    let forget = || utimensat(CWD, &victim, &long_ago, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let renames = "
tried('to', lambda: os.rename('d', 'out/inner/x'))
tried('from', lambda: os.rename('out/inner/x', 'd'))
os.remove('out'); os.makedirs('out/inner/x')
os.rename('out/inner/x', 'y'); os.rename('y', 'out/inner/z')";
    for options in [&[][..], &["--fork", "f"], &["--seccomp", "strict"]] {
        forget();
        assert_nothing_gained(&inside(&env, options, renames), &["to", "from"]);
        assert!(!was_read(), "{options:?}");
    }
    assert_all_gained(&natively(&env, renames), &["to", "from"]);
    if !was_read() {
        support::skip("symlinks_of_the_host_are_not_read", "no access times on this file system");
    }
}

/// A FUSE server without files. Appends the names that it is asked for to a file, and runs a script; after a lookup of
/// `stop` it answers no more.
const SERVER: &str = r"
import ctypes, os, select, signal, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
at, log, script = sys.argv[1:]
fuse = os.open('/dev/fuse', os.O_RDWR)
options = f'fd={fuse},rootmode=40755,user_id=0,group_id=0'.encode()
if libc.mount(b'fuse', at.encode(), b'fuse', 0, options): raise OSError(ctypes.get_errno(), 'mount')
INIT, LOOKUP, GETATTR, STATFS, FORGET, BATCH_FORGET = 26, 1, 3, 17, 2, 42
root = struct.pack('=QII6Q3I7I', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
child = subprocess.Popen(['sh', '-uc', script])
while child.poll() == None:
    if not select.select([fuse], [], [], 0.01)[0]: continue
    request = os.read(fuse, 1 << 20)
    _, kind, unique = struct.unpack_from('=IIQ', request)
    if kind in (FORGET, BATCH_FORGET): continue
    error, body, stops = -38, b'', False
    if kind == INIT: error, body = 0, struct.pack('=IIIIHHIIHH8I', 7, 31, 65536, 0, 8, 8, 65536, 1, 8, *[0] * 9)
    if kind == GETATTR: error, body = 0, root
    if kind == STATFS: error, body = 0, bytes(80)
    if kind == LOOKUP:
        name = request[40:].rstrip(b'\0')
        error, stops = -2, name == b'stop'
        with open(log, 'ab') as names: names.write(name + b'\n')
    os.write(fuse, struct.pack('=IiQ', 16 + len(body), error, unique) + body)
    if stops: os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(child.returncode)
";

/// Runs a script on a separate host where `$AT` is a FUSE mount; `$ASKED` has the names that its server is asked for.
fn with_fuse(env: &TestEnv, test: &str, script: &str, text: &str) -> Option<Answer> {
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        support::skip(test, "this user cannot open /dev/fuse");
        return None;
    }
    // Not as process 1, which cannot be stopped.
    let serve = r#"python3 -c "$SERVER" "$AT" "$ASKED" "$SCRIPT"; exit $?"#;
    let mut command = own_host_command(env, serve, text);
    command.env("SERVER", SERVER).env("SCRIPT", script);
    command.env("AT", env.at("host")).env("ASKED", env.at("asked"));
    Some(Running::start(&mut command).answer())
}

const ASK: &str = "tried('rename', lambda: os.rename('d', 'out/sub/x'))";

#[test]
fn file_systems_of_the_host_are_not_asked() {
    let (env, _) = with_link();
    let script = r#"python3 -c "$P"; echo; cat "$ASKED"; rm "$ASKED"; "$RUN" -q -- python3 -c "$P"
        if [ -e "$ASKED" ]; then echo asked gained; fi"#;
    let Some(answer) = with_fuse(&env, "file_systems_of_the_host_are_not_asked", script, ASK) else { return };
    let text = answer.text();
    let (control, proof) = text.split_once("\n\n").unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!((control, proof), ("rename ENOENT", "sub\nrename ENOENT\n"), "{answer:?}");
    assert_eq!(gained(&answer), [""; 0], "{answer:?}");
}

#[test]
fn file_system_that_does_not_answer_does_not_hold_the_deadline() {
    let (env, host) = with_link();
    // The server stops while the command runs, and the rename is the next to ask it.
    let wait = format!(
        "at = {host:?}
os.path.exists(at + '/stop')
print('stopped', flush=True)
tried('rename', lambda: os.rename('d', at + '/sub/x'))"
    );
    let script = r#"python3 -c "$CONTROL"; cat "$ASKED"
        "$RUN" --json --rw "$AT" --timeout 1s --grace 1s -- python3 -c "$P"; echo; kill -CONT $PPID"#;
    let control = format!("import os\ntry: os.rename('d', {:?})\nexcept OSError: pass", host.join("sub/x"));
    let script = script.replace("$CONTROL", &control.replace('"', "'"));
    let test = "file_system_that_does_not_answer_does_not_hold_the_deadline";
    let Some(answer) = with_fuse(&env, test, &script, &wait) else { return };
    let text = answer.text();
    let (asked, envelope) = text.split_once('\n').unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(asked, "sub", "{answer:?}");
    let envelope: serde_json::Value = serde_json::from_str(envelope).unwrap_or_else(|_| panic!("{answer:?}"));
    assert_eq!(envelope["result"]["timed_out"], true, "{envelope}");
    assert_eq!(envelope["result"]["stdout"], "stopped\n", "{envelope}");
}
