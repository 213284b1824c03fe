//! Every verb has help, a manual page and completions.

use crate::env::{Answer, TestEnv, binary};

/// The words of every verb, from the names of the manual pages.
fn verbs(env: &TestEnv) -> Vec<Vec<String>> {
    let dir = env.at("man");
    let written = env.result(&["man".as_ref(), "--dir".as_ref(), dir.as_os_str()]);
    let pages = written["pages"].as_array().unwrap();
    let words = |page: &serde_json::Value| -> Vec<String> {
        let name = page["name"].as_str().unwrap().strip_suffix(".1").unwrap().to_owned();
        name.split('-').skip(1).map(str::to_owned).collect()
    };
    pages.iter().map(words).collect()
}

#[test]
fn every_verb_has_help_with_an_example() {
    let env = TestEnv::new();
    let verbs = verbs(&env);
    assert!(verbs.len() > 45, "only {} verbs", verbs.len());
    for mut verb in verbs {
        verb.push("--help".to_owned());
        let help = env.ok(&verb);
        let (_, examples) =
            help.split_once("Examples:\n").unwrap_or_else(|| panic!("{verb:?} has no example"));
        assert!(examples.contains("  avfs"), "{verb:?}: {examples:?}");
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let env = TestEnv::new();
    for verb in verbs(&env) {
        let mut words = vec!["man".to_owned()];
        words.extend(verb);
        let page = env.ok(&words);
        assert!(page.contains(".SH NAME") && page.contains(".SH EXAMPLES\n  "), "{words:?}: {page}");
        assert!(!page.contains("help(1)"), "{words:?} refers to a page that does not exist");
    }
    env.refused(&["man", "nonsense"], 1, "man.unknown_verb");
}

/// Removes roff escapes.
fn plain(line: &str) -> String {
    [("\\fB", ""), ("\\fR", ""), ("\\-", "-"), ("\\&", "")]
        .iter()
        .fold(line.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[test]
fn manual_page_and_help_show_the_same_synopsis() {
    let env = TestEnv::new();
    // The help of `avfs run` is that of avfs-run.
    for verb in verbs(&env).into_iter().filter(|verb| *verb != ["run"]) {
        let page = env.ok(&[&["man".to_owned()], verb.as_slice()].concat());
        let (_, synopsis) = page.split_once(".SH SYNOPSIS\n").unwrap();
        let (synopsis, _) = synopsis.split_once(".SH ").unwrap();
        let synopsis: Vec<String> = synopsis.lines().filter(|line| *line != ".br").map(plain).collect();
        let help = env.ok(&[verb.as_slice(), &["--help".to_owned()]].concat());
        let (_, usage) = help.split_once("Usage: ").unwrap();
        let usage: Vec<&str> = usage.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        assert_eq!(synopsis, usage, "{verb:?}");
    }
    let page = plain(&env.ok(&["man", "diff"]));
    assert!(page.contains("avfs diff [OPTIONS] [A] [B] [-- <PATH>...]\n"), "{page}");
}

#[test]
fn completions_are_generated_for_each_shell() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = env.ok(&["completions", shell]);
        for verb in ["checkpoint", "batch", "replay", "record", "cache", "bisect", "race"] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
        let script = env.ok(&["completions", shell, "avfs-run"]);
        for option in ["net", "fork", "shell", "json-fd"] {
            assert!(script.contains(option), "{shell}: {option}");
        }
    }
}

/// The commands in the examples of a verb.
fn examples(env: &TestEnv, verb: &[String]) -> Vec<String> {
    let help = env.ok(&[verb, &["--help".to_owned()]].concat());
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let lines = examples
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("avfs ") || line.starts_with("mkdir "));
    lines.map(str::to_owned).collect()
}

#[test]
fn help_examples_are_valid_command_lines() {
    let env = TestEnv::new();
    let dir = binary().parent().unwrap().to_owned();
    let path = std::env::join_paths([dir, "/usr/bin".into(), "/bin".into()]).unwrap();
    let mut tried = 0;
    // Examples of `avfs run` and `avfs proxy exec` would execute commands.
    for verb in
        verbs(&env).iter().filter(|verb| !["run", "proxy"].contains(&verb.first().map_or("", String::as_str)))
    {
        // There is no vault here: most lines report that.
        let alone = TestEnv::new();
        // An argument in $(…) comes from a file that another command wrote.
        let examples = examples(&env, verb).into_iter();
        for example in examples.filter(|line| !line.starts_with("avfs run") && !line.contains("$(")) {
            let mut shell = alone.clean("/bin/sh".as_ref());
            let answer = Answer::of(shell.args(["-c", &example]).env("PATH", &path));
            let is_usage = ["Usage: ", " has no command ", "unexpected argument", "invalid value"]
                .iter()
                .any(|text| answer.stderr.contains(text));
            assert!(answer.code != 2 && !is_usage, "{example}: {answer:?}");
            assert!(!answer.stderr.contains("Directory nonexistent"), "{example}: {answer:?}");
            tried += 1;
        }
    }
    assert!(tried > 90, "only {tried} examples");
}

#[test]
fn help_and_hints_point_to_the_runner() {
    let env = TestEnv::new();
    assert!(env.ok(&["help", "--help"]).contains("Usage: avfs"));
    assert!(env.ok(&["help", "fork", "--help"]).contains("Usage: avfs fork"));
    assert!(env.ok(&["run", "--help"]).contains("Usage: avfs-run"));
    let refusal = env.refused(&["exec", "--", "ls"], 2, "usage");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("avfs run -- COMMAND"), "{refusal}");
    let refusal = env.refused(&["man", "avfs-run"], 1, "man.unknown_verb");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("avfs-run --man"), "{refusal}");
    env.run(&["man".as_ref(), "--dir".as_ref(), env.at("pages").as_os_str()]);
    let page = std::fs::read_to_string(env.at("pages/avfs-run.1")).unwrap();
    assert!(page.contains(".TH avfs-run 1") && page.contains("scratch"), "{page}");
}

#[test]
fn help_refers_to_nothing_that_a_package_lacks() {
    let env = TestEnv::new();
    for words in [&["--help"][..], &["batch", "--help"], &["replay", "--help"], &["race", "--help"]] {
        assert!(!env.ok(words).contains("docs/"), "{words:?}");
    }
    assert!(!env.ok(&["record", "export", "--help"]).contains("docs/"));
    let text = env.ok(&["--help"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("versions of a directory, the bound directory: the one for which"), "{text}");
}

#[test]
fn help_of_rare_verbs_says_when_to_use_them() {
    let env = TestEnv::new();
    for verb in ["prune", "recover", "doctor"] {
        let text = env.ok(&[verb, "--help"]);
        let (before, examples) = text.split_once("Examples:\n").unwrap();
        assert!(before.contains("Use it ") && examples.contains("  # "), "{text}");
    }
}
