//! Arguments that are paths of a version.

use clap::builder::{OsStringValueParser, TypedValueParser};

use avfs_ops::GivenPath;

/// Parses a path inside a version, which may contain any bytes.
pub fn tree_path() -> impl TypedValueParser<Value = GivenPath> {
    OsStringValueParser::new().try_map(GivenPath::parse)
}

/// Like [`tree_path`], for the path of a file.
pub fn file_path() -> impl TypedValueParser<Value = GivenPath> {
    OsStringValueParser::new().try_map(GivenPath::parse_file)
}
