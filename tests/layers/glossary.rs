//! The glossary and the code agree: every verb of `avfs` has an entry, and every public type of the vault is in the
//! table at its end, with the first sentence of its documentation.
//!
//! `AVFS_GOLDEN_REGENERATE=1 cargo test -p avfs --test layers glossary` writes the table.

use std::path::Path;

use super::{root, source_files};

const HEADING: &str = "## Types of avfs-vault\n";

/// Each public type of the vault: its name, its file, and the first sentence of its documentation.
fn vault_types(root: &Path) -> Vec<(String, String, String)> {
    let mut files = Vec::new();
    source_files(&root.join("src/vault/src"), &mut files);
    files.sort();
    let mut types = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let mut documentation = String::new();
        for line in source.lines() {
            if let Some(text) = line.strip_prefix("///") {
                documentation.push_str(text);
            } else if let Some(name) = type_name(line) {
                let place = file.strip_prefix(root.join("src/vault/src")).unwrap().display().to_string();
                types.push((name.to_owned(), place, first_sentence(&documentation)));
                documentation.clear();
            } else if !line.starts_with("#[") {
                documentation.clear();
            }
        }
    }
    types.sort();
    types
}

fn type_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Without the brackets of rustdoc links.
fn first_sentence(text: &str) -> String {
    let sentence = text.trim().split_inclusive(". ").next().unwrap_or_default();
    sentence.trim().trim_end_matches('.').replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

fn table(types: &[(String, String, String)]) -> String {
    let row = |(name, place, sentence): &(String, String, String)| {
        format!("| `{name}` | `{place}` | {sentence} |\n")
    };
    let rows: String = types.iter().map(row).collect();
    format!("| type | in `src/vault/src` | what it is |\n|---|---|---|\n{rows}")
}

#[test]
fn every_public_type_of_the_vault_is_in_the_glossary() {
    let root = root();
    let path = root.join("docs/GLOSSARY.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let types = vault_types(&root);
    assert!(types.len() > 100, "only {} types were found", types.len());
    let undocumented: Vec<_> = types.iter().filter(|(_, _, sentence)| sentence.is_empty()).collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
    let (words, listed) = page.split_once(HEADING).unwrap();
    let expected = table(&types);
    if std::env::var_os("AVFS_GOLDEN_REGENERATE").is_some() {
        std::fs::write(&path, format!("{words}{HEADING}\n{expected}")).unwrap();
        return;
    }
    for line in expected.lines() {
        assert!(listed.contains(line), "docs/GLOSSARY.md lacks: {line}");
    }
    assert_eq!(listed.trim(), expected.trim(), "docs/GLOSSARY.md lists types that do not exist");
}

#[test]
fn every_verb_is_in_the_glossary() {
    let root = root();
    let page = std::fs::read_to_string(root.join("docs/GLOSSARY.md")).unwrap();
    let source = std::fs::read_to_string(root.join("src/cli/src/cli.rs")).unwrap();
    let verbs = source.split_once("pub enum Verb {").unwrap().1.split_once("\n}").unwrap().0;
    let verbs: Vec<String> =
        verbs.lines().filter_map(|line| Some(line.trim().split_once('(')?.0.to_lowercase())).collect();
    assert!(verbs.len() > 40, "only {} verbs were found", verbs.len());
    let entries: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**"))
        .flat_map(|(names, _)| names.split(", ").map(str::to_lowercase).collect::<Vec<_>>())
        .collect();
    let missing: Vec<&String> = verbs.iter().filter(|verb| !entries.contains(verb)).collect();
    assert!(missing.is_empty(), "docs/GLOSSARY.md lacks {missing:?}");
}
