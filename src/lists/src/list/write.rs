//! Writes a list, line by line.

use std::io;
use std::io::Write;

use serde::Serialize;

use avfs_types::printable;
use avfs_wire::{ListHeader, ListItem};

use super::error::ListError;

/// Writes one line at a time and keeps no part of the list.
pub struct ListWriter<W> {
    to: W,
}

impl<W: Write> ListWriter<W> {
    /// Writes the header.
    pub fn new(mut to: W, header: &ListHeader) -> io::Result<Self> {
        line(&mut to, header)?;
        Ok(Self { to })
    }

    pub fn item(&mut self, item: &ListItem) -> io::Result<()> {
        line(&mut self.to, item)
    }

    /// Flushes and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    // Write whole lines, so that a concurrent reader does not see a partial line.
    to.write_all(&printable::json_line(value)?)
}

/// Only the request of an item, in the format that `avfs-run --request` reads.
pub fn request_json(item: &ListItem) -> Result<Vec<u8>, ListError> {
    let unwritable = |error: serde_json::Error| ListError::Unwritable { problem: error.to_string() };
    let said = item.request.said().map_err(unwritable)?;
    serde_json::to_vec(&said).map_err(unwritable)
}
