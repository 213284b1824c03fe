//! Which vault, settings and policies are meant and whether they are trusted, and what a directory holds before its first
//! import.

pub mod config_files;
pub mod file_text;
pub mod first_import;
pub mod locate;
pub mod policy_files;
pub mod trust;
