//! `avfs config show`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{LocateError, bound_dir};
use avfs_ops::OpError;
use avfs_request::config::{Arity, Origin, Shown};
use avfs_terminal::{Painted, Tone};
use avfs_wire::{ConfigFile, ConfigSetting, ConfigShow, ConfigValue};

use crate::context::CommandContext;
use crate::ui::{Out, Outcome};

/// Show settings and their origins
///
/// The settings come from these places; later ones override earlier ones, and lists are appended: the
/// defaults, /etc/avfs/avfs.toml, $XDG_CONFIG_HOME/avfs/avfs.toml (else ~/.config/avfs/avfs.toml),
/// .avfs/avfs.toml in the bound directory, and variables such as AVFS_RUN_TIMEOUT for run.timeout. Options of
/// a command override all of them. Settings that would weaken the sandbox are ignored in the file of the
/// bound directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs config show
  avfs config show --origin")]
pub struct ConfigArgs {
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Show every setting and its value
    #[command(after_help = "\
Examples:
  avfs config show
  avfs config show --origin
  AVFS_RUN_TIMEOUT=10m avfs config show --origin
  avfs config show --json | jq '.result.settings[] | select(.key == \"run.timeout\")'")]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Also show the origin of each value: a line of a file, a variable, or the default
    #[arg(long)]
    origin: bool,
}

pub fn run(ctx: &CommandContext, args: &ConfigArgs) -> Outcome {
    match &args.action {
        ConfigAction::Show(show_args) => show(ctx, show_args),
    }
}

fn show(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let texts = ConfigTexts::read(&ctx.client.surroundings, bound(ctx)?.as_deref())?;
    let shown = texts.merged()?.shown();
    let (_, not_taken) = texts.for_a_run()?;
    for key in &not_taken {
        ctx.ui.note(format_args!("note: avfs-run ignores {key} in the directory's file"));
    }
    let result = ConfigShow {
        files: texts
            .layers()
            .map(|(layer, file)| ConfigFile {
                layer: layer.into(),
                path: file.path.to_string_lossy().into_owned(),
                found: file.text.is_some(),
            })
            .collect(),
        settings: shown.iter().map(wire).collect(),
        not_taken: not_taken.into_iter().map(str::to_owned).collect(),
    };
    ctx.ui.answer(&result, |out| shown.iter().try_for_each(|setting| show_setting(out, setting, args)))
}

/// The directory whose settings apply. `None` without a vault, which is not an error here.
fn bound(ctx: &CommandContext) -> Result<Option<PathBuf>, OpError> {
    match ctx.client.surroundings.locate(ctx.client.vault_option.as_deref()) {
        Err(LocateError::NoneNear { .. }) => Ok(None),
        Err(other) => Err(other.into()),
        Ok(_) => Ok(bound_dir(&ctx.open_vault()?)?),
    }
}

fn wire(shown: &Shown) -> ConfigSetting {
    let values = shown.values.iter().map(|setting| {
        let value = setting.value.clone();
        let plain = |origin: &'static str| ConfigValue {
            value,
            origin: origin.into(),
            file: None,
            line: None,
            variable: None,
        };
        match &setting.origin {
            Origin::Default => plain("default"),
            Origin::File { path, line } => {
                let (file, line) = (Some(path.to_string_lossy().into_owned()), Some(*line as u64));
                ConfigValue { file, line, ..plain("file") }
            }
            Origin::Variable { name } => ConfigValue { variable: Some(name.clone()), ..plain("variable") },
        }
    });
    ConfigSetting { key: shown.key.to_owned(), list: shown.arity == Arity::List, values: values.collect() }
}

fn show_setting(out: &mut Out, shown: &Shown, args: &ShowArgs) -> Result<(), OpError> {
    let key = out.paint(Tone::Name, shown.key);
    let behind = |out: &Out, origin: &Origin| match (args.origin, origin) {
        (false, _) => Painted::default(),
        (true, Origin::Default) => out.paint(Tone::Dim, "  (default)"),
        (true, Origin::File { path, line }) => {
            out.paint(Tone::Dim, format_args!("  ({}:{line})", path.display()))
        }
        (true, Origin::Variable { name }) => out.paint(Tone::Dim, format_args!("  (${name})")),
    };
    if shown.values.is_empty() {
        return out.line(format_args!("{key} = []{}", behind(out, &Origin::Default)));
    }
    let sign = match shown.arity {
        Arity::One => "=",
        Arity::List => "+=",
    };
    for setting in &shown.values {
        out.line(format_args!("{key} {sign} {:?}{}", setting.value, behind(out, &setting.origin)))?;
    }
    Ok(())
}
