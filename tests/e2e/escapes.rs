//! Ways out of the sandbox, each with a control that shows it works where there is none.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::env::{Answer, Running, TestEnv, runner};
use crate::support;

/// A python program inside.
#[track_caller]
fn inside(env: &TestEnv, options: &[&str], program: &str) -> Answer {
    let mut words = options.to_vec();
    words.extend(["--", "python3", "-c", program]);
    env.run(&words)
}

/// The same program outside.
fn outside(env: &TestEnv, program: &str) -> Command {
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", program]);
    command
}

#[test]
fn a_file_given_as_a_stream_cannot_be_opened_again() {
    let env = TestEnv::with_project();
    let victim = env.at("victim");
    let reopen = "import os; fd = os.open('/proc/self/fd/0', os.O_RDWR); os.pwrite(fd, b'escaped', 0)";
    std::fs::write(&victim, "precious").unwrap();
    let answer = Running::start(outside(&env, reopen).stdin(File::open(&victim).unwrap())).answer();
    assert_eq!((answer.code, std::fs::read_to_string(&victim).unwrap()), (Some(0), "escapeds".to_owned()));
    std::fs::write(&victim, "precious").unwrap();
    let mut command = env.command(&["--", "python3", "-c", reopen]);
    env.answer(command.stdin(File::open(&victim).unwrap()));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    // For writing: the place where it stands must not be left for another.
    let truncate = "import os; os.ftruncate(1, 0)";
    for stream in ["", "2>&1"] {
        std::fs::write(&victim, "precious").unwrap();
        let line = format!("exec \"$RUN\" -q -- python3 -c \"$P\" >>\"$V\" {stream}");
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", &line]).env("RUN", runner()).env("P", truncate).env("V", &victim);
        env.answer(&mut command);
        assert!(std::fs::read_to_string(&victim).unwrap().starts_with("precious"));
    }
}

#[test]
fn a_directory_that_was_left_open_leads_nowhere() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("secret"), "host").unwrap();
    let program = "import os; print(os.open('secret', os.O_RDONLY, dir_fd=9))";
    let line = |rest: &str| format!("exec {rest} -- python3 -c \"$P\" 9<\"$DIR\"");
    let with = |rest: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", &line(rest)]).env("RUN", runner()).env("P", program).env("DIR", env.at(""));
        command
    };
    let control = Running::start(&mut with("env")).answer();
    assert_eq!(control.code, Some(0), "{control:?}");
    let answer = env.answer(&mut with("\"$RUN\" -q"));
    assert!(answer.stderr.contains("Bad file descriptor"), "{answer:?}");
}

#[test]
fn nothing_is_open_but_the_streams() {
    let env = TestEnv::with_project();
    let list = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))";
    // The list itself takes one descriptor.
    for options in [&[][..], &["--scratch", "disk"], &["--backend", "copy"], &["--fork", "f"]] {
        assert_eq!(inside(&env, options, list).expect(0).text(), "[0, 1, 2, 3]\n");
    }
}

#[test]
fn nobody_has_capabilities_inside() {
    let env = TestEnv::with_project();
    let status = env.ok(&[], "grep -E '^(Cap|NoNewPrivs|Uid)' /proc/self/status");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{status}"));
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    // The same user as outside.
    assert_eq!(field("Uid:"), rustix::process::geteuid().as_raw().to_string());
    // A program started by it gets none back.
    assert_eq!(
        env.ok(&[], "sh -c 'sh -c \"grep ^CapEff /proc/self/status\"'").trim(),
        "CapEff:\t0000000000000000"
    );
}

#[test]
fn a_setuid_program_changes_nothing() {
    let env = TestEnv::with_project();
    // Made inside, and of the host.
    let line = "cp /usr/bin/id id; chmod 6755 id; ./id -u; ls -l /usr/bin/su >/dev/null 2>&1 && \
                grep -c nosuid /proc/self/mounts > /dev/null && echo nosuid";
    let answer = env.ok(&[], line);
    assert_eq!(answer, format!("{}\nnosuid\n", rustix::process::geteuid().as_raw()));
    let mounts = env.ok(&[], "cat /proc/self/mounts");
    for mount in mounts.lines() {
        let options = mount.split(' ').nth(3).unwrap();
        assert!(options.split(',').any(|option| option == "nosuid"), "{mount}");
    }
}

#[test]
fn the_session_keyring_is_a_new_one() {
    let env = TestEnv::with_project();
    let program = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = {'x86_64': (248, 250), 'aarch64': (217, 219)}[os.uname().machine]
add, ctl = numbers
if len(sys.argv) > 1:
    libc.syscall(ctl, 1, None)
    key = libc.syscall(add, b'user', b'avfs-test-key', b'secret', 6, ctypes.c_int(-3))
    if key < 0: sys.exit(3)
    os.execvp(sys.argv[1], sys.argv[1:])
found = libc.syscall(ctl, 10, ctypes.c_int(-3), b'user', b'avfs-test-key', 0)
print('found' if found > 0 else 'nothing')
"#;
    let with_key = |words: &[&str]| {
        let mut command = outside(&env, program);
        command.args(words);
        command
    };
    let control = Running::start(&mut with_key(&["python3", "-c", program])).answer();
    if control.code == Some(3) {
        return support::skip("the_session_keyring_is_a_new_one", "this kernel has no keyrings");
    }
    assert_eq!(control.text(), "found\n", "{control:?}");
    let run = runner();
    let answer = env.answer(&mut with_key(&[run.to_str().unwrap(), "--", "python3", "-c", program]));
    assert_eq!(answer.expect(0).text(), "nothing\n");
}

#[test]
fn signals_to_the_own_group_stay_inside() {
    let env = TestEnv::with_project();
    // Control: without a session of its own the whole group is hit, the shell that waits included.
    let line = "trap 'echo hit; exit 0' TERM; python3 -c 'import os; os.kill(0, 15)'; echo missed";
    let mut control = env.clean(Path::new("setsid"));
    control.args(["--wait", "sh", "-c", line]);
    assert_eq!(Running::start(&mut control).answer().text(), "hit\n");
    let line =
        "trap 'echo hit; exit 0' TERM; \"$RUN\" -q -- python3 -c 'import os; os.kill(0, 15)'; echo missed";
    let mut command = env.clean(Path::new("setsid"));
    command.args(["--wait", "sh", "-c", line]).env("RUN", runner());
    assert_eq!(env.answer(&mut command).text(), "missed\n");
}

#[test]
fn nothing_of_the_host_is_seen_but_the_system() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("home/.netrc"), "secret").unwrap();
    std::fs::create_dir(env.at("other")).unwrap();
    let at = |name: &str| env.at(name).to_str().unwrap().to_owned();
    let vault = env.vault_file();
    let seen = env.ok(
        &[],
        &format!(
            "ls -A ~ {0} {1} {2} 2>/dev/null; cat {3} 2>/dev/null; ls -A /tmp /var/tmp /root /home /srv /mnt /run 2>/dev/null; true",
            at("cache"), at("other"), at("data"), vault.display(),
        ),
    );
    let top = env.project().components().nth(2).unwrap().as_os_str().to_str().unwrap().to_owned();
    let mut lines: Vec<&str> =
        seen.lines().filter(|line| !line.is_empty() && !line.ends_with(':') && *line != top).collect();
    // What has to be there for the toolchains and the workspace: nothing that a test has put there.
    lines
        .retain(|line| ["secret", "netrc", "other", "cache", "vault"].iter().any(|word| line.contains(word)));
    assert_eq!(lines, [""; 0], "{seen}");
    assert_eq!(env.ok(&[], "ls -A"), "README.md\nlink\nsrc\n", "the vault is seen");
    // Also with everything shown: the vault, the cache and the scratch stay hidden.
    let run_dir = at("cache/avfs");
    for options in
        [&["--profile", "host"][..], &["--profile", "host", "--fork", "f"], &["--ro", "/", "--fork", "g"]]
    {
        let answer = env.shell(options, &format!("ls -A {run_dir}; cat {}; ls -A .avfs", vault.display()));
        assert_eq!(answer.text(), "", "{options:?}: {answer:?}");
    }
}

#[test]
fn nothing_of_the_host_can_be_written() {
    let env = TestEnv::with_project();
    let line = "for at in / /usr /etc /opt /bin /proc/sys/kernel/hostname /proc/sysrq-trigger /dev /sys /dev/pts; do \
                { [ -d $at ] && touch $at/x || [ -f $at ] && echo x > $at; } 2>/dev/null && echo wrote $at; done; \
                touch ~/home-is-writable /tmp/x /var/tmp/x /dev/shm/x && echo private";
    assert_eq!(env.ok(&[], line), "private\n");
    assert!(!env.at("home/home-is-writable").exists());
    let host = env.ok(&["--profile", "host"], "touch /etc/x /usr/x 2>/dev/null && echo wrote; echo end");
    assert_eq!(host, "end\n");
}

#[test]
fn the_network_is_loopback_alone() {
    let env = TestEnv::with_project();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect =
        format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')");
    // Control: the host's own loopback.
    let control = Running::start(&mut outside(&env, &connect)).answer();
    assert_eq!(control.text(), "connected\n", "{control:?}");
    let answer = inside(&env, &[], &connect).expect(1);
    assert!(answer.stderr.contains("Connection refused"), "{answer:?}");
    let shared = inside(&env, &["--net", "host"], &connect).expect(0);
    assert_eq!(shared.text(), "connected\n");
    // Its own loopback is up, and there is nothing else.
    let own = "import socket; s = socket.create_server(('127.0.0.1', 0)); \
               socket.create_connection(s.getsockname()); print([name for _, name in socket.if_nameindex()])";
    assert_eq!(inside(&env, &[], own).expect(0).text(), "['lo']\n");
    let far = "import socket; socket.create_connection(('192.0.2.1', 80), 5)";
    assert!(inside(&env, &[], far).expect(1).stderr.contains("unreachable"));
    // A socket without a name in the file system belongs to the network.
    let name = format!("avfs-test-{port}");
    let bound =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&bound, &rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap())
        .unwrap();
    rustix::net::listen(&bound, 5).unwrap();
    let abstract_one = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); print('connected')"
    );
    assert_eq!(Running::start(&mut outside(&env, &abstract_one)).answer().text(), "connected\n");
    assert!(inside(&env, &[], &abstract_one).expect(1).stderr.contains("refused"));
}

#[test]
fn mounts_and_namespaces_of_its_own_gain_nothing() {
    let env = TestEnv::with_project();
    for line in [
        "mount -t tmpfs t /tmp",
        "mount -o remount,rw /usr",
        "umount /proc",
        "umount -l .",
        "unshare -m true",
        "chroot / true",
        "mknod dev c 1 3",
        "hostname other",
    ] {
        let answer = env.shell(&[], line);
        assert_ne!(answer.code, Some(0), "{line}: {answer:?}");
    }
    // Where a user namespace can be made at all, what is read-only and what is hidden stays so.
    let line = "unshare -Urm sh -c 'mount -o remount,rw,bind /usr && touch /usr/x && echo gained; \
                umount -l /etc 2>/dev/null && echo gained; umount -l .avfs 2>/dev/null && echo gained; \
                ls -A .avfs 2>/dev/null' 2>/dev/null; echo end";
    for options in [&[][..], &["--profile", "host"]] {
        assert_eq!(env.shell(options, line).text(), "end\n");
    }
}

#[test]
fn the_first_process_cannot_be_looked_into() {
    let env = TestEnv::with_project();
    let program = r#"
import os
for name in ('mem', 'environ', 'maps', 'root', 'cwd', 'fd', 'exe'):
    path = f'/proc/1/{name}'
    try:
        if name == 'fd': found = [os.readlink(f'{path}/{fd}') for fd in os.listdir(path)]
        else: found = os.readlink(path) if name in ('root', 'cwd', 'exe') else open(path, 'rb').read(1)
        print(name, found)
    except OSError as error:
        pass
import ctypes
print('ptrace', ctypes.CDLL(None, use_errno=True).ptrace(16, 1, 0, 0))
"#;
    assert_eq!(inside(&env, &[], program).expect(0).text(), "ptrace -1\n");
    // Nobody of the host is seen.
    let processes = env.ok(&[], "ls /proc | grep -c '^[0-9]*$'");
    assert!(processes.trim().parse::<u32>().unwrap() < 8, "{processes}");
}

#[test]
fn devices_are_the_few_harmless_ones() {
    let env = TestEnv::with_project();
    let list = env.ok(&[], "ls /dev");
    let names: Vec<&str> = list.split_whitespace().collect();
    let expected = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom",
        "zero",
    ];
    assert_eq!(names, expected);
    env.ok(&[], "echo x > /dev/null; head -c 8 /dev/urandom | wc -c; head -c 1 /dev/zero > /dev/null");
    assert_eq!(env.shell(&[], "cat /etc/passwd > /dev/full").code, Some(1));
}
