//! The direction of the layers, read from the source: who may name whom, where `unsafe` may stand, and what is pure.
//!
//! `bin`, `runner` → `config` → `runtime` → `vault` → `backend` → `ids`; `hostfs`, `clock`, `diagnose`, `ids`, `pause` and `printable` are leaves.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the source should fail at once")]

use std::path::{Path, PathBuf};

/// Each layer and the others it may name. A new module is given its place here first.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "bin",
        &[
            "config",
            "runtime",
            "vault",
            "backend",
            "hostfs",
            "ids",
            "clock",
            "diagnose",
            "exit_code",
            "pause",
            "printable",
        ],
    ),
    (
        "runner",
        &[
            "config",
            "runtime",
            "vault",
            "backend",
            "hostfs",
            "ids",
            "clock",
            "diagnose",
            "exit_code",
            "pause",
            "printable",
        ],
    ),
    ("config", &["runtime", "toml_source", "diagnose"]),
    (
        "runtime",
        &[
            "vault",
            "backend",
            "hostfs",
            "ids",
            "clock",
            "diagnose",
            "exit_code",
            "toml_source",
            "pause",
            "printable",
        ],
    ),
    ("vault", &["backend", "hostfs", "ids", "clock", "diagnose", "pause", "printable"]),
    ("backend", &["hostfs", "ids", "clock", "diagnose", "pause"]),
    ("hostfs", &["ids", "pause"]),
    ("ids", &["diagnose"]),
    ("clock", &[]),
    ("diagnose", &[]),
    ("exit_code", &[]),
    ("pause", &[]),
    ("printable", &[]),
    ("toml_source", &[]),
];

/// The only place of unsafe code.
const UNSAFE_DIR: &str = "runner/src/sys/";

/// The engine decides from what it is told alone.
const PURE_DIR: &str = "src/runtime/policy/";

/// What is said to a connection depends on bytes and addresses alone; addresses are in `std::net`, sockets too.
const SOCKETLESS_DIR: &str = "src/runtime/egress/";
const SOCKETS: &[&str] = &["TcpStream", "TcpListener", "UdpSocket", "ToSocketAddrs"];

/// Parts of the standard library that look at the world.
const IMPURE: &[&str] = &["fs", "env", "process", "net", "io", "thread", "os"];

fn root() -> PathBuf {
    std::env::var_os("AVFS_TEST_SRC").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

fn source_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code without its comments and the insides of its strings.
fn bare(source: &str) -> String {
    let bytes: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest {
            ['/', '/', ..] => at += rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => at += block_comment(rest),
            ['r', '"' | '#', ..] if !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
                let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
                if rest.get(1 + hashes) == Some(&'"') {
                    let end: Vec<char> =
                        std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    let body = &rest[2 + hashes..];
                    let length = body.windows(end.len()).position(|w| w == end).unwrap_or(body.len());
                    at += 2 + hashes + length + end.len();
                } else {
                    out.push('r');
                    at += 1;
                }
            }
            ['"', ..] => {
                let mut end = 1;
                while end < rest.len() && rest[end] != '"' {
                    end += if rest[end] == '\\' { 2 } else { 1 };
                }
                at += end + 1;
            }
            // A quote character in quotes; a lifetime has none after it.
            ['\'', '\\', _, ..] => at += 3 + rest[3..].iter().position(|c| *c == '\'').unwrap_or(0) + 1,
            ['\'', _, '\'', ..] => at += 3,
            [c, ..] => {
                out.push(*c);
                at += 1;
            }
            [] => {}
        }
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// The layer of a file, and how deep its module lies beneath the crate's root.
fn place(path: &str) -> (String, usize) {
    if path.starts_with("runner/") {
        return ("runner".to_owned(), 0);
    }
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let parts: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    let is_mod = parts.last() == Some(&"mod");
    (parts[0].to_owned(), if is_mod { parts.len() - 1 } else { parts.len() })
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first names after a path's start: one, or those of a group in braces.
fn heads(rest: &str) -> Vec<String> {
    let rest = rest.trim_start();
    let name = |text: &str| text.trim_start().chars().take_while(|c| is_name(*c)).collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(name(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(name(&group[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// The top-level modules of the library that a file names.
fn named(code: &str, depth: usize, in_library: bool) -> Vec<String> {
    let mut found = Vec::new();
    let starts = |word: &str| -> Vec<usize> {
        code.match_indices(word)
            .filter(|(at, _)| !code[..*at].ends_with(|c: char| is_name(c) || c == ':'))
            .map(|(at, _)| at + word.len())
            .collect()
    };
    for word in ["crate::", "avfs::", "$crate::"] {
        if word == "crate::" && !in_library {
            continue;
        }
        starts(word).into_iter().for_each(|at| found.extend(heads(&code[at..])));
    }
    for at in starts("super::") {
        let mut rest = &code[at..];
        let mut up = 1;
        while let Some(further) = rest.strip_prefix("super::") {
            rest = further;
            up += 1;
        }
        // Only a path that climbs to the root names another layer. A test module lies one deeper.
        if in_library && up >= depth {
            let tops = heads(rest).into_iter().filter(|name| LAYERS.iter().any(|(layer, _)| layer == name));
            found.extend(tops.filter(|_| up >= depth));
        }
    }
    found
}

/// What a file does against the rules.
fn violations(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let mut found = Vec::new();
    let words = code.split(|c: char| !is_name(c));
    if !path.starts_with(UNSAFE_DIR) && words.into_iter().any(|word| word == "unsafe") {
        found.push(format!("{path}: unsafe code outside of {UNSAFE_DIR}"));
    }
    if path.starts_with(PURE_DIR) {
        let std = code.match_indices("std::").flat_map(|(at, word)| heads(&code[at + word.len()..]));
        let impure = std.filter(|name| IMPURE.contains(&name.as_str()));
        found.extend(impure.map(|name| format!("{path}: {PURE_DIR} may not name std::{name}")));
        let clocks =
            code.split(|c: char| !is_name(c)).filter(|word| matches!(*word, "SystemTime" | "Instant"));
        found.extend(clocks.map(|clock| format!("{path}: {PURE_DIR} may not name {clock}")));
    }
    if path.starts_with(SOCKETLESS_DIR) {
        let std = code.match_indices("std::").flat_map(|(at, word)| heads(&code[at + word.len()..]));
        let impure = std.filter(|name| name != "net" && IMPURE.contains(&name.as_str()));
        found.extend(impure.map(|name| format!("{path}: {SOCKETLESS_DIR} may not name std::{name}")));
        let words = code.split(|c: char| !is_name(c));
        let outside =
            words.filter(|word| SOCKETS.contains(word) || matches!(*word, "SystemTime" | "Instant"));
        found.extend(outside.map(|word| format!("{path}: {SOCKETLESS_DIR} may not name {word}")));
    }
    if path == "src/lib.rs" {
        return found;
    }
    let (layer, depth) = place(path);
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        found.push(format!("{path}: the layer {layer} has no place in tests/layers yet"));
        return found;
    };
    // The commands are crates of their own: their `crate` is not the library.
    let in_library = !matches!(layer.as_str(), "bin" | "runner");
    for name in named(&code, depth, in_library) {
        if name != layer && !allowed.contains(&name.as_str()) {
            found.push(format!("{path}: {layer} may not name {name}"));
        }
    }
    found
}

#[test]
fn no_layer_names_one_above_it() {
    let root = root();
    let mut files = Vec::new();
    source_files(&root.join("src"), &mut files);
    source_files(&root.join("runner/src"), &mut files);
    assert!(files.len() > 40, "only {} source files beneath {}", files.len(), root.display());
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            violations(&path, &std::fs::read_to_string(file).unwrap())
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The test above is worth something only if it finds what is planted.
#[test]
fn planted_violations_are_found() {
    let planted = [
        ("src/vault/x.rs", "use crate::runtime::Thing;"),
        ("src/vault/x.rs", "use crate::{ids::BlobId, runtime};"),
        ("src/vault/x.rs", "fn f() { let x = crate::runtime::f(); }"),
        ("src/vault/import/x.rs", "use super::super::super::runtime::Thing;"),
        ("src/vault/mod.rs", "use super::runtime::Thing;"),
        ("src/vault/x.rs", "use super::super::runtime;"),
        ("src/backend/sqlite/x.rs", "use crate::vault::Vault;"),
        ("src/backend/mod.rs", "pub use avfs::vault::Vault;"),
        ("src/hostfs/lock.rs", "use crate::clock::Clock;"),
        ("src/ids.rs", "use crate::backend::Life;"),
        ("src/clock.rs", "use crate::ids::BlobId;"),
        ("src/novelty/mod.rs", ""),
        ("src/vault/x.rs", "fn f() { unsafe { g() } }"),
        ("runner/src/main.rs", "unsafe fn f() {}"),
        ("src/runtime/policy/x.rs", "use std::fs::File;"),
        ("src/runtime/policy/a/x.rs", "use std::{collections::HashMap, env};"),
        ("src/runtime/policy/x.rs", "fn f() { std::process::id(); }"),
        ("src/runtime/policy/x.rs", "use std::time::Instant;"),
        ("src/runtime/egress/x.rs", "use std::net::{IpAddr, TcpStream};"),
        ("src/runtime/egress/x.rs", "use std::io::Read;"),
        ("src/runtime/egress/x.rs", "use std::time::Instant;"),
    ];
    for (path, source) in planted {
        assert!(!violations(path, source).is_empty(), "{path}: {source:?} was not found");
    }
    let innocent = [
        (
            "src/vault/x.rs",
            "use crate::backend::{Life, Reader};\nuse super::page::Node;\nuse crate::ids::{self, BlobId};",
        ),
        (
            "src/vault/x.rs",
            "// crate::runtime is above\n/* unsafe /* nested */ */ const S: &str = \"crate::runtime \\\" unsafe\";",
        ),
        (
            "src/vault/x.rs",
            "const S: &str = r#\"unsafe \"crate::runtime\" \"#; const C: char = '\"'; fn f<'a>(x: &'a str) {}",
        ),
        ("src/runtime/x.rs", "use crate::vault::Vault; use super::units;"),
        ("src/runtime/x.rs", "use std::fs::File;"),
        ("src/runtime/policy/x.rs", "use std::path::Path; // std::fs"),
        ("src/runtime/egress/x.rs", "use std::net::IpAddr;"),
        ("src/bin/avfs/main.rs", "use avfs::runtime::X; use crate::cli::Y;"),
        ("src/vault/x.rs", "#![forbid(unsafe_code)]"),
        ("runner/src/sys/mount.rs", "unsafe { f() }"),
    ];
    for (path, source) in innocent {
        assert_eq!(violations(path, source), Vec::<String>::new(), "{path}: {source:?}");
    }
}

/// The literals of a source file that are codes of errors, notes and checks.
fn codes(source: &str) -> Vec<String> {
    // What stands in a `fn code`, after the word code, or is the code of a check.
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut places: Vec<&str> = source.split("fn code(&self)").skip(1).collect();
    places.iter_mut().for_each(|place| *place = place.split("\n    }\n").next().unwrap_or_default());
    let mut found = Vec::new();
    let literal = regex::Regex::new(r#""([a-z]+\.[a-z_]+)""#).unwrap();
    let after_word = regex::Regex::new(r#"(?:\bcode\b|::failed\()[^"\n]*"([a-z]+\.[a-z_]+)""#).unwrap();
    for place in places {
        found.extend(literal.captures_iter(place).map(|code| code[1].to_owned()));
    }
    found.extend(after_word.captures_iter(source).map(|code| code[1].to_owned()));
    found
}

#[test]
fn every_code_is_documented() {
    let contract = std::fs::read_to_string(root().join("docs/CONTRACT.md")).unwrap();
    let mut files = Vec::new();
    ["src", "runner/src"].iter().for_each(|dir| source_files(&root().join(dir), &mut files));
    let (mut seen, mut missing) = (0, Vec::new());
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        for code in codes(&std::fs::read_to_string(file).unwrap()) {
            seen += 1;
            if !contract.contains(&format!("`{code}`")) {
                missing.push(format!("{code} of {}", file.display()));
            }
        }
    }
    assert!(seen > 200, "only {seen} codes were found: the source is read wrongly");
    assert!(missing.is_empty(), "not in docs/CONTRACT.md: {missing:#?}");
}
