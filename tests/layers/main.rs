//! Structure that the compiler cannot check: the order of the crates, purity, the size of folders, and documented
//! codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the source should fail immediately")]

mod glossary;

use std::path::{Path, PathBuf};

/// Each crate and the workspace crates that it may depend on. A new crate must be added here first.
const CRATES: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("seccomp", &[]),
    ("hostfs", &["types"]),
    ("vault", &["types", "hostfs"]),
    ("terminal", &["types", "vault"]),
    ("request", &["types", "hostfs", "seccomp"]),
    ("policy", &["types", "request"]),
    ("egress", &["request"]),
    ("wire", &["types", "request"]),
    ("changes", &["types", "hostfs", "vault", "request"]),
    ("engine", &["types", "hostfs", "vault", "request", "policy", "egress", "changes", "wire"]),
    ("lists", &["types", "hostfs", "vault", "request", "wire"]),
    ("present", &["types", "hostfs", "vault", "request", "policy", "changes", "engine", "lists", "wire"]),
    ("workplace", &["types", "hostfs", "vault", "request", "policy", "engine", "present", "wire"]),
    (
        "ops",
        &[
            "types",
            "hostfs",
            "vault",
            "request",
            "policy",
            "changes",
            "engine",
            "lists",
            "present",
            "wire",
            "workplace",
        ],
    ),
];

/// Entries of one folder; a folder with more should be split.
const FOLDER_ENTRIES_MAX: usize = 25;

/// A crate that depends only on its arguments, and the exceptions.
struct Pure {
    dir: &'static str,
    except: &'static [&'static str],
}

const PURE: [Pure; 2] = [
    // The engine decides from the request and the rules alone.
    Pure { dir: "src/policy/src/", except: &[] },
    // Addresses are in `std::net`, and so are sockets, which are forbidden.
    Pure { dir: "src/egress/src/", except: &["net"] },
];

/// Parts and names of the standard library that access the outside world.
const IMPURE: &[&str] = &["fs", "env", "process", "net", "io", "thread", "os"];
const IMPURE_NAMES: &[&str] =
    &["SystemTime", "Instant", "TcpStream", "TcpListener", "UdpSocket", "ToSocketAddrs"];

fn root() -> PathBuf {
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::env::var_os("AVFS_TEST_SRC").map_or_else(here, PathBuf::from)
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

/// The code without comments and the contents of strings.
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
            // A quoted quote character; a lifetime has no closing quote.
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

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first names after the start of a path: one, or those of a group in braces.
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

/// The forbidden names in a file of a pure crate.
fn impurities(path: &str, source: &str) -> Vec<String> {
    let Some(pure) = PURE.iter().find(|pure| path.starts_with(pure.dir)) else { return Vec::new() };
    let code = bare(source);
    let std = code.match_indices("std::").flat_map(|(at, word)| heads(&code[at + word.len()..]));
    let parts = std.filter(|name| IMPURE.contains(&name.as_str()) && !pure.except.contains(&name.as_str()));
    let names =
        code.split(|c: char| !is_name(c)).filter(|word| IMPURE_NAMES.contains(word)).map(str::to_owned);
    parts.chain(names).map(|name| format!("{path}: {} may not name {name}", pure.dir)).collect()
}

#[test]
fn pure_crates_do_not_access_the_outside_world() {
    let root = root();
    let mut files = Vec::new();
    PURE.iter().for_each(|pure| source_files(&root.join(pure.dir), &mut files));
    assert!(files.len() > 40, "only {} source files", files.len());
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
            impurities(path, &std::fs::read_to_string(file).unwrap())
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The test above is useful only if it finds planted violations.
#[test]
fn planted_violations_are_found() {
    for (path, source) in [
        ("src/policy/src/x.rs", "use std::fs::File;"),
        ("src/policy/src/a/x.rs", "use std::{collections::HashMap, env};"),
        ("src/policy/src/x.rs", "fn f() { std::process::id(); }"),
        ("src/policy/src/x.rs", "use std::time::Instant;"),
        ("src/egress/src/x.rs", "use std::net::{IpAddr, TcpStream};"),
        ("src/egress/src/x.rs", "use std::io::Read;"),
    ] {
        assert!(!impurities(path, source).is_empty(), "{path}: {source:?} was not found");
    }
    for (path, source) in [
        ("src/engine/src/x.rs", "use std::fs::File;"),
        ("src/policy/src/x.rs", "use std::path::Path; // std::fs"),
        ("src/policy/src/x.rs", "const S: &str = r#\"std::fs\"#; const C: char = '\"'; /* std::env /* */ */"),
        ("src/egress/src/x.rs", "use std::net::IpAddr;"),
    ] {
        assert_eq!(impurities(path, source), Vec::<String>::new(), "{path}: {source:?}");
    }
}

#[test]
fn crates_depend_only_on_lower_crates() {
    let root = root();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join("src")).unwrap() {
        let dir = entry.unwrap().file_name().into_string().unwrap();
        // The command line may depend on everything.
        if dir == "cli" {
            continue;
        }
        let Some((_, allowed)) = CRATES.iter().find(|(name, _)| *name == dir) else {
            found.push(format!("src/{dir} is not listed in tests/layers"));
            continue;
        };
        let manifest = std::fs::read_to_string(root.join("src").join(&dir).join("Cargo.toml")).unwrap();
        let table = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let lines = table.lines().take_while(|line| !line.starts_with('['));
        let ours = lines.filter_map(|line| line.strip_prefix("avfs-")?.split(['.', ' ']).next());
        let upward = ours.filter(|name| !allowed.contains(name));
        found.extend(upward.map(|name| format!("src/{dir} may not depend on {name}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn folders_have_at_most_25_entries() {
    fn crowded(dir: &Path, found: &mut Vec<String>) {
        let entries: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        if entries.len() > FOLDER_ENTRIES_MAX {
            found.push(format!("{} has {} entries", dir.display(), entries.len()));
        }
        entries.iter().filter(|path| path.is_dir()).for_each(|path| crowded(path, found));
    }
    let mut found = Vec::new();
    ["src", "runner"].iter().for_each(|dir| crowded(&root().join(dir), &mut found));
    assert!(found.is_empty(), "{found:#?}");
}

/// The literals of a source file that are codes of errors, notes and checks.
fn codes(source: &str) -> Vec<String> {
    // Literals in a `fn code`, after the word code, or as the code of a check.
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

/// `tests.rs`, or a file in a folder `tests`.
fn is_of_tests(file: &Path) -> bool {
    file.with_extension("").components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn every_code_is_documented() {
    let contract = std::fs::read_to_string(root().join("docs/CONTRACT.md")).unwrap();
    let mut files = Vec::new();
    ["src", "runner/src"].iter().for_each(|dir| source_files(&root().join(dir), &mut files));
    let (mut seen, mut missing) = (0, Vec::new());
    for file in files.iter().filter(|file| !is_of_tests(file.strip_prefix(root()).unwrap())) {
        for code in codes(&std::fs::read_to_string(file).unwrap()) {
            seen += 1;
            if !contract.contains(&format!("`{code}`")) {
                missing.push(format!("{code} of {}", file.display()));
            }
        }
    }
    assert!(seen > 200, "only {seen} codes were found: the test reads the source incorrectly");
    assert!(missing.is_empty(), "not in docs/CONTRACT.md: {missing:#?}");
}
