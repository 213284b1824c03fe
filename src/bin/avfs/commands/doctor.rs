//! `avfs doctor`

use std::process::Command;

use avfs::runtime::envelope::{Doctor, DoctorCheck, ErrorBody};
use clap::Args;

use crate::context::{CommandContext, runner};
use crate::error::EdgeError;
use crate::ui::{Failure, Outcome, Tone};

/// Find out what this host allows, by doing it
///
/// Makes each piece of the sandbox once: namespaces, mounts, overlays, a private /proc and network. Says which
/// one fails, and what its owner can do about it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs doctor
  avfs doctor --json")]
pub struct DoctorArgs {}

pub fn run(ctx: &CommandContext, _args: &DoctorArgs) -> Outcome {
    let checks = probe()?;
    let broken = checks.iter().filter(|check| check.required && !check.ok).count();
    let result = Doctor { ready: broken == 0, checks };
    let human = |out: &mut crate::ui::Out| {
        for check in &result.checks {
            let mark = match (check.ok, check.required) {
                (true, _) => out.paint(Tone::Added, "ok  "),
                (false, true) => out.paint(Tone::Deleted, "FAIL"),
                (false, false) => out.paint(Tone::Changed, "no  "),
            };
            out.line(format_args!("{mark}  {}", check.name))?;
            for text in [&check.detail, &check.hint].into_iter().flatten() {
                out.line(format_args!("      {text}"))?;
            }
        }
        out.line(format_args!(
            "{}",
            if result.ready { "avfs-run works here" } else { "avfs-run does not work here" }
        ))
    };
    if result.ready {
        return ctx.ui.answer(&result, human);
    }
    let why = ErrorBody {
        code: "doctor.not_ready".to_owned(),
        message: format!("{broken} of the checks that a run needs failed"),
        hint: result
            .checks
            .iter()
            .find(|check| check.required && !check.ok)
            .and_then(|check| check.hint.clone()),
    };
    ctx.ui.answer_no(&result, &why, human)
}

/// Has the runner try: only it makes sandboxes.
fn probe() -> Result<Vec<DoctorCheck>, Failure> {
    let runner = runner();
    let output = Command::new(&runner).arg("--probe").output().map_err(EdgeError::host("start", &runner))?;
    let answer = serde_json::from_slice(&output.stdout);
    Ok(answer.map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        EdgeError::host("understand", &runner)(std::io::Error::other(format!("{error} {said}")))
    })?)
}
