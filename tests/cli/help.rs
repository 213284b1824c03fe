//! Help, manual pages and completions: every verb has them.

use crate::env::TestEnv;

/// Every verb as the words that call it, from the names of the manual pages.
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
        assert!(examples.contains("avfs "), "{verb:?}: {examples:?}");
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let env = TestEnv::new();
    for verb in verbs(&env) {
        let mut words = vec!["man".to_owned()];
        words.extend(verb);
        let page = env.ok(&words);
        assert!(page.contains(".SH NAME") && page.contains("Examples:"), "{words:?}");
    }
    env.refused(&["man", "nonsense"], 1, "man.unknown_verb");
}

#[test]
fn completions_are_made_for_each_shell() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(env.ok(&["completions", shell]).contains("checkpoint"), "{shell}");
    }
}
