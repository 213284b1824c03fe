//! Brace expansion: `{rm,-rf}` is two words.

use crate::read::limits::BRACE_WORDS_MAX;

/// A bound, since each opening brace is matched with all marks after it.
const MARKS_MAX: usize = 256;

/// The expansion of a word; `None` if it is a sequence (`{1..9}`) or too large. `marks` are the unquoted braces and
/// commas.
pub(super) fn expand(text: &str, marks: &[usize]) -> Option<Vec<String>> {
    if marks.len() > MARKS_MAX {
        return None;
    }
    let mut done = Vec::new();
    let mut waiting = vec![(text.to_owned(), marks.to_vec())];
    while let Some((text, marks)) = waiting.pop() {
        if done.len() + waiting.len() > BRACE_WORDS_MAX {
            return None;
        }
        match first_group(&text, &marks) {
            Group::None => done.push(text),
            Group::Sequence => return None,
            Group::Choice { open, commas, close } => {
                let mut edges = vec![open];
                edges.extend(commas);
                edges.push(close);
                // The last choice first, since pending texts are taken from the end.
                for pair in edges.windows(2).rev() {
                    waiting.push(joined(&text, &marks, open, close, (pair[0] + 1, pair[1])));
                }
            }
        }
    }
    Some(done)
}

enum Group {
    None,
    Sequence,
    Choice { open: usize, commas: Vec<usize>, close: usize },
}

/// The first braces with their own comma, or with a sequence.
fn first_group(text: &str, marks: &[usize]) -> Group {
    let at = |mark: usize| text.as_bytes().get(mark).copied();
    for (index, open) in marks.iter().enumerate().filter(|(_, mark)| at(**mark) == Some(b'{')) {
        let (mut depth, mut commas) = (0_usize, Vec::new());
        for mark in &marks[index + 1..] {
            match at(*mark) {
                Some(b'{') => depth += 1,
                Some(b',') if depth == 0 => commas.push(*mark),
                Some(b'}') if depth > 0 => depth -= 1,
                Some(b'}') => {
                    if !commas.is_empty() {
                        return Group::Choice { open: *open, commas, close: *mark };
                    }
                    if text.get(open + 1..*mark).is_some_and(|inside| inside.contains("..")) {
                        return Group::Sequence;
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    Group::None
}

/// The text with one choice in place of its braces, and the remaining marks.
fn joined(
    text: &str,
    marks: &[usize],
    open: usize,
    close: usize,
    choice: (usize, usize),
) -> (String, Vec<usize>) {
    let (from, to) = choice;
    let kept = [(0, open), (from, to), (close + 1, text.len())];
    let (mut out, mut left) = (String::new(), Vec::new());
    for (start, end) in kept {
        let base = out.len();
        left.extend(marks.iter().filter(|mark| (start..end).contains(*mark)).map(|mark| mark - start + base));
        out.push_str(text.get(start..end).unwrap_or(""));
    }
    (out, left)
}
