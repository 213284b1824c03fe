//! Calls that seccomp, Landlock and kernel settings refuse, how refusals are reported, and that ordinary programs are
//! not affected.

use std::fs::File;
use std::path::Path;

use caps::{CapSet, Capability};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{PATH, Running, TestEnv, runner, wait_for};
use crate::shared::{Shared, start_held};
use crate::support;

/// Calls of the C library, each printed with its errno; 0 if it succeeded.
const CALLS: &str = r"
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    failed = getattr(libc, name)(*arguments) == -1
    print(name, ctypes.get_errno() if failed else 0)
";

fn python(env: &TestEnv, options: &[&str], program: &str) -> Value {
    let mut words = vec!["--json"];
    words.extend(options);
    let program = format!("{CALLS}{program}");
    words.extend(["--", "python3", "-c", &program]);
    env.run(&words).envelope()
}

fn stdout(envelope: &Value) -> String {
    envelope["result"]["stdout"].as_str().unwrap_or_else(|| panic!("{envelope}")).to_owned()
}

fn refused(envelope: &Value) -> Vec<(String, u64)> {
    let calls = envelope["result"]["refused_calls"].as_array().unwrap();
    let one = |it: &Value| (it["call"].as_str().unwrap().to_owned(), it["count"].as_u64().unwrap());
    calls.iter().map(one).collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn the_enforcement_in_the_envelope_matches_the_kernel() {
    let env = TestEnv::with_project();
    for (options, profile) in [
        (&[][..], "default"),
        (&["--seccomp", "strict"], "strict"),
        (&["--seccomp", "off"], "off"),
        (&["--seccomp", "off", "--landlock", "off", "--allow-userns"], "off"),
    ] {
        let envelope = env.json(options, "cat /proc/self/status; kill -0 1 && echo Signalled: yes");
        let status = stdout(&envelope);
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|rest| rest.trim().to_owned())
        };
        let enforcement = &envelope["enforcement"];
        assert_eq!(enforcement["seccomp"], json!(profile));
        let mode = if profile == "off" { "0" } else { "2" };
        assert_eq!(field("Seccomp").as_deref(), Some(mode), "{status}");
        assert_eq!(field("NoNewPrivs").as_deref(), Some("1"));
        // Root keeps CAP_SETFCAP if it may create user namespaces.
        let kept = is_root() && options.contains(&"--allow-userns");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let one = kept && ["CapPrm", "CapEff", "CapBnd"].contains(&set);
            let expected = if one { "0000000080000000" } else { "0000000000000000" };
            assert_eq!(field(set).as_deref(), Some(expected), "{set}");
        }
        // The status does not show Landlock; its signal scope can be observed.
        let abi = enforcement["landlock"]["abi"].as_u64();
        assert_eq!(field("Signalled").is_none(), abi.is_some_and(|abi| abi >= 6), "{envelope}");
        let nested = options.contains(&"--allow-userns");
        assert_eq!(enforcement["nested_userns"], json!(nested));
    }
}

#[test]
fn refused_calls_are_reported_with_name_and_count() {
    let env = TestEnv::with_project();
    let program = "
for _ in range(3): call('mount', b'none', b'/tmp', b'tmpfs', 0, None)
call('ptrace', 0, 0, 0, 0)
call('unshare', 0x10000000)
for family in (40, 38, 17, 30):
    call('socket', family, 1, 0)
call('ioctl', 0, 0x5412, b'x')
call('personality', 0xffffffff)
call('unshare', 0x400)
";
    for profile in ["default", "strict"] {
        let envelope = python(&env, &["--seccomp", profile], program);
        let mut expected = "mount 1\n".repeat(3) + "ptrace 1\nunshare 1\n" + &"socket 97\n".repeat(4);
        expected += "ioctl 1\npersonality 0\nunshare 0\n";
        assert_eq!(stdout(&envelope), expected, "{profile}");
        let counted: Vec<(String, u64)> =
            [("socket", 4), ("mount", 3), ("ioctl", 1), ("ptrace", 1), ("unshare", 1)]
                .map(|(name, count)| (name.to_owned(), count))
                .to_vec();
        assert_eq!(refused(&envelope), counted);
        let notes = envelope["result"]["notes"].as_array().unwrap();
        let note = notes.iter().find(|note| note["code"] == "seccomp.refused").unwrap();
        let text = "seccomp refused socket (4 times), mount (3 times), ioctl, ptrace, unshare; \
                    see: avfs doctor --explain-denials";
        assert_eq!(note["text"], json!(text));
    }
    // The same calls without a filter: the kernel answers, and nothing is counted.
    let envelope =
        python(&env, &["--seccomp", "off"], "call('ptrace', 0, 0, 0, 0)\ncall('socket', 30, 1, 0)");
    assert!(stdout(&envelope).starts_with("ptrace 0\n"), "{envelope}");
    assert_eq!(refused(&envelope), []);
}

#[test]
fn strict_refuses_more_than_default() {
    let env = TestEnv::with_project();
    let program = "call('adjtimex', ctypes.create_string_buffer(1024))";
    for (profile, expected) in
        [("off", "adjtimex 0\n"), ("default", "adjtimex 0\n"), ("strict", "adjtimex 1\n")]
    {
        let envelope = python(&env, &["--seccomp", profile], program);
        assert_eq!(stdout(&envelope), expected, "{profile}");
    }
}

#[test]
fn a_command_that_floods_the_filter_with_refused_calls_can_be_terminated() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let program = "
for _ in range(4):
    if os.fork() == 0: break
made = 0
while True:
    if made == int(sys.argv[1]): open(f'{sys.argv[2]}/ready-{os.getpid()}', 'w').close()
    libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)
    made += 1
";
    let program = format!("{CALLS}{program}");
    let command = |options: &[&str], ready_after: &str| {
        let words = [
            &["--json", "--rw", shared.text()],
            options,
            &["--", "python3", "-c", &program, ready_after, shared.text()],
        ];
        env.command(&words.concat())
    };
    let wait_for_all = || {
        let ready = || std::fs::read_dir(shared.text()).unwrap().count();
        wait_for("all five make calls", || ready() == 5);
    };
    let running = Running::start(&mut command(&[], "20"));
    wait_for_all();
    running.signal(Signal::TERM);
    let envelope = running.answer().expect(143).envelope();
    let counted = refused(&envelope);
    assert!(counted.len() == 1 && counted[0].0 == "mount" && counted[0].1 >= 100, "{counted:?}");
    std::fs::remove_dir_all(shared.text()).unwrap();
    std::fs::create_dir(shared.text()).unwrap();
    // The timeout starts when all processes wait for the answer to their first call.
    let (running, pauses) = start_held(&env, &mut command(&["--timeout", "100ms"], "0"), "executing");
    wait_for_all();
    pauses.release("executing");
    let envelope = running.answer().expect(124).envelope();
    assert_eq!(envelope["result"]["timed_out"], json!(true));
    assert_eq!(refused(&envelope).len(), 1, "{envelope}");
}

#[test]
fn user_namespaces_are_refused_by_two_mechanisms_and_allowed_on_request() {
    let env = TestEnv::with_project();
    let program = "call('unshare', 0x10000000)";
    // 1 (EPERM): the filter; 28 (ENOSPC): the kernel setting.
    for (options, expected) in [
        (&[][..], "unshare 1\n"),
        (&["--seccomp", "off"], "unshare 28\n"),
        (&["--allow-userns"], "unshare 0\n"),
        (&["--allow-userns", "--seccomp", "strict"], "unshare 0\n"),
        (&["--allow-userns", "--seccomp", "off"], "unshare 0\n"),
    ] {
        assert_eq!(stdout(&python(&env, options, program)), expected, "{options:?}");
    }
    let setting = "cat /proc/sys/user/max_user_namespaces; echo 9 > /proc/sys/user/max_user_namespaces";
    let answer = env.shell(&[], setting);
    assert!(answer.text() == "0\n" && answer.code != Some(0), "{answer:?}");
    // A sandbox in the sandbox. For root the kernel requires a capability that the sandbox does not have.
    if !is_root() {
        let line = "unshare -Urm sh -c 'mount -t tmpfs none /tmp && touch /tmp/x && echo nested'";
        assert_eq!(env.ok(&["--allow-userns"], line), "nested\n");
        let answer = env.shell(&[], line);
        assert_ne!(answer.code, Some(0), "{answer:?}");
    }
}

#[test]
fn visible_unix_sockets_of_the_host_cannot_be_connected_to() {
    let env = TestEnv::with_project();
    let services = env.at("services");
    std::fs::create_dir(&services).unwrap();
    let path = services.join("socket");
    let _service = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let program = format!(
        "
try:
    socket.socket(socket.AF_UNIX).connect({path:?})
    print('connected')
except OSError as error: print(error.errno)
one, other = socket.socketpair(); one.send(b'x')
socket.socket(socket.AF_INET)
print('rest')
",
        path = path.to_str().unwrap()
    );
    // The test directory may be under a path that is private in the sandbox.
    let host = ["--profile", "host", "--ro", path.to_str().unwrap()];
    assert_eq!(stdout(&python(&env, &host, &program)), "97\nrest\n");
    for relaxed in [["--seccomp", "off"], ["--net", "host"]] {
        let envelope = python(&env, &[&host[..], &relaxed].concat(), &program);
        assert_eq!(stdout(&envelope), "connected\nrest\n", "{envelope}");
    }
    // With the profile `strict` the socket does not exist, and Unix sockets can be used.
    assert_eq!(stdout(&python(&env, &[], &program)), "2\nrest\n");
}

#[test]
fn landlock_allows_everything_a_workspace_is_used_for() {
    let env = TestEnv::with_project();
    let program = "
import tempfile
os.makedirs('a/b'); os.makedirs('c')
open('a/b/f', 'w').write('text')
os.rename('a/b/f', 'c/f'); os.link('c/f', 'a/g'); os.truncate('a/g', 2); os.rename('c', 'a/b/c')
os.mkfifo('fifo'); os.symlink('a/g', 's')
server = socket.socket(socket.AF_UNIX); server.bind('sock'); server.listen()
socket.socket(socket.AF_UNIX).connect('sock')
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0inside'); abstract.listen()
socket.socket(socket.AF_UNIX).connect('\\0inside')
fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'x')
os.link(str(fd), 'linked', src_dir_fd=os.open('/proc/self/fd', os.O_RDONLY), follow_symlinks=True)
unlinked = tempfile.TemporaryFile(dir='.'); open(f'/proc/self/fd/{unlinked.fileno()}', 'w').write('y')
for where in ('/tmp/t', '/var/tmp/t', '/dev/shm/t', os.environ['HOME'] + '/t'):
    open(where, 'w').write('z')
open('/proc/self/oom_score_adj', 'w').write('1000')
master, slave = os.openpty(); os.ttyname(slave); open(os.ttyname(slave), 'w').write('x')
pid = os.fork()
if pid == 0:
    import signal; signal.pause()
os.kill(pid, 9); os.waitpid(pid, 0)
os.unlink('s')
print('all')
";
    for options in [
        &["--landlock", "required"][..],
        &["--landlock", "required", "--backend", "copy"],
        &["--landlock", "required", "--scratch", "disk", "--seccomp", "strict"],
    ] {
        let envelope = python(&env, options, program);
        assert_eq!(stdout(&envelope), "all\n", "{envelope}");
        assert!(envelope["enforcement"]["landlock"]["abi"].as_u64().unwrap() >= 2);
    }
    // With --readonly the workspace is read-only too.
    let answer = env.shell(&["--readonly", "--landlock", "required"], "echo x > README.md");
    assert_ne!(answer.code, Some(0));
    assert_eq!(env.ok(&["--readonly"], "cat README.md"), "hello\n");
}

#[test]
fn paths_given_with_rw_can_be_written() {
    let env = TestEnv::with_project();
    let (dir, file) = (env.at("shared"), env.at("single"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&file, "old\n").unwrap();
    let (dir_text, file_text) = (dir.to_str().unwrap(), file.to_str().unwrap());
    let line = format!("echo new > {dir_text}/x && mv {dir_text}/x {dir_text}/y && echo new > {file_text}");
    env.ok(&["--landlock", "required", "--rw", dir_text, "--rw", file_text, "--tmpfs", "/scratch"], &line);
    assert_eq!(std::fs::read_to_string(dir.join("y")).unwrap(), "new\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
}

#[test]
fn standard_streams_can_be_reopened_by_their_names_in_dev() {
    let env = TestEnv::with_project();
    let shell = |line: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", line]).env("RUN", runner());
        env.answer(&mut command)
    };
    shell("exec \"$RUN\" -q -- sh -c 'echo x > /dev/stdout; echo x > /dev/stderr' >/dev/null 2>/dev/null")
        .expect(0);
    shell("\"$RUN\" -q -- sh -c 'cat /dev/stdin' </dev/null").expect(0);
    let piped = shell("echo through | \"$RUN\" -q -- sh -c 'cat /dev/stdin > /dev/stdout' | cat").expect(0);
    assert_eq!(piped.text(), "through\n");
}

#[test]
fn the_init_process_cannot_be_inspected() {
    let env = TestEnv::with_project();
    let program = "
def look(what, how):
    try: how(); print(what)
    except OSError as error: assert error.errno in (1, 13), (what, error)
look('exe', lambda: os.readlink('/proc/1/exe'))
look('run', lambda: os.execv('/proc/1/exe', ['x']))
look('root', lambda: os.listdir('/proc/1/root'))
look('cwd', lambda: os.readlink('/proc/1/cwd'))
look('mem', lambda: open('/proc/1/mem', 'rb+'))
look('environ', lambda: open('/proc/1/environ', 'rb').read())
look('maps', lambda: open('/proc/1/maps').read())
look('kill', lambda: os.kill(1, 15))
try: numbers = os.listdir('/proc/1/fd')
except OSError: numbers = ['0', '1', '2', '3', '10', '16']
for number in numbers:
    look('fd', lambda: os.open(f'/proc/1/fd/{number}', os.O_RDONLY))
    look('fd', lambda: os.readlink(f'/proc/1/fd/{number}'))
print('nothing')
";
    assert_eq!(stdout(&python(&env, &["--landlock", "required"], program)), "nothing\n");
}

#[test]
fn the_runner_cannot_be_replaced_through_a_writable_directory() {
    let env = TestEnv::with_project();
    let bin = env.at("tools/opt/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let own = bin.join("avfs-run");
    std::fs::copy(runner(), &own).unwrap();
    let avfs = bin.join("avfs");
    std::fs::write(&avfs, "the other command").unwrap();
    let before = std::fs::read(&own).unwrap();
    let tools = env.at("tools");
    let line = format!(
        "cd {tools}; echo evil > opt/bin/avfs-run; rm -f opt/bin/avfs-run; mv opt/bin/avfs-run x; mv opt/bin y; \
         mv opt z; rm -rf opt; ln -sf /bin/true opt/bin/avfs-run; chmod 000 opt/bin/avfs-run; \
         echo evil > opt/bin/avfs; rm -f opt/bin/avfs; mv opt/bin/avfs x; echo fine > opt/bin/other",
        tools = tools.display()
    );
    let run = |rw: &Path| {
        let mut command = env.clean(&own);
        command.arg("-q").arg("--rw").arg(rw).args(["--shell", &line]);
        Running::start(&mut command).answer()
    };
    for rw in [tools.clone(), bin.clone(), own.clone()] {
        let answer = run(&rw);
        assert!(own.exists() && std::fs::read(&own).unwrap() == before, "{rw:?} {answer:?}");
        assert!(bin.join("avfs-run").is_file());
        assert_eq!(std::fs::read_to_string(&avfs).unwrap(), "the other command", "{rw:?} {answer:?}");
    }
    assert_eq!(std::fs::read_to_string(bin.join("other")).unwrap(), "fine\n");
    // Control: another file in the same directory can be replaced.
    let other = line.replace("avfs-run", "other");
    let mut command = env.clean(&own);
    command.arg("-q").arg("--rw").arg(&tools).args(["--shell", &other]);
    Running::start(&mut command).answer();
    assert_ne!(std::fs::read_to_string(bin.join("other")).unwrap_or_default(), "fine\n");
}

#[test]
fn doctor_explains_refused_calls() {
    let env = TestEnv::with_project();
    let found = env.avfs_result(&["doctor", "--explain-denials"]);
    let denials = found["denials"].as_array().unwrap();
    let of = |call: &str| {
        let named = |denial: &&Value| denial["calls"].as_array().unwrap().contains(&json!(call));
        denials.iter().find(named).unwrap_or_else(|| panic!("{call} is not explained"))
    };
    assert_eq!(of("mount")["answer"], json!("EPERM"));
    assert_eq!(of("mount")["relax"], json!("--allow-userns, or --seccomp off"));
    assert_eq!(of("clone3")["answer"], json!("ENOSYS"));
    assert_eq!(of("socket")["answer"], json!("EAFNOSUPPORT"));
    let strict = denials.iter().find(|denial| denial["by"] == json!(["strict"])).unwrap();
    assert!(strict["all_but"].as_array().unwrap().contains(&json!("openat")));
    for name in ["seccomp filter", "refused calls are reported", "Landlock"] {
        let checks = found["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == json!(name)).unwrap();
        assert_eq!(check["ok"], json!(true), "{check}");
    }
    let text = env.avfs(&["doctor", "--explain-denials"]).expect(0).text();
    assert!(text.contains("io_uring_setup") && text.contains("allow:  --seccomp off"), "{text}");
    assert!(env.avfs_result(&["doctor"])["denials"].is_null());
}

/// Whether the program is installed. If not, reports a skip; `scripts/test` lists the programs that may be missing.
fn is_there(test: &str, program: &str) -> bool {
    let found = std::env::split_paths(PATH).any(|dir| dir.join(program).exists());
    if !found {
        support::skip(test, &format!("{program} is not installed"));
    }
    found
}

/// Runs a line with each seccomp profile and with Landlock required; no call may be refused.
#[track_caller]
fn works(env: &TestEnv, line: &str, expected: &str) {
    for profile in ["default", "strict"] {
        let options = ["--seccomp", profile, "--landlock", "required"];
        let envelope = env.json(&options, line);
        assert_eq!(stdout(&envelope), expected, "{profile}: {envelope}");
        assert_eq!(refused(&envelope), [], "{profile}: {line}");
    }
}

#[test]
fn shells_and_tools_are_not_affected() {
    let env = TestEnv::with_project();
    works(&env, "seq 3 | sort -r | xargs echo; (sleep 0.01 & wait); trap 'echo bye' EXIT", "3 2 1\nbye\n");
    works(
        &env,
        "tar -cf - src | tar -tf - | sort | tail -1; cp -a src copy; find copy | wc -l",
        "src/main.rs\n3\n",
    );
    works(&env, "rsync -a src/ there/ && ls there | wc -l", "2\n");
    works(
        &env,
        "ls -l / >/dev/null; ps -e >/dev/null; df . >/dev/null; stat . >/dev/null; id -u >/dev/null; echo ok",
        "ok\n",
    );
    works(&env, "perl -e 'print fork() ? do { wait; \"parent\\n\" } : exit'", "parent\n");
    let git = "git -c init.defaultBranch=m init -q . 2>/dev/null; git add -A; \
               git -c user.name=n -c user.email=e@e commit -qm m; git gc -q; git log --format=%s; git status --short";
    works(&env, git, "m\n");
}

#[test]
fn python_works_under_the_filter() {
    let env = TestEnv::with_project();
    let program = "
import concurrent.futures, multiprocessing, subprocess, threading, tempfile, asyncio, sqlite3, socket, ssl, hashlib
def square(x): return x * x
if __name__ == '__main__':
    with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(square, range(10))))
    with multiprocessing.get_context('fork').Pool(2) as pool: print(sum(pool.map(square, range(10))))
    with multiprocessing.get_context('spawn').Pool(2) as pool: print(sum(pool.map(square, range(10))))
    print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())
    print(asyncio.run(asyncio.sleep(0.01, 'async')))
    base = sqlite3.connect('x.db'); base.execute('create table t(a)'); base.commit(); print('sql')
    a, b = multiprocessing.Pipe(); a.send('pipe'); print(b.recv())
    s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('tcp')
";
    env.put("program.py", program.as_bytes());
    works(&env, "python3 program.py", "285\n285\n285\nchild\nasync\nsql\npipe\ntcp\n");
}

#[test]
fn compilers_are_not_affected() {
    let env = TestEnv::with_project();
    env.put("hello.c", b"#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 0; }\n");
    env.put("Makefile", b"all: hello\n\t./hello\nhello: hello.o\n\tcc -o $@ $^\n");
    const NAME: &str = "compilers_are_not_affected";
    if is_there(NAME, "gcc") && is_there(NAME, "make") {
        works(&env, "make -s -j2", "compiled\n");
    }
}

#[test]
fn other_runtimes_are_not_affected() {
    const NAME: &str = "other_runtimes_are_not_affected";
    let env = TestEnv::with_project();
    if is_there(NAME, "node") {
        let program = "const {Worker}=require('worker_threads');const cp=require('child_process');\
            require('fs').writeFileSync('n','x');console.log(cp.execSync('echo child').toString().trim());\
            new Worker('require(\"worker_threads\").parentPort.postMessage(1)',{eval:true})\
            .on('message',()=>console.log('worker'));";
        works(&env, &format!("node -e '{}'", program.replace('\'', "'\\''")), "child\nworker\n");
    }
    if is_there(NAME, "java") {
        works(&env, "java -version 2>/dev/null && echo java", "java\n");
    }
}

#[test]
fn cargo_is_not_affected() {
    const NAME: &str = "cargo_is_not_affected";
    let tools = Path::new(env!("CARGO")).parent().unwrap();
    if File::open(env!("CARGO")).is_err() || !tools.join("rustc").exists() {
        return support::skip(NAME, "this user cannot run cargo");
    }
    let env = TestEnv::with_project();
    env.put(
        "k/Cargo.toml",
        b"[package]\nname = \"k\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    env.put("k/src/main.rs", b"fn main() { std::thread::spawn(|| println!(\"built\")).join().unwrap() }\n");
    let path = format!("{}:{PATH}", tools.display());
    for profile in ["default", "strict"] {
        let build = "cd k && cargo run -q --offline";
        let mut command =
            env.command(&["--json", "--seccomp", profile, "--landlock", "required", "--shell", build]);
        let envelope = env.answer(command.env("PATH", &path)).envelope();
        assert_eq!(stdout(&envelope), "built\n", "{profile}: {envelope}");
        assert_eq!(refused(&envelope), [], "{profile}");
    }
}

/// Calls `answer` in a thread without this capability; neither the thread nor its children can regain it.
fn without<T: Send>(capability: Capability, answer: impl FnOnce() -> T + Send) -> T {
    let limited = || {
        for set in [CapSet::Bounding, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
            caps::drop(None, set, capability).unwrap();
        }
        answer()
    };
    std::thread::scope(|scope| scope.spawn(limited).join().unwrap())
}

#[test]
fn root_without_setuid_or_setgid_maps_only_its_own_ids() {
    if !is_root() {
        return support::skip(
            "root_without_setuid_or_setgid_maps_only_its_own_ids",
            "only root has more than one id to map",
        );
    }
    let env = TestEnv::with_project();
    for missing in [Capability::CAP_SETUID, Capability::CAP_SETGID] {
        let maps = without(missing, || env.ok(&[], "cat /proc/self/uid_map /proc/self/gid_map"));
        let maps: Vec<&str> = maps.split_whitespace().collect();
        assert_eq!(maps, ["0", "0", "1", "0", "0", "1"], "without {missing}");
    }
    let refused = without(Capability::CAP_SETFCAP, || env.shell(&[], "true")).expect(121);
    assert!(refused.stderr.contains("--cap-add SETFCAP"), "{refused:?}");
}

#[test]
fn hidden_path_that_does_not_exist_is_noted() {
    let env = TestEnv::with_project();
    let notes = |words: &[&str]| {
        let all = [words, &["--json", "--", "true"]].concat();
        let envelope = env.run(&all).expect(0).envelope();
        let notes = envelope["result"]["notes"].as_array().unwrap().clone();
        notes.into_iter().filter(|note| note["code"] == "hide.missing").collect::<Vec<_>>()
    };
    let missing =
        notes(&["--hide", "nosuch", "--hide", "/nosuch", "--hide", "README.md", "--hide", "/etc/passwd"]);
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[1]["text"].as_str().unwrap().contains("--hide /nosuch: "), "{missing:?}");
    // Only the version of the fork says which files the workspace has.
    env.ok(&["--fork", "f"], "touch nosuch");
    assert_eq!(notes(&["--fork", "f", "--hide", "nosuch"]).len(), 0);
}
