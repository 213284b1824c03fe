//! Kernel behaviour that runs depend on and that is not obvious, mostly of overlayfs without privileges.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::shared::Shared;
use crate::support;

const WAYS: [&[&str]; 4] = [
    &["--scratch", "memory"],
    &["--scratch", "disk"],
    &["--base", "cached", "--scratch", "disk"],
    &["--backend", "copy"],
];

#[track_caller]
fn python(env: &TestEnv, options: &[&str], program: &str) -> Value {
    let mut words = vec!["--json"];
    words.extend(options);
    words.extend(["--", "python3", "-c", program]);
    env.run(&words).envelope()
}

fn run_of(envelope: &Value) -> String {
    format!("run:{}", envelope["result"]["run_id"].as_str().unwrap())
}

#[test]
fn a_renamed_file_is_reported_as_renamed() {
    let env = TestEnv::with_project();
    for options in WAYS {
        let envelope = env.json(options, "mkdir lib; mv src/main.rs lib/lib.rs");
        let renamed: Vec<&Value> = envelope["result"]["changes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|change| change["kind"] == "renamed")
            .collect();
        assert_eq!(renamed.len(), 1, "{options:?}: {envelope}");
        assert_eq!((&renamed[0]["path"], &renamed[0]["from"]), (&json!("lib/lib.rs"), &json!("src/main.rs")));
    }
}

#[test]
fn a_change_that_keeps_size_and_time_is_found() {
    let env = TestEnv::with_project();
    for options in WAYS {
        let envelope = env.json(
            options,
            "cp -p README.md /tmp/r; printf HELLO > README.md; echo >> README.md; touch -r /tmp/r README.md",
        );
        assert_eq!(envelope["result"]["change_counts"]["modified"], json!(1), "{options:?}: {envelope}");
        assert_eq!(env.cat(&run_of(&envelope), "README.md"), "HELLO\n");
    }
}

#[test]
fn opening_for_writing_without_a_write_is_not_a_change() {
    let env = TestEnv::with_project();
    let program = "import os; os.close(os.open('README.md', os.O_RDWR)); os.truncate('src/main.rs', 13); \
                   os.chmod('README.md', os.stat('README.md').st_mode)";
    for options in WAYS {
        let before = std::fs::metadata(env.project().join("src/main.rs")).unwrap().mtime();
        let envelope = python(
            &env,
            options,
            &format!("{program}; os.utime('src/main.rs', ns=(0, {}))", before * 1_000_000_000),
        );
        assert_eq!(envelope["result"]["change_counts"]["total"], json!(0), "{options:?}: {envelope}");
    }
}

#[test]
fn modes_and_access_lists_of_the_cache_do_not_leak_into_the_workspace() {
    let env = TestEnv::with_project();
    let cache = env.at("cache");
    std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o2777)).unwrap();
    // A default ACL that grants everything to everybody: user, group, mask and other, all rwx.
    let entry = |tag: u16| [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let list = [&2_u32.to_le_bytes()[..], &entry(1), &entry(4), &entry(0x20)].concat();
    let set =
        rustix::fs::setxattr(&cache, "system.posix_acl_default", &list, rustix::fs::XattrFlags::empty());
    if set.is_err() {
        return support::skip(
            "modes_and_access_lists_of_the_cache_do_not_leak_into_the_workspace",
            "no access lists on this file system",
        );
    }
    for options in WAYS {
        let envelope = env.json(options, "umask 022; mkdir d; : > d/f; stat -c %a . d d/f");
        assert_eq!(envelope["result"]["stdout"], json!("755\n755\n644\n"), "{options:?}");
    }
}

#[test]
fn files_that_a_version_cannot_contain_are_listed() {
    let env = TestEnv::with_project();
    let program = "import os, socket\nsocket.socket(socket.AF_UNIX).bind('socket')\nopen('kept', 'w').close()\n\
                   try: os.mknod('device', 0o20600, 0)\nexcept PermissionError: pass";
    for options in WAYS {
        let envelope = python(&env, options, program);
        assert_eq!(envelope["success"], json!(true), "{envelope}");
        let left: Vec<&str> = envelope["result"]["left_out"]
            .as_array()
            .unwrap()
            .iter()
            .map(|left| left["path"].as_str().unwrap())
            .collect();
        // In an overlay the kernel refuses to create the device; in a copy every user may create this one.
        let expected: &[&str] = if options.contains(&"copy") { &["device", "socket"] } else { &["socket"] };
        assert_eq!(left, expected, "{options:?}");
        let listed = env.avfs(&["ls", &run_of(&envelope)]).expect(0).text();
        assert!(
            listed.contains("kept") && !listed.contains("socket") && !listed.contains("device"),
            "{listed}"
        );
    }
}

#[test]
fn hard_links_of_the_directory_stay_linked() {
    let env = TestEnv::with_project();
    std::fs::hard_link(env.project().join("README.md"), env.project().join("second")).unwrap();
    std::fs::hard_link(env.project().join("README.md"), env.project().join("third")).unwrap();
    support::settle();
    let envelope = env.json(&[], "echo more >> second; cat third");
    // overlayfs copies up one name; inside, the other names still refer to the file in the lower layer.
    assert_eq!(envelope["result"]["stdout"], json!("hello\n"), "{envelope}");
    let export = env.export(&run_of(&envelope), "export");
    let inode = |name: &str| std::fs::metadata(export.join(name)).unwrap().ino();
    assert_eq!(inode("README.md"), inode("third"));
    assert_eq!(inode("README.md"), inode("second"));
    assert_eq!(std::fs::read_to_string(export.join("third")).unwrap(), "hello\nmore\n");
}

#[test]
fn files_and_directories_without_permissions_are_captured() {
    let env = TestEnv::with_project();
    let line =
        "mkdir shut; echo in > shut/in; echo secret > closed; chmod 000 closed shut/in shut; chmod 100 src";
    for (number, options) in WAYS.into_iter().enumerate() {
        let envelope = env.json(options, line);
        assert_eq!(envelope["success"], json!(true), "{options:?}: {envelope}");
        assert_eq!(env.cat(&run_of(&envelope), "closed"), "secret\n");
        assert_eq!(env.cat(&run_of(&envelope), "shut/in"), "in\n");
        let export = env.export(&run_of(&envelope), &format!("export-{number}"));
        for (name, mode) in [("closed", 0), ("shut", 0), ("src", 0o100)] {
            let found = std::fs::symlink_metadata(export.join(name)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, mode, "{options:?}: {name}");
        }
    }
}

#[test]
fn a_workspace_that_removes_its_own_permissions_is_captured() {
    let env = TestEnv::with_project();
    for options in WAYS {
        for mode in ["000", "100", "500", "300"] {
            let envelope = env.json(options, &format!("echo x > x; chmod {mode} ."));
            assert_eq!(envelope["error"], Value::Null, "{options:?}: {mode}: {envelope}");
            assert_eq!(env.cat(&run_of(&envelope), "x"), "x\n");
            assert_eq!(env.scratches(), [""; 0]);
        }
    }
    env.assert_sound();
}

#[test]
fn deep_paths_are_captured() {
    let env = TestEnv::with_project();
    let program = |depth: u32, length: u32| {
        format!(
            "import os\nfor n in range({depth}):\n    os.mkdir('d' * {length}); os.chdir('d' * {length})\n\
             open('bottom', 'w').write('deep')"
        )
    };
    for options in WAYS {
        let envelope = python(&env, options, &program(120, 40));
        assert_eq!(envelope["success"], json!(true), "{options:?}: {envelope}");
        assert_eq!(envelope["result"]["change_counts"]["added"], json!(121));
    }
    // A path that is too deep for a version is listed, and everything else is kept.
    let envelope = python(&env, &["--scratch", "disk"], &program(170, 200));
    assert_eq!(envelope["result"]["change_counts"]["added"], json!(163), "{envelope}");
    let left = envelope["result"]["left_out"].as_array().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["path"].as_str().unwrap().len(), 201 * 164 - 1);
    assert_eq!(
        left[0]["reason"],
        json!("it is more than 10000 levels deep, or its path longer than 32768 bytes")
    );
    assert_eq!(env.scratches(), [""; 0]);
}

/// A file system in memory allows files that are larger than a version can store.
#[test]
fn a_file_larger_than_a_version_can_store_is_listed() {
    let env = TestEnv::with_project();
    let script = "echo new > new; truncate -s 17T huge; truncate -s 17T README.md";
    let envelope = env.json(&["--scratch", "memory"], script);
    let left: Vec<&str> = envelope["result"]["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["path"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["README.md", "huge"], "{envelope}");
    let run = run_of(&envelope);
    assert_eq!(env.cat(&run, "new"), "new\n");
    assert_eq!(env.cat(&run, "README.md"), "hello\n");
}

/// The reason why every run has its own upper and work directory, and holds a lock on them.
#[test]
fn an_upper_can_be_mounted_twice_but_a_work_directory_cannot_be_reused() {
    let env = TestEnv::with_project();
    let dirs = env.at("overlay");
    std::fs::create_dir(&dirs).unwrap();
    let script = "mount -t tmpfs tmpfs $0 && cd $0 && mkdir lower upper work again one two \
         && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work,userxattr,volatile one \
         && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=again,userxattr,volatile two \
         && echo x > one/seen && test -e upper/seen && echo twice; umount two; umount one \
         && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work,userxattr,volatile one || echo refused";
    let mut command = std::process::Command::new("unshare");
    let output = command.args(["-Urm", "sh", "-c", script]).arg(&dirs).output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(seen, "twice\nrefused\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_sparse_file_stays_sparse() {
    let env = TestEnv::with_project();
    for options in WAYS {
        let envelope = env.json(
            options,
            "truncate -s 200G holes; printf end | dd of=holes bs=1 seek=100G conv=notrunc 2>/dev/null",
        );
        assert_eq!(envelope["success"], json!(true), "{options:?}: {envelope}");
        let change = &envelope["result"]["changes"][0];
        assert_eq!((&change["path"], &change["size_after"]), (&json!("holes"), &json!(200_u64 << 30)));
    }
    // The vault has not grown by the size of the holes.
    assert!(std::fs::metadata(env.vault_file()).unwrap().len() < 64 << 20);
}

#[test]
fn scratches_are_not_accessible_to_other_users() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line = ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done; cp /bin/true own; chmod 4755 own";
    let running = shared.wait_for_word(shared.start(&env, &["--scratch", "disk"], line), "ready");
    let runs = env.at("cache/avfs/run");
    let id = &env.scratches()[0];
    for dir in [env.at("cache/avfs/mnt"), runs.clone(), runs.join(id), runs.join(id).join("upper")] {
        let mode = std::fs::metadata(&dir).unwrap().permissions().mode() & 0o7777;
        let inside_a_closed_one = dir.ends_with("upper");
        assert!(mode == 0o700 || inside_a_closed_one, "{}: {mode:o}", dir.display());
    }
    shared.put("go");
    running.answer().expect(0);
}

#[test]
fn unusual_calls_work_in_the_workspace() {
    let env = TestEnv::with_project();
    let program = r#"
import ctypes, mmap, os
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b'nameless')
libc = ctypes.CDLL(None, use_errno=True)
assert libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'named', 0x400) == 0, ctypes.get_errno()
assert libc.renameat2(-100, b'README.md', -100, b'src/main.rs', 2) == 0, ctypes.get_errno()
reader = open('README.md')
with open('README.md', 'a') as file: file.write('appended')
assert reader.read().endswith('appended')
with open('map', 'wb+') as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as map: map[:5] = b'in it'
os.posix_fallocate(os.open('room', os.O_CREAT | os.O_RDWR), 0, 10000)
try: os.rename('src', 'moved'); print('moved')
except OSError as error: print(os.strerror(error.errno))
"#;
    for options in WAYS {
        let envelope = python(&env, options, program);
        assert_eq!(envelope["success"], json!(true), "{options:?}: {envelope}");
        let run = run_of(&envelope);
        assert_eq!(env.cat(&run, "named"), "nameless");
        assert_eq!(env.cat(&run, "README.md"), "fn main() {}\nappended");
        assert!(env.cat(&run, "map").starts_with("in it\0"));
        // overlayfs refuses to rename a directory of a lower layer; the supervisor copies it to the upper first.
        assert_eq!(envelope["result"]["stdout"], json!("moved\n"), "{options:?}");
    }
}

#[test]
fn root_can_change_files_of_other_users() {
    let env = TestEnv::with_project();
    if !support::is_root() {
        return support::skip("root_can_change_files_of_other_users", "only root gives files away");
    }
    for path in ["README.md", "src", "src/main.rs"] {
        std::os::unix::fs::chown(env.project().join(path), Some(1234), Some(4321)).unwrap();
    }
    std::fs::set_permissions(env.project().join("README.md"), PermissionsExt::from_mode(0o666)).unwrap();
    let envelope = env.json(&["--base", "live"], "echo more >> README.md; cat README.md src/main.rs");
    assert_eq!(envelope["result"]["stdout"], json!("hello\nmore\nfn main() {}\n"), "{envelope}");
}

#[test]
fn the_scratch_of_a_running_command_is_not_removed() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line = "echo early > early; : > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done; cat early";
    for scratch in ["memory", "disk"] {
        let running = shared.start(&env, &["--json", "--scratch", scratch], line);
        let running = shared.wait_for_word(running, "ready");
        env.ok(&[], "true");
        assert_eq!(env.scratches().len(), 1);
        shared.put("go");
        let envelope = running.answer().expect(0).envelope();
        assert_eq!(envelope["result"]["changes"][0]["path"], json!("early"));
        for name in ["ready", "go"] {
            std::fs::remove_file(Path::new(shared.text()).join(name)).unwrap();
        }
    }
}

#[test]
fn paths_may_contain_the_separators_of_mount_options() {
    let env = TestEnv::new();
    let odd = env.at("a,b:c\\d e=f");
    let project = odd.join("pro,ject:x");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(project.join("file"), "x\n").unwrap();
    for options in WAYS {
        let mut words = vec!["--json"];
        words.extend(options);
        words.extend(["--shell", "cat file; echo y > new; rm file; pwd"]);
        let mut command = env.command(&words);
        command.current_dir(&project).env("XDG_CACHE_HOME", odd.join("cache,1"));
        let envelope = env.answer(&mut command).expect(0).envelope();
        assert_eq!(envelope["result"]["stdout"], json!(format!("x\n{}\n", project.display())));
        assert_eq!(envelope["result"]["change_counts"]["total"], json!(2));
    }
}

#[test]
fn more_runs_than_stacked_layers_are_possible() {
    let env = TestEnv::with_project();
    for n in 0..12 {
        env.ok(&["--fork", "f", "--scratch", "disk"], &format!("echo {n} > n-{n}; rm -f n-{}", n - 3));
    }
    assert_eq!(env.ok(&["--fork", "f"], "ls n-* | wc -l; cat n-9 n-11"), "3\n9\n11\n");
    // The cache can be rebuilt from the vault.
    std::fs::remove_dir_all(env.at("cache"))
        .or_else(|_| {
            std::process::Command::new("chmod").args(["-R", "u+rwx"]).arg(env.at("cache")).status().unwrap();
            std::fs::remove_dir_all(env.at("cache"))
        })
        .unwrap();
    assert_eq!(env.ok(&["--fork", "f"], "ls n-* | wc -l; cat n-9 n-11"), "3\n9\n11\n");
}

#[test]
fn resource_usage_of_processes_killed_at_the_end_is_counted() {
    let env = TestEnv::with_project();
    // A process that has left the session, uses processor time, and is alive when the command ends.
    let burner = "import signal, time\nwhile time.process_time() < 0.3: pass\nprint('burnt', flush=True)\nsignal.pause()";
    let program = format!(
        "import subprocess, sys\nburner = subprocess.Popen([sys.executable, '-c', \"\"\"{burner}\"\"\"], \
         start_new_session=True, stdout=subprocess.PIPE)\nburner.stdout.readline()"
    );
    let used = |envelope: &Value| {
        let usage = &envelope["result"]["usage"];
        usage["user_ms"].as_f64().unwrap() + usage["system_ms"].as_f64().unwrap()
    };
    let envelope = python(&env, &[], &program);
    assert_eq!(envelope["result"]["exit_code"], json!(0), "{envelope}");
    assert!(used(&envelope) >= 300.0, "{envelope}");
}

#[test]
fn files_in_the_cache_can_be_deleted_renamed_and_overwritten() {
    let env = TestEnv::with_project();
    for n in 0..3 {
        let line = format!(
            "echo {n} >> README.md; mv src/main.rs src/m; mv src/m src/main.rs; rm -f gone; : > gone"
        );
        env.ok(&["--fork", "f", "--base", "cached", "--scratch", "disk"], &line);
    }
    assert_eq!(env.cat("f", "README.md"), "hello\n0\n1\n2\n");
    // A layer with an immutable flag would refuse all of these.
    let mut looked = 0;
    for entry in walkdir::WalkDir::new(env.at("cache")).into_iter().flatten() {
        if !entry.file_type().is_file() {
            continue;
        }
        let Ok(file) = std::fs::File::open(entry.path()) else { continue };
        match rustix::fs::ioctl_getflags(&file) {
            Ok(flags) => {
                looked += 1;
                let fixed = rustix::fs::IFlags::IMMUTABLE | rustix::fs::IFlags::APPEND;
                assert!(!flags.intersects(fixed), "{}", entry.path().display());
            }
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => {
                return support::skip(
                    "files_in_the_cache_can_be_deleted_renamed_and_overwritten",
                    "no flags on this file system",
                );
            }
            Err(errno) => panic!("{}: {errno}", entry.path().display()),
        }
    }
    assert!(looked > 0);
}

#[test]
fn file_capabilities_are_dropped_and_the_content_is_kept() {
    let env = TestEnv::with_project();
    // CAP_NET_RAW, permitted and effective, in the format of version 2.
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let file = env.project().join("README.md");
    let set = rustix::fs::setxattr(&file, "security.capability", &value, rustix::fs::XattrFlags::empty());
    if set.is_err() {
        return support::skip(
            "file_capabilities_are_dropped_and_the_content_is_kept",
            "only root gives files capabilities",
        );
    }
    let mut room = [0; 64];
    let mut size = |path: &Path| rustix::fs::getxattr(path, "security.capability", &mut room[..]);
    assert_eq!(size(&file), Ok(value.len()));
    for (number, options) in WAYS.iter().enumerate() {
        let envelope = env.json(options, "chmod u+x README.md; cat README.md");
        assert_eq!(envelope["result"]["stdout"], json!("hello\n"), "{options:?}: {envelope}");
        let out = env.export(&run_of(&envelope), &format!("out-{number}"));
        assert_eq!(std::fs::read_to_string(out.join("README.md")).unwrap(), "hello\n");
        assert_eq!(size(&out.join("README.md")), Err(rustix::io::Errno::NODATA), "{options:?}");
    }
    assert_eq!(size(&file), Ok(value.len()));
}

#[test]
fn groups_of_the_caller_stay_effective_inside() {
    const NAME: &str = "groups_of_the_caller_stay_effective_inside";
    let env = TestEnv::with_project();
    if !support::is_root() {
        return support::skip(NAME, "only root can join groups");
    }
    let (user, group) = (54_321, 54_322);
    let shown = env.at("shown");
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("file"), "for the group\n").unwrap();
    std::os::unix::fs::chown(shown.join("file"), Some(0), Some(group)).unwrap();
    std::fs::set_permissions(shown.join("file"), PermissionsExt::from_mode(0o640)).unwrap();
    let top = env.at("");
    for entry in walkdir::WalkDir::new(&top).into_iter().flatten() {
        if !entry.path().starts_with(&shown) {
            std::os::unix::fs::lchown(entry.path(), Some(user), Some(user)).unwrap();
        }
    }
    let read = |groups: &str| {
        let mut command = env.clean(Path::new("setpriv"));
        command.args(["--reuid", "54321", "--regid", "54321", groups]).arg(crate::env::runner());
        command.args(["-q", "--ro", shown.to_str().unwrap(), "--", "cat"]).arg(shown.join("file"));
        crate::env::Running::start(command.current_dir(env.project())).answer()
    };
    // Groups cannot be dropped without privileges: the command can read shown files that a group of the caller can
    // read.
    assert_eq!(read("--groups=54322").expect(0).text(), "for the group\n");
    assert!(read("--clear-groups").expect(1).stderr.contains("Permission denied"));
}
