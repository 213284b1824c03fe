//! Memory stays bounded, however large a file is.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::env::{Answer, TestEnv, binary};
use crate::support::{noise, peak_kib};

/// Far more than may be held at once.
const FILE_MIB: u64 = 320;
const MEMORY_KIB_MAX: u64 = 200 << 10;

#[test]
fn a_large_file_is_imported_in_little_memory() {
    let env = TestEnv::with_project();
    let mut file = std::fs::File::create(env.project().join("large.bin")).unwrap();
    for at in 0..FILE_MIB {
        file.write_all(&noise(at, 1 << 20)).unwrap();
    }
    drop(file);
    let import = |kib: u64| {
        // The kernel refuses memory beyond the limit, so an import that needs more fails.
        let mut shell = env.clean(Path::new("/bin/sh"));
        shell.args(["-c", &format!("ulimit -d {kib} && exec \"$0\" import")]).arg(binary());
        Answer::from(shell.output().unwrap())
    };
    // The control: the limit is felt.
    assert_ne!(import(4 << 10).code, 0);
    let answer = import(MEMORY_KIB_MAX);
    assert_eq!(answer.code, 0, "{answer:?}");
}

/// What is in the vault already is compared with it, without having the vault in memory.
#[test]
fn a_large_file_is_imported_again_in_little_memory() {
    let env = TestEnv::with_project();
    let noise: Vec<u8> = (0..FILE_MIB).flat_map(|at| noise(at, 1 << 20)).collect();
    env.put("large.bin", &noise);
    drop(noise);
    env.ok(&["import"]);
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let mut child = env.avfs(&["import"]).stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(peak_kib(child.id()).unwrap_or(0));
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(status.success());
    assert!((1..MEMORY_KIB_MAX).contains(&most), "{most} KiB");
}

#[test]
fn lines_that_match_are_not_held() {
    let env = TestEnv::new();
    env.put("many", &b"x\n".repeat(2 << 20));
    env.ok(&["init", "--import"]);
    let mut shell = env.clean(Path::new("/bin/sh"));
    shell.args(["-c", "ulimit -d 81920 && exec \"$0\" grep main x"]).arg(binary());
    let answer = Answer::from(shell.output().unwrap());
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    assert_eq!(answer.stdout.lines().count(), 2 << 20);
}
