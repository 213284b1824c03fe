//! Ignore files mean the same as in git: random patterns, compared with git itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use avfs_types::path::TreePath;
use avfs_vault::ignore::Rules;

use crate::support::Scratch;

const NAMES: [&str; 24] = [
    "a", "b", "x", "ab", "]", "-", "!", "^", "*", "[", "a b", "a ", "\\", "{a}", "0", "a.b", ".a", "ax",
    "xay", "test", "z", "a\t", "#", "aa",
];

/// Creates each name in the root and in directories of each name.
fn plant(dir: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (n, name) in NAMES.iter().enumerate() {
        let at = |step: usize| NAMES[(n + step) % NAMES.len()];
        files.insert(format!("{name}.d/{}", at(1)));
        files.insert(format!("d/{name}/{}", at(2)));
        files.insert(format!("x/{}/{name}", at(5)));
        files.insert(format!("e/{name}"));
        if *name != "x" {
            files.insert((*name).to_owned());
        }
    }
    for file in &files {
        fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        fs::write(dir.join(file), "").unwrap();
    }
    files
}

fn kept_by_git(repository: &Path, dir: &Path, rules: &Path) -> BTreeSet<String> {
    let listed = Command::new("git")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .arg(format!("--git-dir={}", repository.display()))
        .arg(format!("--work-tree={}", dir.display()))
        .args(["ls-files", "-z", "--others"])
        .arg(format!("--exclude-from={}", rules.display()))
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// As a walk does it: entries of an ignored directory are not checked.
fn is_kept(rules: &Rules, file: &str) -> bool {
    let path = TreePath::parse(file.as_bytes()).unwrap();
    !rules.ignores(&path, false) && path.ancestors().all(|dir| dir.is_root() || !rules.ignores(&dir, true))
}

fn line() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a",
        "b",
        "x",
        "*",
        "**",
        "***",
        "/",
        "?",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-z]",
        "[]a]",
        "[!]]",
        "[\\]a]",
        "[\\a-b]",
        "[a/b]",
        "[+-9]",
        "[[:alpha:]]",
        "[![:alnum:]]",
        "[[:punct:]]",
        "\\*",
        "\\a",
        "{a}",
        ".",
        "test",
        "[-a]",
        "[a-]",
        "[\\!a]",
        "[^^]",
        " ",
        "\\ ",
        "\t",
        "0",
        "!",
        "#",
        ".d",
        "d/",
        "e/",
    ]);
    let parts = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
    (
        prop::sample::select(vec!["", "", "", "!", "/"]),
        parts,
        prop::sample::select(vec!["", "", "/", " ", "\r"]),
    )
        .prop_map(|(begin, parts, end)| format!("{begin}{parts}{end}"))
}

#[test]
fn random_ignore_lines_match_git() {
    let scratch = Scratch::new();
    let (dir, repository, rules) = (scratch.dir("tree"), scratch.join("repository"), scratch.join("rules"));
    let files = plant(&dir);
    let made = Command::new("git").args(["init", "--quiet", "--bare"]).arg(&repository).status().unwrap();
    assert!(made.success());
    let config = ProptestConfig {
        cases: crate::support::usual_or_long(60, 2000),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(lines in prop::collection::vec(line(), 1..4))| {
        let text = lines.join("\n") + "\n";
        fs::write(&rules, &text).unwrap();
        let read = Rules::default().with(&TreePath::root(), text.as_bytes()).unwrap();
        let kept: BTreeSet<String> = files.iter().filter(|file| is_kept(&read, file)).cloned().collect();
        prop_assert_eq!(kept, kept_by_git(&repository, &dir, &rules), "{:?}", text);
    });
}
