//! Texts made to be slow, deep or long: the reading ends, with a doubt where it stopped.
//!
//! A reading that takes a time exponential in its text, or a high power of it, takes longer than a test may.

use avfs_policy::{COMMANDS_MAX, TEXT_BYTES_MAX};

use crate::shell;

/// Beginnings that may be repeated, and ends for them.
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
fn nesting_is_read_however_deep_whether_it_is_closed_or_not() {
    for (open, close) in NESTING {
        for depth in [1, 10, 30, 1_000, 20_000] {
            shell(&format!("{}true{}", open.repeat(depth), close.repeat(depth)));
            shell(&open.repeat(depth));
            shell(&format!("echo {}", open.repeat(depth)));
        }
    }
}

#[test]
fn what_is_nested_too_deep_is_a_doubt() {
    for text in [
        format!("{}true{}", "( ".repeat(500), " )".repeat(500)),
        format!("echo {}true{}", "$(".repeat(500), ")".repeat(500)),
    ] {
        assert!(!shell(&text).doubts.is_empty());
    }
}

#[test]
fn programs_within_programs_end_somewhere() {
    let words: Vec<&str> = std::iter::repeat_n("env", 5_000).chain(["rm", "x"]).collect();
    assert!(!crate::argv(&words).doubts.is_empty());
    let mut text = "rm x".to_owned();
    for _ in 0..12 {
        text = format!("sh -c '{}'", text.replace('\'', "'\\''"));
        shell(&text);
    }
}

#[test]
fn a_text_that_is_too_long_is_a_doubt() {
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
fn braces_do_not_multiply_without_end() {
    let reading = shell(&format!("echo {}", "{a,b}".repeat(40)));
    assert_eq!(reading.commands[0].words.len(), 2);
    shell(&format!("echo {}", "{".repeat(50_000)));
    shell(&format!("echo {}", "{a,".repeat(50_000)));
}

#[test]
fn numbers_that_fit_nowhere_are_words() {
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
fn what_is_no_utf_8_is_read_as_words_and_not_as_text() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = std::ffi::OsString::from_vec(b"ls \xff".to_vec());
    let text = crate::reading(&avfs_types::CommandLine::Shell(bytes.clone()));
    assert!(!text.doubts.is_empty());
    let words = crate::reading(&avfs_types::CommandLine::Argv(vec!["ls".into(), bytes]));
    assert!(words.doubts.is_empty());
    assert!(!crate::reading(&avfs_types::CommandLine::Argv(Vec::new())).doubts.is_empty());
}
