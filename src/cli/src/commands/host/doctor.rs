//! `avfs doctor`

use std::path::Path;

use clap::Args;
use serde::Deserialize;

use avfs_ops::{OpError, WorkplaceError};
use avfs_request::explanations;
use avfs_terminal::Tone;
use avfs_wire::{DenialObject, Doctor, DoctorCheck, ErrorBody};

use crate::context::{CommandContext, OWN, own_command};
use crate::ui::{Out, Outcome};

/// Check whether this host supports the sandbox
///
/// Use it before the first run on a host, and when a run fails with exit code 121 (the sandbox could not be set
/// up). Needs no vault and changes nothing.
///
/// Tries each part of the sandbox once: namespaces, mounts, overlays, a private /proc and a private network.
/// Prints which part fails, and how the administrator can fix it.
///
/// With --explain-denials, also lists the system calls that a confined command is denied, the reason, the
/// error that the program gets, and the option that allows each.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs doctor                     # exits with 1 if a run would not work
  avfs doctor --explain-denials   # also explain which system calls a command is denied
  avfs doctor --json | jq '.result.checks[] | select(.ok | not)'")]
pub struct DoctorArgs {
    /// List the operations that a confined command is denied, and why
    #[arg(long)]
    explain_denials: bool,
}

pub fn run(ctx: &CommandContext, args: &DoctorArgs) -> Outcome {
    let checks = probe()?;
    let broken = checks.iter().filter(|check| check.required && !check.ok).count();
    let denials =
        args.explain_denials.then(|| explanations().into_iter().map(avfs_present::denial).collect());
    let result = Doctor { ready: broken == 0, checks, denials };
    let human = |out: &mut Out| {
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
        ))?;
        result.denials.iter().flatten().try_for_each(|denial| explain(out, denial))
    };
    if result.ready {
        return ctx.ui.answer(&result, human);
    }
    let why = ErrorBody {
        code: "doctor.not_ready".to_owned(),
        message: format!("{broken} required checks failed"),
        hint: result
            .checks
            .iter()
            .find(|check| check.required && !check.ok)
            .and_then(|check| check.hint.clone()),
    };
    ctx.ui.answer_no(&result, &why, human)
}

fn explain(out: &mut Out, denial: &DenialObject) -> Result<(), OpError> {
    let DenialObject { layer, by, name, calls, all_but, which, answer, told, why, relax } = denial;
    let reported = if *told { ", and is reported" } else { "" };
    out.line(format_args!(""))?;
    out.line(format_args!("{} ({layer}: {})", out.paint(Tone::Changed, name), by.join(", ")))?;
    let which = which.as_ref().map(|which| format!(" {which}")).unwrap_or_default();
    if !calls.is_empty() {
        out.line(format_args!("  calls:  {}{which}", calls.join(", ")))?;
    }
    if !all_but.is_empty() {
        out.line(format_args!("  calls:  all except {}", all_but.join(", ")))?;
    }
    out.line(format_args!("  gets:   {answer}{reported}"))?;
    out.line(format_args!("  why:    {why}"))?;
    out.line(format_args!("  allow:  {relax}"))
}

/// The answer of the runner when it cannot run the checks.
#[derive(Deserialize)]
struct Refusal {
    error: ErrorBody,
}

/// Runs the checks in a separate process, because they change the process.
fn probe() -> Result<Vec<DoctorCheck>, OpError> {
    let own = Path::new(OWN);
    let output = own_command("run").arg("--probe").output().map_err(WorkplaceError::host("start", own))?;
    if let Ok(refusal) = serde_json::from_slice::<Refusal>(&output.stdout) {
        return Err(OpError::Body(refusal.error));
    }
    let answer = serde_json::from_slice(&output.stdout);
    Ok(answer.map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        WorkplaceError::host("parse the output of", own)(std::io::Error::other(format!("{error} {said}")))
    })?)
}
