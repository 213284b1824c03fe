//! rename(2) of directories that exist before the run.

use serde_json::json;

use crate::env::{Running, TestEnv};
use crate::oracle::{Ends, Trial, WAYS, mixed};
use crate::support::pause::Pauses;
use crate::support::snapshot;

/// Calls rename(2) directly, without the copy that mv(1) falls back to.
const RENAME: &str = "python3 -c 'import os, sys; os.rename(*sys.argv[1:])'";

#[test]
fn directories_are_renamed_as_in_a_plain_directory() {
    let lines = [
        format!("set -e; {RENAME} d renamed; {RENAME} x empty; {RENAME} renamed/e/f up"),
        "set -e; echo more >> renamed/a; rm renamed/b; echo new > up/new; chmod 700 empty".to_owned(),
        format!(
            "set -e; mkdir made; {RENAME} renamed made/d; {RENAME} made moved; {RENAME} \"$PWD/up\" moved/d/up"
        ),
    ];
    Trial { fixture: &mixed, lines: &lines, of_the_host: &[], ends: Ends::Well }.agrees(&WAYS);
}

#[test]
fn renamed_directories_keep_modes_attributes_and_times() {
    let set =
        "import os; os.setxattr(\"d/e\", \"user.k\", b\"v\"); os.setxattr(\"d\", \"user.overlay.x\", b\"1\")";
    let lines = [
        format!(
            "set -e; python3 -c '{set}'; chmod 2751 d/e; chmod 555 d/e/f; touch -d 2001-02-03 d/e d/e/f d"
        ),
        format!("set -e; {RENAME} d moved"),
        format!("set -e; cd moved; {RENAME} e ../e; cd ..; chmod 755 e/f; {RENAME} e/f f"),
    ];
    Trial { fixture: &mixed, lines: &lines, of_the_host: &[], ends: Ends::Well }.agrees(&WAYS);
}

#[test]
fn rename_fails_with_the_same_errors_as_in_a_plain_directory() {
    let env = TestEnv::new();
    mixed(&env);
    let script = "import os
def tried(*names):
    try: os.rename(*names); print('done')
    except OSError as error: print(error.strerror)
tried('d', 'x')
tried('d', 'd/e/below')
tried('d', 'a')
tried('a', 'd')
tried('missing', 'other')
tried('d', 'nowhere/d')
tried('x', 'x')";
    std::fs::write(env.project().join("try.py"), script).unwrap();
    let inside = env.ok(&[], "python3 try.py; ls -R d x");
    let mut plain = env.clean("sh".as_ref());
    let outside = crate::env::Running::start(plain.args(["-c", "python3 try.py; ls -R d x"])).answer().text();
    assert_eq!(inside, outside);
    assert!(inside.starts_with("Directory not empty\nInvalid argument\n"), "{inside}");
}

#[test]
fn git_moves_directories() {
    let env = crate::git::with_repository();
    let answer = env.json(&[], "git mv src source && git status --short");
    assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
    assert!(answer["result"]["stdout"].as_str().unwrap().contains("source/main.rs"), "{answer}");
}

#[test]
fn an_open_file_stays_valid_after_its_directory_is_renamed() {
    let env = TestEnv::new();
    env.put("d/log", b"one\n");
    let script = "import os; f = open('d/log', 'a'); os.rename('d', 'e'); f.write('two\\n'); f.close(); \
                  print(open('e/log').read(), end='')";
    assert_eq!(env.run(&["--", "python3", "-c", script]).expect(0).text(), "one\ntwo\n");
}

#[test]
fn without_seccomp_notifications_the_kernel_refuses_to_rename_directories() {
    let env = TestEnv::new();
    env.put("d/f", b"");
    let line = format!("{RENAME} d e");
    let refused = env.json(&["--seccomp", "off"], &line);
    assert!(refused["result"]["stderr"].as_str().unwrap().contains("Invalid cross-device link"), "{refused}");
    // With a copy it works regardless of the filter.
    let copied = env.json(&["--seccomp", "off", "--backend", "copy"], &line);
    assert_eq!(copied["result"]["exit_code"], json!(0), "{copied}");
}

#[test]
fn a_directory_that_cannot_be_copied_up_stays_unchanged() {
    let env = TestEnv::new();
    env.put("d/small", b"1");
    env.put("d/sub/large", &crate::support::noise(3, 3 << 20));
    env.put("d/sub/other", b"2");
    let line = format!("{RENAME} d e; ls -R");
    let answer = env.json(&["--scratch", "memory", "--disk", "1MiB"], &line);
    assert_eq!(
        answer["result"]["stdout"],
        json!(".:\nd\n\n./d:\nsmall\nsub\n\n./d/sub:\nlarge\nother\n"),
        "{answer}"
    );
    let notes = answer["result"]["notes"].to_string();
    assert!(notes.contains("rename.refused") && notes.contains("--backend copy"), "{answer}");
}

#[test]
fn concurrent_renames_all_succeed() {
    let env = TestEnv::new();
    for dir in 0..40 {
        env.put(&format!("d{dir}/in/f"), b"x");
    }
    let script = "import os, threading
def move(n):
    os.rename(f'd{n}', f'e{n}')
    for i in range(50): os.rename(f'e{n}/in', f'e{n}/out'); os.rename(f'e{n}/out', f'e{n}/in')
threads = [threading.Thread(target=move, args=(n,)) for n in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(os.listdir('.')))";
    let listed = env.run(&["--", "python3", "-c", script]).expect(0).text();
    let count = |letter: &str| listed.matches(&format!("'{letter}")).count();
    assert_eq!((count("d"), count("e")), (20, 20), "{listed}");
}

/// A directory in a directory, this many times, each with a file.
fn deep(env: &TestEnv, levels: usize) {
    for level in 0..levels {
        env.put(&format!("deep{}/f", "/d".repeat(level)), format!("{level}\n").as_bytes());
    }
}

#[test]
fn deep_directories_are_renamed_as_in_a_plain_directory() {
    let lines = [format!("set -e; {RENAME} deep moved; {RENAME} moved/d/d/d up")];
    let fixture = |env: &TestEnv| deep(env, 300);
    Trial { fixture: &fixture, lines: &lines, of_the_host: &[], ends: Ends::Well }
        .agrees(&[WAYS[0], WAYS[7]]);
}

#[test]
fn a_deep_directory_is_renamed_with_few_open_files() {
    let env = TestEnv::new();
    deep(&env, 200);
    let mut command = env.clean("sh".as_ref());
    command.args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\""]).arg(crate::env::runner());
    command.args(["--json", "--fork", "work", "--shell", &format!("{RENAME} deep moved")]);
    let answer = env.answer(&mut command).expect(0).envelope();
    assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
    let export = env.export("work", "export");
    assert_eq!(std::fs::read_dir(&export).unwrap().count(), 1, "{answer}");
    let of = |dir: &std::path::Path| snapshot::take_without(dir, &[]);
    let changed = snapshot::differences(&of(&env.project().join("deep")), &of(&export.join("moved")));
    assert!(changed.is_empty(), "{changed:#?}");
}

#[test]
fn a_refused_rename_changes_nothing_at_any_depth() {
    let env = TestEnv::new();
    deep(&env, 300);
    env.put(&format!("deep{}/large", "/d".repeat(280)), &crate::support::noise(3, 3 << 20));
    let options = ["--scratch", "memory", "--disk", "1MiB", "--fork", "work"];
    let answer = env.json(&options, &format!("{RENAME} deep moved"));
    assert_eq!(answer["result"]["change_counts"]["total"], json!(0), "{answer}");
    assert!(answer["result"]["notes"].to_string().contains("rename.refused"), "{answer}");
}

#[test]
fn any_number_of_threads_rename_directories_at_once() {
    let env = TestEnv::new();
    for dir in 0..100 {
        env.put(&format!("d{dir}/in/f"), b"x");
    }
    let script = "import os, threading
start, failed = threading.Barrier(100), []
def move(*names):
    start.wait()
    try: os.rename(*names)
    except OSError as error: failed.append((names, error.strerror))
threads = [threading.Thread(target=move, args=(f'd{n}', f'e{n}')) for n in range(100)]
[t.start() for t in threads]; [t.join() for t in threads]
print(failed, len([name for name in os.listdir('.') if name[0] == 'e']))";
    let answer = env.run(&["--fork", "work", "--", "python3", "-c", script]).expect(0);
    assert_eq!(answer.text(), "[] 100\n", "{answer:?}");
    assert_eq!(std::fs::read_dir(env.export("work", "export")).unwrap().count(), 100, "{answer:?}");
}

#[test]
fn a_directory_and_directories_in_it_are_renamed_at_once() {
    let env = TestEnv::new();
    for dir in 0..60 {
        env.put(&format!("d/a{dir}/in/f"), b"x");
    }
    // An inner directory may be gone when it is its turn.
    let script = "import errno, os, threading
start, failed = threading.Barrier(61), []
def move(*names):
    start.wait()
    try: os.rename(*names)
    except OSError as error: failed.append((names, error.errno))
threads = [threading.Thread(target=move, args=(f'd/a{n}', f'd/b{n}')) for n in range(60)]
threads.append(threading.Thread(target=move, args=('d', 'e')))
[t.start() for t in threads]; [t.join() for t in threads]
print([it for it in failed if it[0][0] == 'd' or it[1] != errno.ENOENT])";
    let answer = env.run(&["--fork", "work", "--", "python3", "-c", script]).expect(0);
    assert_eq!(answer.text(), "[]\n", "{answer:?}");
    let export = env.export("work", "export");
    let names = |dir: &std::path::Path| {
        let listing = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = listing.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_by_key(|name| name[1..].parse::<u32>().unwrap_or_default());
        names
    };
    assert_eq!(names(&export), ["e"]);
    for (number, name) in names(&export.join("e")).iter().enumerate() {
        assert!([format!("a{number}"), format!("b{number}")].contains(name), "{name}");
        assert_eq!(std::fs::read(export.join("e").join(name).join("in/f")).unwrap(), b"x", "{name}");
    }
}

/// Renames, and reports an error by its name.
const TRIED: &str = "
import errno, os
def tried(*names, **fds):
    try: os.rename(*names, **fds)
    except OSError as error: print(errno.errorcode[error.errno])
    else: print('done')
";

#[test]
fn paths_are_resolved_as_by_the_kernel() {
    let env = TestEnv::new();
    for dir in ["a", "b", "c", "e", "sub/d"] {
        env.put(&format!("{dir}/f"), dir.as_bytes());
    }
    let symlink = |to: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(to, env.project().join(name)).unwrap();
    };
    symlink(&env.project().join("sub"), "absolute");
    symlink("sub/../sub".as_ref(), "relative");
    let script = format!(
        "{TRIED}
here = os.getcwd()
tried('relative/d/', 'absolute/moved')
tried(here + '/../' + os.path.basename(here) + '/a', 'absolute/../a2')
sub = os.open('sub', os.O_RDONLY)
tried('../b', 'b', src_dir_fd=sub, dst_dir_fd=sub)
os.chdir('sub')
tried('../c', 'c')
tried('./moved/../../e', '/' + here + '//sub/e')
tried('absolute', 'x')
print(sorted(os.listdir('.')), open('moved/f').read(), open('e/f').read())"
    );
    let answer = env.run(&["--json", "--", "python3", "-c", &script]).expect(0).envelope();
    let done = "done\n".repeat(5) + "ENOENT\n['b', 'c', 'e', 'moved'] sub/d e\n";
    assert_eq!(answer["result"]["stdout"], json!(done), "{answer}");
    assert!(!answer["result"]["notes"].to_string().contains("rename.refused"), "{answer}");
}

#[test]
fn a_directory_with_an_unknown_path_is_refused_with_a_note() {
    let env = TestEnv::new();
    env.put("d/f", b"");
    let magic = format!("{TRIED}tried(f'/proc/{{os.getpid()}}/cwd/d', 'e')");
    let own = format!("{TRIED}tried('/proc/self/cwd/d', 'e')");
    // A working directory whose path is longer than PATH_MAX.
    let name = "n".repeat(250);
    let make =
        format!("import os\nfor _ in range(20): os.mkdir('{name}'); os.chdir('{name}')\nos.mkdir('d')");
    env.run(&["--fork", "work", "--", "python3", "-c", &make]).expect(0);
    let deep = format!("{TRIED}for _ in range(20): os.chdir('{name}')\ntried('d', 'e')");
    for script in [magic, own, deep] {
        let answer =
            env.run(&["--json", "--fork", "work", "--", "python3", "-c", &script]).expect(0).envelope();
        assert_eq!(answer["result"]["stdout"], json!("EXDEV\n"), "{answer}");
        assert!(answer["result"]["notes"].to_string().contains("rename.refused"), "{answer}");
    }
}

#[test]
fn the_deadline_does_not_wait_for_a_path() {
    let env = TestEnv::new();
    env.put("d/f", b"");
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("rename");
    let line = format!("echo begun; {RENAME} d e; echo renamed");
    let words = ["--json", "--timeout", "1s", "--grace", "0s", "--shell", &line];
    let answer = Running::start(pauses.set(&mut env.command(&words))).answer().envelope();
    assert!(pauses.is_held("rename"));
    assert_eq!(answer["result"]["timed_out"], json!(true), "{answer}");
    assert_eq!(answer["result"]["stdout"], json!("begun\n"), "{answer}");
}

#[test]
fn the_end_waits_for_a_running_helper() {
    let env = TestEnv::new();
    env.put("d/one", b"1");
    env.put("d/sub/two", b"2");
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("rename-helper");
    let line = format!("{RENAME} d e");
    let words = ["--json", "--fork", "work", "--timeout", "1s", "--grace", "0s", "--shell", &line];
    let mut running = Running::start(pauses.set(&mut env.command(&words)));
    pauses.wait("rename-helper", &mut running.child);
    crate::env::wait_for("the end of the command", || {
        assert!(!running.has_ended(), "it did not wait for the helper");
        pauses.reached().iter().any(|point| point == "rename-awaited")
    });
    pauses.release("rename-helper");
    let answer = running.answer().envelope();
    assert_eq!(answer["result"]["timed_out"], json!(true), "{answer}");
    assert_eq!(answer["result"]["change_counts"]["total"], json!(0), "{answer}");
    assert_eq!(env.cat("work", "d/one") + &env.cat("work", "d/sub/two"), "12");
}
