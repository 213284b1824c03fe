//! What people read: hints of usage errors.

use serde_json::json;

use crate::env::TestEnv;

#[test]
fn options_of_other_tools_are_answered_with_the_option_that_was_meant() {
    let env = TestEnv::with_project();
    env.put("list.txt", b"true\n");
    for (options, hint) in [
        (&["--net", "github.com"][..], "--net allow=github.com"),
        (&["--net=*.npmjs.org,10.0.0.0/8:5432"], "--net allow=*.npmjs.org,10.0.0.0/8:5432"),
        (&["--network", "host"], "--net host"),
        (&["--network=github.com"], "--net allow=github.com"),
        (&["--profile", "agent"], "--policy agent"),
        (&["--policy", "strict"], "--profile strict"),
    ] {
        let hint = format!("did you mean: {hint}");
        let run = env.run(&[options, &["--", "true"]].concat()).expect(125);
        assert!(run.stderr.ends_with(&format!("\nhint: {hint}\n")), "{run:?}");
        let json = env.run(&[&["--json"], options, &["--", "true"]].concat()).expect(125).envelope();
        assert_eq!(json["error"]["hint"], json!(hint), "{json}");
        let batch = env.avfs(&[&["batch", "list.txt"], options].concat()).expect(2);
        assert!(batch.stderr.ends_with(&format!("\nhint: {hint}\n")), "{batch:?}");
        let json = env.avfs(&[&["--json", "batch", "list.txt"], options].concat()).expect(2).envelope();
        assert_eq!(json["error"]["hint"], json!(hint), "{json}");
    }
    let line = env.run(&["-c", "ls | wc -l"]).expect(125);
    assert!(line.stderr.ends_with("\nhint: did you mean: --shell LINE\n"), "{line:?}");
    let line = env.avfs(&["policy", "check", "-c", "ls"]).expect(2);
    assert!(line.stderr.ends_with("\nhint: did you mean: --shell LINE\n"), "{line:?}");
}

/// clap's advice leads to a command of that name.
#[test]
fn no_usage_error_advises_to_pass_an_option_as_an_argument() {
    let env = TestEnv::with_project();
    for words in
        [&["apply", "--forse"][..], &["fork", "delete", "--force1", "x"], &["-x"], &["log", "--limt", "3"]]
    {
        let refused = env.avfs(words).expect(2);
        assert!(!refused.stderr.contains("as a value") && !refused.stderr.contains("\n\n\n"), "{refused:?}");
    }
    let refused = env.run(&["--netw", "host", "--", "true"]).expect(125);
    assert!(!refused.stderr.contains("as a value"), "{refused:?}");
    assert!(refused.stderr.contains("tip: a similar argument exists: '--net'"), "{refused:?}");
}
