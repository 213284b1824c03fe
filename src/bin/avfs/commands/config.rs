//! `avfs config show`

use std::path::PathBuf;

use avfs::config::{Arity, Config, Origin, Shown};
use avfs::runtime::envelope::{ConfigFile, ConfigSetting, ConfigShow, ConfigValue};
use avfs::runtime::{LocateError, bound_dir};
use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::ui::{Failure, Out, Outcome, Tone};

/// Show settings and where they come from
///
/// $XDG_CONFIG_HOME/avfs/config.toml (else ~/.config/avfs/config.toml) is read first, then .avfs/config.toml of the
/// bound directory: its keys win, and its lists are appended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs config show
  avfs config show --json")]
pub struct ConfigArgs {
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Show every setting, its value and the line that set it
    #[command(after_help = "\
Examples:
  avfs config show
  avfs config show --json | jq '.result.settings[] | select(.key == \"run.timeout\")'")]
    Show,
}

pub fn run(ctx: &CommandContext, args: &ConfigArgs) -> Outcome {
    match args.action {
        ConfigAction::Show => show(ctx),
    }
}

fn show(ctx: &CommandContext) -> Outcome {
    let texts = ctx.config_texts(bound(ctx)?.as_deref())?;
    let mut config = Config::default();
    for (path, text) in &texts {
        if let Some(text) = text {
            config = config.with(path, text)?;
        }
    }
    let shown = config.shown();
    let result = ConfigShow {
        files: texts
            .iter()
            .map(|(path, text)| ConfigFile {
                path: path.to_string_lossy().into_owned(),
                found: text.is_some(),
            })
            .collect(),
        settings: shown.iter().map(wire).collect(),
    };
    ctx.ui.answer(&result, |out| shown.iter().try_for_each(|setting| show_setting(out, setting)))
}

/// The directory whose settings count; none where there is no vault, which is no failure here.
fn bound(ctx: &CommandContext) -> Result<Option<PathBuf>, Failure> {
    match ctx.around.locate(ctx.vault_option.as_deref()) {
        Err(LocateError::NoneNear { .. }) => Ok(None),
        Err(other) => Err(other.into()),
        Ok(_) => Ok(bound_dir(&ctx.open_vault()?)?),
    }
}

fn wire(shown: &Shown) -> ConfigSetting {
    let values = shown.values.iter().map(|setting| {
        let (file, line) = match &setting.origin {
            Origin::Default => (None, None),
            Origin::File { path, line } => (Some(path.to_string_lossy().into_owned()), Some(*line as u64)),
        };
        ConfigValue { value: setting.value.clone(), file, line }
    });
    ConfigSetting { key: shown.key.to_owned(), list: shown.arity == Arity::List, values: values.collect() }
}

fn show_setting(out: &mut Out, shown: &Shown) -> Result<(), Failure> {
    let key = out.paint(Tone::Name, shown.key);
    if shown.values.is_empty() {
        return out.line(format_args!("{key} = []  {}", out.paint(Tone::Dim, "(default)")));
    }
    let sign = match shown.arity {
        Arity::One => "=",
        Arity::List => "+=",
    };
    for setting in &shown.values {
        let origin = match &setting.origin {
            Origin::Default => "(default)".to_owned(),
            Origin::File { path, line } => format!("({}:{line})", path.display()),
        };
        out.line(format_args!("{key} {sign} {:?}  {}", setting.value, out.paint(Tone::Dim, origin)))?;
    }
    Ok(())
}
