//! Times are told and taken where people are.

use std::path::Path;

use crate::env::{Answer, TestEnv};
use crate::support::skip;

const ZONE: &str = "America/New_York";

/// What a command answers in the zone.
fn there(env: &TestEnv, words: &[&str]) -> String {
    let answer = Answer::of(env.avfs(words).env("TZ", ZONE));
    assert_eq!(answer.code, 0, "{words:?}: {answer:?}");
    answer.stdout
}

/// `2026-01-31 12:00:00`, wherever it stands in a line.
fn time_in(text: &str) -> &str {
    let at = text.find(":").expect("a time") - "2026-01-31 12".len();
    &text[at..at + "2026-01-31 12:00:00".len()]
}

#[test]
fn times_are_local_and_what_is_shown_can_be_asked_for() {
    if !Path::new("/usr/share/zoneinfo").join(ZONE).exists() {
        return skip("times_are_local_and_what_is_shown_can_be_asked_for", "the system has no time zones");
    }
    let env = TestEnv::with_project();
    let (log, log_utc) = (there(&env, &["log"]), env.ok(&["log"]));
    assert_ne!(time_in(&log), time_in(&log_utc), "New York is never at UTC");
    let info = there(&env, &["vault", "info"]);
    let created = info.lines().find(|line| line.starts_with("created ")).unwrap();
    assert_eq!(time_in(created)[..10], time_in(&log)[..10]);
    let shown = time_in(&log);
    for since in [shown, &shown[..10]] {
        let rows = there(&env, &["audit", "list", "--since", since, "--action", "version"]);
        assert_eq!(rows.is_empty(), there(&env, &["audit", "list", "--action", "version"]).is_empty());
        assert!(!there(&env, &["audit", "export", "--since", since]).is_empty(), "{since}");
    }
    // By the clock of UTC that time is yet to come.
    assert_eq!(there(&env, &["audit", "export", "--since", time_in(&log_utc)]), "");
    env.refused(&["audit", "list", "--since", "yesterday"], 2, "value.invalid");
}
