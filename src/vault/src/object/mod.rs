//! Immutable objects: blobs, tree pages, and how they are read, written, edited and compared.

pub mod changes;
pub mod chunk;
pub mod codec;
pub mod content;
pub mod delta;
pub mod diff;
pub mod edit;
pub mod edited_tree;
pub mod expansion;
pub mod file_content;
pub mod ingest;
pub mod links;
pub mod object_writer;
pub mod page;
pub mod page_codec;
pub mod pages;
pub mod reach;
pub mod renames;
pub mod tree;
