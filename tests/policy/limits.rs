//! Texts crafted to be slow, deep or long: parsing terminates, with a doubt where it stopped.
//!
//! Parsing whose time is exponential, or a high power, of the length of the text takes longer than the test timeout.

use avfs_policy::{COMMANDS_MAX, TEXT_BYTES_MAX};

use crate::shell;

/// Prefixes that may be repeated, and their suffixes.
const NESTING: &[(&str, &str)] = &[
    ("(", ")"),
    ("( ", " )"),
    ("((", "))"),
    ("{ ", "; }"),
    ("$(", ")"),
    ("$((", "))"),
    ("\"$(", ")\""),
    ("${a:-", "}"),
    ("\"${a:-", "}\""),
    ("if ", "; then :; fi"),
    ("while ", "; do :; done"),
    ("for i in x; do ", "; done"),
    ("case x in x) ", ";; esac"),
    ("f() { ", "; }"),
    ("cat <(", ")"),
    ("[[ ( ", " ) ]]"),
    ("! ", ""),
    ("time ", ""),
    ("coproc ", ""),
    ("env ", ""),
    ("sh -c ", ""),
    ("eval ", ""),
    ("{a,", "}"),
    ("`", "`"),
    ("\\`", "\\`"),
    ("a=( ", " )"),
    ("<<E ", "\nE"),
    ("x | ", ""),
    ("x && ", ""),
    ("x & ", ""),
    ("\\\n", ""),
    ("~1", ""),
    ("9", ">x"),
    ("$HOME", ""),
    ("xargs ", ""),
    ("find . -exec ", ""),
];

#[test]
fn deep_nesting_is_read_whether_or_not_it_is_closed() {
    for (open, close) in NESTING {
        for depth in [1, 10, 30, 1_000, 20_000] {
            shell(&format!("{}true{}", open.repeat(depth), close.repeat(depth)));
            shell(&open.repeat(depth));
            shell(&format!("echo {}", open.repeat(depth)));
        }
    }
}

#[test]
fn nesting_beyond_the_limit_is_a_doubt() {
    for text in [
        format!("{}true{}", "( ".repeat(500), " )".repeat(500)),
        format!("echo {}true{}", "$(".repeat(500), ")".repeat(500)),
    ] {
        assert!(!shell(&text).doubts.is_empty());
    }
}

#[test]
fn nesting_of_programs_is_bounded() {
    let words: Vec<&str> = std::iter::repeat_n("env", 5_000).chain(["rm", "x"]).collect();
    assert!(!crate::argv(&words).doubts.is_empty());
    let mut text = "rm x".to_owned();
    for _ in 0..12 {
        text = format!("sh -c '{}'", text.replace('\'', "'\\''"));
        shell(&text);
    }
}

#[test]
fn too_long_text_is_a_doubt() {
    let text = format!("echo {}", "a".repeat(TEXT_BYTES_MAX));
    assert!(!shell(&text).doubts.is_empty());
    let text = format!("echo {}", "a ".repeat(TEXT_BYTES_MAX / 2 - 10));
    assert!(shell(&text).doubts.is_empty());
}

#[test]
fn too_many_commands_are_a_doubt() {
    assert!(shell(&"ls;".repeat(COMMANDS_MAX - 1)).doubts.is_empty());
    let reading = shell(&"ls;".repeat(COMMANDS_MAX * 2));
    assert!(!reading.doubts.is_empty());
    assert!(reading.commands.len() <= COMMANDS_MAX);
}

#[test]
fn brace_expansion_is_bounded() {
    let reading = shell(&format!("echo {}", "{a,b}".repeat(40)));
    assert_eq!(reading.commands[0].words.len(), 2);
    shell(&format!("echo {}", "{".repeat(50_000)));
    shell(&format!("echo {}", "{a,".repeat(50_000)));
}

#[test]
fn overflowing_numbers_are_read_as_words() {
    for text in [
        "99999999999999999999>x",
        "echo ~99999999999999999999/x",
        "echo {1..99999999999999999999}",
        r"echo $'\UFFFFFFFF'",
    ] {
        shell(text);
    }
}

#[test]
fn invalid_utf8_is_a_doubt_in_shell_text_but_not_in_argv() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = std::ffi::OsString::from_vec(b"ls \xff".to_vec());
    let text = crate::reading(&avfs_types::CommandLine::Shell(bytes.clone()));
    assert!(!text.doubts.is_empty());
    let words = crate::reading(&avfs_types::CommandLine::Argv(vec!["ls".into(), bytes]));
    assert!(words.doubts.is_empty());
    assert!(!crate::reading(&avfs_types::CommandLine::Argv(Vec::new())).doubts.is_empty());
}
