//! Memory use is bounded, regardless of the size of files.

use std::io::Write;
use std::path::Path;

use crate::env::{Answer, TestEnv, binary};
use crate::support::noise;

/// Far more than the memory limit.
const FILE_MIB: u64 = 240;
const MEMORY_KIB_MAX: u64 = 200 << 10;

fn put_large(env: &TestEnv) {
    let mut file = std::fs::File::create(env.project().join("large.bin")).unwrap();
    for at in 0..FILE_MIB {
        file.write_all(&noise(at, 1 << 20)).unwrap();
    }
}

#[test]
fn import_of_a_large_file_uses_little_memory() {
    let env = TestEnv::with_project();
    put_large(&env);
    let import = |kib: u64| {
        // The kernel refuses memory beyond the limit, so an import that needs more fails.
        let mut shell = env.clean(Path::new("/bin/sh"));
        shell.args(["-c", &format!("ulimit -d {kib} && exec \"$0\" import")]).arg(binary());
        Answer::of(shell)
    };
    // The control: the limit takes effect.
    assert_ne!(import(4 << 10).code, 0);
    let answer = import(MEMORY_KIB_MAX);
    assert_eq!(answer.code, 0, "{answer:?}");
}

/// Runs a command and prints its peak memory in KiB.
const MEASURE: &str = "
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";

/// Content that is already stored is compared with the vault without loading the vault into memory.
#[test]
fn repeated_import_of_a_large_file_uses_little_memory() {
    let env = TestEnv::with_project();
    put_large(&env);
    env.ok(&["import"]);
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let mut measured = env.clean(Path::new("python3"));
    let answer = Answer::of(measured.args(["-c", MEASURE]).arg(binary()).arg("import"));
    assert_eq!(answer.code, 0, "{answer:?}");
    let most: u64 = answer.stdout.lines().last().unwrap().parse().unwrap();
    assert!((1..MEMORY_KIB_MAX).contains(&most), "{most} KiB");
}

#[test]
fn grep_does_not_keep_matching_lines_in_memory() {
    let env = TestEnv::new();
    env.put("many", &b"x\n".repeat(2 << 20));
    env.ok(&["init", "--import"]);
    let mut shell = env.clean(Path::new("/bin/sh"));
    shell.args(["-c", "ulimit -d 81920 && exec \"$0\" grep main x"]).arg(binary());
    let answer = Answer::of(shell);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    assert_eq!(answer.stdout.lines().count(), 2 << 20);
}

/// The peak memory of a verb, in KiB.
fn peak_kib(env: &TestEnv, words: &[&str]) -> u64 {
    let mut measured = env.clean(Path::new("python3"));
    let answer = Answer::of(measured.args(["-c", MEASURE]).arg(binary()).args(words));
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.stdout.lines().last().unwrap().parse().unwrap()
}

/// The peak memory of `avfs` with these words of a shell, in KiB. Its output is discarded.
fn quiet_peak_kib(env: &TestEnv, words: &str) -> u64 {
    let mut measured = env.clean(Path::new("python3"));
    measured.args(["-c", MEASURE, "/bin/sh", "-c", &format!("exec \"$0\" {words} > /dev/null 2>&1")]);
    let answer = Answer::of(measured.arg(binary()));
    assert_eq!(answer.code, 0, "{words}: {answer:?}");
    answer.stdout.trim().parse().unwrap()
}

/// Output is stored and read in pieces. If it were held, each of these would need more than 70 MiB.
#[test]
fn memory_does_not_grow_with_the_output_that_is_kept() {
    const GROWTH_KIB_MAX: u64 = 40 << 10;
    let env = TestEnv::with_project();
    let without = quiet_peak_kib(&env, "run -- true");
    let both = "seq 8000000; seq 2000000 >&2";
    for words in [
        format!("run --cache write --keep-output --output-max 1TiB --shell '{both}'"),
        "runs show last --output".to_owned(),
        "runs show last --output --json".to_owned(),
        // With the result of the first run.
        format!("run --cache read --keep-output --shell '{both}'"),
    ] {
        let peak = quiet_peak_kib(&env, &words);
        assert!((1..without + GROWTH_KIB_MAX).contains(&peak), "{words}: {without} and {peak} KiB");
    }
    let run = |back| env.result(&["runs", "show", back]);
    assert_eq!(run("last")["result"]["cache"]["cached_from"], run("last~1")["id"]);
}

/// A directory is in memory only while entries in it are pending, not until the end of the scan.
#[test]
fn memory_of_a_scan_does_not_grow_with_the_number_of_files() {
    const GROWTH_KIB_MAX: u64 = 4 << 10;
    let env = TestEnv::with_project();
    let add = |dirs: std::ops::Range<u32>| {
        for dir in dirs {
            let dir = env.project().join(format!("scan-{dir:04}"));
            std::fs::create_dir(&dir).unwrap();
            (0..100).for_each(|n| std::fs::write(dir.join(format!("file-{n:03}")), []).unwrap());
        }
    };
    add(0..10);
    env.ok(&["import"]);
    let few = peak_kib(&env, &["status"]);
    add(10..250);
    env.ok(&["import"]);
    let many = peak_kib(&env, &["status"]);
    assert!(many < few + GROWTH_KIB_MAX, "{few} KiB for 1,000 files, {many} KiB for 25,000");
}

/// Adds directories of 100 files of one line each.
fn add_files(env: &TestEnv, prefix: &str, dirs: u32) {
    for dir in 0..dirs {
        let dir = env.project().join(format!("{prefix}-{dir:04}"));
        std::fs::create_dir(&dir).unwrap();
        for n in 0..100 {
            std::fs::write(dir.join(format!("file-{n:03}")), format!("{} {n}\n", dir.display())).unwrap();
        }
    }
}

/// A file may have its other hard links outside the directory, as in the store of a package manager.
#[test]
fn memory_of_a_scan_does_not_grow_with_the_number_of_hard_links() {
    let linked = |env: &TestEnv, dirs| {
        add_files(env, "file", dirs);
        let store = env.at("store");
        std::fs::create_dir(&store).unwrap();
        for dir in 0..dirs {
            for n in 0..100 {
                let name = format!("file-{dir:04}/file-{n:03}");
                std::fs::hard_link(env.project().join(&name), store.join(name.replace('/', "-"))).unwrap();
            }
        }
        env.ok(&["import"]);
    };
    assert_bounded([10, 300], CHANGES_GROWTH_KIB_MAX, linked, &[&["status"]]);
}

/// The growth with about 20,000 changes. If all were held, it would be more than 16 MB.
const CHANGES_GROWTH_KIB_MAX: u64 = 12 << 10;
/// The growth of a run from 10,000 to 40,000 changes. If all were held, it would be more than 21 MB.
const RUN_GROWTH_KIB_MAX: u64 = 17 << 10;

/// Compares the memory of verbs for a few and for many directories of 100 files.
fn assert_bounded(
    [few, many]: [u32; 2],
    growth_kib_max: u64,
    prepare: impl Fn(&TestEnv, u32),
    verbs: &[&[&str]],
) {
    let peaks = |dirs| {
        let env = TestEnv::with_project();
        prepare(&env, dirs);
        verbs.iter().map(|words| peak_kib(&env, words)).collect::<Vec<u64>>()
    };
    for (words, (least, most)) in verbs.iter().zip(peaks(few).into_iter().zip(peaks(many))) {
        let is_bounded = most < least + growth_kib_max;
        assert!(is_bounded, "{words:?}: {least} KiB for {few}00 files, {most} KiB for {many}00");
    }
}

#[test]
fn memory_of_a_diff_does_not_grow_with_the_number_of_changes() {
    let unrelated = |env: &TestEnv, dirs| {
        add_files(env, "old", dirs);
        env.ok(&["import"]);
        for dir in 0..dirs {
            std::fs::remove_dir_all(env.project().join(format!("old-{dir:04}"))).unwrap();
        }
        add_files(env, "new", dirs);
        env.ok(&["import"]);
    };
    let diff = |form: &'static str| ["diff", "main~1", "main", form];
    let (text, json, tree) = (diff("--name-status"), diff("--json"), diff("--tree"));
    assert_bounded(
        [10, 100],
        CHANGES_GROWTH_KIB_MAX,
        unrelated,
        &[&text, &json, &tree, &["diff", "main~1", "main"]],
    );
}

#[test]
fn memory_of_a_run_does_not_grow_with_the_number_of_changes() {
    let imported = |env: &TestEnv, dirs| {
        add_files(env, "old", dirs);
        env.ok(&["import"]);
    };
    let run = |command: &'static str| ["run", "--", "sh", "-c", command];
    let touch = "find . -name 'file-*' -exec touch {} +";
    assert_bounded([100, 400], RUN_GROWTH_KIB_MAX, imported, &[&run(touch), &run("rm -r old-*")]);
}

#[test]
fn memory_of_an_apply_does_not_grow_with_the_number_of_removed_files() {
    let removed = |env: &TestEnv, dirs| {
        add_files(env, "old", dirs);
        env.ok(&["import"]);
        env.ok(&["run", "--fork", "gone", "--", "sh", "-c", "rm -r old-*"]);
    };
    assert_bounded(
        [10, 220],
        CHANGES_GROWTH_KIB_MAX,
        removed,
        &[&["apply", "gone", "--dry-run"], &["apply", "gone"]],
    );
}
