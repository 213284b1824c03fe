//! Which vault, settings and policies are meant, and whether they are trusted.

pub mod config_files;
pub mod file_text;
pub mod locate;
pub mod policy_files;
pub mod trust;
