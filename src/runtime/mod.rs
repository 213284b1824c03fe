//! What both commands need above the vault: which vault and directory are meant, what changed in words and
//! numbers, and the wire types of `--json`.
//!
//! Nothing here prints, and the environment comes in as a value.

mod apply;
mod change_summary;
pub mod envelope;
mod file_content;
mod locate;
mod units;
mod workspace;

pub use apply::{Applied, ApplyError, ApplyOptions, Conflict, Filter, Subject, apply};
pub use change_summary::{ChangeCounts, ChangeSummary, LineStat, Shown, TextChange, is_binary, text_change};
pub use file_content::{copy_content, read_content};
pub use locate::{
    CONFIG_FILE, LocateError, Located, Surroundings, VAULT_DIR, VAULT_FILE, VaultChoice, VaultSource,
};
pub use units::{Limit, Since, Size, Span, UnitError, show_bytes_size};
pub use workspace::{BOUND_ABOVE, WorkspaceError, bound_dir, require_bound_dir, stat_cache_path};
