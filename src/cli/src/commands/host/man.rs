//! `avfs man`

use std::path::{Path, PathBuf};

use clap::{Args, Command};

use avfs_ops::{OpError, WorkplaceError};
use avfs_wire::{Man, ManPage};

use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::help;
use crate::ui::Outcome;

const SOURCE: &str = concat!("avfs ", env!("CARGO_PKG_VERSION"));

/// Print a manual page, or write all of them to a directory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs man | man -l -
  avfs man fork create | man -l -
  avfs man --dir ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The verb whose page to print [default: avfs itself]
    #[arg(value_name = "VERB", conflicts_with = "dir")]
    verb: Vec<String>,
    /// Write the pages of all verbs to this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

pub fn run(ctx: &CommandContext, args: &ManArgs) -> Outcome {
    let mut root = help::command();
    root.build();
    match &args.dir {
        Some(dir) => write_all(ctx, &root, &ctx.client.surroundings.cwd.join(dir)),
        None => print_one(ctx, &root, &args.verb),
    }
}

fn print_one(ctx: &CommandContext, root: &Command, verb: &[String]) -> Outcome {
    let mut at = root;
    for word in verb {
        let beneath = at.find_subcommand(word);
        at = beneath.ok_or_else(|| EdgeError::UnknownVerb { verb: verb.join(" ") })?;
    }
    let words: Vec<&str> = std::iter::once("avfs").chain(verb.iter().map(String::as_str)).collect();
    let name = words.join("-");
    let text = render(at, &name)?;
    let page = ManPage { name: format!("{name}.1"), file: None, text: Some(text.clone()) };
    ctx.ui.answer(&Man { pages: vec![page] }, |out| out.own_bytes(text.as_bytes()))
}

fn render(command: &Command, name: &str) -> Result<String, OpError> {
    // `avfs run` is avfs-run, and their pages have the same name.
    if name == "avfs-run" {
        return Ok(avfs_run::manual_page().map_err(WorkplaceError::Output)?);
    }
    let mut text = Vec::new();
    let mut named = command.clone().override_usage(usage(command)).display_name(name.to_owned());
    if named.has_subcommands() {
        // The help verb has no manual page.
        named = named.mut_subcommand("help", |help| help.hide(true));
    }
    clap_mangen::Man::new(named)
        .title(name)
        .source(SOURCE)
        .manual("avfs")
        .render(&mut text)
        .map_err(WorkplaceError::Output)?;
    // The text after the help of a verb is its examples.
    Ok(String::from_utf8_lossy(&text).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n"))
}

/// The usage line of the help. clap_mangen would omit the dots of repeatable arguments and the `--` before
/// arguments that must follow it.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned()
}

fn write_all(ctx: &CommandContext, root: &Command, dir: &Path) -> Outcome {
    std::fs::create_dir_all(dir).map_err(WorkplaceError::host("create", dir))?;
    let mut pages = Vec::new();
    let mut waiting = vec![(root.clone(), "avfs".to_owned())];
    while let Some((command, name)) = waiting.pop() {
        let file = dir.join(format!("{name}.1"));
        std::fs::write(&file, render(&command, &name)?).map_err(WorkplaceError::host("write", &file))?;
        pages.push(ManPage {
            name: format!("{name}.1"),
            file: Some(file.to_string_lossy().into_owned()),
            text: None,
        });
        let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help");
        waiting.extend(verbs.map(|verb| (verb.clone(), format!("{name}-{}", verb.get_name()))));
    }
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    let result = Man { pages };
    ctx.ui.answer(&result, |out| {
        let files = result.pages.iter().filter_map(|page| page.file.as_ref());
        files.into_iter().try_for_each(|file| out.line(format_args!("{file}")))
    })
}
