//! The documents: commands print the output that is shown, links resolve, and the picture is current.

use std::path::PathBuf;
use std::process::Command;

use crate::env::{Answer, binary};

#[track_caller]
fn check(script: &str, arguments: &[&str]) {
    let scripts = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts"));
    let mut command = Command::new("python3");
    command.arg("-B").arg(scripts.join(script)).args(arguments).env("AVFS_BIN", binary().parent().unwrap());
    let answer = Answer::of(command);
    assert_eq!(answer.code, 0, "{answer:?}");
}

#[test]
fn commands_print_what_the_documents_show() {
    check("examples", &[]);
}

#[test]
fn links_lead_to_files_and_headings() {
    check("links", &[]);
}

#[test]
fn picture_of_the_readme_is_current() {
    check("picture", &["--check"]);
}
