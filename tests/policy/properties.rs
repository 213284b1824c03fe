//! Properties of parsing commands: it terminates, is deterministic, and nothing around a command makes it less strict.

use proptest::prelude::*;

use crate::corpus::texts;
use crate::{argv, is_as_strict, shell};

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Fragments of shell that have a meaning together.
fn shell_like() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "rm",
        "ls",
        "sh",
        "-c",
        "echo",
        "x",
        " ",
        " ",
        " ",
        ";",
        "&",
        "|",
        "&&",
        "||",
        "(",
        ")",
        "{",
        "}",
        "$(",
        "`",
        "'",
        "\"",
        "\\",
        "$",
        "${",
        "}",
        "$((",
        "))",
        "<<E",
        "\nE\n",
        "\n",
        "<",
        ">",
        ">>",
        ">&",
        "<(",
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "case",
        "esac",
        ";;",
        "while",
        "function",
        "f()",
        "[[",
        "]]",
        "!",
        "time",
        "=",
        "a=",
        "#",
        "*",
        "~",
        "{a,b}",
        "$'",
        "\\x",
        "eval",
        "env",
        "find . -exec",
        "xargs",
        "git -c",
        "sed",
        "awk",
        "tar",
        "--",
        "1",
        "@",
        "%",
        "é",
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

/// A text of the corpus with a few characters changed.
fn changed() -> impl Strategy<Value = String> {
    let places = prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            prop::sample::select(r#" ;&|(){}$`'"\<>#=~*!ax"#.chars().collect::<Vec<_>>()),
        ),
        1..4,
    );
    (prop::sample::select(texts()), places).prop_map(|(text, places)| {
        let mut characters: Vec<char> = text.chars().collect();
        for (place, character) in places {
            let at = place.index(characters.len() + 1);
            characters.insert(at, character);
        }
        characters.into_iter().collect()
    })
}

/// More with `scripts/test --long`.
fn cases() -> u32 {
    if std::env::var_os("AVFS_TEST_LONG").is_some() { 10_000 } else { 1_000 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_of_any_text_is_deterministic(text in ".{0,200}") {
        prop_assert_eq!(shell(&text), shell(&text));
    }

    #[test]
    fn reading_of_any_argv_is_deterministic(words in prop::collection::vec("(rm|env|sh|-c|find|-exec|;|git|-o|sed|tar|xargs|awk|sudo|ssh|timeout|.{0,8})", 0..12)) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        prop_assert_eq!(argv(&words), argv(&words));
    }

    #[test]
    fn shell_like_text_is_read_as_by_another_parser(text in shell_like()) {
        prop_assert_eq!(shell(&text), shell(&text));
        let agrees = crate::shells::agrees(&text);
        prop_assert!(agrees.is_ok(), "{agrees:?}");
    }

    #[test]
    fn reading_of_a_mutated_command_is_deterministic(text in changed()) {
        prop_assert_eq!(shell(&text), shell(&text));
    }

    #[test]
    fn list_is_as_strict_as_its_parts(first in prop::sample::select(texts()), second in prop::sample::select(texts())) {
        // The end of a text may change the text that follows; quoted and on its own line it does not.
        let (one, two) = (shell(&first), shell(&second));
        let both = shell(&format!("{}\n{}", quoted_shell(&first), quoted_shell(&second)));
        prop_assert!(is_as_strict(&both, &one), "{first:?} and {second:?}: {both:?}");
        prop_assert!(is_as_strict(&both, &two), "{first:?} and {second:?}: {both:?}");
    }
}

fn quoted_shell(text: &str) -> String {
    format!("sh -c {}", quoted(text))
}

/// Ways to run a text that is embedded verbatim in a larger one; the text must be complete.
fn around(text: &str) -> Vec<String> {
    vec![
        format!("( {text}\n)"),
        format!("{{ {text}\n}}"),
        format!("if true; then {text}\nfi"),
        format!("if {text}\nthen true; fi"),
        format!("while {text}\ndo true; done"),
        format!("for i in 1; do {text}\ndone"),
        format!("case x in x) {text}\n;; esac"),
        format!("echo \"$({text}\n)\""),
        format!("x=$({text}\n)"),
        format!("cat <({text}\n)"),
        format!("{text}\ntrue"),
        format!("true; {text}"),
        format!("true && {{ {text}\n}}"),
        format!("{{ {text}\n}} | cat"),
        format!("{{ {text}\n}} > /dev/null 2>&1"),
        format!("! {{ {text}\n}}"),
        format!("f() {{ {text}\n}}; f"),
        format!("cat <<THE_END\n$({text}\n)\nTHE_END"),
    ]
}

/// Ways to pass a text to a program that runs it.
fn handed_on(text: &str) -> Vec<String> {
    let text = quoted(text);
    vec![
        format!("sh -c {text}"),
        format!("bash -c {}", quoted(&format!("sh -c {text}"))),
        format!("timeout 5 sh -c {text}"),
        format!("env A=1 sh -c {text}"),
        format!("nice -n 3 nohup sh -c {text}"),
        format!("eval {text}"),
        format!("trap {text} EXIT"),
        format!("find . -exec sh -c {text} _ {{}} \\;"),
        format!("xargs sh -c {text}"),
        format!("sudo sh -c {text}"),
        format!("watch {text}"),
        format!("alias x={text}"),
    ]
}

#[test]
fn nothing_around_a_command_makes_it_less_strict() {
    let mut wrong = Vec::new();
    for text in texts() {
        let alone = shell(&text);
        let mut wrapped = handed_on(&text);
        // An incomplete or empty text changes its meaning with more text after it.
        if alone.doubts.is_empty() && !text.is_empty() && !text.starts_with('#') {
            wrapped.extend(around(&text));
        }
        for wrapped in wrapped {
            let reading = shell(&wrapped);
            if !is_as_strict(&reading, &alone) {
                let (more, less) = (alone.categories(), reading.categories());
                wrong.push(format!("{wrapped:?}: {less:?} is less strict than {more:?} {:?}", alone.doubts));
            }
        }
    }
    let shown: Vec<_> = wrong.iter().take(20).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} wrapped commands:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn argv_is_as_strict_behind_a_wrapper() {
    let wrappers: &[&[&str]] = &[
        &["env"],
        &["env", "A=1"],
        &["timeout", "5"],
        &["nice", "-n", "1"],
        &["nohup"],
        &["setsid"],
        &["command"],
        &["stdbuf", "-oL"],
        &["sudo", "-u", "x"],
        &["busybox"],
        &["xargs"],
        &["time"],
        &["strace", "-f"],
        &["flock", "l"],
        &["chroot", "/x"],
    ];
    let commands: &[&[&str]] = &[
        &["rm", "x"],
        &["sh", "-c", "rm x"],
        &["curl", "x"],
        &["sort", "-o", "a", "b"],
        &["git", "push"],
        &["docker", "ps"],
        &["cp", "a", "/etc/b"],
        &["vim"],
        &["find", ".", "-delete"],
        &["bash", "-c", "$x"],
    ];
    for wrapper in wrappers {
        // The argument that `xargs` appends is the target of `cp`.
        for command in commands.iter().filter(|command| !(wrapper[0] == "xargs" && command[0] == "cp")) {
            let both = [*wrapper, *command].concat();
            assert!(is_as_strict(&argv(&both), &argv(command)), "{both:?}");
        }
    }
}
