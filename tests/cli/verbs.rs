//! What single verbs do beside the common walk.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;

use crate::env::{TestEnv, USER, binary};
use crate::support;
use crate::support::sql;

#[test]
fn grep_finds_lines_names_files_and_notes_binaries() {
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
fn messages_of_many_paths_are_cut() {
    let env = TestEnv::new();
    let names: Vec<String> = (0..300).map(|number| format!("d/name-{number}")).collect();
    names.iter().for_each(|name| env.put(name, b""));
    env.ok(&["init", "--import"]);
    let mut words = vec!["rm", "-r"];
    words.extend(names.iter().map(String::as_str));
    // A path beneath another one goes with it.
    words.push("d");
    env.ok(&words);
    assert_eq!(env.ok(&["ls", "main"]), "");
    let log = env.json(&["log"]);
    let message = log["result"]["versions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("rm d/name-0 ") && message.ends_with('…'), "{message}");
    assert_eq!(message.chars().count(), 201);
}

/// As grep(1): a newline ends a line, and nothing comes after the last one.
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
    assert_eq!(env.run(&["grep", "main", "^$", "zero"]).code, 1, "the only line of it is not empty");
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
fn trees_are_drawn_with_their_branches() {
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
fn a_patch_shows_text_and_has_binary_content() {
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

/// Who looks before taking sees what is no plain file.
#[test]
fn a_diff_tells_links_modes_and_kinds() {
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
        assert!(summary.lines().any(|told| told == line), "{line}: {summary}");
    }
    let patch = env.ok(&["diff", "main", "--patch"]);
    assert!(patch.contains("diff --git a/tool b/tool\nnew file mode 100755\n"), "{patch}");
    assert!(patch.contains("diff --git a/way b/way\nnew file mode 120000\n"), "{patch}");
    assert!(env.ok(&["diff", "main", "--tree"]).contains("A way  (link to /etc/"), "{patch}");
}

#[test]
fn the_log_of_a_path_has_only_its_versions() {
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
fn edits_are_versions_and_repeat_without_one() {
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
fn write_takes_stdin_and_a_mode() {
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
fn prune_then_gc_gives_space_back() {
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
fn quotas_refuse_with_their_numbers() {
    let env = TestEnv::with_project();
    env.ok(&["quota", "set", "--versions", "2", "--files", "100"]);
    let before = env.state();
    let refusal = env.refused(&["write", "x", "--text", "x"], 1, "quota.exceeded");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("2 versions"), "{refusal}");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("avfs prune --keep-last 1 "), "{refusal}");
    assert_eq!(env.state(), before);
    assert_eq!(env.result(&["quota", "set", "--versions", "none"])["files"], json!(100));
    env.ok(&["write", "x", "--text", "x"]);
    // Who has too many files may always have fewer.
    env.ok(&["quota", "set", "--files", "2"]);
    env.ok(&["rm", "x"]);
    env.refused(&["write", "y", "--text", "y"], 1, "quota.exceeded");
}

#[test]
fn a_quota_of_one_version_can_only_be_raised() {
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
fn an_edited_audit_log_is_found() {
    let env = TestEnv::with_project();
    let head = env.result(&["audit", "verify"])["head"]["digest"].as_str().unwrap().to_owned();
    env.ok(&["write", "x", "--text", "x"]);
    env.ok(&["audit", "verify", "--expect", &head]);
    sql(&env.vault_file()).execute("UPDATE audit SET actor = 'somebody else' WHERE seq = 2", []).unwrap();
    let verdict = env.json(&["audit", "verify"]);
    assert_eq!(verdict["error"]["code"], json!("audit.broken"));
    assert_eq!(env.run(&["fsck"]).code, 1);
}

#[test]
fn an_answer_in_json_does_not_hold_what_is_too_large() {
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
fn deleting_a_vault_takes_nothing_else() {
    let env = TestEnv::with_project();
    env.refused(&["vault", "delete"], 1, "vault.not_confirmed");
    assert!(env.vault_file().exists());
    env.ok(&["vault", "delete", "--yes"]);
    assert!(!env.project().join(".avfs").exists());
    assert!(env.project().join("README.md").exists());
    env.refused(&["log"], 1, "vault.not_found");
}

#[test]
fn a_link_is_deleted_with_the_vault_behind_it() {
    let env = TestEnv::with_project();
    let link = env.at("link.db");
    std::os::unix::fs::symlink(env.vault_file(), &link).unwrap();
    let words = ["vault".as_ref(), "delete".as_ref(), link.as_os_str()];
    let refusal = env.refused(&words, 1, "vault.not_confirmed");
    let real = env.vault_file().canonicalize().unwrap();
    assert!(refusal["error"]["message"].as_str().unwrap().contains(real.to_str().unwrap()), "{refusal}");
    let told = env.ok(&[&words[..], &["--yes".as_ref()]].concat());
    assert_eq!(told, format!("deleted the vault {}\n", real.display()));
    assert!(!link.is_symlink(), "the link stays");
    assert!(!env.project().join(".avfs").exists(), "the vault stays");
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

/// How often a command waits for the disk, as the kernel sees it.
fn syncs(env: &TestEnv, words: &[&str]) -> usize {
    let trace = env.at("trace");
    let mut traced = env.clean(Path::new("strace"));
    traced.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync", "-o"]).arg(&trace);
    assert!(traced.arg(binary()).args(words).output().unwrap().status.success());
    std::fs::read_to_string(&trace).unwrap().lines().filter(|line| line.contains("sync(")).count()
}

#[test]
fn an_import_that_finds_nothing_does_not_wait_for_the_disk() {
    let env = TestEnv::with_project();
    assert_eq!(syncs(&env, &["import"]), 0);
    env.put("README.md", b"changed\n");
    assert_eq!(syncs(&env, &["import"]), 1);
    assert_eq!(syncs(&env, &["import"]), 0);
}

#[test]
fn attributes_that_cannot_be_kept_are_named() {
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
            "attributes_that_cannot_be_kept_are_named",
            "no access lists on this file system",
        );
    }
    let imported = env.result(&["import"]);
    let trouble =
        json!([{"path": "README.md", "reason": "attribute", "message": "its access list cannot be kept"}]);
    assert_eq!(imported["troubles"], trouble);
}

#[test]
fn words_that_are_missing_are_named_in_json_too() {
    let env = TestEnv::with_project();
    for (words, told) in
        [(&["ls"][..], "<REF>"), (&["prune"], "--keep-last"), (&["fork"], "a subcommand is missing")]
    {
        let refusal = env.json(words);
        assert_eq!(refusal["error"]["code"], json!("usage"));
        assert!(refusal["error"]["message"].as_str().unwrap().contains(told), "{refusal}");
    }
}

#[test]
fn a_checkpoint_is_named_as_it_is_listed() {
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

/// In a setgid directory new files have its group, and the kernel lets only members of a group set the bit.
#[test]
fn setgid_bits_come_back_in_a_directory_of_another_group() {
    if !support::is_root() {
        return support::skip(
            "cli::setgid_bits_come_back_in_a_directory_of_another_group",
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
fn a_path_that_never_was_is_not_one_without_changes() {
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
    // What went is in one of the sides, and in the history.
    assert!(env.ok(&["diff", "main", "--", "gone"]).contains("gone"));
    assert_eq!(env.result(&["log", "main", "--", "gone"])["versions"].as_array().unwrap().len(), 2);
    // Without changes, and at the root.
    assert_eq!(env.run(&["diff", "main", "--exit-code", "--", "src"]).code, 0);
    env.ok(&["diff", "main", "--", "."]);
    env.ok(&["log", "main", "-n", "0", "--", "README.md"]);
}

/// What a diff tells as a change of a path is in the log of that path.
#[test]
fn the_log_of_a_path_has_what_became_a_link() {
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
fn a_slash_at_the_end_is_a_directory() {
    let env = TestEnv::with_project();
    env.refused(&["mv", "README.md", "nowhere/"], 1, "path.not_found");
    env.refused(&["cp", "README.md", "nowhere/"], 1, "path.not_found");
    env.refused(&["cp", "README.md", "link/"], 1, "path.not_a_directory");
    env.refused(&["write", "new/", "--text", "x"], 2, "path.invalid");
    env.ok(&["cp", "README.md", "src/"]);
    env.ok(&["mv", "src", "lib/"]);
    assert_eq!(env.result(&["cat", "main", "lib/README.md"])["files"][0]["content"], "hello\n");
}
