//! Paths that a capture leaves out: by ignore rules, by policy, or because a vault cannot store them.

use std::fs;

use rustix::fs::{CWD, FileType, Mode};

use avfs_types::diagnose::Diagnose;
use avfs_vault::capture::LeftOutReason;
use avfs_vault::edit::Edit;

use super::{Case, edited, edits, left_out};
use crate::overlay;
use crate::support::path;

#[test]
fn ignore_rules_come_from_the_merged_view() {
    if !overlay::works("ignore_rules_come_from_the_merged_view") {
        return;
    }
    let ignored = |path: &str| (path.to_owned(), LeftOutReason::Ignored, false);
    // An ignore file of the base that is not in the upper.
    let case =
        Case::new("printf '*.log\\n/target/\\n' >.avfsignore; mkdir sub; echo '!keep.log' >sub/.avfsignore");
    case.run(
        "echo x >a.log; mkdir target; echo x >target/x; echo x >sub/b.log; echo x >sub/keep.log; echo x >y",
    );
    let captured = case.capture();
    assert_eq!(left_out(&captured), [ignored("a.log"), ignored("sub/b.log"), ignored("target")]);
    assert_eq!(edited(&case, &captured), [".", "sub", "sub/keep.log", "y"]);
    // One that was changed, one that was removed, one in a recreated directory.
    let case =
        Case::new("echo '*.log' >.avfsignore; mkdir s t; echo '*.tmp' >s/.avfsignore; cp s/.avfsignore t");
    case.run(
        "echo '*.bak' >.avfsignore; rm s/.avfsignore; touch a.log a.bak s/a.tmp; rm -r t; mkdir t; touch t/a.tmp",
    );
    let captured = case.capture();
    assert_eq!(left_out(&captured), [ignored("a.bak")]);
    assert_eq!(
        edited(&case, &captured),
        [".", ".avfsignore", "a.log", "s", "s/.avfsignore", "s/a.tmp", "t", "t/.avfsignore", "t/a.tmp"]
    );
    // An invalid pattern is not applied, and reported; the others are applied.
    let case = Case::new("true");
    case.run("printf '[z-a]\\n*.log\\n' >.avfsignore; touch a.log b; mkdir s; truncate -s 1T s/.avfsignore; touch s/c");
    let captured = case.capture();
    assert_eq!(captured.bad_ignore_files, [path(".avfsignore"), path("s/.avfsignore")]);
    assert_eq!(left_out(&captured), [ignored("a.log")]);
    assert_eq!(edited(&case, &captured), [".", ".avfsignore", "b", "s", "s/.avfsignore", "s/c"]);
}

#[test]
fn paths_versioned_before_an_ignore_rule_stay_versioned() {
    if !overlay::works("paths_versioned_before_an_ignore_rule_stay_versioned") {
        return;
    }
    let case = Case::new(
        "mkdir -p t/in; echo 1 >t/a; echo 2 >t/b; echo 3 >t/in/c; echo 4 >x.log; echo 5 >y.log; echo >z",
    );
    case.run(
        "printf '/t/\\n*.log\\nz\\n' >.avfsignore; echo new >t/a; rm t/b; echo new >t/new; mkdir t/newdir
         echo new >t/in/c; touch t/in/d; echo 6 >x.log; rm y.log; mkdir y.log; rm z; mkdir z",
    );
    let captured = case.capture();
    let left = |path: &str, gone: bool| (path.to_owned(), LeftOutReason::Ignored, gone);
    // A directory replaced a file that the rule matches: the file is deleted, the directory was never versioned.
    let expected = [
        left("t/in/d", false),
        left("t/new", false),
        left("t/newdir", false),
        left("y.log", true),
        left("z", true),
    ];
    assert_eq!(left_out(&captured), expected);
    let expected = [".", ".avfsignore", "t", "t/a", "t/b", "t/in", "t/in/c", "x.log", "y.log", "z"];
    assert_eq!(edited(&case, &captured), expected);
    assert_eq!(edits(&case, &captured)[&path("t/b")], Edit::Remove);
    assert_eq!(edits(&case, &captured)[&path("y.log")], Edit::Remove);
}

#[test]
fn excluded_hidden_and_own_paths_are_named() {
    if !overlay::works("excluded_hidden_and_own_paths_are_named") {
        return;
    }
    let case = Case::new("mkdir h k; echo 1 >h/in; echo 2 >k/in; echo '!no.o' >.avfsignore");
    case.run("touch a.o no.o b; echo x >h/in; touch h/new; rm k/in; mkdir .avfs n; touch .avfs/v n/.avfs; mkdir n/s n/s/.avfs");
    let captured = case.try_capture(&["*.o", "!b"], &["h", "k/in"]).unwrap();
    let left = |path: &str, reason| (path.to_owned(), reason, false);
    let expected = [
        left(".avfs", LeftOutReason::Own),
        left("a.o", LeftOutReason::Excluded),
        left("h", LeftOutReason::Hidden),
        left("k/in", LeftOutReason::Hidden),
        left("n/.avfs", LeftOutReason::Own),
        left("n/s/.avfs", LeftOutReason::Own),
        left("no.o", LeftOutReason::Excluded),
    ];
    assert_eq!(left_out(&captured), expected);
    assert_eq!(edited(&case, &captured), [".", "b", "k", "n", "n/s"]);
    let error = case.try_capture(&["[z-a]"], &[]).err().unwrap();
    assert_eq!(error.code(), "capture.bad_exclude");
}

#[test]
fn paths_that_cannot_be_stored_are_named() {
    if !overlay::works("paths_that_cannot_be_stored_are_named") {
        return;
    }
    let case = Case::new("echo 1 >f; echo 2 >g");
    case.run("rm f; mkfifo pipe");
    // A socket in place of a file, as a command may leave one.
    let _ = fs::remove_file(case.upper.join("f"));
    rustix::fs::mknodat(CWD, case.upper.join("f"), FileType::Socket, Mode::from_raw_mode(0o600), 0).unwrap();
    rustix::fs::mknodat(CWD, case.upper.join("s"), FileType::Socket, Mode::from_raw_mode(0o600), 0).unwrap();
    let captured = case.capture();
    let left = |path: &str, gone| (path.to_owned(), LeftOutReason::Special("socket"), gone);
    assert_eq!(left_out(&captured), [left("f", true), left("s", false)]);
    assert_eq!(edited(&case, &captured), [".", "f", "pipe"]);
    assert_eq!(edits(&case, &captured)[&path("f")], Edit::Remove);
}
