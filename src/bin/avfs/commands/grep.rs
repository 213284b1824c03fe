//! `avfs grep`

use avfs::runtime::envelope::{ErrorBody, Grep, GrepMatch};
use avfs::runtime::{is_binary, lines, read_content};
use avfs::vault::page::Node;
use avfs::vault::path::TreePath;
use avfs::vault::version::Reference;
use clap::Args;
use regex::bytes::{Regex, RegexBuilder};

use crate::cli::tree_path;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Failure, Format, Out, Outcome, Tone};
use crate::view::{Found, View};

/// Larger files are not searched, and named.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// Search the files of a version for a regular expression
///
/// Exits with 1 when nothing matches. Files that are not text are named, not shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs grep main 'fn main'
  avfs grep main -i todo src docs
  avfs grep main~5 -F 'a[0]' -l")]
pub struct GrepArgs {
    /// The version
    #[arg(value_name = "REF")]
    reference: Reference,
    /// What to search for
    #[arg(allow_hyphen_values = true)]
    pattern: String,
    /// Only in these files and directories
    #[arg(value_name = "PATH", value_parser = tree_path())]
    paths: Vec<TreePath>,
    /// Upper and lower case are the same
    #[arg(short, long)]
    ignore_case: bool,
    /// The pattern is plain text
    #[arg(short = 'F', long)]
    fixed: bool,
    /// Only name the files
    #[arg(short = 'l', long)]
    files: bool,
}

/// What a search found, file by file.
#[derive(Default)]
struct Matches {
    lines: Vec<(TreePath, u64, Vec<u8>)>,
    files: Vec<TreePath>,
    binary: Vec<TreePath>,
    skipped: Vec<TreePath>,
}

pub fn run(ctx: &CommandContext, args: &GrepArgs) -> Outcome {
    let regex = compile(args)?;
    let vault = ctx.open_vault()?;
    let view = View::open(&vault, &args.reference)?;
    let everything = [TreePath::root()];
    let paths = if args.paths.is_empty() { &everything[..] } else { &args.paths };
    let mut matches = Matches::default();
    for path in paths {
        for found in view.walk(path, None)? {
            search(&view, &regex, found, args.files, &mut matches)?;
        }
    }
    for path in &matches.skipped {
        ctx.ui.note(format_args!("note: {path} is too large to be searched"));
    }
    let json = ctx.ui.format == Format::Json;
    let result = to_result(&view, &matches, json);
    let show = |out: &mut Out| if args.files { show_files(out, &matches) } else { show_lines(out, &matches) };
    if matches.files.is_empty() {
        let message = format!("nothing matches {:?}", args.pattern);
        let why = ErrorBody { code: "grep.no_match".to_owned(), message, hint: None };
        return ctx.ui.answer_no(&result, &why, show);
    }
    ctx.ui.answer(&result, show)
}

fn compile(args: &GrepArgs) -> Result<Regex, EdgeError> {
    let pattern = if args.fixed { regex::escape(&args.pattern) } else { args.pattern.clone() };
    let built = RegexBuilder::new(&pattern).case_insensitive(args.ignore_case).multi_line(true).build();
    built.map_err(|error| {
        // Its text is a drawing of several lines; the last one says what is wrong.
        let text = error.to_string();
        let detail = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        EdgeError::BadPattern { pattern: args.pattern.clone(), detail }
    })
}

fn search(
    view: &View<'_>,
    regex: &Regex,
    found: Found,
    names_only: bool,
    matches: &mut Matches,
) -> Result<(), Failure> {
    let Node::File(file) = &found.node else { return Ok(()) };
    if file.size > SEARCH_BYTES_MAX {
        matches.skipped.push(found.path);
        return Ok(());
    }
    let content = read_content(view.reader(), file).map_err(|error| error.in_file(&found.path))?;
    // One pass over the whole file is much faster than one for each line, and most files do not match.
    if !regex.is_match(&content) {
        return Ok(());
    }
    let ended = lines(&content).into_iter().map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    let hits: Vec<(u64, &[u8])> = (1..).zip(ended).filter(|(_, line)| regex.is_match(line)).collect();
    // A pattern may only match across lines, or behind the last one: lines are searched one by one.
    if hits.is_empty() {
        return Ok(());
    }
    if is_binary(&content) {
        matches.binary.push(found.path.clone());
    } else if !names_only {
        let lines = hits.into_iter().map(|(number, line)| (found.path.clone(), number, line.to_vec()));
        matches.lines.extend(lines);
    }
    matches.files.push(found.path);
    Ok(())
}

fn to_result(view: &View<'_>, matches: &Matches, with_lines: bool) -> Grep {
    let mut result = Grep {
        version: view.version.id.to_hex(),
        matches: Vec::new(),
        files: matches.files.iter().map(Into::into).collect(),
        binary: matches.binary.iter().map(Into::into).collect(),
        skipped: matches.skipped.iter().map(Into::into).collect(),
    };
    if with_lines {
        let lines = matches.lines.iter().map(|(path, number, line)| GrepMatch::of(path, *number, line));
        result.matches = lines.collect();
    }
    result
}

fn show_files(out: &mut Out, matches: &Matches) -> Result<(), Failure> {
    matches.files.iter().try_for_each(|path| out.line(format_args!("{path}")))
}

fn show_lines(out: &mut Out, matches: &Matches) -> Result<(), Failure> {
    for (path, number, line) in &matches.lines {
        let (path, number) = (out.paint(Tone::Name, path), out.paint(Tone::Dim, number));
        out.bytes(format!("{path}:{number}:").as_bytes())?;
        out.content(line.strip_suffix(b"\r").unwrap_or(line))?;
        out.bytes(b"\n")?;
    }
    matches.binary.iter().try_for_each(|path| out.line(format_args!("{path}: binary file matches")))
}
