//! Batch results as JUnit XML, which CI systems display as tests.
//!
//! Written by hand because quick-junit keeps the whole report in memory (320 MiB for 10,000 results with full
//! output), drops tabs from output, and writes U+FFFE, which XML readers reject.

use std::io;
use std::io::Write;

use avfs_types::printable;
use avfs_wire::{BatchCounts, BatchItemResult, ItemState};

/// Writes a whole report. Results are read one at a time.
pub fn write(
    to: &mut dyn Write,
    name: &str,
    counts: &BatchCounts,
    seconds: f64,
    results: impl Iterator<Item = io::Result<BatchItemResult>>,
) -> io::Result<()> {
    let BatchCounts { items, failed, denied, error, left_out, not_run, .. } = *counts;
    let totals = format!(
        "name=\"{}\" tests=\"{items}\" failures=\"{failed}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds:.3}\"",
        attribute(name),
        denied + error,
        left_out + not_run,
    );
    writeln!(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(to, "<testsuites {totals}>\n<testsuite {totals}>")?;
    for result in results {
        case(to, name, &result?)?;
    }
    writeln!(to, "</testsuite>\n</testsuites>")
}

fn case(to: &mut dyn Write, suite: &str, result: &BatchItemResult) -> io::Result<()> {
    let title = format!("{}: {}", result.id, result.command);
    let seconds = result.duration_ms / 1e3;
    let (title, suite) = (attribute(&title), attribute(suite));
    writeln!(to, "<testcase name=\"{title}\" classname=\"{suite}\" time=\"{seconds:.3}\">")?;
    let (ending, kind) = (attribute(&result.ending()), attribute(result.code.as_deref().unwrap_or("exit")));
    match result.state {
        ItemState::Succeeded => {}
        ItemState::Failed => writeln!(to, "<failure message=\"{ending}\" type=\"{kind}\"></failure>")?,
        ItemState::Denied | ItemState::Error => {
            writeln!(to, "<error message=\"{ending}\" type=\"{kind}\"></error>")?;
        }
        ItemState::LeftOut | ItemState::NotRun => writeln!(to, "<skipped message=\"{ending}\"></skipped>")?,
    }
    for (tag, text) in [("system-out", &result.stdout), ("system-err", &result.stderr)] {
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            writeln!(to, "<{tag}>{}</{tag}>", in_xml(&printable::lines(text)))?;
        }
    }
    writeln!(to, "</testcase>")
}

/// Escapes a value for a single-line attribute.
fn attribute(text: &str) -> String {
    in_xml(&printable::line(text))
}

/// Escapes printable text for XML. The two characters that XML 1.0 does not allow are replaced.
fn in_xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push_str("&#10;"),
            '\t' => safe.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::{Document, Node};

    use super::super::samples::{counted, plain, results};
    use super::*;

    fn written(name: &str, results: &[BatchItemResult]) -> String {
        let mut to = Vec::new();
        write(&mut to, name, &counted(results), 1.5, results.iter().cloned().map(Ok)).unwrap();
        String::from_utf8(to).unwrap()
    }

    /// The text that an XML reader returns: everything except the characters XML does not allow.
    fn as_xml_has_it(text: &str) -> String {
        text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
    }

    fn on_one_line(text: &str) -> String {
        as_xml_has_it(&printable::line(text))
    }

    fn elements<'a>(node: Node<'a, 'a>) -> Vec<Node<'a, 'a>> {
        node.children().filter(Node::is_element).collect()
    }

    fn number(node: Node<'_, '_>, attribute: &str) -> u64 {
        node.attribute(attribute).unwrap().parse().unwrap()
    }

    #[test]
    fn report_has_the_structure_that_ci_systems_read() {
        let failed = BatchItemResult {
            id: "test".to_owned(),
            exit_code: Some(2),
            stdout: Some("1 < 2\n".to_owned()),
            stderr: Some(String::new()),
            ..plain(ItemState::Failed)
        };
        let report = written("ci.txt", &[plain(ItemState::Succeeded), failed]);
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="ci.txt" tests="2" failures="1" errors="0" skipped="0" time="1.500">
<testsuite name="ci.txt" tests="2" failures="1" errors="0" skipped="0" time="1.500">
<testcase name="1: make test" classname="ci.txt" time="1.234">
</testcase>
<testcase name="test: make test" classname="ci.txt" time="1.234">
<failure message="exit code 2" type="exit"></failure>
<system-out>1 &lt; 2&#10;</system-out>
</testcase>
</testsuite>
</testsuites>
"#;
        assert_eq!(report, expected);
    }

    proptest! {
        /// For any command and output, the report is well-formed and has the structure that JUnit readers rely on.
        #[test]
        fn report_is_well_formed_for_any_results(results in results(), name in ".{0,20}") {
            let report = written(&name, &results);
            let document = Document::parse(&report).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let suites = document.root_element();
            prop_assert_eq!(suites.tag_name().name(), "testsuites");
            let [suite] = elements(suites)[..] else { return Err(TestCaseError::fail("not one testsuite")) };
            prop_assert_eq!(suite.tag_name().name(), "testsuite");
            prop_assert!(!report.chars().any(|c| printable::is_hidden(c) && c != '\n'));
            let name = on_one_line(&name);
            prop_assert_eq!(suite.attribute("name"), Some(name.as_str()));
            let cases = elements(suite);
            prop_assert_eq!(cases.len(), results.len());
            let mut found = [0_u64; 3];
            for (case, result) in cases.iter().zip(&results) {
                prop_assert_eq!(case.tag_name().name(), "testcase");
                let title = on_one_line(&format!("{}: {}", result.id, result.command));
                prop_assert_eq!(case.attribute("name"), Some(title.as_str()));
                prop_assert_eq!(case.attribute("classname"), Some(name.as_str()));
                prop_assert!(case.attribute("time").unwrap().parse::<f64>().unwrap() >= 0.0);
                let names: Vec<&str> = elements(*case).iter().map(|node| node.tag_name().name()).collect();
                let mut verdicts = 0;
                for (place, word) in ["failure", "error", "skipped"].into_iter().enumerate() {
                    let times = names.iter().filter(|name| **name == word).count() as u64;
                    found[place] += times;
                    verdicts += times;
                }
                prop_assert_eq!(verdicts, u64::from(result.state != ItemState::Succeeded));
                for (word, text) in [("system-out", &result.stdout), ("system-err", &result.stderr)] {
                    let node = elements(*case).into_iter().find(|node| node.tag_name().name() == word);
                    let there = node.map(|node| node.text().unwrap_or_default().to_owned());
                    let wanted = text.as_deref().filter(|text| !text.is_empty());
                    let wanted = wanted.map(|text| as_xml_has_it(&printable::lines(text)));
                    prop_assert_eq!(there, wanted);
                }
            }
            for node in [suites, suite] {
                let attributes = ["failures", "errors", "skipped"].map(|attribute| number(node, attribute));
                prop_assert_eq!((number(node, "tests"), attributes), (results.len() as u64, found));
                prop_assert!(node.attribute("time").unwrap().parse::<f64>().is_ok());
            }
        }
    }
}
