//! Tried: a vault in a directory such as `/tmp`, above those of other users, so that none of them can create theirs.
//! Stopped by: a vault of another user is refused only in the working directory; above it, it is skipped.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::env::{Answer, Running, TestEnv, avfs, runner};
use crate::support;

const USER: u32 = 54321;

/// A caller that is not root, beneath a directory of root.
struct Caller {
    env: TestEnv,
    above: PathBuf,
}

impl Caller {
    fn new(mode: u32) -> Self {
        let env = TestEnv::new();
        let above = env.at("above");
        env.avfs(&["init", above.to_str().unwrap()]).expect(0);
        for name in ["above/mine", "above/mine/sub", "above/other", "of-user"] {
            std::fs::create_dir(env.at(name)).unwrap();
            std::os::unix::fs::chown(env.at(name), Some(USER), Some(USER)).unwrap();
        }
        std::fs::set_permissions(&above, PermissionsExt::from_mode(mode)).unwrap();
        Self { env, above }
    }

    fn command(&self, program: &Path, dir: &str, words: &[&str]) -> Command {
        let mut command = self.env.clean(Path::new("setpriv"));
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program).args(words);
        for name in ["cache", "data", "config"] {
            command.env(format!("XDG_{}_HOME", name.to_uppercase()), self.env.at("of-user").join(name));
        }
        command.current_dir(self.env.at(dir));
        command
    }

    fn run(&self, dir: &str, words: &[&str]) -> Answer {
        Running::start(&mut self.command(&runner(), dir, words)).answer()
    }

    fn avfs(&self, dir: &str, words: &[&str]) -> Answer {
        Running::start(&mut self.command(&avfs(), dir, words)).answer()
    }
}

fn skips(test: &str) -> bool {
    let skips = !support::is_root();
    if skips {
        support::skip(test, "only root becomes other users");
    }
    skips
}

#[test]
fn vault_of_another_user_above_is_skipped() {
    if skips("vault_above::vault_of_another_user_above_is_skipped") {
        return;
    }
    for mode in [0o1777, 0o755] {
        let caller = Caller::new(mode);
        let none = caller.avfs("above/mine", &["--json", "log"]).expect(1);
        assert_eq!(none.envelope()["error"]["code"], json!("vault.not_found"));
        assert!(none.stderr.contains("warning: the vault "), "{none:?}");
        let first = caller.run("above/mine", &["--json", "--", "true"]).expect(0);
        let codes: Vec<String> = first.envelope()["result"]["notes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|note| note["code"].as_str().unwrap().to_owned())
            .collect();
        assert!(codes.contains(&"vault.skipped".to_owned()), "{codes:?}");
        assert!(first.stderr.contains("belongs to another user"), "{first:?}");
        assert!(caller.above.join("mine/.avfs/vault.db").exists());
        // The nearer vault is found first from then on.
        let again = caller.run("above/mine/sub", &["--", "true"]).expect(0);
        assert!(!again.stderr.contains("another user"), "{again:?}");
        let init = caller.avfs("above/other", &["init"]).expect(0);
        assert!(!init.stderr.contains("warning"), "{init:?}");
        // A directory that the user cannot read is skipped too.
        let home = caller.above.join(".avfs");
        assert_eq!(home.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        // In the working directory it is refused.
        let refused = caller.run("above", &["--json", "--", "true"]).expect(125).envelope();
        let code = if mode == 0o755 { "vault.no_permission" } else { "vault.unsafe" };
        assert_eq!(refused["error"]["code"], json!(code), "{refused}");
    }
}

/// Controls: the same vault is refused if it belongs to the caller, and used if the caller trusts it.
#[test]
fn vault_above_that_is_the_callers_or_trusted_is_not_skipped() {
    if skips("vault_above::vault_above_that_is_the_callers_or_trusted_is_not_skipped") {
        return;
    }
    let caller = Caller::new(0o755);
    let own = |user: u32| {
        for entry in walkdir::WalkDir::new(caller.above.join(".avfs")).into_iter().map(|entry| entry.unwrap())
        {
            std::os::unix::fs::lchown(entry.path(), Some(user), Some(user)).unwrap();
        }
    };
    own(USER);
    let refused = caller.run("above/mine", &["--json", "--", "true"]).expect(125).envelope();
    assert_eq!(refused["error"]["code"], json!("vault.untrusted"), "{refused}");
    own(0);
    let open = |mode: u32| {
        for entry in walkdir::WalkDir::new(caller.above.join(".avfs")).into_iter().map(|entry| entry.unwrap())
        {
            let extra = if entry.file_type().is_dir() { 0o111 } else { 0 };
            std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(mode | extra)).unwrap();
        }
    };
    open(0o644);
    let hint = caller.avfs("above/mine", &["log"]).expect(1);
    assert!(hint.stderr.contains("trust it with: avfs vault trust "), "{hint:?}");
    caller.avfs("above/mine", &["vault", "trust", ".."]).expect(0);
    let used = caller.avfs("above/mine", &["log"]).expect(0);
    assert!(!used.stderr.contains("warning"), "{used:?}");
}
