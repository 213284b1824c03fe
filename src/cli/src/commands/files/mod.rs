//! Files of a version: listed, read, edited, brought in and out.

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
