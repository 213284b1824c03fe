//! Batch results as Markdown: a summary for the page of a CI run.

use std::io;
use std::io::Write;

use avfs_types::printable;
use avfs_wire::{BatchCounts, BatchItemResult, ItemState};

/// Maximum number of unsuccessful items that are listed individually.
const LISTED_MAX: usize = 50;
/// Maximum number of output lines shown per item, and of characters per line.
const LINES_MAX: usize = 20;
const LINE_CHARS: usize = 400;
/// Maximum bytes of output shown for all items together. GitHub limits a summary to 1 MiB.
const OUTPUT_BYTES_MAX: usize = 512 * 1024;
/// Maximum characters in a table cell.
const CELL_CHARS: usize = 300;

/// Writes a whole summary. Results are read one at a time.
pub fn write(
    to: &mut dyn Write,
    name: &str,
    counts: &BatchCounts,
    seconds: f64,
    results: impl Iterator<Item = io::Result<BatchItemResult>>,
) -> io::Result<()> {
    let sign = if counts.all_succeeded() { "✅" } else { "❌" };
    writeln!(to, "### {sign} avfs batch: {}\n", text(name))?;
    writeln!(to, "{}\n", sentence(counts, seconds))?;
    let mut unsuccessful = Vec::new();
    let mut left_off = 0_u64;
    for result in results {
        let result = result?;
        match result.state {
            ItemState::Succeeded | ItemState::LeftOut | ItemState::NotRun => {}
            ItemState::Failed | ItemState::Denied | ItemState::Error if unsuccessful.len() < LISTED_MAX => {
                unsuccessful.push(result);
            }
            ItemState::Failed | ItemState::Denied | ItemState::Error => left_off += 1,
        }
    }
    if unsuccessful.is_empty() {
        return Ok(());
    }
    writeln!(to, "| item | command | outcome | time |\n|---|---|---|---:|")?;
    for result in &unsuccessful {
        let (id, command, ending) = (text(&result.id), code(&result.command), text(&result.ending()));
        writeln!(to, "| {id} | {command} | {ending} | {:.1} s |", result.duration_ms / 1e3)?;
    }
    if left_off > 0 {
        writeln!(to, "\nand {left_off} more.")?;
    }
    let (mut room, mut left_off) = (OUTPUT_BYTES_MAX, 0);
    for result in &unsuccessful {
        let output = output(result);
        if output.len() > room {
            left_off += 1;
        } else if !output.is_empty() {
            room -= output.len();
            let id = in_html(&short(&result.id));
            writeln!(to, "\n<details><summary>{id}</summary>\n\n<pre>\n{output}</pre>\n</details>")?;
        }
    }
    if left_off > 0 {
        writeln!(to, "\nThe output of {left_off} more is omitted.")?;
    }
    Ok(())
}

/// The last lines of an item's output.
fn output(result: &BatchItemResult) -> String {
    let texts = [&result.stdout, &result.stderr].into_iter().flatten();
    let lines: Vec<&str> = texts.flat_map(|text| text.lines()).collect();
    let shown = lines.get(lines.len().saturating_sub(LINES_MAX)..).unwrap_or_default();
    shown.iter().map(|line| in_html(&cut(line, LINE_CHARS)) + "\n").collect()
}

fn cut(line: &str, characters: usize) -> String {
    match line.char_indices().nth(characters) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// A one-line summary of a batch.
#[must_use]
pub fn sentence(counts: &BatchCounts, seconds: f64) -> String {
    let BatchCounts { items, succeeded, cached, failed, denied, error, left_out, not_run } = *counts;
    let mut parts = vec![format!("{succeeded} of {items} succeeded")];
    if cached > 0 {
        parts.push(format!("{cached} of them cached"));
    }
    for (number, what) in [
        (failed, "failed"),
        (denied, "denied"),
        (error, "in error"),
        (left_out, "left out"),
        (not_run, "not run"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    format!("{}, in {seconds:.1} s", parts.join(", "))
}

/// Puts text on one line and truncates it to fit a cell.
fn short(words: &str) -> String {
    printable::line(&cut(words, CELL_CHARS)).into_owned()
}

/// Escapes text for a cell or a heading, so that Markdown does not interpret it.
fn text(words: &str) -> String {
    let mut safe = String::new();
    for c in short(words).chars() {
        if matches!(
            c,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '~' | '#' | '!' | '$' | '@'
        ) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

/// Formats text as code in a cell. Backquotes and bars cannot be escaped inside code.
fn code(words: &str) -> String {
    let safe = short(words).replace('`', "'").replace('|', "¦");
    if safe.trim().is_empty() { String::new() } else { format!("`{safe}`") }
}

fn in_html(line: &str) -> String {
    printable::line(line).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::samples::{counted, results};
    use super::*;

    fn written(results: &[BatchItemResult]) -> String {
        let mut to = Vec::new();
        write(&mut to, "a|b", &counted(results), 1.5, results.iter().cloned().map(Ok)).unwrap();
        String::from_utf8(to).unwrap()
    }

    /// The cells of a row, split as GitHub does: at every bar that has no backslash before it.
    fn cells(row: &str) -> Vec<String> {
        let mut cells = vec![String::new()];
        let mut after_backslash = false;
        for c in row.chars() {
            if c == '|' && !after_backslash {
                cells.push(String::new());
            } else {
                cells.last_mut().unwrap().push(c);
            }
            after_backslash = c == '\\' && !after_backslash;
        }
        cells
    }

    fn is_listed(result: &BatchItemResult) -> bool {
        matches!(result.state, ItemState::Failed | ItemState::Denied | ItemState::Error)
    }

    proptest! {
        #[test]
        fn no_content_breaks_out_of_the_table_or_the_output(results in results()) {
            let written = written(&results);
            let listed: Vec<&BatchItemResult> = results.iter().filter(|result| is_listed(result)).collect();
            // Output comes after the table. In the table a tag can only appear in code, where it is not interpreted.
            let (table, outputs) = written.split_at(written.find("\n<details>").unwrap_or(written.len()));
            let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
            prop_assert_eq!(rows.len(), if listed.is_empty() { 0 } else { listed.len() + 2 });
            for row in &rows {
                let cells = cells(row);
                prop_assert_eq!(cells.len(), 6, "{}", row);
                prop_assert!(cells[0].is_empty() && cells[5].is_empty());
            }
            let with_output = listed.iter().filter(|result| !output(result).is_empty()).count();
            for tag in ["<details>", "</details>", "<summary>", "</summary>", "<pre>", "</pre>"] {
                prop_assert_eq!(outputs.matches(tag).count(), with_output, "{}", tag);
            }
            prop_assert_eq!(outputs.matches('<').count(), 6 * with_output);
            prop_assert!(!written.chars().any(|c| printable::is_hidden(c) && c != '\n' && c != '\t'));
        }

        #[test]
        fn escaped_text_reads_back_unchanged(words in ".{0,40}") {
            let safe = text(&words);
            let (mut read, mut characters) = (String::new(), safe.chars());
            while let Some(c) = characters.next() {
                // A backslash escapes the character after it.
                read.extend(if c == '\\' { characters.next() } else { Some(c) });
            }
            prop_assert_eq!(read, short(&words));
        }

        #[test]
        fn code_stays_a_single_code_span(words in "[ `|a\\\\]{0,20}") {
            let safe = code(&words);
            prop_assert!(safe.is_empty() || safe.matches('`').count() == 2 && safe.len() > 2, "{}", safe);
            prop_assert_eq!(cells(&safe).len(), 1);
        }
    }

    #[test]
    fn large_output_is_bounded() {
        let line = "&".repeat(10_000);
        let mut sample = super::super::samples::plain(ItemState::Failed);
        sample.stdout = Some(format!("{line}\n").repeat(30));
        let written = written(&vec![sample; 200]);
        assert!(written.len() < 1024 * 1024, "{}", written.len());
        assert!(written.contains("and 150 more."));
        assert!(written.contains("The output of 37 more is omitted."), "{}", &written[written.len() - 200..]);
    }
}
