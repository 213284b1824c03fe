//! `avfs config show`

use std::path::PathBuf;

use avfs::config::{Arity, ConfigTexts, Origin, Shown};
use avfs::runtime::envelope::{ConfigFile, ConfigSetting, ConfigShow, ConfigValue};
use avfs::runtime::{LocateError, bound_dir};
use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::ui::{Failure, Out, Outcome, Tone};

/// Show settings and where they come from
///
/// $XDG_CONFIG_HOME/avfs/config.toml (else ~/.config/avfs/config.toml) is read first, then .avfs/config.toml of the
/// bound directory: its keys win, and its lists are appended. What would open the sandbox counts for a run only in
/// the user's own file.
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
    let texts = ConfigTexts::read(&ctx.around, bound(ctx)?.as_deref())?;
    let shown = texts.merged()?.shown();
    let (_, not_taken) = texts.for_a_run()?;
    for key in &not_taken {
        ctx.ui.note(format_args!("note: avfs-run does not take {key} from the directory's file"));
    }
    let result = ConfigShow {
        files: texts
            .all()
            .map(|file| ConfigFile {
                path: file.path.to_string_lossy().into_owned(),
                found: file.text.is_some(),
            })
            .collect(),
        settings: shown.iter().map(wire).collect(),
        not_taken: not_taken.into_iter().map(str::to_owned).collect(),
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
