//! Tried: making a capture or an import walk out of the directory, by swapping a directory for a symlink while it is
//! read, and by names such as `..`.
//! Stopped by: opens stay beneath the root, without symlinks (openat2); a capture starts once all processes have ended.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::env::{Running, TestEnv, avfs};
use crate::support::noise;
use crate::support::pause::Pauses;

/// Longer than one read: such a file is opened by its path after its directory was listed.
const LARGE_BYTES: usize = (1 << 20) + 1;
const SMALL_BYTES: usize = 64;

/// Whether the vault contains these bytes, which do not compress.
fn holds(env: &TestEnv, bytes: &[u8]) -> bool {
    let mut files = std::fs::read_dir(env.project().join(".avfs")).unwrap();
    files.any(|file| {
        let stored = std::fs::read(file.unwrap().path()).unwrap();
        stored.windows(bytes.len()).any(|part| part == bytes)
    })
}

#[test]
fn directory_that_becomes_a_symlink_is_not_followed() {
    let env = TestEnv::with_project();
    let tree = env.at("tree");
    let (real, other) = (tree.join("swapped"), env.at("other"));
    let swap = || renameat_with(CWD, &real, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    for dir in [&real, &env.at("victims")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::os::unix::fs::symlink(env.at("victims"), &other).unwrap();
    let import = || {
        let mut command = env.clean(&avfs());
        command.args(["--json", "import"]).arg(&tree);
        command
    };
    // Before the directory is opened; before its file is opened: a small file relative to the open directory, a large
    // one a second time by its path.
    for (round, bytes, point, outcome) in [
        (1, SMALL_BYTES, "scan-dir#2", json!("import.vanished")),
        (2, SMALL_BYTES, "open-file#1", json!(null)),
        (3, LARGE_BYTES, "open-file#2", json!("import.vanished")),
    ] {
        let (content, secret) = (noise(2 * round, bytes), noise(2 * round + 1, bytes));
        std::fs::write(real.join("file"), &content).unwrap();
        std::fs::write(env.at("victims/file"), &secret).unwrap();
        let pauses = Pauses::new(&env.at(""));
        pauses.hold(point);
        let mut running = Running::start(pauses.set(&mut import()));
        pauses.wait(point, &mut running.child);
        swap();
        // Control: following symlinks reads the secret.
        assert_eq!(std::fs::read(real.join("file")).unwrap(), secret);
        pauses.release(point);
        let answer = running.answer();
        swap();
        assert_eq!(answer.envelope()["error"]["code"], outcome, "{bytes} bytes, {point}: {answer:?}");
        assert!(
            !holds(&env, &secret[..SMALL_BYTES]),
            "{bytes} bytes, {point}: a file of the host was imported"
        );
        // Control: imported content is found in the vault.
        Running::start(&mut import()).answer().expect(0);
        assert!(holds(&env, &content[..SMALL_BYTES]), "{bytes} bytes, {point}");
    }
    env.assert_sound();
}

#[test]
fn swaps_until_the_end_of_a_run_do_not_escape() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/secret"), "host's secret").unwrap();
    let program = format!(
        "import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs('swapped')
for n in range(50): open(f'swapped/f{{n}}', 'w').close()
os.symlink('{}', 'other')
heard, say = os.pipe()
if os.fork() == 0:
    os.setsid()
    while True:
        for n in range(100): libc.renameat2(-100, b'swapped', -100, b'other', 2)
        os.write(say, b'x')
os.read(heard, 1)",
        env.at("victims").display()
    );
    for options in [&["--scratch", "memory"][..], &["--scratch", "disk"], &["--backend", "copy"]] {
        let mut words = vec!["--json"];
        words.extend(options);
        words.extend(["--", "python3", "-c", &program]);
        let envelope = env.run(&words).expect(0).envelope();
        let text = envelope.to_string();
        assert!(!text.contains("secret\""), "{text}");
    }
    env.assert_sound();
}
