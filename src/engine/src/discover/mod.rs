//! Finds the vault, settings and policies to use, checks whether they are trusted, and surveys a directory
//! before its first import.

pub mod config_files;
pub mod confirm;
pub mod file_text;
pub mod first_import;
mod kept_record;
pub mod locate;
pub mod policy_files;
pub mod trust;
mod trust_entry;
