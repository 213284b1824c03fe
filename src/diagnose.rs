//! What every error of the library can tell a person and a script: a stable code and what to do next.

/// A stable code (part of the `--json` contract: never renamed) and a hint with the next command to run.
pub trait Diagnose: std::error::Error {
    fn code(&self) -> &'static str;
    fn hint(&self) -> Option<String>;
    /// The code of what it came from, where that says more.
    fn cause(&self) -> Option<&'static str> {
        None
    }
}
