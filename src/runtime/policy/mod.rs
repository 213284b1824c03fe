//! What may be run: what a command is found to do, and what the rules say of it.
//!
//! Pure: nothing here looks at files, the environment, the clock or processes, so that the same request always
//! gets the same decision.

mod category;
mod reading;

pub use category::{Categories, Category};
pub use reading::{Asked, Finding, Judged, Reading, Word};

/// Reads a command: every simple command in it, judged.
#[must_use]
pub fn read(asked: &Asked<'_>) -> Reading {
    let words = asked.command.words();
    let words = words.iter().map(|word| Word::Known(word.to_string_lossy().into_owned())).collect();
    let why = "it is not known what this program does".to_owned();
    let findings = vec![Finding { category: Category::Mutating, why }];
    Reading {
        commands: vec![Judged { words, categories: Categories::of(Category::Mutating), findings }],
        doubts: Vec::new(),
    }
}
