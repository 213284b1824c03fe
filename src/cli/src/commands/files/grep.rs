//! `avfs grep`

use clap::Args;
use regex::bytes::{Regex, RegexBuilder};

use avfs_changes::{each_line, is_binary};
use avfs_ops::{GivenPath, OpError, VerbError, within};
use avfs_terminal::{Painted, Tone};
use avfs_types::path::TreePath;
use avfs_types::printable;
use avfs_types::reference::Reference;
use avfs_vault::page::Node;
use avfs_vault::read_content;
use avfs_wire::{ErrorBody, Grep, GrepMatch};

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome};
use crate::view::{View, WalkedEntry, plural};

/// The largest file that is searched; larger files are listed as skipped.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// Search the files of a version for a regular expression
///
/// Exits with 1 if nothing matches. Lists binary files that match, without their lines. Files larger than 256
/// MiB are not searched, and listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs grep main 'fn main'
  avfs grep main -i todo src docs
  avfs grep main~5 -F 'a[0]' -l")]
pub struct GrepArgs {
    /// The version to search
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The regular expression
    #[arg(allow_hyphen_values = true)]
    pattern: String,
    /// Search only these files and directories
    #[arg(value_name = "PATH", value_parser = tree_path())]
    paths: Vec<GivenPath>,
    /// Ignore case
    #[arg(short, long)]
    ignore_case: bool,
    /// Treat the pattern as plain text
    #[arg(short = 'F', long)]
    fixed: bool,
    /// Print only the names of matching files
    #[arg(short = 'l', long)]
    files: bool,
}

/// The result of a search.
#[derive(Default)]
struct Matches {
    /// For JSON only: the text form prints each line when it is found.
    lines: Vec<GrepMatch>,
    any: bool,
    /// For JSON only.
    files: Vec<TreePath>,
    binary: Vec<TreePath>,
    skipped: Vec<TreePath>,
}

/// What to do with matching lines.
enum Lines<'o> {
    /// Collect the lines, or only the file names.
    Kept {
        names_only: bool,
    },
    Shown(&'o mut Out),
    /// Print only the file names.
    NamesShown(&'o mut Out),
}

pub fn run(ctx: &CommandContext, args: &GrepArgs) -> Outcome {
    let regex = compile(args)?;
    let vault = ctx.open_vault()?;
    let view = View::open(&vault, &args.reference)?;
    let mut paths = within(&args.paths, &vault)?;
    if paths.is_empty() {
        paths.push(TreePath::root());
    }
    let mut matches = Matches::default();
    let mut out = ctx.ui.out();
    let mut lines = match (ctx.ui.format, args.files) {
        (Format::Json, names_only) => Lines::Kept { names_only },
        (Format::Human, true) => Lines::NamesShown(&mut out),
        (Format::Human, false) => Lines::Shown(&mut out),
    };
    for path in &paths {
        view.node(path).map_err(VerbError::in_version(&args.reference))?;
        view.each(path, None, |found| search(&view, &regex, found, &mut lines, &mut matches))?;
    }
    out.flush()?;
    drop(out);
    for path in &matches.skipped {
        ctx.ui.note(format_args!("note: {path} is too large to search"));
    }
    let result = Grep {
        version: view.version.id.to_hex(),
        matches: std::mem::take(&mut matches.lines),
        files: matches.files.iter().map(Into::into).collect(),
        binary: matches.binary.iter().map(Into::into).collect(),
        skipped: matches.skipped.iter().map(Into::into).collect(),
    };
    let show = |out: &mut Out| {
        let mut binary = matches.binary.iter().filter(|_| !args.files);
        binary.try_for_each(|path| out.line(format_args!("{path}: binary file matches")))
    };
    if !matches.any {
        let mut message = format!("nothing matches {:?}", args.pattern);
        if !matches.skipped.is_empty() {
            let skipped = plural(matches.skipped.len() as u64, "file was", "files were");
            message.push_str(&format!(" in the searched files; {skipped} too large to search"));
        }
        let why = ErrorBody { code: "grep.no_match".to_owned(), message, hint: None };
        return ctx.ui.answer_no(&result, &why, show);
    }
    ctx.ui.answer(&result, show)
}

fn compile(args: &GrepArgs) -> Result<Regex, OpError> {
    let pattern = if args.fixed { regex::escape(&args.pattern) } else { args.pattern.clone() };
    let built = RegexBuilder::new(&pattern).case_insensitive(args.ignore_case).multi_line(true).build();
    built.map_err(|error| {
        // The error is a multi-line drawing; its last line has the reason.
        let text = error.to_string();
        let detail = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        VerbError::BadPattern { pattern: args.pattern.clone(), detail }.into()
    })
}

fn search(
    view: &View<'_>,
    regex: &Regex,
    found: WalkedEntry,
    lines: &mut Lines<'_>,
    matches: &mut Matches,
) -> Result<(), OpError> {
    let Node::File(file) = &found.node else { return Ok(()) };
    if file.size > SEARCH_BYTES_MAX {
        matches.skipped.push(found.path);
        return Ok(());
    }
    let content = read_content(view.reader(), file).map_err(|error| error.in_file(&found.path))?;
    // One pass over the whole file is much faster than a pass for each line, and most files do not match.
    if !regex.is_match(&content) {
        return Ok(());
    }
    let ended = each_line(&content).map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    let mut hits = (1..).zip(ended).filter(|(_, line)| regex.is_match(line)).peekable();
    // The pattern may match only across lines or after the last line; only matches within a line count.
    if hits.peek().is_none() {
        return Ok(());
    }
    matches.any = true;
    match lines {
        Lines::NamesShown(out) => return out.line(format_args!("{}", found.path)),
        Lines::Shown(_) | Lines::Kept { .. } if is_binary(&content) => {
            matches.binary.push(found.path.clone());
        }
        Lines::Shown(out) => {
            let path = out.paint(Tone::Name, &found.path);
            hits.try_for_each(|(number, line)| show_line(out, &path, number, line))?;
        }
        Lines::Kept { names_only: true } => {}
        Lines::Kept { names_only: false } => {
            matches.lines.extend(hits.map(|(number, line)| GrepMatch::of(&found.path, number, line)));
        }
    }
    if let Lines::Kept { .. } = lines {
        matches.files.push(found.path);
    }
    Ok(())
}

fn show_line(out: &mut Out, path: &Painted, number: u64, line: &[u8]) -> Result<(), OpError> {
    let number = out.paint(Tone::Dim, number);
    let line = printable::text_of(line.strip_suffix(b"\r").unwrap_or(line));
    out.line(format_args!("{path}:{number}:{line}"))
}
