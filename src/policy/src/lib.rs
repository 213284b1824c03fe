//! The policy: classifies a command by its text, and decides by rules whether it may run.
//!
//! Pure: never reads files, the environment, the clock or processes, so that the same request always gets the same
//! decision.
//!
//! ```
//! use std::path::Path;
//!
//! use avfs_policy::{Action, Asked, Category, OwnChoices, Policy};
//! use avfs_request::{ExecutionRequest, Terminal};
//! use avfs_types::CommandLine;
//!
//! let request = ExecutionRequest::of(CommandLine::Shell("ls | wc -l".into()));
//! let workspace = Path::new("/work");
//! let asked = Asked {
//!     command: &request.command,
//!     fork: None,
//!     cwd: workspace,
//!     workspace,
//!     project: workspace,
//!     home: None,
//!     net: &request.net,
//!     confinement: request.confinement,
//!     profile: request.profile,
//!     timeout: request.timeout,
//!     rw: &[],
//!     provided: &[],
//!     secrets: &[],
//!     variables: &[],
//!     openings: &[],
//!     terminal: Terminal::None,
//!     editor: false,
//!     own: OwnChoices::NONE,
//! };
//! let decision = Policy::builtin().decide(&asked);
//! assert_eq!(decision.action, Action::Allow);
//! assert!(decision.categories.contains(Category::ReadOnly));
//! ```
#![forbid(unsafe_code)]

mod caps;
mod category;
mod decision;
mod defaults;
mod engine;
mod error;
mod examples;
mod explanation;
mod file;
mod layer;
mod offer;
mod opening;
mod profile;
mod read;
mod reading;
#[cfg_attr(not(feature = "rego"), path = "rego_left_out.rs")]
mod rego;
mod rules;
#[cfg(test)]
mod tests;
mod verdict;

pub use caps::{Cap, Caps};
pub use category::{Categories, Category};
pub use decision::{Action, ExecutionDecision, OnViolation};
pub use defaults::{NETWORKED, NO_TERMINAL};
pub use engine::Policy;
pub use error::PolicyError;
pub use examples::{Example, ExampleFault, FailedExample, Wanted};
pub use explanation::{Effect, Explained, Explanation, Said};
pub use layer::{EXPLAIN_HINT, Layer};
pub use offer::quoted;
pub use opening::{Opening, OpeningKind, Widening};
pub use profile::Profiles;
pub use read::{BRACE_WORDS_MAX, COMMANDS_MAX, NESTING_MAX, TEXT_BYTES_MAX};
pub use read::{EDITOR_VARIABLES, EnvironmentUse, NoRule, always, environment_use, fills_screen, read};
pub use reading::{Asked, Finding, Judged, OwnChoices, Reading, Screen, Word};
pub use rego::Script;
pub use rules::{ArgPattern, Conditions, Pattern, Rule};
pub use verdict::{Fit, Placed, RulePlace, Tier, Verdict};
