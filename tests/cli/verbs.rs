//! Behaviour of single verbs that the tour does not cover.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;

use crate::env::{TestEnv, USER, binary};
use crate::support;
use crate::support::sql;

#[test]
fn grep_prints_lines_file_names_and_binary_matches() {
    let env = TestEnv::with_project();
    assert_eq!(env.ok(&["grep", "main", "^fn"]), "src/main.rs:1:fn main() {}\n");
    assert_eq!(env.ok(&["grep", "main", "HELLO", "-i", "-l"]), "README.md\n");
    assert_eq!(env.ok(&["grep", "main", "-F", "main()"]), "src/main.rs:1:fn main() {}\n");
    env.put("mixed.bin", b"needle\0");
    env.ok(&["import"]);
    assert_eq!(env.ok(&["grep", "main", "needle"]), "mixed.bin: binary file matches\n");
    let nothing = env.run(&["grep", "main", "nothing like it"]);
    assert_eq!((nothing.code, nothing.stdout.as_str(), nothing.stderr.as_str()), (1, "", ""));
    env.refused(&["grep", "main", "("], 1, "grep.bad_pattern");
}

#[test]
fn default_message_for_many_paths_is_truncated() {
    let env = TestEnv::new();
    let names: Vec<String> = (0..300).map(|number| format!("d/name-{number}")).collect();
    names.iter().for_each(|name| env.put(name, b""));
    env.ok(&["init", "--import"]);
    let mut words = vec!["rm", "-r"];
    words.extend(names.iter().map(String::as_str));
    // A path inside another argument is removed with it.
    words.push("d");
    env.ok(&words);
    assert_eq!(env.ok(&["ls", "main"]), "");
    let log = env.json(&["log"]);
    let message = log["result"]["versions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("rm d/name-0 ") && message.ends_with('…'), "{message}");
    assert_eq!(message.chars().count(), 201);
}

/// As in grep(1), a newline terminates a line: there is no line after the last newline.
#[test]
fn grep_has_no_line_after_the_last_newline() {
    let env = TestEnv::new();
    env.put("two", b"a\n\n");
    env.put("open", b"a\nb");
    env.put("empty", b"");
    env.put("zero", b"\0\n");
    env.ok(&["init", "--import"]);
    for pattern in ["^$", "^", "b$", "x*"] {
        let mut grep = env.clean(Path::new("grep"));
        let wanted = grep.args(["-nE", pattern, "empty", "open", "two"]).output().unwrap().stdout;
        let found = env.run(&["grep", "main", pattern, "empty", "open", "two"]).stdout;
        assert_eq!(found, String::from_utf8(wanted).unwrap(), "{pattern}");
    }
    assert_eq!(env.run(&["grep", "main", "^$", "zero"]).code, 1, "its only line is not empty");
}

#[test]
fn find_selects_by_name_kind_and_size() {
    let env = TestEnv::with_project();
    assert_eq!(env.ok(&["find", "main", "--name", "*.rs"]), "src/main.rs\n");
    assert_eq!(env.ok(&["find", "main", "--type", "l"]), "link\n");
    assert_eq!(env.ok(&["find", "main", "--type", "d"]), "src\n");
    assert_eq!(env.ok(&["find", "main", "--size", "+10"]), "src/main.rs\n");
    assert_eq!(env.ok(&["find", "main", "src", "--size", "-10"]), "src/data.bin\n");
}

#[test]
fn tree_draws_branches() {
    let env = TestEnv::with_project();
    let drawn = env.ok(&["tree", "main"]);
    assert_eq!(
        drawn,
        ".\n├── README.md\n├── link -> README.md\n└── src/\n    ├── data.bin\n    └── main.rs\n\n1 directory, 4 files\n"
    );
    assert!(!env.ok(&["tree", "main", "--depth", "1"]).contains("main.rs"));
    assert_eq!(env.ok(&["tree", "main", "src/main.rs"]), "src/main.rs\n\n0 directories, 1 file\n");
    assert_eq!(env.ok(&["tree", "main", "link"]), "link -> README.md\n\n0 directories, 1 file\n");
}

#[test]
fn patch_has_text_and_binary_changes() {
    let env = TestEnv::with_project();
    env.put("README.md", b"hello\nworld\n");
    env.put("src/data.bin", &[0, 1, 2]);
    env.ok(&["import"]);
    assert_eq!(
        env.ok(&["diff", "main", "--patch"]),
        "diff --git a/README.md b/README.md\nindex ce01362503..94954abda4 100644\n--- a/README.md\n+++ b/README.md\n\
         @@ -1 +1,2 @@\n hello\n+world\ndiff --git a/src/data.bin b/src/data.bin\n\
         index e1bcee3ce8fad5f15f99dd2d30d5aabde3f1a546..8352675d67aed6625ece79af41c27fdb4ee2e867 100644\n\
         GIT binary patch\nliteral 3\nNcmV+e0Q~;|0RjLA00aO4\n\nliteral 4\nOcmV+f0Q>&{pOTgXn*qoG\n\n"
    );
    let stat = env.ok(&["diff", "main", "--stat", "--", "README.md"]);
    assert_eq!(stat, " README.md |     1 +\n 1 path, 1 line (+), 0 lines (-)\n");
    let same = env.run(&["diff", "main", "main", "--exit-code"]);
    assert_eq!((same.code, same.stdout.as_str()), (0, "no changes\n"));
    assert_eq!(env.run(&["diff", "main", "--exit-code"]).code, 1);
}

/// A reviewer must see every change that is not one of a plain file.
#[test]
fn diff_shows_link_targets_modes_and_file_types() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let env = TestEnv::with_project();
    let at = |name: &str| env.project().join(name);
    let set_mode = |name: &str, mode| {
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    env.put("tool", b"hi\n");
    set_mode("tool", 0o755);
    symlink("/etc/\u{202e}passwd", at("way")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::fs::remove_file(at("link")).unwrap();
    env.put("link", b"");
    set_mode("README.md", 0o600);
    rustix::fs::setxattr(at("src/main.rs"), "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    env.ok(&["import"]);
    let summary = env.ok(&["diff", "main"]);
    for line in [
        "mode      README.md  (mode 0644 -> 0600)",
        "type      link  (0 B, symlink -> file)",
        "added     pipe  (fifo)",
        "mode      src/main.rs  (attributes)",
        "added     tool  (3 B, mode 0755)",
        "added     way  (link to /etc/\\u{202e}passwd)",
    ] {
        assert!(summary.lines().any(|printed| printed == line), "{line}: {summary}");
    }
    let patch = env.ok(&["diff", "main", "--patch"]);
    assert!(patch.contains("diff --git a/tool b/tool\nnew file mode 100755\n"), "{patch}");
    assert!(patch.contains("diff --git a/way b/way\nnew file mode 120000\n"), "{patch}");
    assert!(env.ok(&["diff", "main", "--tree"]).contains("A way  (link to /etc/"), "{patch}");
}

#[test]
fn log_of_a_path_lists_only_versions_that_changed_it() {
    let env = TestEnv::with_project();
    env.ok(&["write", "other.txt", "--text", "x"]);
    env.ok(&["write", "README.md", "--text", "new", "-m", "new readme"]);
    let messages = |words: &[&str]| -> Vec<String> {
        let log = env.result(words);
        let versions = log["versions"].as_array().unwrap();
        versions.iter().map(|version| version["message"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(messages(&["log", "main", "--", "README.md"]), ["new readme", "first import"]);
    assert_eq!(messages(&["log", "-n", "1"]), ["new readme"]);
    assert_eq!(messages(&["log", "main~2"]), ["first import", "empty"]);
}

#[test]
fn repeated_edit_adds_no_version() {
    let env = TestEnv::with_project();
    assert_eq!(env.result(&["mkdir", "-p", "a/b"])["changed"], json!(true));
    assert_eq!(env.result(&["mkdir", "-p", "a/b"])["changed"], json!(false));
    env.ok(&["cp", "-r", "src", "a"]);
    env.ok(&["mv", "a/src/main.rs", "a/b/moved.rs"]);
    assert_eq!(env.ok(&["cat", "main", "a/b/moved.rs"]), "fn main() {}\n");
    assert_eq!(env.ok(&["cat", "main", "src/main.rs"]), "fn main() {}\n");
    env.assert_sound();
}

#[test]
fn write_reads_stdin_and_sets_the_mode() {
    use std::io::Write as _;
    let env = TestEnv::with_project();
    let mut command = env.avfs(&["write", "run.sh", "--mode", "755"]);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"#!/bin/sh\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(env.ok(&["cat", "main", "run.sh"]), "#!/bin/sh\n");
    assert_eq!(env.result(&["ls", "main", "run.sh"])["entries"][0]["mode"], json!("0755"));
}

#[test]
fn prune_and_gc_free_disk_space() {
    let env = TestEnv::with_project();
    env.put("large.bin", &support::noise(1, 4 << 20));
    env.ok(&["import"]);
    env.ok(&["rm", "large.bin"]);
    assert_eq!(
        env.result(&["prune", "--keep-last", "1", "--dry-run"])["versions"].as_array().unwrap().len(),
        3
    );
    assert_eq!(env.result(&["prune", "--keep-last", "1"])["versions"].as_array().unwrap().len(), 3);
    let swept = env.result(&["gc"]);
    let size = |field: &str| swept[field].as_u64().unwrap();
    assert!(size("file_bytes_before") > size("file_bytes_after") + (3 << 20), "{swept}");
    env.refused(&["cat", "main~1", "large.bin"], 1, "version.pruned");
    assert_eq!(env.ok(&["cat", "main", "README.md"]), "hello\n");
    env.assert_sound();
}

#[test]
fn quota_errors_name_the_limit() {
    let env = TestEnv::with_project();
    env.ok(&["quota", "set", "--versions", "2", "--files", "100"]);
    let before = env.state();
    let refusal = env.refused(&["write", "x", "--text", "x"], 1, "quota.exceeded");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("2 versions"), "{refusal}");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("avfs prune --keep-last 1 "), "{refusal}");
    assert_eq!(env.state(), before);
    assert_eq!(env.result(&["quota", "set", "--versions", "none"])["files"], json!(100));
    env.ok(&["write", "x", "--text", "x"]);
    // Over the quota of files, removing files is still possible.
    env.ok(&["quota", "set", "--files", "2"]);
    env.ok(&["rm", "x"]);
    env.refused(&["write", "y", "--text", "y"], 1, "quota.exceeded");
}

#[test]
fn hint_for_a_quota_of_one_version_does_not_suggest_prune() {
    let env = TestEnv::new();
    env.ok(&["init"]);
    env.ok(&["quota", "set", "--versions", "1"]);
    let refusal = env.refused(&["write", "x", "--text", "x"], 1, "quota.exceeded");
    assert!(!refusal["error"]["hint"].as_str().unwrap().contains("prune"), "{refusal}");
}

#[test]
fn materialize_prints_a_directory_and_reuses_it() {
    let env = TestEnv::with_project();
    let dir = env.ok(&["materialize", "main"]);
    let dir = std::path::Path::new(dir.trim_end());
    assert_eq!(std::fs::read(dir.join("README.md")).unwrap(), b"hello\n");
    assert_eq!(env.result(&["materialize", "main"])["built"], json!("reused"));
    std::fs::write(dir.join("README.md"), "damaged").unwrap();
    assert_eq!(env.result(&["materialize", "main", "--check"])["built"], json!("rebuilt"));
    let evicted = env.result(&["materialize", "main~1", "--cache-max", "0"]);
    assert!(evicted["evicted_bytes"].as_u64().unwrap() > 0, "{evicted}");
}

#[test]
fn edited_audit_log_is_detected() {
    let env = TestEnv::with_project();
    let head = env.result(&["audit", "verify"])["head"]["digest"].as_str().unwrap().to_owned();
    env.ok(&["write", "x", "--text", "x"]);
    env.ok(&["audit", "verify", "--expect", &head]);
    sql(&env.vault_file()).execute("UPDATE audit SET actor = 'mallory' WHERE seq = 2", []).unwrap();
    let verdict = env.json(&["audit", "verify"]);
    assert_eq!(verdict["error"]["code"], json!("audit.broken"));
    assert_eq!(env.run(&["fsck"]).code, 1);
}

#[test]
fn json_output_refuses_content_that_is_too_large() {
    let env = TestEnv::new();
    let sparse = std::fs::File::create(env.project().join("sparse")).unwrap();
    sparse.set_len(8 << 40).unwrap();
    env.put("small", b"small\n");
    env.ok(&["init", "--import"]);
    let refusal = env.json(&["cat", "main", "small", "sparse"]);
    assert_eq!(refusal["error"]["code"], json!("cat.too_large"), "{refusal}");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("without --json"), "{refusal}");
    assert_eq!(env.result(&["cat", "main", "small"])["files"][0]["content"], json!("small\n"));
}

#[test]
fn deleting_a_vault_removes_nothing_else() {
    let env = TestEnv::with_project();
    env.refused(&["vault", "delete"], 1, "vault.not_confirmed");
    assert!(env.vault_file().exists());
    env.ok(&["vault", "delete", "--yes"]);
    assert!(!env.project().join(".avfs").exists());
    assert!(env.project().join("README.md").exists());
    env.refused(&["log"], 1, "vault.not_found");
}

#[test]
fn deleting_a_vault_through_a_symlink_removes_both() {
    let env = TestEnv::with_project();
    let link = env.at("link.db");
    std::os::unix::fs::symlink(env.vault_file(), &link).unwrap();
    let words = ["vault".as_ref(), "delete".as_ref(), link.as_os_str()];
    let refusal = env.refused(&words, 1, "vault.not_confirmed");
    let real = env.vault_file().canonicalize().unwrap();
    assert!(refusal["error"]["message"].as_str().unwrap().contains(real.to_str().unwrap()), "{refusal}");
    let printed = env.ok(&[&words[..], &["--yes".as_ref()]].concat());
    assert_eq!(printed, format!("deleted the vault {}\n", real.display()));
    assert!(!link.is_symlink(), "the symlink was not removed");
    assert!(!env.project().join(".avfs").exists(), "the vault was not removed");
    assert!(env.project().join("README.md").exists());
}

#[test]
fn a_vault_in_use_is_not_deleted() {
    let env = TestEnv::with_project();
    let vault = support::open_vault(&env.vault_file());
    let pin = vault.backend().pin().unwrap();
    env.refused(&["vault", "delete", "--yes"], 1, "vault.busy");
    drop(pin);
    drop(vault);
    assert_eq!(env.ok(&["cat", "main", "README.md"]), "hello\n");
}

/// The number of sync calls of a command, counted with strace.
fn syncs(env: &TestEnv, words: &[&str]) -> usize {
    let trace = env.at("trace");
    let mut traced = env.clean(Path::new("strace"));
    traced.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync", "-o"]).arg(&trace);
    assert!(traced.arg(binary()).args(words).output().unwrap().status.success());
    std::fs::read_to_string(&trace).unwrap().lines().filter(|line| line.contains("sync(")).count()
}

#[test]
fn import_without_changes_does_not_sync() {
    let env = TestEnv::with_project();
    assert_eq!(syncs(&env, &["import"]), 0);
    env.put("README.md", b"changed\n");
    assert_eq!(syncs(&env, &["import"]), 1);
    assert_eq!(syncs(&env, &["import"]), 0);
}

#[test]
fn import_names_attributes_it_cannot_store() {
    let env = TestEnv::with_project();
    // user::rw- user:1000:rwx group::r-- mask::rwx other::r--
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let any = u32::MAX;
    let list =
        [entry(1, 6, any), entry(2, 7, 1000), entry(4, 4, any), entry(0x10, 7, any), entry(0x20, 4, any)];
    let list = [&2_u32.to_le_bytes()[..], &list.concat()].concat();
    let file = env.project().join("README.md");
    let set = rustix::fs::setxattr(&file, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty());
    if set.is_err() {
        return support::skip(
            "import_names_attributes_it_cannot_store",
            "no access lists on this file system",
        );
    }
    let imported = env.result(&["import"]);
    let trouble =
        json!([{"path": "README.md", "reason": "attribute", "message": "its access list cannot be kept"}]);
    assert_eq!(imported["troubles"], trouble);
}

#[test]
fn json_usage_errors_name_the_missing_argument() {
    let env = TestEnv::with_project();
    for (words, expected) in
        [(&["ls"][..], "<REF>"), (&["prune"], "--keep-last"), (&["fork"], "missing subcommand")]
    {
        let refusal = env.json(words);
        assert_eq!(refusal["error"]["code"], json!("usage"));
        assert!(refusal["error"]["message"].as_str().unwrap().contains(expected), "{refusal}");
    }
}

#[test]
fn checkpoint_can_be_given_as_fork_at_name() {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "fix"]);
    env.ok(&["checkpoint", "save", "good", "--fork", "fix"]);
    for words in [["fix@good"].as_slice(), &["fix@good", "--fork", "fix"], &["good", "--fork", "fix"]] {
        let info = env.result(&[&["checkpoint", "info"], words].concat());
        assert_eq!(info["checkpoint"]["fork"], json!("fix"), "{words:?}");
    }
    env.refused(&["checkpoint", "info", "good"], 1, "checkpoint.not_found");
    env.refused(&["checkpoint", "info", "fix@good", "--fork", "main"], 2, "usage");
    env.refused(&["checkpoint", "info", "fix@"], 2, "name.invalid");
    env.refused(&["checkpoint", "info", "@good"], 2, "name.invalid");
    env.ok(&["rm", "README.md", "--fork", "fix"]);
    env.ok(&["checkpoint", "restore", "fix@good"]);
    assert!(env.ok(&["ls", "fix"]).contains("README.md"));
    assert_eq!(env.ok(&["checkpoint", "delete", "fix@good"]), "deleted checkpoint fix@good\n");
}

/// New files in a setgid directory have its group, and only members of that group may set the setgid bit.
#[test]
fn export_restores_setgid_bits_in_a_directory_of_another_group() {
    if !support::is_root() {
        return support::skip(
            "cli::export_restores_setgid_bits_in_a_directory_of_another_group",
            "only root gives files away",
        );
    }
    let env = TestEnv::new();
    let modes = [("plain", 0o644), ("both", 0o6755), ("group", 0o2755), ("user", 0o4755), ("dir", 0o2775)];
    fs::create_dir(env.project().join("dir")).unwrap();
    for (name, mode) in modes {
        let path = env.project().join(name);
        if name != "dir" {
            fs::write(&path, name).unwrap();
        }
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    env.ok(&["init", "--import"]);
    env.give_away();
    let shared = env.at("shared");
    fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(USER), Some(USER + 1)).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o2775)).unwrap();
    let answer = env.run_as_user(&["export", "main", "../shared/out", "--keep-setid"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    for (name, mode) in modes {
        let made = shared.join("out").join(name).metadata().unwrap();
        assert_eq!(made.mode() & 0o7777, mode, "{name}: {:o}", made.mode());
    }
}

#[test]
fn unknown_path_is_an_error_not_an_empty_result() {
    let env = TestEnv::with_project();
    env.put("gone", b"x\n");
    env.ok(&["import"]);
    env.ok(&["rm", "gone"]);
    for words in [
        &["log", "main", "--", "nope"][..],
        &["log", "--", "README.md/beneath"],
        &["diff", "main~1", "main", "--", "nope"],
        &["diff", "main~1", "main", "--stat", "--", "README.md", "nope"],
    ] {
        env.refused(words, 1, "path.not_found");
    }
    // A removed path is in one side of the diff and in the history.
    assert!(env.ok(&["diff", "main", "--", "gone"]).contains("gone"));
    assert_eq!(env.result(&["log", "main", "--", "gone"])["versions"].as_array().unwrap().len(), 2);
    // An unchanged path, and the root.
    assert_eq!(env.run(&["diff", "main", "--exit-code", "--", "src"]).code, 0);
    env.ok(&["diff", "main", "--", "."]);
    env.ok(&["log", "main", "-n", "0", "--", "README.md"]);
}

/// A change of a path that `diff` reports is also in the log of that path.
#[test]
fn log_of_a_path_has_the_version_that_made_it_a_hard_link() {
    let env = TestEnv::new();
    env.put("a", b"same\n");
    env.put("b", b"same\n");
    env.ok(&["init", "--import"]);
    let time = fs::metadata(env.project().join("a")).unwrap().modified().unwrap();
    fs::remove_file(env.project().join("b")).unwrap();
    fs::hard_link(env.project().join("a"), env.project().join("b")).unwrap();
    fs::File::open(env.project().join("b")).unwrap().set_modified(time).unwrap();
    env.ok(&["import", "-m", "linked"]);
    assert!(env.ok(&["diff", "main"]).contains('b'));
    assert!(env.ok(&["log", "main", "--", "b"]).contains("linked"));
}

#[test]
fn trailing_slash_means_a_directory() {
    let env = TestEnv::with_project();
    env.refused(&["mv", "README.md", "nowhere/"], 1, "path.not_found");
    env.refused(&["cp", "README.md", "nowhere/"], 1, "path.not_found");
    env.refused(&["cp", "README.md", "link/"], 1, "path.not_a_directory");
    env.refused(&["write", "new/", "--text", "x"], 2, "path.invalid");
    env.ok(&["cp", "README.md", "src/"]);
    env.ok(&["mv", "src", "lib/"]);
    assert_eq!(env.result(&["cat", "main", "lib/README.md"])["files"][0]["content"], "hello\n");
}
