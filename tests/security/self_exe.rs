//! Tried: replacing the runner for the next run, through a handle on its executable (/proc/self/exe, /proc/1/exe) that
//! is kept until no process runs it.
//! Stopped by: init cannot be inspected, and the runner is not a file of the view.

use std::path::Path;

use crate::attempt::{assert_nothing_gained, inside, natively};
use crate::env::{TestEnv, runner};

#[test]
fn runner_cannot_be_replaced() {
    let env = TestEnv::with_project();
    // Copied by another process: no fork of this one may have it open for writing.
    assert!(env.clean(Path::new("cp")).arg("/bin/sleep").arg(env.at("victim")).status().unwrap().success());
    // Control: a handle on a running executable, written to after the process has ended.
    let control = format!(
        "import subprocess
victim = subprocess.Popen(['{}', '1000'])
while os.readlink(f'/proc/{{victim.pid}}/exe') != os.path.realpath(victim.args[0]): pass
handle = os.open(f'/proc/{{victim.pid}}/exe', os.O_PATH)
victim.kill(); victim.wait()
def overwrite():
    while True:
        try: return os.pwrite(os.open(f'/proc/self/fd/{{handle}}', os.O_WRONLY), b'hostile', 0)
        except OSError as error:
            # Another process reads from the process that has ended.
            if error.errno != errno.ETXTBSY: raise
tried('overwrite', overwrite)",
        env.at("victim").display()
    );
    assert_eq!(natively(&env, &control).text(), "overwrite gained\n");
    assert!(std::fs::read(env.at("victim")).unwrap().starts_with(b"hostile"));
    let before = blake3::hash(&std::fs::read(runner()).unwrap());
    let attempt = format!(
        "tried('handle', lambda: os.open('/proc/1/exe', os.O_PATH))
tried('name', lambda: os.readlink('/proc/1/exe'))
tried('path', lambda: os.open('{}', os.O_WRONLY))
tried('self', lambda: os.open('/proc/self/exe', os.O_WRONLY))",
        runner().display()
    );
    assert_nothing_gained(&inside(&env, &[], &attempt), &["handle", "name", "path", "self"]);
    assert_eq!(blake3::hash(&std::fs::read(runner()).unwrap()), before);
}
