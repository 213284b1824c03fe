//! Batches that were interrupted, killed or stopped: they are gone on with, and nothing is done twice.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, runner, wait_for};
use crate::lists::{
    Came, assert_nothing_mounted, assert_once_each, batch, digests, journal, lines, list, refused,
    start_words,
};
use crate::shared::{Shared, alive, marker};
use crate::support::{Dice, Rounds};

/// A batch that is not waited for; items know the shared directory as `$S`.
fn start(env: &TestEnv, shared: &Shared, list: &Path, words: &[&str]) -> Running {
    let (results, set) = (env.at("results.jsonl"), format!("S={}", shared.text()));
    let mut all = start_words("batch", list, &results, &["--rw", shared.text(), "--env", &set]);
    all.extend(words);
    Running::start(env.clean(&avfs()).args(all))
}

/// Waits for a batch, and for what is told of it.
#[track_caller]
fn ended(env: &TestEnv, running: Running) -> Came {
    Came::of(env, &running.answer(), "BatchItemResult")
}

fn batch_id(env: &TestEnv) -> String {
    env.avfs_result(&["batch", "--list"])["batches"][0]["id"].as_str().unwrap().to_owned()
}

/// Batches that are killed again and again, each time at another moment, until they have come to their end.
const ROUNDS: usize = 4;

#[track_caller]
fn killed_until_done(name: &str, text: &str, words: &[&str], items: usize) {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let list = list(&env, name, &text.replace("MARKER", &marker));
    let begun = Instant::now();
    let whole = ended(&env, start(&env, &shared, &list, words));
    assert_eq!(whole.code, Some(0), "{}", whole.envelope);
    let took = begun.elapsed();
    let content = |item: &Value| digests(&env, item["version"].as_str().unwrap()).1;
    let (mut dice, mut all_kills) = (Dice::seeded(items as u64), 0);
    let mut rounds = Rounds::at_least(ROUNDS);
    while let Some(round) = rounds.next(all_kills > ROUNDS) {
        std::fs::remove_file(env.at("results.jsonl")).unwrap();
        std::fs::remove_file(env.at("shared/log")).unwrap();
        let kills = kill_until_done(&env, &shared, &list, words, &mut dice, took);
        all_kills += kills;
        let batches = env.avfs_result(&["batch", "--list"])["batches"].as_array().unwrap().len();
        assert!(batches > round + 1, "{batches} batches in round {round}");
        assert_once_each(&env, &batch_id(&env), items as u64);
        let mut again = lines(&env.at("results.jsonl"), "BatchItemResult");
        again.sort_by_key(|item| item["item"].as_u64());
        let numbers: Vec<u64> = again.iter().map(|item| item["item"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=items as u64).collect::<Vec<_>>(), "each has one line");
        for (item, before) in again.iter().zip(&whole.items) {
            assert_eq!(content(item), content(before), "{item} and {before}");
        }
        // Only what was killed on its way was run again: two at a time, at most.
        let runs = std::fs::read_to_string(env.at("shared/log")).unwrap().lines().count();
        assert!((items..=items + 2 * kills).contains(&runs), "{runs} runs, {kills} kills");
        assert_eq!(alive(&marker), [""; 0]);
    }
    assert!(all_kills > ROUNDS, "{all_kills} kills");
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
    assert_eq!(env.avfs_result(&["recover", "--list"])["runs"], json!([]));
    env.assert_sound();
}

/// How often it was killed.
#[track_caller]
fn kill_until_done(
    env: &TestEnv,
    shared: &Shared,
    list: &Path,
    words: &[&str],
    dice: &mut Dice,
    took: Duration,
) -> usize {
    let known = env.avfs_result(&["batch", "--list"])["batches"].as_array().unwrap().len();
    let (mut kills, mut words) = (0, words.to_vec());
    loop {
        let mut running = start(env, shared, list, &words);
        std::thread::sleep(took * u32::try_from(dice.below(60)).unwrap() / 100);
        if running.child.try_wait().unwrap().is_none() && kills < 12 {
            kills += 1;
            running.signal(Signal::KILL);
        }
        let answer = running.answer();
        assert_nothing_mounted(env);
        // One that was killed before it was written down is begun anew.
        let batches = env.avfs_result(&["batch", "--list"]);
        if batches["batches"].as_array().unwrap().len() > known && !words.contains(&"--resume") {
            words.push("--resume");
        }
        match (answer.code, answer.signal) {
            (Some(0), _) => return kills,
            (_, Some(9)) => {}
            // It was killed when all was done.
            _ => {
                assert_eq!(answer.envelope()["error"]["code"], "batch.all_done", "{answer:?}");
                return kills;
            }
        }
    }
}

#[test]
fn a_chain_can_be_killed_at_any_moment() {
    let text: String = (1..=7)
        .map(|n| {
            format!(": MARKER; echo {n} >> log; echo {n} >> $S/log; head -c 200000 /dev/zero > big-{n}\n")
        })
        .collect();
    killed_until_done("chain.txt", &text, &["--scratch", "disk"], 7);
}

#[test]
fn a_graph_can_be_killed_at_any_moment() {
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

/// Says that it is there, once; then it does not end before it is killed.
const ONCE: &str = "[ -e $S/been ] || { : > $S/been; sleep 1000; }";

#[test]
fn a_batch_that_an_item_sees_killed_is_gone_on_with() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let list = list(&env, "list.txt", &format!("echo 1 >> n\necho half >> n; : {marker}; {ONCE}\ncat n\n"));
    let running = shared.wait_for_word(start(&env, &shared, &list, &[]), "been");
    running.signal(Signal::KILL);
    assert_eq!(running.answer().signal, Some(9));
    // What a crash may leave: half a line, and what somebody else wrote there.
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
    // Now there is nothing left.
    let path = list.to_str().unwrap();
    assert_eq!(refused(&env, &["batch", path, "--resume"]).0, "batch.all_done");
    env.assert_sound();
}

#[test]
fn the_first_interrupt_lets_what_runs_end() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line = ": > $S/begun; while [ ! -e $S/go ]; do sleep 0.02; done; echo 1 > n";
    let list = list(&env, "list.txt", &format!("{line}\ncat n\n"));
    let running = shared.wait_for_word(start(&env, &shared, &list, &[]), "begun");
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(150));
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
fn the_second_interrupt_kills_and_nothing_of_it_is_kept() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let line = format!("echo half > half; : {marker}; {ONCE}");
    let list = list(&env, "list.txt", &format!("true\n{line}\n"));
    let running = shared.wait_for_word(start(&env, &shared, &list, &[]), "been");
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
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
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap();
    let children =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids = children.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    pids.map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

#[test]
fn a_worker_that_is_killed_costs_its_item_alone() {
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
    // With a try left the batch does not even need to be gone on with.
    std::fs::remove_file(env.at("shared/been")).unwrap();
    let running = shared.wait_for_word(start(&env, &shared, &list, &["--retry", "1"]), "been");
    kill_process(self::workers(&running)[0], Signal::KILL).unwrap();
    let came = ended(&env, running);
    assert_eq!((came.code, &came.item("2")["attempts"]), (Some(0), &json!(2)), "{}", came.envelope);
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}

/// What a command made while nobody could keep it is kept when the batch is gone on with; the command is not run again.
#[test]
fn a_capture_that_failed_is_finished_and_not_run_again() {
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
fn a_batch_is_gone_on_with_by_its_own_list_and_by_one_process() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
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
    // Somebody else is at it.
    let path = list(&env, "held.txt", ": > $S/begun; while [ ! -e $S/go ]; do sleep 0.02; done\n");
    let running = shared.wait_for_word(start(&env, &shared, &path, &[]), "begun");
    assert_eq!(refused(&env, &["batch", path.to_str().unwrap(), "--resume"]).0, "batch.held");
    shared.put("go");
    assert_eq!(ended(&env, running).code, Some(0));
}

#[test]
fn a_full_disk_stops_a_batch_and_room_lets_it_end() {
    let env = TestEnv::with_project();
    let line = |n: u32| format!("head -c 3000000 /dev/urandom > big; echo {n} >> log\n");
    let list = list(&env, "list.txt", &(1..=3).map(line).collect::<String>());
    let script = r#"
mount -t tmpfs -o size=16m none "$PROJECT" && cd "$PROJECT" && echo hello > README.md
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

/// Runs a command and tells how much memory it used at most, in KiB.
const MEASURED: &str = "import resource, subprocess, sys\n\
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\n\
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n";

#[track_caller]
fn measured(env: &TestEnv, words: &[&str]) -> (i32, u64) {
    let mut python = env.clean(Path::new("python3"));
    let told =
        Running::start(python.args(["-c", MEASURED]).arg(avfs()).args(words)).answer().expect(0).text();
    let (code, kib) = told.trim().split_once(' ').unwrap();
    (code.parse().unwrap(), kib.parse().unwrap())
}

const MANY: u64 = 100_000;
const KIB_MAX: u64 = 150 * 1024;

#[test]
fn a_long_list_takes_little_memory() {
    let env = TestEnv::with_project();
    let text: String = (0..MANY).map(|n| format!("test {n} -gt 0\n")).collect();
    let path = list(&env, "list.txt", &text);
    let results = env.at("results.jsonl");
    let words = start_words("batch", &path, &results, &["--mode", "fan-out", "--jobs", "1"]);
    // The first one fails: the others are told of, and that is all.
    let (code, kib) = measured(&env, &words);
    assert_eq!(code, 1);
    assert!(kib < KIB_MAX, "{kib} KiB to begin it");
    // All but that one had been done before.
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
    assert!(kib < KIB_MAX, "{kib} KiB to go on with it");
    let told = std::fs::read_to_string(&results).unwrap();
    assert_eq!(told.lines().filter(|line| line.contains("\"state\":\"succeeded\"")).count() as u64, MANY - 1);
}

/// Large outputs are kept by their ends alone.
#[test]
fn what_commands_write_takes_little_memory() {
    let env = TestEnv::with_project();
    let path =
        list(&env, "list.txt", &"head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2\n".repeat(2));
    let results = env.at("results.jsonl");
    let words = start_words("batch", &path, &results, &["--mode", "fan-out", "--jobs", "2"]);
    let mut command = env.clean(&avfs());
    let mut running = Running::start(command.args(&words));
    let mut most = 0;
    wait_for("its end", || {
        most = most.max(crate::support::peak_kib(running.child.id()).unwrap_or(0));
        running.child.try_wait().unwrap().is_some()
    });
    assert_eq!(ended(&env, running).code, Some(0));
    assert!(most < 50 * 1024, "{most} KiB");
    assert!(std::fs::metadata(&results).unwrap().len() < 1 << 20);
}
