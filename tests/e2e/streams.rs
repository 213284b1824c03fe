//! Input and output of a command, variables and secrets.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::env::{Running, TestEnv, runner};
use crate::support::noise;

#[test]
fn every_kind_of_input_reaches_the_command() {
    let env = TestEnv::with_project();
    let bytes = noise(3, 5_000_000);
    let digest = blake3::hash(&bytes);
    // A pipe.
    assert_eq!(blake3::hash(&env.fed(&["--quiet", "--", "cat"], &bytes).expect(0).stdout), digest);
    // A file, from the offset where the caller left it.
    std::fs::write(env.at("input"), &bytes).unwrap();
    let mut file = File::open(env.at("input")).unwrap();
    file.read_exact(&mut [0; 1000]).unwrap();
    let answer = env.answer(env.command(&["--", "cat"]).stdin(file)).expect(0);
    assert_eq!(answer.stdout, &bytes[1000..]);
    // No input.
    assert_eq!(env.run(&["--", "cat"]).expect(0).stdout, b"");
    // Capturing the output does not affect the input.
    let answer = env.fed(&["--json", "--", "wc", "-c"], &bytes).expect(0).envelope();
    assert_eq!(answer["result"]["stdout"], json!("5000000\n"));
}

#[test]
fn a_command_that_does_not_read_its_input_ends_normally() {
    let env = TestEnv::with_project();
    let bytes = noise(4, 1_000_000);
    env.fed(&["--", "true"], &bytes).expect(0);
    assert_eq!(env.fed(&["--", "head", "-c", "3"], b"abcdef").expect(0).text(), "abc");
    std::fs::write(env.at("input"), &bytes).unwrap();
    let file = File::open(env.at("input")).unwrap();
    env.answer(env.command(&["--", "true"]).stdin(file)).expect(0);
    // Input that stays open without data.
    let mut running = Running::start(env.command(&["--", "echo", "done"]).stdin(Stdio::piped()));
    let held = running.child.stdin.take();
    assert_eq!(running.answer().expect(0).text(), "done\n");
    drop(held);
}

/// Runs a shell line in which `$RUN` is `avfs-run -q`.
#[track_caller]
fn shell_around(env: &TestEnv, line: &str) -> String {
    let mut command = env.clean(Path::new("/bin/sh"));
    command.args(["-c", &line.replace("$RUN", "\"$RUNNER\" -q")]).env("RUNNER", runner());
    env.answer(&mut command).expect(0).text()
}

#[test]
fn unread_input_of_a_file_stays_unread() {
    let env = TestEnv::with_project();
    let input = env.at("input");
    std::fs::write(&input, "one\ntwo\nthree\n").unwrap();
    for (line, seen) in [
        ("while read l; do $RUN -- echo \"got $l\"; done", "got one\ngot two\ngot three\n"),
        ("$RUN -- true; cat", "one\ntwo\nthree\n"),
        // head reads ahead and seeks back.
        ("$RUN -- head -n 1; cat", "one\ntwo\nthree\n"),
        ("$RUN -- dd bs=1 count=5 status=none; echo /; cat", "one\nt/\nwo\nthree\n"),
        ("$RUN -- cat; echo /; cat", "one\ntwo\nthree\n/\n"),
        ("read l; $RUN -- tail -c 6; echo /; cat", "three\n/\n"),
        ("$RUN --json -- head -n 2 | grep -c three; cat", "0\nthree\n"),
        // The command sets the file offset.
        ("$RUN -- python3 -c 'import os; os.lseek(0, 4, 0)'; cat", "two\nthree\n"),
        ("$RUN -- sh -c 'read l; kill -9 $$'; cat", "two\nthree\n"),
    ] {
        assert_eq!(shell_around(&env, &format!("{{ {line}; }} < {}", input.display())), seen, "{line}");
    }
}

/// In some shells a here-document is a deleted file. The input is larger than a pipe buffer.
#[test]
fn unread_input_of_a_deleted_file_stays_unread() {
    let env = TestEnv::with_project();
    for (line, rest) in [
        ("$RUN -- head -c 100000 >/dev/null; wc -c", "200000\n"),
        ("$RUN -- true; wc -c", "300000\n"),
        ("$RUN -- cat >/dev/null; wc -c", "0\n"),
        ("head -c 5 >/dev/null; $RUN -- sh -c 'exec <&-; exec sleep 0'; wc -c", "299995\n"),
    ] {
        std::fs::write(env.at("input"), noise(5, 300_000)).unwrap();
        let line = format!("exec 3< {0}; rm {0}; {{ {line}; }} <&3", env.at("input").display());
        assert_eq!(shell_around(&env, &line), rest, "{line}");
    }
}

#[test]
fn a_file_in_proc_is_read_like_a_pipe() {
    let env = TestEnv::with_project();
    let line = "{ $RUN -- sh -c 'read word; test -p /dev/stdin && echo $word'; cat; } < /proc/self/comm";
    assert_eq!(shell_around(&env, line), "sh\n");
}

/// A socket is neither a file nor a pipe: it must be forwarded too, and may stay open forever.
#[test]
fn input_from_a_socket_is_forwarded() {
    use std::io::Write;
    let env = TestEnv::with_project();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.write_all(b"over a socket\n").unwrap();
    let stdin = Stdio::from(std::os::fd::OwnedFd::from(theirs));
    let answer = env.answer(env.command(&["--", "head", "-n", "1"]).stdin(stdin)).expect(0);
    assert_eq!(answer.text(), "over a socket\n");
}

#[test]
fn an_empty_stdin_has_a_name() {
    let env = TestEnv::with_project();
    let line = "readlink /proc/self/fd/0; echo x >> /proc/self/fd/1; chmod 600 /dev/null || echo refused";
    assert_eq!(env.ok(&["-q"], line), "/dev/null\nx\nrefused\n");
    // A view without the device.
    env.run(&["-q", "--hide", "/dev/null", "--", "cat"]).expect(0);
}

#[test]
fn closed_streams_act_like_empty_ones() {
    let env = TestEnv::with_project();
    let out = env.at("out");
    for (closed, line) in [
        ("<&-", "cat; ls -l /proc/self/fd/0 >&2"),
        (">&-", "echo lost; echo kept >&2"),
        ("2>&-", "echo lost >&2; echo kept"),
        ("<&- >&- 2>&-", "cat; echo lost; echo lost >&2; echo x > made-by-a-silent-one"),
    ] {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.arg("-c").arg(format!("exec \"$RUN\" --quiet --shell \"$LINE\" {closed}"));
        command.env("RUN", runner()).env("LINE", line).env("OUT", &out);
        let answer = env.answer(&mut command).expect(0);
        let seen = answer.text() + &answer.stderr;
        assert!(!seen.contains("lost") && !seen.contains("project"), "{closed}: {answer:?}");
    }
    assert_eq!(env.avfs_result(&["runs", "list"])["runs"].as_array().unwrap().len(), 4);
}

#[test]
fn output_to_files_keeps_its_order_and_offset() {
    let env = TestEnv::with_project();
    let out = env.at("out");
    let line = "for n in 1 2 3 4 5 6 7 8 9; do echo out $n; echo err $n >&2; done";
    let mut command = env.clean(Path::new("/bin/sh"));
    command.arg("-c").arg("exec \"$RUN\" --quiet --shell \"$LINE\" >>\"$OUT\" 2>&1");
    command.env("RUN", runner()).env("LINE", line).env("OUT", &out);
    std::fs::write(&out, "before\n").unwrap();
    env.answer(&mut command).expect(0);
    let expected: String = (1..10).map(|n| format!("out {n}\nerr {n}\n")).collect();
    assert_eq!(std::fs::read_to_string(&out).unwrap(), format!("before\n{expected}"));
}

#[test]
fn captured_output_is_truncated_at_the_limit_and_marked() {
    let env = TestEnv::with_project();
    let line = "printf 1234567890; printf abcdefghij >&2; printf X";
    let answer = env.json(&["--output-max", "10"], line);
    let result = &answer["result"];
    assert_eq!((&result["stdout"], &result["stdout_truncated"]), (&json!("123457890X"), &json!(true)));
    assert_eq!(result["stdout_omitted"], json!({ "offset": 5, "bytes": 1 }));
    assert_eq!(result["stderr_omitted"], json!(null));
    assert_eq!((&result["stderr"], &result["stderr_truncated"]), (&json!("abcdefghij"), &json!(false)));
    let result = &env.json(&["--output-max", "0"], "printf x")["result"];
    assert_eq!((&result["stdout"], &result["stdout_truncated"]), (&json!(""), &json!(true)));
}

#[test]
fn output_larger_than_the_memory_limit_is_passed_on() {
    let env = TestEnv::with_project();
    // 100 MB of data segments and private memory for 256 MiB of output.
    let bounded = |line: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.arg("-c").arg(format!("ulimit -d 100000; {line}")).env("RUN", runner());
        command
    };
    let mut kept = bounded("exec \"$RUN\" --json --output-max 1MiB -- head -c 256M /dev/zero");
    let envelope = env.answer(&mut kept).expect(0).envelope();
    assert_eq!(envelope["result"]["stdout"].as_str().unwrap().len(), 1 << 20);
    assert_eq!(envelope["result"]["stdout_truncated"], json!(true));
    assert_eq!(envelope["result"]["stdout_omitted"], json!({ "offset": 1 << 19, "bytes": 255 << 20 }));
    let mut passed = bounded("\"$RUN\" -- head -c 256M /dev/zero | wc -c");
    assert_eq!(env.answer(&mut passed).expect(0).text().trim(), (256 << 20).to_string());
}

/// The memory use of avfs-run does not depend on the amount of output.
#[test]
fn memory_use_does_not_grow_with_the_output() {
    let env = TestEnv::with_project();
    let both = "(head -c 16M /dev/zero & head -c 16M /dev/urandom >&2; wait)";
    for (options, line) in [
        (&["--output-max", "1TiB"][..], both),
        (&[], both),
        (&["--output-max", "1TiB", "--secret", "TOKEN"], "yes some text | head -c 16M"),
    ] {
        let mut words = vec!["--json"];
        words.extend(options);
        words.extend(["--shell", line]);
        let mut command = env.command(&words);
        command.env("TOKEN", SECRET).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut peak, mut buffer, mut length) = (0, vec![0; 1 << 20], 0);
        let mut stdout = child.stdout.take().unwrap();
        loop {
            peak = peak.max(crate::support::peak_kib(child.id()).unwrap_or(0));
            match stdout.read(&mut buffer).unwrap() {
                0 => break,
                read => length += read,
            }
        }
        assert!(child.wait().unwrap().success());
        assert!(length > 10 << 20, "{line}: {length}");
        assert!((1..64 << 10).contains(&peak), "{options:?} {line}: {peak} KiB");
    }
}

#[test]
fn variables_can_be_passed_set_and_read_from_files() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("vars"), "# a comment\n\nFROM_FILE=a=b c\nTWICE=file\n").unwrap();
    let vars = env.at("vars");
    let words = [
        "--env",
        "PASSED",
        "--env",
        "SET=x y",
        "--env",
        "TWICE=word",
        "--env",
        "MISSING",
        "--env-file",
        vars.to_str().unwrap(),
        "--",
        "env",
    ];
    let mut command = env.command(&words);
    command.env("PASSED", "as outside").env("NOT_PASSED", "1").env("AWS_SECRET_ACCESS_KEY", "1");
    let answer = env.answer(&mut command).expect(0);
    let text = answer.text();
    let lines: Vec<&str> = text.lines().collect();
    for line in ["PASSED=as outside", "SET=x y", "FROM_FILE=a=b c", "TWICE=word", "AVFS_SANDBOX=1"] {
        assert!(lines.contains(&line), "{line}: {text}");
    }
    let mut names: Vec<&str> = lines.iter().map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    let expected = [
        "AVFS_SANDBOX",
        "FROM_FILE",
        "GIT_OPTIONAL_LOCKS",
        "HOME",
        "LC_ALL",
        "PASSED",
        "PATH",
        "SET",
        "TMPDIR",
        "TWICE",
        "TZ",
    ];
    assert_eq!(names, expected);
    assert!(answer.stderr.contains("MISSING is not set"), "{answer:?}");
    std::fs::write(env.at("vars"), "no value\n").unwrap();
    let bad = env.run(&["--env-file", vars.to_str().unwrap(), "--", "true"]).expect(125);
    assert!(bad.stderr.contains("line 1 of"), "{bad:?}");
    let endless = env.run(&["--json", "--env-file", "/dev/zero", "--", "true"]).expect(125).envelope();
    assert_eq!(endless["error"]["code"], json!("request.bad_env"), "{endless}");
    assert!(
        endless["error"]["message"].as_str().unwrap().contains("longer than 16777216 bytes"),
        "{endless}"
    );
}

const SECRET: &str = "hunter2-correct-horse";

/// Fails if the secret is in any file in a directory.
#[track_caller]
fn assert_nowhere(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_nowhere(&path);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!found, "the secret is in {}", path.display());
        }
    }
}

#[test]
fn a_secret_is_stored_nowhere() {
    let env = TestEnv::with_project();
    let line = "printf 'it is %s.%s' \"$TOKEN\" \"$TOKEN\"; echo \"$TOKEN\" >&2; test -n \"$TOKEN\"";
    let words = ["--json", "--secret", "TOKEN", "--shell", line];
    let answer = env.answer(env.command(&words).env("TOKEN", SECRET)).expect(0);
    let (text, envelope) = (answer.text(), answer.envelope());
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(envelope["result"]["stdout"], json!("it is [secret].[secret]"));
    assert_eq!(envelope["result"]["stderr"], json!("[secret]\n"));
    assert!(envelope["request"]["environment"].as_array().unwrap().contains(&json!("TOKEN")));
    assert_nowhere(&env.project());
    assert_nowhere(&env.at("cache"));
    // Control: with the option, files written by the command are versioned unchanged.
    let words =
        ["--secret", "TOKEN", "--allow-secret-files", "--fork", "f", "--shell", "echo $TOKEN > leaked"];
    env.answer(env.command(&words).env("TOKEN", SECRET)).expect(0);
    assert_eq!(env.cat("f", "leaked").trim(), SECRET);
}

#[test]
fn a_secret_at_the_output_limit_is_not_revealed_in_part() {
    let env = TestEnv::with_project();
    for max in ["12", "20", "26", "27"] {
        let words =
            ["--json", "--output-max", max, "--secret", "TOKEN", "--shell", "printf \"token=$TOKEN.\""];
        let envelope = env.answer(env.command(&words).env("TOKEN", SECRET)).expect(0).envelope();
        let stdout = envelope["result"]["stdout"].as_str().unwrap().to_owned();
        let leaks = |part: &[u8]| stdout.contains(std::str::from_utf8(part).unwrap());
        assert!(!SECRET.as_bytes().windows(3).any(leaks), "--output-max {max}: {stdout}");
    }
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let env = TestEnv::with_project();
    for (line, code) in [
        ("exec \"$0\" -- echo hello > /dev/full", 125),
        ("exec \"$0\" -q -- echo hello > /dev/full", 125),
        ("exec \"$0\" -q --shell 'echo hello; exit 3' > /dev/full", 3),
    ] {
        let mut shell = env.clean(std::path::Path::new("sh"));
        shell.args(["-c", line]).arg(crate::env::runner());
        let answer = env.answer(&mut shell).expect(code);
        let times = answer.stderr.matches("cannot deliver the output of the command: No space left").count();
        assert_eq!(times, usize::from(code == 125), "{line}: {answer:?}");
    }
}

/// The command gets a directory too, but not that directory of the host.
#[test]
fn directory_as_stdin_is_a_directory_inside() {
    let env = TestEnv::with_project();
    env.put("src/marker", b"");
    for options in [&[][..], &["--json"]] {
        let dir = std::fs::File::open(env.project().join("src")).unwrap();
        let line =
            "cat; test -d /dev/stdin && test ! -e /dev/stdin/marker && test -e /dev/stdin/usr && exit 7";
        let words = [options, &["--", "sh", "-c", line]].concat();
        let answer = env.answer(env.command(&words).stdin(dir)).expect(7);
        let said = match options.is_empty() {
            true => answer.stderr,
            false => answer.envelope()["result"]["stderr"].to_string(),
        };
        assert!(said.contains("Is a directory"), "{said}");
    }
}
