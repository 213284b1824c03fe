//! A tree of source-like text: identical for the same number of files, on every machine.
//!
//! Sizes and compressibility (zstd -1, file by file: about 0.26) are those of real source trees.

use std::fmt::Write as _;
use std::path::Path;

/// A small pseudo-random number generator; its sequence is part of the benchmark.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

const WORDS: &[&str] = &[
    "if", "else", "for", "while", "return", "struct", "let", "mut", "self", "match", "use", "error",
    "result", "option", "string", "vector", "index", "value", "buffer", "reader", "writer", "config",
    "parse", "token", "node", "tree", "page", "entry", "state", "handle", "thread", "lock", "queue", "event",
    "signal", "process", "memory", "file", "path", "name", "size", "count", "length", "offset",
];

fn identifier(numbers: &mut Numbers) -> String {
    let parts: Vec<&str> = (0..=numbers.below(3)).map(|_| WORDS[numbers.below(WORDS.len())]).collect();
    parts.join("_")
}

/// A line of code-like text; most of its identifiers recur in the file.
fn line(numbers: &mut Numbers, all: &[String], own: &[usize], out: &mut String) {
    for _ in 0..numbers.below(4) {
        out.push_str("    ");
    }
    for _ in 0..2 + numbers.below(7) {
        let word = match numbers.below(20) {
            0..10 => all[own[numbers.below(own.len())]].as_str(),
            10..12 => all[numbers.below(all.len())].as_str(),
            _ => WORDS[numbers.below(WORDS.len())],
        };
        out.push_str(word);
        out.push(' ');
    }
    out.push_str([";", " {", "}", ",", "();", ""][numbers.below(6)]);
    out.push('\n');
}

/// Sizes distributed like those of source files: half below about 3 KB, a few of several hundred KB.
fn size(numbers: &mut Numbers) -> usize {
    let mut size = 150 + numbers.below(900);
    for _ in 0..6 {
        if numbers.below(100) < 52 {
            size *= 2;
        }
    }
    if numbers.below(64) == 0 { size * 30 } else { size }
}

/// Makes `files` files, and one directory for every 19 of them.
pub fn tree(dir: &Path, files: usize) {
    let mut numbers = Numbers::new(7);
    let identifiers: Vec<String> = (0..6000).map(|_| identifier(&mut numbers)).collect();
    let mut dirs = vec![dir.to_owned()];
    for at in 0..files / 19 {
        let recent = dirs.len().saturating_sub(300);
        let parent = dirs[recent + numbers.below(dirs.len() - recent)].clone();
        let parent =
            if parent.components().count() > dir.components().count() + 8 { dir.to_owned() } else { parent };
        let name = &identifiers[numbers.below(identifiers.len())];
        let path = parent.join(format!("{name}{at}"));
        std::fs::create_dir(&path).unwrap();
        dirs.push(path);
    }
    let mut text = String::new();
    for at in 0..files {
        text.clear();
        let wanted = size(&mut numbers);
        let own: Vec<usize> = (0..24).map(|_| numbers.below(identifiers.len())).collect();
        while text.len() < wanted {
            line(&mut numbers, &identifiers, &own, &mut text);
        }
        let mut name = identifiers[numbers.below(identifiers.len())].clone();
        write!(name, "_{at}.rs").unwrap();
        std::fs::write(dirs[numbers.below(dirs.len())].join(name), &text).unwrap();
    }
}

/// Bytes that do not compress.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}
