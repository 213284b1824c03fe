//! Tried: having a capture or an import walk out of the directory by swapping a directory for a link while it
//! is read, and by names such as `..`.
//! Stopped by: every open is beneath the root and follows no link (openat2); a capture begins when nobody is left.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::TestEnv;
use crate::support::RaiseOnDrop;

#[test]
fn a_directory_that_becomes_a_link_is_not_walked_through() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/secret"), "host's secret").unwrap();
    for n in 0..200 {
        env.put(&format!("swapped/f{n}"), b"x");
    }
    let (real, other) = (env.project().join("swapped"), env.at("other"));
    std::os::unix::fs::symlink(env.at("victims"), &other).unwrap();
    let (ended, swaps) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &real, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _end = RaiseOnDrop(&ended);
        // Control: somebody who follows links does get there now and then.
        crate::env::wait_for("a look through the link", || {
            std::fs::read_to_string(real.join("secret")).is_ok_and(|text| text == "host's secret")
        });
        for _ in 0..12 {
            // It may fail, since the directory does not keep still; it may not read what is outside.
            let _ = env.avfs(&["import"]);
        }
    });
    assert!(swaps.load(Ordering::Relaxed) > 100);
    for file in std::fs::read_dir(env.project().join(".avfs")).unwrap() {
        let stored = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!stored.windows(13).any(|part| part == b"host's secret"), "a file of the host was imported");
    }
    env.assert_sound();
}

#[test]
fn swaps_until_the_last_moment_of_a_run_lead_nowhere() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/secret"), "host's secret").unwrap();
    let program = format!(
        "import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs('swapped')
for n in range(50): open(f'swapped/f{{n}}', 'w').close()
os.symlink('{}', 'other')
if os.fork() == 0:
    os.setsid()
    while True: libc.renameat2(-100, b'swapped', -100, b'other', 2)
import time; time.sleep(0.2)",
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
