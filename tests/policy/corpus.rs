//! The corpus: commands with their expected categories.

use std::fmt::Write;

use serde::Deserialize;

use avfs_policy::{Category, Reading};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    group: Vec<Group>,
}

/// Similar commands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The kind of these commands, or how they try to evade classification.
    note: String,
    is: Vec<String>,
    #[serde(default)]
    doubt: bool,
    #[serde(default)]
    pub shell: Vec<String>,
    #[serde(default)]
    pub argv: Vec<Vec<String>>,
}

pub fn groups() -> Vec<Group> {
    toml::from_str::<Corpus>(include_str!("corpus.toml")).unwrap().group
}

/// Every shell text of the corpus.
pub fn texts() -> Vec<String> {
    groups().into_iter().flat_map(|group| group.shell).collect()
}

fn compare(group: &Group, shown: &str, found: &Reading, wrong: &mut String) {
    let categories: Vec<&str> = found.categories().iter().map(Category::word).collect();
    let doubt = !found.doubts.is_empty();
    if categories != group.is || doubt != group.doubt {
        writeln!(
            wrong,
            "{shown:?} ({})\n    expected {:?} doubt={}\n    found    {categories:?} {:?}",
            group.note, group.is, group.doubt, found.doubts
        )
        .unwrap();
    }
}

#[test]
fn every_command_of_the_corpus_has_its_expected_categories() {
    let (mut wrong, mut count) = (String::new(), 0);
    for group in groups() {
        for text in &group.shell {
            compare(&group, text, &crate::shell(text), &mut wrong);
            count += 1;
        }
        for words in &group.argv {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            compare(&group, &words.join(" "), &crate::argv(&words), &mut wrong);
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are not as expected:\n{wrong}", wrong.lines().count() / 3);
    assert!(count >= 350, "the corpus has only {count} commands");
}

#[test]
fn every_category_has_a_reason() {
    for text in texts() {
        for command in crate::shell(&text).commands {
            assert!(!command.words.is_empty(), "{text}");
            assert!(!command.categories.is_empty(), "{text}");
            for category in command.categories.iter() {
                assert!(
                    command.findings.iter().any(|finding| finding.category == category),
                    "{text}: {category}"
                );
            }
            let (reads, writes) = (
                command.categories.contains(Category::ReadOnly),
                command.categories.contains(Category::Mutating),
            );
            assert!(reads != writes, "{text}: neither read_only nor mutating, or both");
            assert!(writes || !command.categories.contains(Category::Destructive), "{text}");
        }
    }
}
