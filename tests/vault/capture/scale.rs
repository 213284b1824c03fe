//! Large and small captures: threads, memory, file systems.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use avfs_hostfs::beneath;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::capture::{CaptureOptions, UpperKind};
use avfs_vault::edit::Edit;
use avfs_vault::meter::Meter;
use avfs_vault::page::Node;

use super::{Case, TREE, edited, edits};
use crate::support::{Scratch, path};
use crate::worker::Worker;
use crate::{overlay, support};

#[test]
fn large_and_many_files_are_captured() {
    if !overlay::works("large_and_many_files_are_captured") {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    fs::write(dir.join("large"), support::noise(1, 2 << 20)).unwrap();
    support::many_files(&dir, 100);
    let case = Case::over(scratch, &dir);
    let script = "printf x | dd of=large bs=1 seek=1000000 conv=notrunc 2>/dev/null; truncate -s 1G hollow
         printf end >>hollow
         mkdir n n/0 n/1 n/2 n/3 n/4 n/5 n/6 n/7 n/8
         i=0; while [ $i -lt 700 ]; do echo $i >n/$((i % 9))/$i; i=$((i + 1)); done; rm -r d000";
    case.run(script);
    overlay::in_dir(&dir, script);
    case.assert_same_as(&dir);
    for name in ["huge", "large"] {
        fs::File::create(case.upper.join(name)).unwrap().set_len(1 << 40).unwrap();
    }
    let options = CaptureOptions {
        kind: UpperKind::Layer,
        exclude: &[],
        hidden: &[],
        file_bytes_max: 1 << 39,
        secrets: &Secrets::default(),
        times: avfs_vault::capture::Times::AsWritten,
        since: avfs_types::clock::FileTime::default(),
        renamed: &RenamedNames::default(),
        modes_journal: &case.journal,
        meter: &Meter::default(),
    };
    let upper = beneath::open_root(&case.upper).unwrap();
    // Left out and named, and everything else is kept; an existing file keeps its old content.
    let captured = case.vault.capture(upper.as_fd(), &case.base, &options).unwrap();
    let left: Vec<String> =
        captured.left_out.iter().map(|left| format!("{}: {}", left.path, left.reason)).collect();
    let reason = format!("it is {} bytes long; at most {} can be kept", 1_u64 << 40, 1_u64 << 39);
    assert_eq!(left, [format!("huge: {reason}"), format!("large: {reason}")]);
    assert!(
        !edits(&case, &captured).keys().any(|path| ["huge", "large"].contains(&path.to_string().as_str()))
    );
    assert!(edited(&case, &captured).contains(&"hollow".to_owned()));
}

/// A vault with an empty `main` fork, and an upper that the test fills.
fn by_hand() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new();
    let (vault, upper) = (scratch.join("vault.db"), scratch.dir("upper"));
    drop(support::create_real_vault(&vault));
    (scratch, vault, upper)
}

#[test]
fn small_capture_uses_no_other_thread() {
    for (files, alone) in [(0, true), (200, true), (600, false)] {
        let (scratch, vault, upper) = by_hand();
        support::many_files(&upper, files);
        let trace = scratch.join("trace");
        let mut traced = std::process::Command::new("strace");
        traced.arg("-f").args(["-e", "trace=clone,clone3,write", "-s", "16", "-o"]).arg(&trace);
        traced.arg(std::env::current_exe().unwrap());
        let settings = [("VAULT", vault.to_str().unwrap()), ("UPPER", upper.to_str().unwrap())];
        let mut worker = Worker::start_as(traced, "capture", &settings);
        worker.go();
        worker.finish();
        let trace = fs::read_to_string(&trace).unwrap();
        let capture = &trace[trace.find("\\nbegin").unwrap()..trace.find("\\nack ").unwrap()];
        let threads = capture.lines().filter(|line| line.contains(" clone")).count();
        assert_eq!(threads == 0, alone, "capturing {files} files used {threads} more threads");
    }
}

/// At most two of the processors that this process may use, for `taskset`.
fn two_processors() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let numbers = allowed.trim().split(',').flat_map(|range| {
        let mut ends = range.split('-').map(|number| number.parse::<u32>().unwrap());
        let first = ends.next().unwrap();
        first..=ends.next().unwrap_or(first)
    });
    numbers.take(2).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn large_file_is_captured_in_little_memory() {
    let (_scratch, vault, upper) = by_hand();
    let mut file = fs::File::create(upper.join("large")).unwrap();
    for at in 0..180 {
        std::io::Write::write_all(&mut file, &support::noise(at, 1 << 20)).unwrap();
    }
    let capture = |kib: u64| {
        // A capture needs memory for each processor. The kernel refuses memory beyond the limit, and the capture dies.
        let mut limited = std::process::Command::new("taskset");
        limited.args([
            "-c",
            &two_processors(),
            "sh",
            "-c",
            &format!("ulimit -d {kib} && exec \"$0\" \"$@\""),
        ]);
        limited.arg(std::env::current_exe().unwrap());
        let settings = [("VAULT", vault.to_str().unwrap()), ("UPPER", upper.to_str().unwrap())];
        let mut worker = Worker::start_as(limited, "capture", &settings);
        worker.go();
        worker.end().1.acks()
    };
    // Control: the limit is effective.
    assert_eq!(capture(20 << 10), [""; 0]);
    assert_eq!(capture(130 << 10), ["2 edits"]);
}

#[test]
fn upper_on_a_detached_mount_is_captured() {
    if !overlay::works("upper_on_a_detached_mount_is_captured") {
        return;
    }
    let case = Case::new(TREE);
    let tmp = case.scratch.dir("tmp");
    let script = "mount -t tmpfs tmpfs \"$TMP\"; cd \"$TMP\"; mkdir upper work merged
        touch -r \"$LOWER\" upper
        mount -t overlay overlay -o lowerdir=\"$LOWER\",upperdir=upper,workdir=work,userxattr,volatile merged
        rm -r merged/d; mkdir merged/d; echo new >merged/d/new; chmod 0 merged/d/new; mv merged/six merged/moved
        umount merged; echo ready; read end";
    let mut child = std::process::Command::new("unshare")
        .args(["-Urm", "sh", "-euc", script])
        .env("TMP", &tmp)
        .env("LOWER", &case.lower)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut ready)
        .unwrap();
    assert_eq!(ready, "ready\n");
    let through = PathBuf::from(format!("/proc/{}/root", child.id()));
    let inside = through.join(tmp.strip_prefix("/").unwrap()).join("upper");
    let upper_fd = beneath::open_root(&inside).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(!inside.exists());
    let case = Case { upper_fd, ..case };
    let captured = case.capture();
    assert_eq!(edited(&case, &captured), [".", "d", "d/new", "d/one", "d/sub", "d/two", "moved", "six"]);
    let Edit::Put(Node::File(file)) = &edits(&case, &captured)[&path("d/new")] else { panic!() };
    assert_eq!((file.mode, file.size), (0, 4));
    case.commit(captured);
    support::assert_clean(&case.vault);
}
