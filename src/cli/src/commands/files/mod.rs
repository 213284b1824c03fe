//! Verbs that list, read, edit, import and export the files of a version.

pub mod cat;
pub mod cp;
pub mod edited;
pub mod export;
pub mod find;
pub mod grep;
pub mod import;
pub mod ls;
pub mod materialize;
pub mod mkdir;
pub mod mv;
pub mod rm;
pub mod tree;
pub mod write;
