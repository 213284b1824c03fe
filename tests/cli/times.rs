//! Times are printed and parsed in the local time zone.

use std::path::Path;

use crate::env::{Answer, TestEnv};
use crate::support::skip;

const ZONE: &str = "America/New_York";

/// The output of a command in the zone.
fn there(env: &TestEnv, words: &[&str]) -> String {
    let answer = Answer::of(env.avfs(words).env("TZ", ZONE));
    assert_eq!(answer.code, 0, "{words:?}: {answer:?}");
    answer.stdout
}

/// The first time like `2026-01-31 12:00:00` in a text.
fn time_in(text: &str) -> &str {
    let at = text.find(":").expect("a time") - "2026-01-31 12".len();
    &text[at..at + "2026-01-31 12:00:00".len()]
}

#[test]
fn times_are_local_and_printed_times_are_accepted() {
    if !Path::new("/usr/share/zoneinfo").join(ZONE).exists() {
        return skip("times_are_local_and_printed_times_are_accepted", "the system has no time zones");
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
    // Read in the zone, that time in UTC is in the future.
    assert_eq!(there(&env, &["audit", "export", "--since", time_in(&log_utc)]), "");
    env.refused(&["audit", "list", "--since", "yesterday"], 2, "value.invalid");
}
