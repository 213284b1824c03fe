//! The bytes of a file in a version, streamed piece by piece: memory stays bounded whatever the file's size.

use std::io::Write;

use crate::backend::Reader;
use crate::vault::chunk::{Piece, PieceReader};
use crate::vault::content;
use crate::vault::page::{FileContent, FileNode};
use crate::vault::{Result, VaultError};

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Writes a file's bytes to `out`, each piece checked against its digest first.
pub fn copy_content(reader: &dyn Reader, file: &FileNode, out: &mut dyn Write) -> Result<()> {
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(VaultError::Output);
    match &file.content {
        FileContent::Whole(id) => write(&content::decode(content::fetch(reader, id)?)?),
        FileContent::Chunked(list) => {
            let mut pieces = PieceReader::open(reader, list)?;
            while let Some(piece) = pieces.next(reader)? {
                match piece.decode()? {
                    Piece::Data(data) => write(&data)?,
                    Piece::Hole(length) => write_zeros(length, &mut write)?,
                }
            }
            Ok(())
        }
    }
}

fn write_zeros(mut length: u64, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    while length > 0 {
        let step = usize::try_from(length).unwrap_or(usize::MAX).min(ZEROS.len());
        write(&ZEROS[..step])?;
        length -= step as u64;
    }
    Ok(())
}

/// A file's bytes in memory, for files that are known to be small.
pub fn read_content(reader: &dyn Reader, file: &FileNode) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(file.size).unwrap_or(0));
    copy_content(reader, file, &mut bytes)?;
    Ok(bytes)
}
