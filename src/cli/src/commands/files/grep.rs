//! `avfs grep`

use clap::Args;

use avfs_ops::{GivenPath, GrepQuery, MatchedLines, OpError, Pattern, PatternOptions, Workplace};
use avfs_present::error_body;
use avfs_terminal::{Painted, Tone};
use avfs_types::printable;
use avfs_types::reference::Reference;

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome};

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

pub fn run(ctx: &CommandContext, args: GrepArgs) -> Outcome {
    let GrepArgs { reference, pattern, paths, ignore_case, fixed, files } = args;
    let pattern = Pattern::parse(pattern, PatternOptions { ignore_case, fixed })?;
    let query = GrepQuery { reference, pattern, paths };
    let workplace = ctx.client.open()?;
    let lines = if files { MatchedLines::LeftOut } else { MatchedLines::Listed };
    if ctx.ui.format == Format::Human {
        return show(ctx, &workplace, &query, lines);
    }
    let (result, no_match) = avfs_ops::grep(&workplace, &query, lines)?;
    match no_match {
        None => ctx.ui.answer(&result, |_| Ok(())),
        Some(why) => ctx.ui.answer_no(&result, &error_body(&why, &ctx.ui.avfs), |_| Ok(())),
    }
}

/// Prints each line when it is found, and the binary files at the end.
fn show(ctx: &CommandContext, workplace: &Workplace, query: &GrepQuery, lines: MatchedLines) -> Outcome {
    let (mut out, mut binary) = (ctx.ui.out(), Vec::new());
    let searched = avfs_ops::each_match(workplace, query, &mut |found| {
        if lines == MatchedLines::LeftOut {
            return out.line(format_args!("{}", found.path));
        }
        if found.is_binary() {
            binary.push(found.path.clone());
            return Ok(());
        }
        let path = out.paint(Tone::Name, found.path);
        for (number, line) in found.lines {
            show_line(&mut out, &path, number, line)?;
        }
        Ok(())
    })?;
    out.flush()?;
    drop(out);
    let show = |out: &mut Out| {
        binary.iter().try_for_each(|path| out.line(format_args!("{path}: binary file matches")))
    };
    match searched.no_match {
        None => ctx.ui.answer(&(), show),
        Some(why) => ctx.ui.answer_no(&(), &error_body(&why, &ctx.ui.avfs), show),
    }
}

fn show_line(out: &mut Out, path: &Painted, number: u64, line: &[u8]) -> Result<(), OpError> {
    let number = out.paint(Tone::Dim, number);
    let line = printable::text_of(line.strip_suffix(b"\r").unwrap_or(line));
    out.line(format_args!("{path}:{number}:{line}"))
}
