//! Remembered results: prints their output, and answers `avfs cache explain`.

use avfs_engine::{Executed, Outcome, Output};
use avfs_present::error_body;
use avfs_request::spec::SCHEMA_VERSION;
use avfs_request::{ExecutionRequest, Streams};
use avfs_types::{Zone, exit_code, printable};
use avfs_wire::Envelope;

use crate::command::args::Args;
use crate::command::error::RunError;
use crate::command::invocation::Invocation;
use crate::command::render;

type PassOn = fn(&Output) -> std::io::Result<()>;

/// Writes the output of a cached run to the streams that an executed run would use. A closed reader (`EPIPE`) is
/// not an error.
pub fn give_output(args: &Args, executed: &mut Executed) -> Result<(), RunError> {
    let Ok(Outcome::Ran(result)) = &mut executed.outcome else { return Ok(()) };
    let cached = result.cache.as_ref().is_some_and(|cache| cache.from.is_some());
    if !cached || args.json.is_some() {
        return Ok(());
    }
    let streams = [
        (&mut result.stdout, render::pass_on_output as PassOn),
        (&mut result.stderr, render::pass_on_error_output),
    ];
    for (output, pass_on) in streams {
        // An envelope has only output that was not passed on.
        match output.as_mut().map_or(Ok(()), |output| pass_on(&std::mem::take(output))) {
            Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(RunError::host("write the command's output")(source));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Prints whether a cached result would be used.
pub fn explain_cache(args: &Args) -> u8 {
    let mut asked = None;
    let explained = Invocation::ask(args, &mut asked).and_then(|(invocation, request)| {
        // The question is about the result, not about where this answer goes.
        let request = ExecutionRequest { streams: Streams::Captured { bytes_max: usize::MAX }, ..request };
        let not_remembered = invocation.context.why_not_remembered(&request);
        Ok(avfs_present::cache_explained_of_look(&invocation.context.look(&request)?, &not_remembered))
    });
    let (explained, error) = match explained {
        Ok(explained) => (Some(explained), None),
        Err(error) => (None, Some(error)),
    };
    let secrets = asked.map(|asked| asked.secrets).unwrap_or_default();
    let avfs = args.avfs();
    let body = error.as_ref().map(|error| error_body(error, &avfs).without(&secrets));
    if let (Some(error), false) = (&error, args.json.is_some()) {
        render::say_failure(error, &avfs, &secrets);
    }
    // A reader that closes the pipe early is not a failure.
    let _ = match (&explained, args.json.is_some()) {
        (_, true) => {
            let (kind, result) = ("cache.explain".into(), explained.as_ref());
            let success = result.is_some();
            let envelope = Envelope { schema_version: SCHEMA_VERSION, kind, success, result, error: body };
            printable::json_line(&envelope).and_then(|text| avfs_terminal::pass_on(&text))
        }
        (Some(explained), false) => render::answer(explained.lines(&Zone::system())),
        (None, false) => Ok(()),
    };
    error.map_or(exit_code::OK, |error| error.exit_code())
}
