//! Lists written by people and by avfs, and every error a list can have.

use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use avfs_request::spec::RunSpec;
use avfs_types::CommandLine;
use avfs_types::diagnose::Diagnose;
use avfs_wire::{LIST_VERSION, ListExpected, ListHeader, ListItem, ListNoise, ListStart, OutputNoise};

use super::*;

struct Listed {
    dir: tempfile::TempDir,
}

impl Listed {
    fn new(text: &[u8]) -> Self {
        let listed = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(listed.path(), text).unwrap();
        listed
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("list")
    }

    fn open(&self) -> Result<ListFile, ListError> {
        ListFile::open(&self.path(), self.dir.path())
    }
}

fn open(text: &[u8]) -> Result<ListFile, ListError> {
    Listed::new(text).open()
}

fn items(list: &ListFile) -> Vec<ListItem> {
    (0..list.len()).map(|number| list.item(number).unwrap()).collect()
}

#[test]
fn list_needs_only_one_command_per_line() {
    let list = open(b"\n# a comment\n{\"command\": [\"true\"]}\n\n{\"command\": \"a | b\", \"needs\": [1]}")
        .unwrap();
    assert_eq!((list.len(), list.header()), (2, None));
    assert_eq!((list.id(0), list.id(1), list.needs(1), list.line(1)), ("1", "2", &[0][..], 5));
    let second = list.item(1).unwrap();
    assert_eq!(second.request.command_line(), Ok(CommandLine::Shell("a | b".into())));
    assert_eq!(request_json(&second).unwrap(), br#"{"command":"a | b"}"#);
}

#[test]
fn plain_text_is_read_as_shell_commands() {
    let list = open(b"#!/bin/sh\r\n  make test\r\n\n\t# no\n{ a; }\necho \xff").unwrap();
    let commands: Vec<_> = items(&list).iter().map(|item| item.request.command_line().unwrap()).collect();
    let odd = std::os::unix::ffi::OsStringExt::from_vec(b"echo \xff".to_vec());
    let line = |text: &str| CommandLine::Shell(text.into());
    assert_eq!(commands, [line("make test"), line("{ a; }"), CommandLine::Shell(odd)]);
    assert_eq!(open(b"").unwrap().len(), 0);
}

#[test]
fn item_accepts_every_key_of_a_request() {
    let text = br#"{"command": ["x"], "cwd": "a", "env": {"A": "b"}, "timeout": "90s", "timeout_ms": null, "memory": "1GiB",
        "net": "allow=example.org", "readonly": true}"#;
    let text = String::from_utf8_lossy(text).replace('\n', " ");
    let item = open(text.as_bytes()).unwrap().item(0).unwrap();
    let request = RunSpec::parse(&request_json(&item).unwrap()).unwrap();
    assert_eq!(request, item.request);
    assert_eq!(request.timeout_ms, Some(None));
    assert_eq!(request, RunSpec::parse(text.as_bytes()).unwrap());
}

#[test]
fn errors_name_the_line() {
    let good = "{\"command\": [\"a\"], \"id\": \"a\"}\n";
    for (line, code, message) in [
        (r#"{"command": ["a"], "nedes": []}"#, "list.malformed", "line 2, column 26: unknown field `nedes`"),
        (r#"{"command": ["a"], "comand": []}"#, "list.malformed", "unknown field `comand`"),
        (r#"{"command": ["a"], "id": "x", "id": "y"}"#, "list.malformed", "duplicate field `id`"),
        (r#"{"command": ["a"]"#, "list.malformed", "line 2, column 17: EOF"),
        (r#"["a"]"#, "list.malformed", "line 2: invalid type: sequence, expected an item"),
        ("make test", "list.malformed", "line 2, column 1: expected value"),
        (r#"{"id": "b"}"#, "list.malformed", "line 2: command: missing"),
        (r#"{"command": []}"#, "list.malformed", "line 2: command: it is empty"),
        (r#"{"command": ["", "x"]}"#, "list.malformed", "line 2: command: it is empty"),
        (r#"{"command": ""}"#, "list.malformed", "line 2: command: it is empty"),
        (
            r#"{"command": ["b"], "net": "all"}"#,
            "list.malformed",
            "line 2, column 32: net: invalid network \"all\"",
        ),
        (
            r#"{"command": ["b"], "memory": "much"}"#,
            "list.malformed",
            "line 2, column 36: memory: invalid size \"much\"",
        ),
        (r#"{"command": ["b"], "retries": -1}"#, "list.malformed", "line 2, column "),
        (
            r#"{"command": ["b"], "start": {"tree": "abc"}}"#,
            "list.malformed",
            "start.tree: expected a digest of 64",
        ),
        (r#"{"command": ["b"], "expected": {"exit_code": 300}}"#, "list.malformed", "expected u8"),
        (
            r#"{"command": ["b"], "expected": {"exit_code": 0, "signal": 9}}"#,
            "list.malformed",
            "exit_code and signal are mutually exclusive",
        ),
        (r#"{"command": ["b"], "noise": {"paths": ["["]}}"#, "list.malformed", "noise.paths: "),
        (
            r#"{"command": ["b"], "noise": {"output": [{"pattern": "("}]}}"#,
            "list.malformed",
            "invalid pattern \"(\": ",
        ),
        (r#"{"command": ["b"], "run": "x"}"#, "list.malformed", "run: "),
        (r#"{"command": ["b"], "id": "b", "needs": ["b"]}"#, "list.malformed", "needs itself"),
        (r#"{"command": ["b"], "id": ""}"#, "list.malformed", "an id may not be empty"),
        (
            r#"{"command": ["b"], "id": "a"}"#,
            "list.duplicate_id",
            "line 2: the id \"a\" is already used on line 1",
        ),
        (r#"{"command": ["b"], "needs": ["c"]}"#, "list.unknown_need", "line 2: \"2\" needs \"c\""),
        (r#"{"avfs_list": 1}"#, "list.malformed", "unknown field `avfs_list`"),
    ] {
        let error = open(format!("{good}{line}\n").as_bytes()).unwrap_err();
        assert_eq!(error.code(), code, "{line}: {error}");
        assert!(error.to_string().contains(message), "{line}: {error}");
    }
    let slip = open(b"{\"command\": [], \"timout\": \"1s\"}").unwrap_err();
    assert!(matches!(&slip, ListError::Line { near: Some(near), .. } if near == "timeout"), "{slip:?}");
    let slip = open(b"{\"cmd\": [\"true\"]}").unwrap_err();
    assert!(matches!(&slip, ListError::Line { near: Some(near), .. } if near == "command"), "{slip:?}");
    let slip = open(b"{\"command\": [], \"need\": []}").unwrap_err();
    assert!(matches!(&slip, ListError::Line { near: Some(near), .. } if near == "needs"), "{slip:?}");
}

#[test]
fn cycle_error_names_the_items() {
    let text = b"{\"command\":\"a\",\"id\":\"a\",\"needs\":[\"b\"]}\n{\"command\":\"b\",\"id\":\"b\",\"needs\":[\"c\"]}\n\
        {\"command\":\"c\",\"id\":\"c\",\"needs\":[\"d\",\"b\"]}\n{\"command\":\"d\",\"id\":\"d\"}\n";
    let error = open(text).unwrap_err();
    assert_eq!(error.code(), "list.cycle");
    assert!(error.to_string().ends_with("in a cycle: b → c → b"), "{error}");
}

#[test]
fn chain_in_reverse_order_is_not_a_cycle() {
    let lines = (1..50_000).map(|n| format!("{{\"command\":\"x\",\"needs\":[{}]}}\n", n + 1));
    let list = open((lines.collect::<String>() + "{\"command\":\"x\"}").as_bytes()).unwrap();
    assert_eq!((list.len(), list.needs(0), list.needs(49_999)), (50_000, &[1][..], &[][..]));
}

#[test]
fn list_of_a_newer_avfs_is_rejected() {
    let error = open(b"{\"avfs_list\": 2, \"more\": {}}\n{\"what\": 1}\n").unwrap_err();
    assert_eq!(error.code(), "list.newer");
    assert!(error.to_string().contains("line 1: recorded by a newer avfs"), "{error}");
    for bad in [&b"{\"avfs_list\": 0}"[..], b"{\"avfs_list\": \"1\"}", b"{\"avfs_list\": 1, \"x\": 1}"] {
        assert_eq!(open(bad).unwrap_err().code(), "list.malformed");
    }
    assert_eq!(open(b"{\"avfs_list\": 1}\n").unwrap().header().unwrap().avfs_list, LIST_VERSION);
}

#[test]
fn line_that_is_too_long_is_not_read_to_its_end() {
    let listed = Listed::new(b"{\"command\":\"");
    let file = std::fs::File::options().append(true).open(listed.path()).unwrap();
    // A hole of 1 TiB: reading all of it would take hours.
    file.set_len(1 << 40).unwrap();
    assert_eq!(listed.open().unwrap_err().code(), "list.too_long");
}

#[test]
fn change_of_the_file_is_detected() {
    let listed = Listed::new(b"true\nfalse\n");
    let list = listed.open().unwrap();
    let mut file = std::fs::File::options().write(true).open(listed.path()).unwrap();
    file.write_all(b"rm x\n").unwrap();
    assert_eq!(list.item(0).unwrap_err().code(), "list.changed");
    assert!(list.item(1).is_ok());
    file.set_len(7).unwrap();
    assert_eq!(list.item(1).unwrap_err().code(), "list.changed");
}

#[test]
fn input_that_cannot_be_read_twice_is_copied_to_an_unnamed_file() {
    let listed = Listed::new(b"");
    let fifo = listed.dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::write(fifo, "true\nfalse\n").unwrap()
    });
    let list = ListFile::open(&fifo, listed.dir.path()).unwrap();
    writer.join().unwrap();
    assert_eq!(list.item(1).unwrap().request.command, json!("false"));
    assert_eq!(std::fs::read_dir(listed.dir.path()).unwrap().count(), 2, "list and fifo");
    let endless = ListFile::open(Path::new("/dev/zero"), listed.dir.path()).unwrap_err();
    assert_eq!(endless.code(), "list.too_long");
    let missing = ListFile::open(Path::new("/no/such/list"), listed.dir.path()).unwrap_err();
    assert_eq!(missing.code(), "list.unreadable");
}

#[test]
fn endless_list_of_valid_items_is_refused() {
    let listed = Listed::new(b"");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let endless = std::thread::spawn(move || {
        let lines = b"true\n".repeat(1 << 12);
        while writer.write_all(&lines).is_ok() {}
    });
    let mut lines = std::io::BufReader::new(reader);
    let error = ListFile::spooled(Path::new("-"), &mut lines, listed.dir.path()).unwrap_err();
    assert_eq!(error.code(), "list.too_long", "{error}");
    drop(lines);
    endless.join().unwrap();
}

#[test]
fn equal_lists_have_equal_digests() {
    let (one, two) = (open(b"true\n").unwrap(), open(b"true \n").unwrap());
    assert_eq!(one.digest(), open(b"true\n").unwrap().digest());
    assert_ne!(one.digest(), two.digest());
    assert_eq!(one.digest().to_hex(), blake3::hash(b"true\n").to_hex().as_str());
}

/// The schema of a kind of line.
fn schema(of: &str) -> jsonschema::Validator {
    let document: Value = serde_json::from_str(avfs_wire::SCHEMA).unwrap();
    let one = json!({ "$ref": format!("#/$defs/{of}"), "$defs": document["$defs"] });
    jsonschema::validator_for(&one).unwrap()
}

#[test]
fn schema_accepts_the_lines_that_are_read() {
    let schema = schema("ListItem");
    let holds = |text: &str| schema.is_valid(&serde_json::from_str(text).unwrap());
    assert!(holds(r#"{"command": ["true"]}"#));
    assert!(holds(
        r#"{"command": "x", "id": "a", "needs": ["b"], "noise": {"mtimes": true}, "timeout_ms": null}"#
    ));
    assert!(holds(r#"{"command": "x", "id": 7, "needs": [1]}"#));
    assert!(!holds(r#"{"command": "x", "nedes": []}"#));
    assert!(!holds(r#"{"command": "x", "expected": {"exit": 1}}"#));
}

fn digest() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[0-9a-f]{64}")
}

fn request() -> impl Strategy<Value = RunSpec> {
    let words = ("\\PC{1,12}", proptest::collection::vec("\\PC{0,12}", 0..3))
        .prop_map(|(program, words)| [vec![program], words].concat());
    let text = || proptest::option::of("\\PC{0,8}");
    let timeout = proptest::option::of(proptest::option::of(any::<u64>()));
    let env = proptest::collection::btree_map("[A-Z]{1,4}", "\\PC{0,8}", 0..3);
    (words, any::<bool>(), text(), timeout, env, any::<bool>()).prop_map(
        |(words, shell, cwd, timeout_ms, env, readonly)| RunSpec {
            command: if shell { Value::from(words.join(" ")) } else { Value::from(words) },
            cwd: cwd.map(Into::into),
            timeout_ms,
            env,
            readonly,
            memory: readonly.then_some(avfs_types::Limit(Some(5))),
            ..RunSpec::default()
        },
    )
}

fn noise() -> impl Strategy<Value = ListNoise> {
    let output = proptest::collection::vec(("[a-z.+]{1,5}", "\\PC{0,5}"), 0..3);
    (any::<bool>(), proptest::collection::vec("[a-z*/]{1,6}", 0..3), output).prop_filter_map(
        "invalid pattern",
        |(mtimes, paths, output)| {
            let output: Vec<_> =
                output.into_iter().map(|(pattern, replace)| OutputNoise { pattern, replace }).collect();
            let valid = output.iter().all(|noise| regex::Regex::new(&noise.pattern).is_ok())
                && paths.iter().all(|path| avfs_types::glob::of_path(path).is_ok());
            valid.then_some(ListNoise { mtimes, paths, output })
        },
    )
}

prop_compose! {
    fn item()(
        request in request(),
        start in proptest::option::of((digest(), digest(), digest())),
        expected in proptest::option::of((any::<u8>(), any::<bool>(), digest(), digest(), digest())),
        noise in proptest::option::of(noise()),
        retries in proptest::option::of(any::<u32>()),
        run in proptest::option::of("[0-9a-f]{10}"),
    ) -> ListItem {
        ListItem {
            start: start.map(|(version, tree, content)| ListStart { version, tree, content }),
            expected: expected.map(|(code, killed, stdout, tree, version)| ListExpected {
                exit_code: (!killed).then_some(code),
                signal: killed.then_some(code),
                stdout,
                tree,
                version,
                ..ListExpected::default()
            }),
            noise,
            retries,
            run,
            request,
            ..ListItem::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("AVFS_TEST_LONG").is_some() { 256 } else { 64 }))]

    #[test]
    fn written_list_reads_back_unchanged(mut written in proptest::collection::vec(item(), 0..8)) {
        let count = written.len();
        for (number, item) in written.iter_mut().enumerate() {
            item.id = format!("#{number} \"ä\"");
            // Needs may name later items: the order of a list has no meaning.
            item.needs = (number + 1..count).map(|need| format!("#{need} \"ä\"")).collect();
        }
        let header = ListHeader { avfs_list: LIST_VERSION, at: Some("/w".to_owned()), ..ListHeader::default() };
        let mut writer = ListWriter::new(Vec::new(), &header).unwrap();
        written.iter().for_each(|item| writer.item(item).unwrap());
        let text = writer.finish().unwrap();
        let list = open(&text).unwrap();
        prop_assert_eq!(list.header(), Some(&header));
        for (number, item) in items(&list).iter().enumerate() {
            prop_assert_eq!(item, &written[number]);
            prop_assert_eq!(list.id(number), &item.id);
            let request = RunSpec::parse(&request_json(item).unwrap()).unwrap();
            prop_assert_eq!(&request, &item.request);
        }
        // The schema must agree.
        let schema = schema("ListItem");
        for line in text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty()) {
            let line: Value = serde_json::from_slice(line).unwrap();
            prop_assert!(schema.is_valid(&line), "{}", line);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = open(&bytes);
        let _ = open(&[b"{\"command\":", bytes.as_slice(), b"}"].concat());
    }

    #[test]
    fn arbitrary_objects_do_not_panic(text in "(\\{\"(avfs_list|command|needs|id|start|noise)\": ?(1|\"a\"|\\[\"1\"\\]|\\{\\}|null)[,}]\n?){0,6}") {
        let _ = open(text.as_bytes());
    }
}

/// Memory that a separate process needs for a long list.
#[test]
fn long_list_needs_little_memory() {
    const VARIABLE: &str = "AVFS_TEST_LONG_LIST";
    if let Some(path) = std::env::var_os(VARIABLE) {
        let list = ListFile::open(Path::new(&path), Path::new("/")).unwrap();
        assert_eq!((list.len(), list.needs(24_999)), (25_000, &[24_998][..]));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 20_000, "{peak} KiB");
        return;
    }
    let listed = Listed::new(b"");
    let file = std::fs::File::create(listed.path()).unwrap();
    let mut writer =
        ListWriter::new(std::io::BufWriter::new(file), &ListHeader { avfs_list: 1, ..Default::default() })
            .unwrap();
    let digest = Some("ab".repeat(32));
    for number in 0..25_000_u32 {
        let command = json!(["sh", "-c", format!("echo {number} > file-{number}")]);
        writer
            .item(&ListItem {
                id: format!("{number:010x}"),
                needs: number.checked_sub(1).map(|need| format!("{need:010x}")).into_iter().collect(),
                start: Some(ListStart {
                    version: digest.clone(),
                    tree: digest.clone(),
                    content: digest.clone(),
                }),
                request: RunSpec { command, ..RunSpec::default() },
                ..ListItem::default()
            })
            .unwrap();
    }
    writer.finish().unwrap();
    let test = std::env::current_exe().unwrap();
    let name = "list::tests::long_list_needs_little_memory";
    let mut child = std::process::Command::new(test);
    child.args(["--exact", name, "--nocapture"]).env(VARIABLE, listed.path());
    let output = child.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("1 passed"), "the child must run the test: {printed}");
}
