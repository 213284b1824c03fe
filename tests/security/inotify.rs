//! Tried: observing activity in host files by watching directories.
//! Stopped by: paths outside the view cannot be named; a watch on the workspace sees only the command's own view.

use std::path::Path;

use crate::attempt::program;
use crate::env::{Running, TestEnv, runner};
use crate::shared::Shared;

/// Watches the workspace and a host directory; reports when it is ready, and the events until `go`. The kernel queues
/// an event before the call that causes it returns.
const WATCH: &str = "
import select, time
shared, host = sys.argv[1:3]
fd = libc.inotify_init1(0o4000)
def watch(path):
    if libc.inotify_add_watch(fd, path.encode(), 0xfff) < 0: raise OSError(ctypes.get_errno(), '')
tried('host', lambda: watch(host))
watch('.')
open(shared + '/ready', 'w').close()
seen = b''
while not os.path.exists(shared + '/go'): time.sleep(0.01)
try: seen = os.read(fd, 65536)
except BlockingIOError: pass
print('saw', 'something' if b'noise' in seen else 'nothing')";

#[test]
fn host_directories_cannot_be_watched() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("host")).unwrap();
    let watched = |start: &[&Path]| {
        let shared = Shared::new(&env);
        let mut command = env.clean(start[0]);
        command.args(&start[1..]).args(["python3", "-c", &program(WATCH), shared.text()]).arg(env.at("host"));
        let running = shared.wait_for_word(Running::start(&mut command), "ready");
        std::fs::write(env.at("host/noise"), "").unwrap();
        std::fs::remove_file(env.at("host/noise")).unwrap();
        shared.put("go");
        let answer = running.answer().expect(0);
        std::fs::remove_dir_all(env.at("shared")).unwrap();
        answer.text()
    };
    assert_eq!(watched(&[Path::new("env")]), "host gained\nsaw something\n");
    let (run, shared) = (runner(), env.at("shared"));
    let words = [&*run, Path::new("-q"), Path::new("--rw"), &shared, Path::new("--")];
    assert_eq!(watched(&words), "host ENOENT\nsaw nothing\n");
}
