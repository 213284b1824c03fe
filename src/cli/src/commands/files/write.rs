//! `avfs write`

use std::io::{Cursor, IsTerminal, Read};

use clap::Args;

use avfs_ops::GivenPath;

use crate::cli::EditOptions;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::given_path::file_path;
use crate::ui::Outcome;

/// Write a file inside a fork, from stdin or --text
///
/// Creates missing parent directories. An existing file keeps its mode unless --mode is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo hello | avfs write notes.txt
  avfs write bin/run --text '#!/bin/sh' --mode 755 --fork experiment")]
pub struct WriteArgs {
    /// The file to write
    #[arg(value_parser = file_path())]
    path: GivenPath,
    #[command(flatten)]
    edit: EditOptions,
    /// Write this text [default: read stdin]
    #[arg(long)]
    text: Option<String>,
    /// Set these permission bits [default: 644 for a new file]
    #[arg(long, value_name = "OCTAL", value_parser = parse_mode)]
    mode: Option<u32>,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| "expected up to four octal digits, such as 644".to_owned())
}

pub fn run(ctx: &CommandContext, args: WriteArgs) -> Outcome {
    let WriteArgs { path, edit, text, mode } = args;
    let workplace = ctx.client.open()?;
    let input: Box<dyn Read + Send> = match text {
        Some(text) => Box::new(Cursor::new(text.into_bytes())),
        None => {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                ctx.ui.note(format_args!("reading the content from the terminal; end it with Ctrl-D"));
            }
            Box::new(stdin)
        }
    };
    edited::answer(ctx, &avfs_ops::write(&workplace, &edit.into(), &path, input, mode)?)
}
