//! A search for a regular expression in the files of a version.

use regex::bytes::{Regex, RegexBuilder};

use avfs_changes::{each_line, is_binary};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::page::Node;
use avfs_vault::read_content;
use avfs_wire::{Grep, GrepMatch};
use avfs_workplace::{OpError, Workplace};

use crate::error::VerbError;
use crate::given_path::{GivenPath, within};
use crate::view::View;

/// The largest file that is searched; larger files are listed as skipped.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// What to search for, and where.
pub struct GrepQuery {
    pub reference: Reference,
    pub pattern: Pattern,
    /// Files and directories; empty for the whole version.
    pub paths: Vec<GivenPath>,
}

/// A compiled regular expression.
pub struct Pattern {
    text: String,
    regex: Regex,
}

/// How the text of a pattern is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct PatternOptions {
    pub ignore_case: bool,
    /// The text has no special characters.
    pub fixed: bool,
}

impl Pattern {
    /// Compiles a regular expression.
    pub fn parse(text: String, options: PatternOptions) -> Result<Self, VerbError> {
        let pattern = if options.fixed { regex::escape(&text) } else { text.clone() };
        let built =
            RegexBuilder::new(&pattern).case_insensitive(options.ignore_case).multi_line(true).build();
        match built {
            Ok(regex) => Ok(Self { text, regex }),
            Err(error) => {
                // The error is a multi-line drawing; its last line has the reason.
                let drawn = error.to_string();
                let detail =
                    drawn.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Err(VerbError::BadPattern { pattern: text, detail })
            }
        }
    }
}

/// A file with at least one line that matches.
pub struct FileMatch<'f, 'l> {
    pub path: &'f TreePath,
    content: &'f [u8],
    /// The lines that match, with their numbers, without line ends.
    pub lines: &'l mut dyn Iterator<Item = (u64, &'f [u8])>,
}

impl FileMatch<'_, '_> {
    #[must_use]
    pub fn is_binary(&self) -> bool {
        is_binary(self.content)
    }
}

/// The end of a search.
pub struct Searched {
    /// The id of the version.
    pub version: String,
    /// Files that are too large to search.
    pub skipped: Vec<TreePath>,
    /// The error if nothing matched.
    pub no_match: Option<VerbError>,
}

/// Whether a collected answer has the lines that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedLines {
    Listed,
    LeftOut,
}

/// All files and lines that match, and the error if nothing matches.
pub fn grep(
    workplace: &Workplace,
    query: &GrepQuery,
    lines: MatchedLines,
) -> Result<(Grep, Option<VerbError>), OpError> {
    let (mut matches, mut files, mut binary) = (Vec::new(), Vec::new(), Vec::new());
    let searched = each_match(workplace, query, &mut |found| {
        match (found.is_binary(), lines) {
            (true, _) => binary.push(found.path.into()),
            (false, MatchedLines::LeftOut) => {}
            (false, MatchedLines::Listed) => {
                matches.extend(found.lines.map(|(number, line)| GrepMatch::of(found.path, number, line)));
            }
        }
        files.push(found.path.into());
        Ok(())
    })?;
    let Searched { version, skipped, no_match } = searched;
    let skipped = skipped.iter().map(Into::into).collect();
    Ok((Grep { version, matches, files, binary, skipped }, no_match))
}

/// Passes each file that matches to `receive` as soon as it is found.
pub fn each_match(
    workplace: &Workplace,
    query: &GrepQuery,
    receive: &mut dyn FnMut(FileMatch<'_, '_>) -> Result<(), OpError>,
) -> Result<Searched, OpError> {
    let view = View::open(&workplace.vault, &query.reference)?;
    let mut paths = within(&query.paths, &workplace.vault)?;
    if paths.is_empty() {
        paths.push(TreePath::root());
    }
    let (mut skipped, mut has_match) = (Vec::new(), false);
    for path in &paths {
        view.each(path, None, |path, node| {
            let Node::File(file) = &node else { return Ok(()) };
            if file.size > SEARCH_BYTES_MAX {
                skipped.push(path);
                return Ok(());
            }
            let content = read_content(view.reader(), file).map_err(|error| error.in_file(&path))?;
            search(&query.pattern.regex, &path, &content, &mut |found| {
                has_match = true;
                receive(found)
            })
        })?;
    }
    for path in &skipped {
        workplace.note(format_args!("note: {path} is too large to search"));
    }
    let no_match = (!has_match)
        .then(|| VerbError::NoMatch { pattern: query.pattern.text.clone(), skipped: skipped.len() as u64 });
    Ok(Searched { version: view.version.id.to_hex(), skipped, no_match })
}

fn search(
    regex: &Regex,
    path: &TreePath,
    content: &[u8],
    receive: &mut dyn FnMut(FileMatch<'_, '_>) -> Result<(), OpError>,
) -> Result<(), OpError> {
    // One pass over the whole file is much faster than a pass for each line, and most files do not match.
    if !regex.is_match(content) {
        return Ok(());
    }
    let ended = each_line(content).map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    let mut lines = (1..).zip(ended).filter(|(_, line)| regex.is_match(line)).peekable();
    // The pattern may match only across lines or after the last line; only matches within a line count.
    match lines.peek() {
        Some(_) => receive(FileMatch { path, content, lines: &mut lines }),
        None => Ok(()),
    }
}
