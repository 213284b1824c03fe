//! The content of a file in a version, streamed piece by piece: memory is bounded regardless of the file's size.

use std::io::Write;

use crate::backend::Reader;
use crate::chunk::{Piece, PieceReader};
use crate::page::{FileContent, FileNode};
use crate::{Result, VaultError, content};

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Writes a file's content to `out`, each piece verified against its digest first, and never more than the file's
/// size.
pub fn copy_content(reader: &dyn Reader, file: &FileNode, out: &mut dyn Write) -> Result<()> {
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(VaultError::Output);
    match &file.content {
        FileContent::Whole(id) => {
            let bytes = content::decode(content::fetch(reader, id)?)?;
            left(file, file.size, bytes.len() as u64)?;
            write(&bytes)
        }
        FileContent::Chunked(list) => {
            let mut pieces = PieceReader::open(reader, list)?;
            let mut rest = file.size;
            while let Some(piece) = pieces.next(reader)? {
                let piece = piece.decode()?;
                rest = left(file, rest, piece.length())?;
                match piece {
                    Piece::Data(data) => write(&data)?,
                    Piece::Hole(length) => write_zeros(length, &mut write)?,
                }
            }
            Ok(())
        }
    }
}

/// The rest of a file's size after a piece.
fn left(file: &FileNode, rest: u64, piece: u64) -> Result<u64> {
    rest.checked_sub(piece).ok_or_else(|| {
        let detail = format!("it is longer than the {} bytes of the file", file.size);
        VaultError::DamagedObject { kind: "blob", id: file.content.id().short(), detail }
    })
}

pub(crate) fn write_zeros(mut length: u64, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    while length > 0 {
        let step = usize::try_from(length).unwrap_or(usize::MAX).min(ZEROS.len());
        write(&ZEROS[..step])?;
        length -= step as u64;
    }
    Ok(())
}

/// A file's content in memory, for files known to be small.
pub fn read_content(reader: &dyn Reader, file: &FileNode) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(file.size).unwrap_or(0));
    copy_content(reader, file, &mut bytes)?;
    Ok(bytes)
}
