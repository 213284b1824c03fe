//! Batches that were interrupted, killed or stopped can be resumed, and nothing is done twice.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, runner};
use crate::lists::{
    Came, assert_nothing_mounted, assert_once_each, batch, digests, journal, lines, list, refused,
    start_words,
};
use crate::shared::{Shared, alive, ask, children, kill_at, marker, start_held};
use crate::support::pause::Pauses;

/// A batch whose items see the shared directory as `$S`.
fn command(env: &TestEnv, shared: &Shared, list: &Path, words: &[&str]) -> Command {
    let (results, set) = (env.at("results.jsonl"), format!("S={}", shared.text()));
    let mut all = start_words("batch", list, &results, &["--rw", shared.text(), "--env", &set]);
    all.extend(words);
    let mut command = env.clean(&avfs());
    command.args(all);
    command
}

/// Starts a batch without waiting for it.
fn start(env: &TestEnv, shared: &Shared, list: &Path, words: &[&str]) -> Running {
    Running::start(&mut command(env, shared, list, words))
}

/// Waits for a batch and returns its results.
#[track_caller]
fn ended(env: &TestEnv, running: Running) -> Came {
    Came::of(env, &running.answer(), "BatchItemResult")
}

fn batch_id(env: &TestEnv) -> String {
    env.avfs_result(&["batch", "--list"])["batches"][0]["id"].as_str().unwrap().to_owned()
}

/// Kills batches at points spread over their duration, and the processes that resume them, until they are complete.
#[track_caller]
fn killed_until_done(name: &str, text: &str, words: &[&str], items: usize) {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let list = list(&env, name, &text.replace("MARKER", &marker));
    let pauses = Pauses::new(&env.at(""));
    let whole = ended(&env, Running::start(pauses.set(&mut command(&env, &shared, &list, words))));
    assert_eq!(whole.code, Some(0), "{}", whole.envelope);
    let last = pauses.reached().len();
    assert!(last > 20 * items, "{last} points");
    let content = |item: &Value| digests(&env, item["version"].as_str().unwrap()).1;
    let at = |number: usize| format!("#{number}");
    let rounds = [
        vec![at(1), at(last / 8), at(5)],
        vec![at(last * 3 / 8), at(10), at(17)],
        vec![at(last * 5 / 8), at(22), at(13), "exit".to_owned()],
    ];
    let expected: Vec<String> = whole.items.iter().map(content).collect();
    for (round, points) in rounds.iter().enumerate() {
        std::fs::remove_file(env.at("results.jsonl")).unwrap();
        std::fs::remove_file(env.at("shared/log")).unwrap();
        kill_until_done(&env, &shared, &list, words, points);
        let batches = env.avfs_result(&["batch", "--list"])["batches"].as_array().unwrap().len();
        assert_eq!(batches, round + 2, "in round {round}");
        assert_once_each(&env, &batch_id(&env), items as u64);
        let mut again = lines(&env.at("results.jsonl"), "BatchItemResult");
        again.sort_by_key(|item| item["item"].as_u64());
        let numbers: Vec<u64> = again.iter().map(|item| item["item"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=items as u64).collect::<Vec<_>>(), "one line per item");
        assert_eq!(again.iter().map(content).collect::<Vec<_>>(), expected, "{again:?}");
        // Only items that were running when the batch was killed ran again: at most two at a time.
        let runs = std::fs::read_to_string(env.at("shared/log")).unwrap().lines().count();
        assert!((items..=items + 2 * points.len()).contains(&runs), "{runs} runs, killed at {points:?}");
        assert_eq!(alive(&marker), [""; 0]);
    }
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
    assert_eq!(env.avfs_result(&["recover", "--list"])["runs"], json!([]));
    env.assert_sound();
}

/// Kills a batch, and the processes that resume it, at these points; then resumes it until it is complete.
#[track_caller]
fn kill_until_done(env: &TestEnv, shared: &Shared, list: &Path, words: &[&str], points: &[String]) {
    let batches = || env.avfs_result(&["batch", "--list"])["batches"].as_array().unwrap().len();
    let (known, mut words) = (batches(), words.to_vec());
    for point in points {
        kill_at(env, &mut command(env, shared, list, &words), point);
        assert_nothing_mounted(env);
        // A batch that was killed before it was recorded is started again.
        if batches() > known && !words.contains(&"--resume") {
            words.push("--resume");
        }
    }
    let answer = start(env, shared, list, &words).answer();
    if answer.code != Some(0) {
        assert_eq!(answer.envelope()["error"]["code"], "batch.all_done", "{answer:?}");
    }
}

#[test]
fn a_chain_killed_at_any_moment_can_be_resumed() {
    let text: String = (1..=7)
        .map(|n| {
            format!(": MARKER; echo {n} >> log; echo {n} >> $S/log; head -c 200000 /dev/zero > big-{n}\n")
        })
        .collect();
    killed_until_done("chain.txt", &text, &["--scratch", "disk"], 7);
}

#[test]
fn a_graph_killed_at_any_moment_can_be_resumed() {
    let item = |n: u32, needs: &str| {
        format!(
            "{{\"id\": \"i{n}\", \"needs\": [{needs}], \"command\": \": MARKER; echo {n} >> $S/log; cat made-* > all-{n} 2> /dev/null; echo {n} > made-{n}\"}}\n"
        )
    };
    let text = item(1, "")
        + &item(2, "")
        + &item(3, "\"i1\", \"i2\"")
        + &item(4, "\"i2\"")
        + &item(5, "\"i4\", \"i3\"")
        + &item(6, "\"i1\"")
        + &item(7, "\"i5\", \"i6\"");
    killed_until_done("needs.jsonl", &text, &["--jobs", "2", "--scratch", "memory"], 7);
}

/// Creates `been` and sleeps until it is killed; does nothing if `been` exists.
const ONCE: &str = "[ -e $S/been ] || { : > $S/been; sleep infinity; }";

#[test]
fn a_batch_killed_while_an_item_runs_can_be_resumed() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let list = list(&env, "list.txt", &format!("echo 1 >> n\necho half >> n; : {marker}; {ONCE}\ncat n\n"));
    let running = shared.wait_for_word(start(&env, &shared, &list, &[]), "been");
    running.signal(Signal::KILL);
    assert_eq!(running.answer().signal, Some(9));
    // A crash may leave half a line, and another process may have written to the file.
    let results = env.at("results.jsonl");
    let mut text = std::fs::read_to_string(&results).unwrap();
    let foreign = text.replace("\"run_id\":\"", "\"run_id\":\"0").replace("\"item\":1", "\"item\":3");
    text += &foreign;
    text += "{\"item\":2,\"id\":\"2\",\"sta";
    std::fs::write(&results, text).unwrap();
    let came = ended(&env, start(&env, &shared, &list, &["--resume"]));
    assert_eq!((came.code, came.all("state")), (Some(0), vec!["succeeded"; 3]), "{}", came.envelope);
    assert_eq!((&came.result()["resumed"], came.text("3", "stdout")), (&json!(1), "1\nhalf\n"));
    assert_eq!(came.all("id"), ["1", "2", "3"]);
    assert_eq!(alive(&marker), [""; 0]);
    assert_nothing_mounted(&env);
    assert_eq!(env.scratches(), [""; 0]);
    // Nothing is left to do.
    let path = list.to_str().unwrap();
    assert_eq!(refused(&env, &["batch", path, "--resume"]).0, "batch.all_done");
    env.assert_sound();
}

#[test]
fn the_first_interrupt_lets_running_items_finish() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line = ": > $S/begun; while [ ! -e $S/go ]; do sleep 0.02; done; echo 1 > n";
    let list = list(&env, "list.txt", &format!("{line}\ncat n\n"));
    let pauses = Pauses::new(&env.at(""));
    let running = Running::start(pauses.set(&mut command(&env, &shared, &list, &[])));
    let running = shared.wait_for_word(running, "begun");
    ask(&running, &pauses, Signal::INT);
    shared.put("go");
    let came = ended(&env, running);
    assert_eq!(
        (came.code, came.all("state")),
        (Some(130), vec!["succeeded", "not_run"]),
        "{}",
        came.envelope
    );
    assert_eq!(came.result()["stopped"], "interrupted");
    let came = ended(&env, start(&env, &shared, &list, &["--resume"]));
    assert_eq!((came.code, came.text("2", "stdout"), &came.result()["resumed"]), (Some(0), "1\n", &json!(1)));
    assert_once_each(&env, &batch_id(&env), 2);
}

#[test]
fn the_second_interrupt_kills_running_items_and_drops_their_changes() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let line = format!("echo half > half; : {marker}; {ONCE}");
    let list = list(&env, "list.txt", &format!("true\n{line}\n"));
    let pauses = Pauses::new(&env.at(""));
    let running = Running::start(pauses.set(&mut command(&env, &shared, &list, &[])));
    let running = shared.wait_for_word(running, "been");
    ask(&running, &pauses, Signal::INT);
    running.signal(Signal::TERM);
    let came = ended(&env, running);
    assert_eq!(
        (came.code, came.all("state")),
        (Some(130), vec!["succeeded", "not_run"]),
        "{}",
        came.envelope
    );
    assert_eq!(alive(&marker), [""; 0]);
    assert_eq!(env.scratches(), [""; 0]);
    assert_eq!(journal(&env, &batch_id(&env)), [(0, true), (1, false)]);
    let came = ended(&env, start(&env, &shared, &list, &["--resume"]));
    assert_eq!((came.code, came.all("state")), (Some(0), vec!["succeeded"; 2]));
    env.assert_sound();
}

/// The workers of a batch.
fn workers(running: &Running) -> Vec<Pid> {
    children(running.child.id()).into_iter().map(|pid| Pid::from_raw(pid.cast_signed()).unwrap()).collect()
}

#[test]
fn a_killed_worker_fails_only_its_item() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let list = list(&env, "list.txt", &format!("echo 1 > n\n: {marker}; echo half > n; {ONCE}\ncat n\n"));
    let running = shared.wait_for_word(start(&env, &shared, &list, &["--keep-going"]), "been");
    let workers = workers(&running);
    assert_eq!(workers.len(), 1);
    kill_process(workers[0], Signal::KILL).unwrap();
    let came = ended(&env, running);
    assert_eq!(
        (came.code, came.all("state")),
        (Some(1), vec!["succeeded", "error", "succeeded"]),
        "{}",
        came.envelope
    );
    assert_eq!(came.text("2", "code"), "worker.died");
    assert_eq!((came.text("3", "stdout"), &came.result()["stopped"]), ("1\n", &Value::Null));
    assert_eq!(alive(&marker), [""; 0]);
    let came = ended(&env, start(&env, &shared, &list, &["--resume"]));
    assert_eq!((came.code, &came.result()["resumed"]), (Some(0), &json!(2)), "{}", came.envelope);
    // If an attempt is left, the batch does not even have to be resumed.
    std::fs::remove_file(env.at("shared/been")).unwrap();
    let running = shared.wait_for_word(start(&env, &shared, &list, &["--retry", "1"]), "been");
    kill_process(self::workers(&running)[0], Signal::KILL).unwrap();
    let came = ended(&env, running);
    assert_eq!((came.code, &came.item("2")["attempts"]), (Some(0), &json!(2)), "{}", came.envelope);
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}

/// If the vault is missing when a command ends, its changes are captured when the batch is resumed; the command does
/// not run again.
#[test]
fn a_failed_capture_is_completed_on_resume_without_running_the_command_again() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line =
        "echo ran >> $S/ran; echo made > made; : > $S/begun; while [ ! -e $S/go ]; do sleep 0.02; done";
    let list = list(&env, "list.txt", &format!("{line}\ncat made\n"));
    let running = shared.wait_for_word(start(&env, &shared, &list, &["--scratch", "disk"]), "begun");
    let (there, away) = (env.project().join(".avfs"), env.at("away"));
    std::fs::rename(&there, &away).unwrap();
    shared.put("go");
    let answer = running.answer();
    assert_eq!(answer.code, Some(1), "{answer:?}");
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(env.scratches().len(), 1);
    let came = ended(&env, start(&env, &shared, &list, &["--resume"]));
    assert_eq!((came.code, came.text("2", "stdout")), (Some(0), "made\n"), "{}", came.envelope);
    assert_eq!(std::fs::read_to_string(env.at("shared/ran")).unwrap(), "ran\n");
    assert_once_each(&env, &batch_id(&env), 2);
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}

#[test]
fn a_batch_is_resumed_only_with_its_own_list_and_by_one_process() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    // Another process is running this batch. The refusal takes as long as the workers of a killed process may need to
    // end.
    let held = list(&env, "held.txt", ": > $S/begun; while [ ! -e $S/go ]; do sleep 0.02; done\n");
    let holding = shared.wait_for_word(start(&env, &shared, &held, &[]), "begun");
    let resume = ["--json", "batch", held.to_str().unwrap(), "--resume"];
    let waiting = Running::start(env.clean(&avfs()).args(resume));
    let path = list(&env, "list.txt", "true\nfalse\n");
    assert_eq!(batch(&env, &path, &[]).code, Some(1));
    list(&env, "list.txt", "true\ntrue\n");
    let (id, text) = (batch_id(&env), path.to_str().unwrap().to_owned());
    let (code, message) = refused(&env, &["batch", &text, "--resume"]);
    assert_eq!(code, "batch.other_list");
    assert!(message.contains(&id) && message.contains(&text), "{message}");
    assert_eq!(refused(&env, &["batch", &text, "--resume", &id[..5]]).0, "batch.other_list");
    list(&env, "list.txt", "true\nfalse\n");
    assert_eq!(refused(&env, &["batch", &text, "--resume", "--mode", "fan-out"]).0, "usage");
    assert_eq!(batch(&env, &path, &["--resume"]).result()["batch_id"], json!(id));
    assert_eq!(waiting.answer().expect(1).envelope()["error"]["code"], "batch.held");
    shared.put("go");
    holding.answer().expect(0);
}

#[test]
fn a_batch_stopped_by_a_full_disk_can_be_resumed_once_there_is_space() {
    let env = TestEnv::with_project();
    let line = |n: u32| format!("head -c 3000000 /dev/urandom > big; echo {n} >> log\n");
    let list = list(&env, "list.txt", &(1..=3).map(line).collect::<String>());
    let script = r#"
mount -t tmpfs -o size=16m,mode=755 none "$PROJECT" && cd "$PROJECT" && echo hello > README.md
"$AVFS" init > /dev/null 2>&1
head -c 9000000 /dev/zero > .avfs/filler
"$AVFS" --json batch "$LIST" --results "$OUT/first.jsonl" > "$OUT/first"; echo $? > "$OUT/code"
rm .avfs/filler
"$AVFS" --json batch "$LIST" --results "$OUT/results.jsonl" --resume
"$AVFS" fsck > "$OUT/fsck" 2>&1 || exit 99
"#;
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urm", "sh", "-uc", script]).env("AVFS", avfs()).env("RUN", runner());
    command.env("PROJECT", env.project()).env("LIST", &list).env("OUT", env.at("data"));
    let answer = Running::start(&mut command).answer().expect(0);
    let first: Value = serde_json::from_slice(&std::fs::read(env.at("data/first")).unwrap()).unwrap();
    assert_eq!(std::fs::read_to_string(env.at("data/code")).unwrap(), "1\n", "{first}");
    assert_eq!(first["error"]["code"], "batch.stopped", "{first}");
    let why = first["result"]["stopped"].as_str().unwrap();
    assert!(why.contains("full") || why.contains("space"), "{first}");
    let done = first["result"]["counts"]["succeeded"].as_u64().unwrap();
    assert!((1..3).contains(&done), "{first}");
    let second = answer.envelope();
    assert_eq!(
        (&second["result"]["counts"]["succeeded"], second["result"]["resumed"].as_u64() >= Some(done)),
        (&json!(3), true),
        "{second}"
    );
    assert_eq!(lines(&env.at("data/results.jsonl"), "BatchItemResult").len(), 3);
}

/// Runs a command and prints its exit code and its peak memory use in KiB.
const MEASURED: &str = "import resource, subprocess, sys\n\
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\n\
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n";

#[track_caller]
fn measured(env: &TestEnv, words: &[&str]) -> (i32, u64) {
    let mut python = env.clean(Path::new("python3"));
    let output =
        Running::start(python.args(["-c", MEASURED]).arg(avfs()).args(words)).answer().expect(0).text();
    let (code, kib) = output.trim().split_once(' ').unwrap();
    (code.parse().unwrap(), kib.parse().unwrap())
}

const MANY: u64 = 20_000;
const KIB_MAX: u64 = 40 * 1024;

#[test]
fn a_long_list_takes_little_memory() {
    let env = TestEnv::with_project();
    let text: String = (0..MANY).map(|n| format!("test {n} -gt 0\n")).collect();
    let path = list(&env, "list.txt", &text);
    let results = env.at("results.jsonl");
    let words = start_words("batch", &path, &results, &["--mode", "fan-out", "--jobs", "1"]);
    // The first item fails; the others are only listed.
    let (code, kib) = measured(&env, &words);
    assert_eq!(code, 1);
    assert!(kib < KIB_MAX, "{kib} KiB to start it");
    // Record all other items as completed.
    let id = batch_id(&env);
    let vault = crate::support::sql(&env.vault_file());
    let numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)";
    let rows = format!(
        "{numbers} INSERT INTO run (id, fork, state, version_before, version_after, started_at, ended_at, exit_code, \
         request, decision, result) SELECT printf('%010x', n), fork, state, version_before, version_after, \
         started_at, ended_at, 0, request, decision, result FROM run, numbers WHERE run.seq = 1"
    );
    let last = i64::try_from(MANY - 1).unwrap();
    vault.execute(&rows, [last]).unwrap();
    let rows = format!(
        "{numbers} INSERT INTO batch_run (batch, item, run) SELECT ?2, n, printf('%010x', n) FROM numbers"
    );
    vault.execute(&rows, rusqlite::params![last, id]).unwrap();
    drop(vault);
    let mut words = words.clone();
    words.push("--resume");
    let (code, kib) = measured(&env, &words);
    assert_eq!(code, 1);
    assert!(kib < KIB_MAX, "{kib} KiB to resume it");
    let text = std::fs::read_to_string(&results).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\"state\":\"succeeded\"")).count() as u64, MANY - 1);
}

/// Only the beginning and the end of a large output are kept.
#[test]
fn large_outputs_take_little_memory() {
    let env = TestEnv::with_project();
    let path =
        list(&env, "list.txt", &"head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2\n".repeat(2));
    let results = env.at("results.jsonl");
    let words = start_words("batch", &path, &results, &["--mode", "fan-out", "--jobs", "2"]);
    let (running, pauses) = start_held(&env, env.clean(&avfs()).args(&words), "exit");
    let most = crate::support::peak_kib(running.child.id()).unwrap();
    pauses.release("exit");
    assert_eq!(ended(&env, running).code, Some(0));
    assert!(most < 50 * 1024, "{most} KiB");
    assert!(std::fs::metadata(&results).unwrap().len() < 1 << 20);
}
