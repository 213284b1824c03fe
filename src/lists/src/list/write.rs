//! Writes a list, line by line.

use std::io;
use std::io::Write;

use serde::Serialize;

use avfs_types::printable;
use avfs_wire::{ListHeader, ListItem};

use super::error::ListError;

/// Writes lines as they come; nothing of the list is kept.
pub struct ListWriter<W> {
    to: W,
}

impl<W: Write> ListWriter<W> {
    /// Begins with the header.
    pub fn new(mut to: W, header: &ListHeader) -> io::Result<Self> {
        line(&mut to, header)?;
        Ok(Self { to })
    }

    pub fn item(&mut self, item: &ListItem) -> io::Result<()> {
        line(&mut self.to, item)
    }

    /// Hands back what was written to, with everything in it.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    // Whole lines: who reads along never sees half of one that could be had whole.
    to.write_all(&printable::json_line(value)?)
}

/// The item's request alone: what `avfs-run --request` reads.
pub fn request_json(item: &ListItem) -> Result<Vec<u8>, ListError> {
    let unwritable = |error: serde_json::Error| ListError::Unwritable { problem: error.to_string() };
    let said = item.request.said().map_err(unwritable)?;
    serde_json::to_vec(&said).map_err(unwritable)
}
