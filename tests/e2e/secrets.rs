//! Secrets: how a command gets them, that nothing else does, and changed paths that the host would execute.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::env::{Answer, Running, TestEnv};
use crate::shared::Shared;

const VALUE: &str = "hunter2-correct+horse/battery";
const KEY: &str = "-----BEGIN-----\nline one of it\nline two of it\n-----END-----\n";
/// Waits inside the sandbox until the test creates `go`.
const MEET: &str = ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done";

/// A project, and a secret in the file `key.pem` on the host.
fn with_secrets() -> TestEnv {
    let env = TestEnv::with_project();
    std::fs::write(env.at("key.pem"), KEY).unwrap();
    env
}

fn command(env: &TestEnv, options: &[&str], line: &str) -> Command {
    let mut words = options.to_vec();
    words.extend(["--shell", line]);
    let mut command = env.command(&words);
    command.env("TOKEN", VALUE);
    command
}

#[track_caller]
fn run(env: &TestEnv, options: &[&str], line: &str) -> Answer {
    env.answer(&mut command(env, options, line))
}

fn key(env: &TestEnv) -> String {
    format!("KEY={}", env.at("key.pem").display())
}

/// The values, and the encodings in which people and programs write them.
fn forms() -> Vec<Vec<u8>> {
    let program = "import base64, json, sys, urllib.parse as u
for value in sys.argv[1:]:
    v = value.strip().encode()
    for form in [v, base64.b64encode(v).rstrip(b'='), base64.urlsafe_b64encode(v).rstrip(b'='), v.hex(),
                 v.hex().upper(), u.quote(v, safe=''), u.quote(v), json.dumps(v.decode())[1:-1]]:
        sys.stdout.buffer.write((form if isinstance(form, bytes) else form.encode()) + b'\\0')";
    let output = Command::new("python3").args(["-c", program, VALUE, KEY]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let forms: Vec<Vec<u8>> = output.stdout.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    assert_eq!(forms.len(), 2 * 8 + 1);
    forms.into_iter().filter(|form| !form.is_empty()).collect()
}

#[track_caller]
fn assert_not_in(forms: &[Vec<u8>], bytes: &[u8], what: &str) {
    for form in forms {
        let found = bytes.windows(form.len()).any(|window| window == form.as_slice());
        assert!(!found, "{what} contains {:?}", String::from_utf8_lossy(form));
    }
}

/// Fails if a value is in the content or the name of a file, or in the target of a symlink, anywhere in a directory.
#[track_caller]
fn assert_not_beneath(forms: &[Vec<u8>], dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        assert_not_in(forms, path.as_os_str().as_encoded_bytes(), "a name");
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            assert_not_beneath(forms, &path);
        } else if kind.is_file() {
            assert_not_in(forms, &std::fs::read(&path).unwrap(), &path.display().to_string());
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            assert_not_in(forms, target.as_os_str().as_encoded_bytes(), &path.display().to_string());
        }
    }
}

fn left_out(envelope: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = envelope["result"]["left_out"].as_array().unwrap();
    list.iter().map(|left| (text(&left["path"]), text(&left["reason"]))).collect()
}

#[test]
fn a_secret_is_a_read_only_file() {
    let env = with_secrets();
    let key = key(&env);
    let line = "cat $TOKEN_FILE; echo; cat $KEY_FILE; echo $TOKEN_FILE $KEY_FILE ${TOKEN-unset}; \
                stat -c '%a %n' /run/secrets /run/secrets/*; stat -c %u /run/secrets/TOKEN | grep -qx $(id -u) && echo mine; \
                for what in 'echo x > /run/secrets/TOKEN' ': > /run/secrets/new' 'rm -f /run/secrets/KEY' \
                    'chmod 777 /run/secrets' 'mv /run/secrets/KEY /run/secrets/K'; do (eval $what) 2>/dev/null && echo done: $what; done; \
                grep -c ' /run/secrets ro[, ].* tmpfs ' /proc/self/mountinfo";
    let printed = format!(
        "{VALUE}\n{KEY}/run/secrets/TOKEN /run/secrets/KEY unset\n500 /run/secrets\n400 /run/secrets/KEY\n\
         400 /run/secrets/TOKEN\nmine\n1\n"
    );
    for options in [
        &["--scratch", "memory"][..],
        &["--scratch", "disk"],
        &["--backend", "copy"],
        &["--profile", "host"],
        &["--fork", "f"],
        &["--readonly"],
        &["--ro", "/run/"],
    ] {
        if options.contains(&"--ro") && Path::new("/run/secrets").exists() {
            continue;
        }
        let options = [options, &["--quiet", "--secret", "TOKEN=file", "--secret", &key]].concat();
        let answer = run(&env, &options, line);
        if options.contains(&"--ro") {
            // A read-only directory of the host has no place for them.
            let answer = answer.expect(121);
            assert!(answer.stderr.contains("cannot write the secrets to /run/secrets"), "{answer:?}");
            continue;
        }
        assert_eq!(answer.expect(0).text(), printed, "{options:?}");
    }
    // An unset secret is an error.
    for secret in ["NONE", "NONE=file"] {
        let none = env.shell(&["--json", "--secret", secret], "true").expect(125).envelope();
        assert_eq!(none["error"]["code"], json!("secret.unset"), "{none}");
    }
}

#[test]
fn no_other_process_sees_the_value() {
    let env = with_secrets();
    let line = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cFf $TOKEN_FILE; \
                cat /proc/1/environ 2>&1 | grep -c denied";
    assert_eq!(run(&env, &["--quiet", "--secret", "TOKEN=file"], line).text(), "0\n1\n");
    // Control: as a variable it is in the environment of the command.
    let control = "tr '\\0' '\\n' < /proc/$$/environ | grep -c ^TOKEN=";
    assert_eq!(run(&env, &["--quiet", "--secret", "TOKEN"], control).text(), "1\n");
}

#[test]
fn a_secret_file_can_be_a_pipe_and_can_be_given_in_a_json_request() {
    let env = with_secrets();
    let words = ["-q", "--secret", "PIPED=/dev/stdin", "--shell", "cat $PIPED_FILE"];
    assert_eq!(env.fed(&words, b"from a pipe").expect(0).text(), "from a pipe");
    let request = json!({"command": "cat $TOKEN_FILE $KEY_FILE", "secret_files": ["TOKEN", key(&env)]});
    std::fs::write(env.at("request.json"), request.to_string()).unwrap();
    let file = env.at("request.json");
    let words = ["-q", "--request", file.to_str().unwrap()];
    let answer = env.answer(env.command(&words).env("TOKEN", VALUE)).expect(0);
    assert_eq!(answer.text(), format!("{VALUE}{KEY}"));
}

#[test]
fn invalid_secrets_are_refused_without_revealing_them() {
    let env = with_secrets();
    let large = env.at("large");
    std::fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    let large = format!("KEY={}", large.display());
    for (word, code) in [
        ("TO-KEN", "secret.bad_name"),
        ("=file", "secret.bad_name"),
        ("../x=file", "secret.bad_name"),
        ("TOKEN=hunter2-correct+horse", "secret.unreadable"),
        (&large, "secret.too_long"),
    ] {
        let answer = run(&env, &["--json", "--secret", word], "true").expect(125);
        assert_eq!(answer.envelope()["error"]["code"], json!(code), "{word}");
        let human = run(&env, &["--secret", word], "true").expect(125);
        assert!(!human.stderr.contains("hunter2") && human.stderr.contains("hint: "), "{human:?}");
    }
    assert!(env.avfs_result(&["runs", "list"])["runs"].as_array().unwrap().is_empty());
}

#[test]
fn caps_match_a_secret_file_by_its_path() {
    let env = with_secrets();
    env.policy("[caps]\nsecrets = ['KEY', 'TOKEN']\n");
    let key = key(&env);
    let denied = run(&env, &["--json", "--secret", &key], "true").expect(122).envelope();
    assert_eq!(denied["decision"]["rule"], json!("caps.secrets"), "{denied}");
    run(&env, &["--secret", "TOKEN=file"], "true").expect(0);
    env.policy(&format!("[caps]\nsecrets = ['KEY', '{}/*']\n", env.at("home").parent().unwrap().display()));
    run(&env, &["--secret", &key], "true").expect(0);
    let denied = run(&env, &["--json", "--secret", "TOKEN=file"], "true").expect(122).envelope();
    assert_eq!(denied["decision"]["rule"], json!("caps.secrets"));
    env.policy("profile = 'agent'\n");
    let asked = run(&env, &["--json", "--secret", "TOKEN=file"], "true").expect(120).envelope();
    assert_eq!(asked["decision"]["rule"], json!("profile.agent.secrets"));
}

/// Prints and writes the values in every encoding that is searched for.
const LEAK: &str = r#"
    python3 - <<'END'
import base64, json, os, urllib.parse
values = [os.environ['TOKEN'], open(os.environ['KEY_FILE']).read().strip()]
for number, value in enumerate(values):
    raw = value.encode()
    ways = [value, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(),
            base64.b64encode(b'u:' + raw + b'@').decode(), raw.hex(), raw.hex().upper(),
            urllib.parse.quote(value, safe=''), urllib.parse.quote(value), json.dumps(value)]
    for way, text in enumerate(ways):
        print('out', text)
        os.makedirs('leaks', exist_ok=True)
        open(f'leaks/{number}-{way}', 'w').write('before ' + text + ' after')
open('leaks/name-' + urllib.parse.quote(values[0], safe=''), 'w').write('x')
os.symlink('/nowhere/' + values[0], 'leaks/link')
open('README.md', 'a').write(values[0])
open('kept', 'w').write('kept')
END
    echo "$TOKEN" >&2; cat $KEY_FILE >&2; printf '%s' "$TOKEN" | base64 >&2"#;

#[test]
fn a_secret_value_is_stored_nowhere() {
    let forms = forms();
    for options in [
        &["--scratch", "memory"][..],
        &["--scratch", "disk"],
        &["--backend", "copy"],
        &["--fork", "f", "--scratch", "memory"],
        &["--fork", "f", "--scratch", "disk"],
    ] {
        let env = with_secrets();
        let key = key(&env);
        let options = [options, &["--json", "--secret", "TOKEN", "--secret", &key]].concat();
        let answer = run(&env, &options, LEAK).expect(0);
        assert_not_in(&forms, &answer.stdout, "the envelope");
        assert_not_in(&forms, answer.stderr.as_bytes(), "stderr");
        let envelope = answer.envelope();
        let run_ref = format!("run:{}", envelope["run_id"].as_str().unwrap());
        let left = left_out(&envelope);
        assert_eq!(left.len(), 9 + 9 + 3, "{options:?}: {left:#?}");
        assert!(left.iter().any(|(path, _)| path == "leaks/name-[secret]"), "{left:#?}");
        let printed = |path: &str, name: &str| {
            left.contains(&(path.to_owned(), format!("holds the value of the secret {name}")))
        };
        assert!(
            printed("leaks/0-0", "TOKEN") && printed("leaks/1-0", "KEY") && printed("README.md", "TOKEN")
        );
        // Other new files are kept, and existing files are unchanged.
        assert_eq!(env.cat(&run_ref, "kept"), "kept");
        assert_eq!(env.cat(&run_ref, "README.md"), "hello\n");
        let seen =
            env.ok(&["--quiet", "--fork", "next", "--from", &run_ref], "cat README.md; find leaks kept");
        assert_eq!(seen, "hello\nleaks\nkept\n");
        if options.contains(&"--fork") {
            assert_eq!(
                env.ok(&["--quiet", "--fork", "f"], "cat README.md; find leaks kept"),
                "hello\nleaks\nkept\n"
            );
        }
        for words in [
            &["runs", "show", &run_ref[4..]][..],
            &["runs", "list"],
            &["audit", "export"],
            &["log", if options.contains(&"--fork") { "f" } else { &run_ref }],
            &["diff", "main", &run_ref, "--patch"],
        ] {
            let answer = env.avfs(words).expect(0);
            assert_not_in(&forms, &answer.stdout, &words.join(" "));
        }
        assert_not_beneath(&forms, &env.export(&run_ref, "exported"));
        assert_not_beneath(&forms, &env.project());
        assert_not_beneath(&forms, &env.at("cache"));
        env.assert_sound();
    }
    // Control: the same search finds the values if files may contain them.
    let env = with_secrets();
    let key = key(&env);
    let options = ["--json", "--allow-secret-files", "--fork", "f", "--secret", "TOKEN", "--secret", &key];
    let envelope = run(&env, &options, LEAK).expect(0).envelope();
    assert_eq!(left_out(&envelope), []);
    assert_eq!(envelope["request"]["allow_secret_files"], json!(true));
    let exported = env.export("f", "exported");
    for form in &forms {
        let found = std::fs::read_dir(exported.join("leaks")).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap_or_default();
            bytes.windows(form.len()).any(|window| window == form.as_slice())
        });
        assert!(found, "{:?} is in no file", String::from_utf8_lossy(form));
    }
}

#[test]
fn files_that_contain_secrets_are_reported_and_not_applied() {
    let env = with_secrets();
    let before = std::fs::read(env.project().join("README.md")).unwrap();
    let words = [
        "--apply",
        "--secret",
        "TOKEN",
        "--shell",
        "echo $TOKEN > leaked; echo $TOKEN >> README.md; echo x > x",
    ];
    let mut command = env.command(&words);
    let answer = crate::env::Running::start(command.env("TOKEN", VALUE)).answer().expect(0);
    for path in ["leaked", "README.md"] {
        let line = format!("not kept: {path}: holds the value of the secret TOKEN");
        assert!(answer.stderr.contains(&line), "{answer:?}");
    }
    assert!(env.project().join("x").exists() && !env.project().join("leaked").exists());
    assert_eq!(std::fs::read(env.project().join("README.md")).unwrap(), before);
    // A value that is too short would match everywhere, so a note reports it.
    let short = env
        .command(&["--secret", "TOKEN", "--shell", "echo $TOKEN > s"])
        .env("TOKEN", "abc")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&short.stderr).into_owned();
    assert!(printed.contains("TOKEN is too short to search for in files"), "{printed}");
}

#[test]
fn a_recovery_needs_the_values_of_the_secrets() {
    for options in [&["--scratch", "memory"][..], &["--scratch", "disk"], &["--backend", "copy"]] {
        let env = with_secrets();
        let shared = Shared::new(&env);
        let key = key(&env);
        let options = [options, &["--json", "--secret", "TOKEN", "--secret", &key]].concat();
        let line = format!("{MEET}; echo $TOKEN > leaked; cp $KEY_FILE key; chmod 600 key; echo kept > kept");
        let fail = || {
            let running =
                crate::env::Running::start(shared.command(&env, &options, &line).env("TOKEN", VALUE));
            let running = shared.wait_for_word(running, "ready");
            let (there, away) = (env.project().join(".avfs"), env.at("away"));
            std::fs::rename(&there, &away).unwrap();
            shared.put("go");
            let envelope = running.answer().expect(123).envelope();
            let _ = std::fs::remove_dir_all(&there);
            std::fs::rename(&away, &there).unwrap();
            for name in ["ready", "go"] {
                std::fs::remove_file(env.at("shared").join(name)).unwrap();
            }
            envelope["run_id"].as_str().unwrap().to_owned()
        };
        let id = fail();
        let refused = env.avfs(&["recover", &id]);
        assert!(refused.code != Some(0), "{refused:?}");
        assert!(refused.stderr.contains("unknown values: TOKEN, KEY"), "{refused:?}");
        for way in
            [format!("TOKEN=… KEY=… avfs recover {id}"), format!("avfs recover --allow-secret-files {id}")]
        {
            assert!(refused.stderr.contains(&way), "{refused:?}");
        }
        // A part of the values is not enough, and the next run does not complete the capture automatically.
        let recover = |words: &[&str], token: &str, key: &str| {
            let mut command = env.clean(&crate::env::avfs());
            command.args(words).env("TOKEN", token).env("KEY", key);
            crate::env::Running::start(&mut command).answer()
        };
        assert!(recover(&["recover", &id], VALUE, "").stderr.contains("unknown values: KEY"));
        env.ok(&["-q"], "true");
        assert_eq!(env.scratches(), std::slice::from_ref(&id));
        let run_ref = format!("run:{id}");
        recover(&["recover", &id], VALUE, KEY).expect(0);
        assert_eq!(env.cat(&run_ref, "kept"), "kept\n");
        for path in ["leaked", "key"] {
            env.avfs(&["cat", &run_ref, path]).expect(1);
        }
        let forms = forms();
        assert_not_beneath(&forms, &env.project());
        assert_not_beneath(&forms, &env.at("cache"));
        // With an explicit option everything is kept.
        let id = fail();
        env.avfs(&["recover", "--allow-secret-files", &id]).expect(0);
        assert_eq!(env.cat(&format!("run:{id}"), "leaked").trim(), VALUE);
        env.assert_sound();
    }
}

#[test]
fn credentials_in_a_command_are_redacted_in_records() {
    let env = with_secrets();
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    // Split, so that scanners for tokens in source code do not report it.
    let token = format!("ghp{}{}", "_", "a1B2".repeat(9));
    let line = format!("echo {token} | tr a-z A-Z; echo x > x; : https://u:hunter2@example.org/");
    let ran = env.json(&["--fork", "f"], &line);
    // The command itself is executed unchanged.
    assert_eq!(ran["result"]["stdout"], json!(format!("{}\n", token.to_uppercase())));
    let id = ran["run_id"].as_str().unwrap().to_owned();
    let shown = env.avfs_result(&["runs", "show", &id]);
    let stored = "echo [redacted] | tr a-z A-Z; echo x > x; : https://u:[redacted]@example.org/";
    assert_eq!(shown["request"]["command"], json!(stored));
    env.shell(&["--json", "--", &token], "true");
    env.run(&["--json", "--", &token, "--header", "Authorization: Bearer hunter2"]);
    // A command that waits for approval is shown redacted, and the approval covers the original.
    let curl = format!("curl -u x:{token} http://0.0.0.0:9/; echo did");
    let asked = env.shell(&["--json"], &curl).expect(120).envelope();
    let approval = asked["decision"]["approval_id"].as_str().unwrap().to_owned();
    let seen = env.avfs(&["approvals", "show", &approval]).expect(0).text();
    assert!(seen.contains("curl -u x:[redacted] http"), "{seen}");
    env.avfs(&["approvals", "approve", &approval]).expect(0);
    let other = curl.replace("a1B2", "a1B3");
    env.shell(&["--json"], &other).expect(120);
    assert_eq!(env.json(&[], &curl)["result"]["stdout"], json!("did\n"));
    for words in [&["runs", "list"][..], &["audit", "export"], &["log", "f"], &["approvals", "list", "--all"]]
    {
        let all = [&["--json"][..], words].concat();
        let answer = env.avfs(if words[0] == "audit" { words } else { &all });
        assert!(answer.code == Some(0) && !answer.text().contains("hunter2"), "{words:?}: {answer:?}");
        assert!(!answer.text().contains(&token), "{words:?}: {answer:?}");
    }
    let forms = [token.into_bytes(), b"hunter2".to_vec()];
    assert_not_beneath(&forms, &env.project());
    assert_not_beneath(&forms, &env.at("cache"));
    env.assert_sound();
}

#[test]
fn a_secret_value_in_a_command_is_not_stored() {
    let env = with_secrets();
    let line = format!("echo '{VALUE}' > /dev/null; echo x > x");
    let answer = run(&env, &["--json", "--fork", "f", "--secret", "TOKEN"], &line).expect(0);
    assert!(!answer.text().contains(VALUE), "{answer:?}");
    let planned = run(&env, &["--dry-run", "--secret", "TOKEN"], &line).expect(0);
    assert!(planned.stderr.contains("[secret]") && !planned.stderr.contains(VALUE), "{planned:?}");
    let lost = run(&env, &["--secret", "TOKEN", "--cwd", "/nowhere"], &line);
    assert!(lost.code != Some(0) && !lost.stderr.contains(VALUE), "{lost:?}");
    let traced =
        env.answer(command(&env, &["--secret", "TOKEN=file"], "true").env("AVFS_LOG", "trace")).expect(0);
    assert!(traced.stderr.contains("state=\"executing\"") && !traced.stderr.contains(VALUE), "{traced:?}");
    assert_not_beneath(&forms(), &env.project());
    assert_not_beneath(&forms(), &env.at("cache"));
}

#[test]
fn paths_that_the_host_would_execute_are_reported() {
    let env = TestEnv::with_project();
    env.put(".git/config", b"[core]\n");
    let line = "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo y >> .git/config; echo z > .bashrc; echo n > n";
    let human = env.shell(&[], line).expect(0);
    for printed in [
        "executed on the host once applied: .git/hooks/pre-commit (a git hook)",
        "executed on the host once applied: .git/config (git's settings, which can name programs)",
        "executed on the host once applied: .bashrc (a shell startup file)",
    ] {
        assert!(human.stderr.contains(printed), "{human:?}");
    }
    let envelope = env.json(&[], line);
    let paths = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
    };
    let all = [".bashrc", ".git/config", ".git/hooks/pre-commit"];
    assert_eq!(paths(&envelope["result"]["runs_on_host"]), all);
    let run = format!("run:{}", envelope["run_id"].as_str().unwrap());
    let tried = env.avfs_result(&["apply", &run, "--dry-run"]);
    assert_eq!(paths(&tried["runs_on_host"]), all);
    let without = env.avfs_result(&["apply", &run, "--dry-run", "--exclude", ".git"]);
    assert_eq!(paths(&without["runs_on_host"]), [".bashrc"]);
    let applied = env.avfs(&["apply", &run]).expect(0);
    assert!(applied.stderr.contains(".git/hooks/pre-commit (a git hook)"), "{applied:?}");
    // Files with instructions are distinguished, and so is a symlink at a path that agents read.
    let envelope = env.json(&[], "echo obey > AGENTS.md; mkdir shared; ln -s shared .claude");
    let printed = |envelope: &Value| -> Vec<String> {
        let all = envelope["result"]["runs_on_host"].as_array().unwrap().iter();
        all.map(|one| format!("{} {}", one["path"].as_str().unwrap(), one["kind"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(printed(&envelope), [".claude executed", "AGENTS.md read_by_agents"]);
    let human = env.shell(&[], "echo obey > AGENTS.md").expect(0);
    let line = "read by agents on the host once applied: AGENTS.md (instructions that agents follow)";
    assert!(human.stderr.contains(line), "{human:?}");
    // Deletions and unrelated changes are not reported.
    let quiet = env.shell(&[], "rm -r .git .bashrc; echo m > n").expect(0);
    assert!(!quiet.stderr.contains("executed on the host"), "{quiet:?}");
}

/// The base already contains the symlinks, so the changed paths do not show them.
#[test]
fn changes_behind_an_existing_symlink_are_reported() {
    let env = TestEnv::with_project();
    let line = "mkdir -p tools/hooks && echo x > tools/hooks/pre-commit && echo y > tools/other";
    let printed = |envelope: &Value| -> Vec<(String, String, String)> {
        let all = envelope["runs_on_host"].as_array().unwrap().iter();
        let text = |one: &Value| one.as_str().unwrap().to_owned();
        all.map(|one| (text(&one["path"]), text(&one["why"]), text(&one["link"]["path"]))).collect()
    };
    // Control: without a symlink nothing executes it.
    assert_eq!(printed(&env.json(&[], line)["result"]), []);
    env.put(".git/HEAD", b"ref: refs/heads/main\n");
    std::os::unix::fs::symlink("../tools/hooks", env.project().join(".git/hooks")).unwrap();
    let envelope = env.json(&[], line);
    let hook = [("tools/hooks/pre-commit".to_owned(), "a git hook".to_owned(), ".git/hooks".to_owned())];
    assert_eq!(printed(&envelope["result"]), hook);
    let run = format!("run:{}", envelope["run_id"].as_str().unwrap());
    assert_eq!(printed(&env.avfs_result(&["apply", &run, "--dry-run"])), hook);
    let human = env.shell(&[], line).expect(0);
    let text = "executed on the host once applied: tools/hooks/pre-commit (a git hook, through the symlink .git/hooks)";
    assert!(human.stderr.contains(text), "{human:?}");
}

/// Of a package only scripts that an installation runs automatically count, and only if they are new.
#[test]
fn a_changed_install_script_is_reported() {
    let env = TestEnv::with_project();
    let package = |scripts: &str| format!(r#"{{"name": "x", "scripts": {{{scripts}}}}}"#);
    env.put("package.json", package(r#""postinstall": "node ok.js", "test": "a""#).as_bytes());
    let called_out = |content: &str| -> Vec<String> {
        let line = format!("printf '%b' '{content}' > package.json");
        let envelope = env.json(&[], &line);
        let all = envelope["result"]["runs_on_host"].as_array().unwrap().iter();
        all.map(|one| one["why"].as_str().unwrap().to_owned()).collect()
    };
    let script = ["a script that npm runs during install"];
    assert_eq!(called_out(&package(r#""postinstall": "node ok.js", "test": "b""#)), [""; 0]);
    assert_eq!(called_out(&package(r#""test": "b""#)), [""; 0]);
    assert_eq!(called_out(&package(r#""postinstall": "node evil.js", "test": "a""#)), script);
    assert_eq!(called_out(&package(r#""postinstall": "node ok.js", "prepare": "x""#)), script);
    // npm accepts these, so they must not hide a script.
    assert_eq!(called_out(&format!("\\0357\\0273\\0277{}", package(r#""install": "x""#))), script);
    assert_eq!(called_out(&package(r#""install": "x\\0377""#)), script);
    let moved = env.json(&[], "mkdir sub; mv package.json sub");
    assert_eq!(moved["result"]["runs_on_host"][0]["path"], "sub/package.json");
}

#[test]
fn a_host_name_that_contains_a_secret_is_not_recorded() {
    let env = TestEnv::with_project();
    let ask = "import os, socket\ns = socket.create_connection(('127.0.0.1', 61080))\n\
               s.sendall(b'CONNECT %s.example.org:443 HTTP/1.1\\r\\n\\r\\n' % os.environb[b'TOKEN'])\ns.recv(4096)";
    let asked = |secret: &[&str]| {
        let words =
            [&["--json", "--net", "allow=example.com"], secret, &["--", "python3", "-c", ask]].concat();
        env.answer(env.command(&words).env("TOKEN", "swordfish-in-a-name")).expect(0).envelope()
    };
    let host = |envelope: &Value| envelope["result"]["connections"][0]["host"].as_str().unwrap().to_owned();
    assert_eq!(host(&asked(&["--env", "TOKEN"])), "swordfish-in-a-name.example.org");
    let envelope = asked(&["--secret", "TOKEN"]);
    assert_eq!(host(&envelope), "[secret].example.org");
    assert!(!envelope.to_string().contains("swordfish"), "{envelope}");
    let shown = env.avfs(&["runs", "show", envelope["run_id"].as_str().unwrap(), "--json"]).expect(0).text();
    assert!(shown.contains("[secret].example.org") && !shown.contains("swordfish"), "{shown}");
}

#[test]
fn an_error_does_not_reveal_a_secret_value() {
    let env = with_secrets();
    let failing = |options: &[&str]| {
        let words = [options, &["--secret", "TOKEN", "--", VALUE]].concat();
        env.answer(env.command(&words).env("TOKEN", VALUE)).expect(127)
    };
    let answer = failing(&["--json"]);
    assert_eq!(answer.envelope()["error"]["message"], json!("[secret] was not found"), "{answer:?}");
    let human = failing(&[]);
    assert!(human.stderr.contains("error: [secret] was not found"), "{human:?}");
    for text in [answer.text(), answer.stderr, human.stderr] {
        assert!(!text.contains(VALUE), "{text}");
    }
}

#[test]
fn a_file_that_already_contained_the_value_may_be_moved() {
    let env = with_secrets();
    env.put("conf.env", format!("TOKEN={VALUE}\n").as_bytes());
    env.put("dir/a.env", format!("A={VALUE}\n").as_bytes());
    let line = "mv conf.env prod.env; mv dir moved; echo $TOKEN > new";
    let mut applied = command(&env, &["--json", "--apply", "--secret", "TOKEN"], line);
    let envelope = Running::start(&mut applied).answer().expect(0).envelope();
    assert_eq!(left_out(&envelope).iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["new"]);
    let read = |path: &str| std::fs::read_to_string(env.project().join(path)).unwrap_or_default();
    assert_eq!(read("prod.env"), format!("TOKEN={VALUE}\n"));
    assert_eq!(read("moved/a.env"), format!("A={VALUE}\n"));
    assert!(!env.project().join("conf.env").exists() && !env.project().join("new").exists());
}
