//! `avfs diff --patch` with git: `git apply` turns the old files into the new ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};
use serde_json::json;

use crate::env::{Answer, TestEnv};
use crate::support::usual_or_long;

/// The parts of an entry that git stores.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

type Tree = BTreeMap<Vec<u8>, Kept>;

/// Names that are difficult in patch headers, and names that are both a file and a directory of another name.
const NAMES: [&[u8]; 17] = [
    b"a",
    b"b",
    b"a/x",
    b"a/y",
    b"a/x/deep",
    b"b/x",
    b"two words",
    b"two words/x b/x",
    b" leading",
    b"trailing ",
    b"tab\tname",
    b"line\nbreak",
    b"quo\"te",
    b"back\\slash",
    b"\xc3\xa4",
    b"\xff\xfe",
    b"-dash/--- a",
];

/// No target is a name of the tree: `git apply` cannot replace a link to itself (`a -> a`) by a directory, not even
/// with a patch of `git diff`.
const TARGETS: [&[u8]; 4] = [b"elsewhere", b"../out", b"no\nline", b"\xff"];

/// Whether the path is neither a parent directory of another entry nor inside one.
fn fits(tree: &Tree, path: &[u8]) -> bool {
    let beneath = |dir: &[u8], path: &[u8]| path.starts_with(dir) && path.get(dir.len()) == Some(&b'/');
    !tree.keys().any(|other| beneath(other, path) || beneath(path, other))
}

fn insert(tree: &mut Tree, path: &[u8], kept: Kept) {
    if fits(tree, path) {
        tree.insert(path.to_vec(), kept);
    }
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just(b"same\n".to_vec()),
        Just(b"with return\r\n".to_vec()),
        Just(b"--- a/a\n".to_vec()),
        Just(b"caf\xe9\n".to_vec()),
        Just(b"@@ -1 +1 @@\n".to_vec()),
        "[a-c]{1,3}\n".prop_map(String::into_bytes),
    ];
    prop_oneof![
        2 => Just(Vec::new()),
        6 => (proptest::collection::vec(line, 1..12), any::<bool>()).prop_map(|(lines, cut)| {
            let mut text = lines.concat();
            text.truncate(text.len() - usize::from(cut));
            text
        }),
        2 => (proptest::collection::vec(any::<u8>(), 0..300), 1..400_usize).prop_map(|(bytes, times)| {
            [&[0][..], &bytes.repeat(times)].concat()
        }),
    ]
}

fn kept() -> impl Strategy<Value = Kept> {
    prop_oneof![
        5 => (content(), any::<bool>()).prop_map(|(content, executable)| Kept::File { content, executable }),
        1 => proptest::sample::select(&TARGETS[..]).prop_map(|target| Kept::Link(target.to_vec())),
    ]
}

fn name() -> impl Strategy<Value = &'static [u8]> {
    proptest::sample::select(&NAMES[..])
}

#[derive(Clone, Debug)]
enum Step {
    Put(&'static [u8], Kept),
    Remove(&'static [u8]),
    Rename(&'static [u8], &'static [u8]),
    Flip(&'static [u8]),
    Append(&'static [u8], Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (name(), kept()).prop_map(|(name, kept)| Step::Put(name, kept)),
        name().prop_map(Step::Remove),
        (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        name().prop_map(Step::Flip),
        (name(), content()).prop_map(|(name, more)| Step::Append(name, more)),
    ]
}

fn carry_out(tree: &mut Tree, step: Step) {
    match step {
        Step::Put(name, kept) => {
            tree.remove(name);
            insert(tree, name, kept);
        }
        Step::Remove(name) => drop(tree.remove(name)),
        Step::Rename(from, to) => {
            if let Some(kept) = tree.remove(from) {
                let to = if tree.contains_key(to) || !fits(tree, to) { from } else { to };
                insert(tree, to, kept);
            }
        }
        Step::Flip(name) => {
            if let Some(Kept::File { executable, .. }) = tree.get_mut(name) {
                *executable = !*executable;
            }
        }
        Step::Append(name, more) => {
            if let Some(Kept::File { content, .. }) = tree.get_mut(name) {
                content.extend(more);
            }
        }
    }
}

fn trees() -> impl Strategy<Value = (Tree, Tree)> {
    let entries = proptest::collection::vec((name(), kept()), 0..10);
    (entries, proptest::collection::vec(step(), 1..10)).prop_map(|(entries, steps)| {
        let mut before = Tree::new();
        entries.into_iter().for_each(|(name, kept)| insert(&mut before, name, kept));
        let mut after = before.clone();
        steps.into_iter().for_each(|step| carry_out(&mut after, step));
        (before, after)
    })
}

/// Replaces the content of a directory with the tree; the vault directory stays.
fn write(dir: &Path, tree: &Tree) {
    std::fs::create_dir_all(dir).unwrap();
    for entry in std::fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.file_name() != ".avfs") {
        let path = entry.path();
        let is_dir = entry.file_type().unwrap().is_dir();
        if is_dir { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    }
    for (name, kept) in tree {
        let path = dir.join(OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match kept {
            Kept::Link(target) => symlink(OsStr::from_bytes(target), path).unwrap(),
            Kept::File { content, executable } => {
                std::fs::write(&path, content).unwrap();
                let mode = if *executable { 0o755 } else { 0o644 };
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

/// The files and links of a directory: git does not track directories.
fn read(dir: &Path) -> Tree {
    let walk = walkdir::WalkDir::new(dir).into_iter().map(Result::unwrap);
    let files = walk.filter(|entry| !entry.file_type().is_dir()).map(|entry| {
        let name = entry.path().strip_prefix(dir).unwrap().as_os_str().as_bytes().to_vec();
        let kept = if entry.file_type().is_symlink() {
            Kept::Link(std::fs::read_link(entry.path()).unwrap().into_os_string().as_bytes().to_vec())
        } else {
            let executable = entry.metadata().unwrap().permissions().mode() & 0o100 != 0;
            Kept::File { content: std::fs::read(entry.path()).unwrap(), executable }
        };
        (name, kept)
    });
    files.collect()
}

/// Two versions, and a directory with the files of the first.
fn versions(before: &Tree, after: &Tree) -> TestEnv {
    let env = TestEnv::new();
    write(&env.project(), before);
    env.ok(&["init", "--import"]);
    write(&env.project(), after);
    env.ok(&["import"]);
    write(&env.at("copy"), before);
    env
}

fn git_apply(env: &TestEnv, patch: &[u8], options: &[&str]) -> Answer {
    let file = env.at("changes.patch");
    std::fs::write(&file, patch).unwrap();
    let mut git = env.clean("git".as_ref());
    Answer::of(
        git.args(["apply", "--whitespace=nowarn"]).args(options).arg(&file).current_dir(env.at("copy")),
    )
}

fn patch_of(env: &TestEnv) -> Vec<u8> {
    let output = env.avfs(&["diff", "main~1", "main", "--patch"]).output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    output.stdout
}

fn assert_applies(before: &Tree, after: &Tree) {
    let env = versions(before, after);
    if before == after {
        return;
    }
    let patch = patch_of(&env);
    let context = || String::from_utf8_lossy(&patch).into_owned();
    let applied = git_apply(&env, &patch, &[]);
    assert_eq!(applied.code, 0, "{applied:?}\n{}", context());
    assert_eq!(&read(&env.at("copy")), after, "{}", context());
    // The patch in JSON is text, and equally exact.
    write(&env.at("copy"), before);
    let text = env.result(&["diff", "main~1", "main", "--patch"])["patch"].take();
    let applied = git_apply(&env, text.as_str().unwrap().as_bytes(), &[]);
    assert_eq!(applied.code, 0, "{applied:?}\n{text}");
    assert_eq!(&read(&env.at("copy")), after, "{text}");
}

proptest! {
    #![proptest_config(Config {
        cases: usual_or_long(16, 400),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]
    #[test]
    fn git_apply_turns_the_old_version_into_the_new_one((before, after) in trees()) {
        assert_applies(&before, &after);
    }
}

fn file(content: &[u8]) -> Kept {
    Kept::File { content: content.to_vec(), executable: false }
}

fn executable(content: &[u8]) -> Kept {
    Kept::File { content: content.to_vec(), executable: true }
}

/// One of each change that a patch of lines alone cannot express.
#[test]
fn patch_has_modes_empty_files_renames_links_and_binary_content() {
    let tree = |entries: &[(&str, Kept)]| -> Tree {
        entries.iter().map(|(name, kept)| (name.as_bytes().to_vec(), kept.clone())).collect()
    };
    let before = tree(&[
        ("became-link", file(b"x\n")),
        ("became-dir", file(b"x\n")),
        ("binary", file(b"\0\x01\x02")),
        ("binary gone", file(&[0; 100_000])),
        ("empty gone", file(b"")),
        ("mode", file(b"same\n")),
        ("moved from", file(b"moved\n")),
        ("way", Kept::Link(b"old".to_vec())),
    ]);
    let after = tree(&[
        ("became-link", Kept::Link(b"mode".to_vec())),
        ("became-dir/x", file(b"y\n")),
        ("binary", file(b"\0\x01\x03\x04")),
        ("binary new", executable(&[0; 70_000])),
        ("empty\tnew", executable(b"")),
        ("mode", executable(b"same\n")),
        ("moved to", executable(b"moved\n")),
        ("way", Kept::Link(b"new".to_vec())),
    ]);
    assert_applies(&before, &after);
    let env = versions(&before, &after);
    let patch = String::from_utf8(patch_of(&env)).unwrap();
    // Applied in reverse, git loses the modes of deleted files, and nothing else.
    assert_eq!(git_apply(&env, patch.as_bytes(), &[]).code, 0);
    let reverted = git_apply(&env, patch.as_bytes(), &["-R"]);
    assert_eq!(reverted.code, 0, "{reverted:?}");
    assert_eq!(read(&env.at("copy"))[&b"binary gone"[..]], file(&[0; 100_000]));
    for part in [
        "deleted file mode 100644\nindex 587be6b4c3..0000000000\n--- a/became-link\n+++ /dev/null\n",
        "new file mode 120000\nindex 0000000000..",
        "GIT binary patch\nliteral 4\n",
        "diff --git \"a/empty\\tnew\" \"b/empty\\tnew\"\nnew file mode 100755\nindex 0000000000..e69de29bb2\n",
        "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\ndiff --git ",
        "similarity index 100%\nrename from moved from\nrename to moved to\n",
    ] {
        assert!(patch.contains(part), "{part}: {patch}");
    }
}

/// Changes that git cannot express are reported and do not affect the rest.
#[test]
fn changes_git_cannot_express_are_comments() {
    let env = TestEnv::new();
    env.put("file", b"1\n");
    env.put(".git/config", b"[core]\n");
    env.ok(&["init", "--import"]);
    write(&env.at("copy"), &Tree::from([(b"file".to_vec(), file(b"1\n"))]));
    env.put("file", b"2\n");
    env.put(".git/config", b"[core]\n\tbare = true\n");
    std::fs::set_permissions(env.project().join("file"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir(env.project().join("empty")).unwrap();
    let fifo = env.project().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    env.ok(&["import"]);
    let answer = env.run(&["diff", "main", "--patch"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    for line in [
        "# +\tbare = true",
        "# b/empty: new empty directory",
        "# b/file: mode 0644 -> 0600",
        "# b/pipe: new fifo",
    ] {
        assert!(answer.stdout.lines().any(|written| written == line), "{line}: {answer:?}");
    }
    assert!(answer.stderr.contains("a git patch cannot express all of 4 paths"), "{answer:?}");
    assert_eq!(env.result(&["diff", "main", "--patch"])["beyond_git"], json!(4));
    let applied = git_apply(&env, answer.stdout.as_bytes(), &[]);
    assert_eq!(applied.code, 0, "{applied:?} {answer:?}");
    assert_eq!(std::fs::read(env.at("copy/file")).unwrap(), b"2\n");
}

/// A truncated patch must not pass as complete, neither to the caller nor to git.
#[test]
fn patch_beyond_the_limit_is_an_error() {
    let large = Tree::from([(b"large".to_vec(), file(&b"line\n".repeat(400)))]);
    let env = versions(&Tree::new(), &large);
    for (limit, stdout) in [("1K", "Files /dev/null and b/large differ\n"), ("20", "")] {
        let words = ["diff", "main", "--patch", "--patch-max", limit];
        let answer = env.run(&words);
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.stdout.ends_with(stdout) && answer.stdout.len() <= 1024, "{answer:?}");
        assert!(answer.stderr.contains("error: the patch is incomplete"), "{answer:?}");
        assert!(answer.stderr.contains("--patch-max"), "{answer:?}");
        let value = env.json(&words);
        assert_eq!(value["error"]["code"], json!("diff.incomplete"), "{value}");
        assert!(value["result"]["patch"].is_string(), "{value}");
        let applied = git_apply(&env, answer.stdout.as_bytes(), &[]);
        assert!(applied.code != 0 && !env.at("copy/large").exists(), "{applied:?}");
    }
    assert_eq!(env.run(&["diff", "main", "--patch", "--patch-max", "16K"]).code, 0);
}
