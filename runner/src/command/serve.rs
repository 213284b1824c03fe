//! `--serve`: executes many requests in one process, one after the other. The worker of `avfs batch` and similar
//! commands.
//!
//! An order is one line of JSON on standard input, and its answer one line on standard output. The commands do not
//! share these streams: their input is empty and their output is in the answer.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use rustix::process::Signal;

use avfs_present::error_body;
use avfs_request::spec::SpecError;
use avfs_request::{ExecutionRequest, JsonForm};
use avfs_types::exit_code;
use avfs_types::ids::{BatchId, BatchItem};
use avfs_wire::{ExecutionEnvelope, Inspection, WorkItem};

use crate::command::args::Args;
use crate::command::error::RunError;
use crate::command::invocation::{Invocation, surroundings};
use crate::command::render;
use crate::command::request_file::{BadRequest, over};
use crate::command::run::{Asked, envelope_of, keep_cache};

/// The name of a request that is part of an order, in messages.
const ITS_NAME: &str = "of the item";

pub fn serve(args: &Args) -> u8 {
    match serve_all(args) {
        Ok(()) => exit_code::OK,
        Err(error) => {
            render::say(render::failure(&error, &args.avfs()));
            error.exit_code()
        }
    }
}

fn serve_all(args: &Args) -> Result<(), RunError> {
    let host = |operation| move |errno: rustix::io::Errno| RunError::host(operation)(errno.into());
    // If the parent dies, the answers have no reader. All processes of the sandbox die with this process.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(host("set the parent death signal"))?;
    let (orders, mut answers) = channel().map_err(host("set up the streams"))?;
    if is_unheard(&answers).map_err(host("poll the streams"))? {
        return Ok(());
    }
    let invocation = Invocation::open(args, surroundings()?)?;
    let keeper = invocation.context.cache_keeper();
    for line in BufReader::new(orders).lines() {
        let line = line.map_err(RunError::host("read an order"))?;
        let mut out = BufWriter::with_capacity(1 << 16, &mut answers);
        match answer(args, &invocation, &line) {
            Reply::Outcome(envelope) => serde_json::to_writer(&mut out, &envelope),
            Reply::Inspection(looked) => serde_json::to_writer(&mut out, &looked),
        }
        .map_err(std::io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(RunError::host("answer an order"))?;
        if let Err(text) = keep_cache(&keeper) {
            // The next order tries again; the items have been answered.
            tracing::warn!("{text}");
        }
    }
    Ok(())
}

/// Duplicates our standard streams, so that the commands cannot use them.
fn channel() -> rustix::io::Result<(File, File)> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::stdio;
    let orders = rustix::io::fcntl_dupfd_cloexec(stdio::stdin(), 3)?;
    let answers = rustix::io::fcntl_dupfd_cloexec(stdio::stdout(), 3)?;
    let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    stdio::dup2_stdin(&null)?;
    stdio::dup2_stdout(&null)?;
    Ok((orders.into(), answers.into()))
}

/// True if the parent has already died. It may have died before the parent death signal was set, and left an order
/// that another worker executes by now.
fn is_unheard(answers: &File) -> rustix::io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut looked = [PollFd::new(answers, PollFlags::empty())];
    poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(looked.iter().any(|it| it.revents().intersects(PollFlags::ERR | PollFlags::HUP)))
}

enum Reply {
    Outcome(Box<ExecutionEnvelope>),
    Inspection(Inspection),
}

fn answer(args: &Args, invocation: &Invocation, line: &str) -> Reply {
    let mut asked = None;
    match follow(args, invocation, line, &mut asked) {
        Ok(reply) => reply,
        Err(error) => Reply::Outcome(Box::new(match asked {
            Some(asked) => Asked::failed(asked, &error, &args.avfs()),
            None => ExecutionEnvelope::failed(None, error_body(&error, &args.avfs())),
        })),
    }
}

fn follow(
    args: &Args,
    invocation: &Invocation,
    line: &str,
    asked: &mut Option<Asked>,
) -> Result<Reply, RunError> {
    let path = Path::new(ITS_NAME);
    let malformed = |problem| BadRequest::Malformed { path: path.to_owned(), problem };
    let order = WorkItem::parse(line).map_err(malformed)?;
    let item = order.item.map(|item| {
        let batch = BatchId::parse(&item.batch);
        batch.map(|batch| BatchItem { batch, number: item.number })
    });
    let item = item
        .transpose()
        .map_err(|error| malformed(SpecError::Key { key: "batch", problem: error.to_string() }))?;
    if let Some(BatchItem { batch, .. }) = &item
        && !invocation.context.is_worker_of(batch)
    {
        let problem = format!("this process is not a worker of the batch {batch}");
        return Err(malformed(SpecError::Key { key: "item", problem }).into());
    }
    let words = Args { serve: false, json: Some(JsonForm::Full), quiet: true, ..args.clone() };
    let words = over(words, Ok(order.request), path)?;
    let request = ExecutionRequest { item, ..invocation.request(&words)? };
    let asked = asked.insert(Asked::of(&request, invocation.context.vault.path()));
    if order.look {
        return Ok(Reply::Inspection(avfs_present::inspection(&invocation.context.look(&request)?)));
    }
    let executed = invocation.execute(&request)?;
    let mut envelope = envelope_of(asked, &executed, &args.avfs());
    if let (Some(bytes), Some(result)) = (order.tail_bytes, &mut envelope.result) {
        result.keep_tails(bytes);
    }
    Ok(Reply::Outcome(Box::new(envelope)))
}
