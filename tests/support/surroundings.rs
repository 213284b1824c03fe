//! Process attributes that tests inherit, set to the expected values: a suite may have been started by `nohup`, with
//! another umask or with limits.

use std::sync::Once;

use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit on open files.
const FILES: u64 = 1024;

/// Signals that a caller may have left ignored.
const SIGNALS: [Signal; 11] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGWINCH,
];

/// Sets them for this process and its children.
pub fn set() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        for number in SIGNALS {
            // SAFETY: the default disposition runs no code of this program.
            unsafe { signal(number, SigHandler::SigDfl) }.unwrap();
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let limit = getrlimit(Resource::Nofile);
        let soft = limit.maximum.map_or(FILES, |hard| hard.min(FILES));
        setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: limit.maximum }).unwrap();
    });
}
