//! The content of files as blobs: compressed if that saves space, verified against their digest when read.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, ParamSwitch};

use avfs_hostfs::xattr::{USER_PREFIX, Xattrs};
use avfs_types::encode::{put_bytes, put_number};
use avfs_types::ids::BlobId;

use super::codec::{DecodeError, Decoder};
use crate::backend::{BlobRecord, Codec, Reader};
use crate::{Result, VaultError};

/// Files up to this size are one blob; larger ones are split into chunks.
pub const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Below this, compression gains less than it costs.
const COMPRESS_BYTES_MIN: usize = 96;
/// Content of at least this length is compressed for size, shorter content for fast decompression.
const LARGE_BYTES_MIN: usize = 64 << 10;
const LARGE_LEVEL: i32 = 1;
/// Finds longer matches than the level for large content, which makes up for uncompressed literals.
const SMALL_LEVEL: i32 = 3;
/// Long enough to show whether large content compresses.
const SAMPLE_BYTES: usize = 4096;

/// Compressors, and their output buffer.
struct Press {
    small: Compressor<'static>,
    large: Compressor<'static>,
    room: Vec<u8>,
}

impl Press {
    fn new() -> io::Result<Self> {
        let mut small = Compressor::new(SMALL_LEVEL)?;
        // Decoding literals takes half of the time to decompress a one-page file, and a fifth for a file of ten
        // pages.
        small.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Disable))?;
        Ok(Self { small, large: Compressor::new(LARGE_LEVEL)?, room: Vec::new() })
    }

    fn compress(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        let Self { small, large, room } = self;
        let length = if content.len() < LARGE_BYTES_MIN {
            // Content without repeats may still use few distinct bytes.
            compress_into(room, small, content).or_else(|| compress_into(room, large, content))?
        } else {
            // Try samples first: this detects most incompressible content cheaply.
            let middle = content.len() / 2;
            let samples = [&content[..SAMPLE_BYTES], &content[middle..middle + SAMPLE_BYTES]];
            samples.iter().find_map(|sample| compress_into(room, large, sample))?;
            compress_into(room, large, content)?
        };
        Some(room[..length].to_vec())
    }
}

/// Compresses into `room` and returns the length, if that saves at least an eighth.
fn compress_into(room: &mut Vec<u8>, compressor: &mut Compressor<'_>, content: &[u8]) -> Option<usize> {
    // A buffer too small for the required saving makes zstd give up early.
    let most = content.len() - content.len() / 8;
    if room.len() < most {
        room.resize(most, 0);
    }
    compressor.compress_to_buffer(content, &mut room[..most]).ok()
}

thread_local! {
    static PRESS: RefCell<Option<Press>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The id of this content.
#[must_use]
pub fn id_of(content: &[u8]) -> BlobId {
    BlobId(*blake3::hash(content).as_bytes())
}

/// A blob ready to be stored; its id was computed from exactly these bytes.
#[must_use]
pub fn encode(id: BlobId, content: Vec<u8>) -> BlobRecord {
    debug_assert_eq!(id, id_of(&content));
    let size = content.len() as u64;
    match compress(&content) {
        Some(data) => BlobRecord { id, size, codec: Codec::Zstd, data },
        None => BlobRecord { id, size, codec: Codec::Raw, data: content },
    }
}

/// The compressed form, if it saves at least an eighth.
fn compress(content: &[u8]) -> Option<Vec<u8>> {
    // Content larger than one blob may be is a set of extended attributes, and is refused when it is decompressed.
    if content.len() < COMPRESS_BYTES_MIN || content.len() > WHOLE_BYTES_MAX {
        return None;
    }
    PRESS.with_borrow_mut(|slot| {
        let press = match slot {
            Some(press) => press,
            None => slot.insert(Press::new().ok()?),
        };
        press.compress(content)
    })
}

/// The content of a whole blob, verified against its id.
pub fn decode(blob: BlobRecord) -> Result<Vec<u8>> {
    let damaged = |detail: &str| VaultError::DamagedObject {
        kind: "blob",
        id: blob.id.short(),
        detail: detail.to_owned(),
    };
    let size = usize::try_from(blob.size).map_err(|_| damaged("invalid size"))?;
    let content = match blob.codec {
        Codec::List => return Err(damaged("expected content, found a chunk list")),
        Codec::Raw => blob.data,
        Codec::Zstd if size > WHOLE_BYTES_MAX => return Err(damaged("invalid size")),
        Codec::Zstd => DECOMPRESSOR.with_borrow_mut(|slot| {
            let decompressor = match slot {
                Some(decompressor) => decompressor,
                None => slot.insert(Decompressor::new().map_err(VaultError::Input)?),
            };
            decompressor.decompress(&blob.data, size).map_err(|_| damaged("it cannot be decompressed"))
        })?,
    };
    if content.len() != size || id_of(&content) != blob.id {
        return Err(VaultError::DamagedObject {
            kind: "blob",
            id: blob.id.short(),
            detail: "its digest does not match".to_owned(),
        });
    }
    Ok(content)
}

/// The row of a blob; fails if it does not exist.
pub fn fetch(reader: &dyn Reader, id: &BlobId) -> Result<BlobRecord> {
    reader.blob(id)?.ok_or_else(|| VaultError::MissingObject { kind: "blob", id: id.short() })
}

/// Encodes a set of extended attributes as a blob; `None` for an empty set.
#[must_use]
pub fn encode_xattrs(xattrs: &Xattrs) -> Option<BlobRecord> {
    if xattrs.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    put_number(&mut out, xattrs.len() as u64);
    for (name, value) in xattrs {
        put_bytes(&mut out, name);
        put_bytes(&mut out, value);
    }
    Some(encode(id_of(&out), out))
}

/// Decodes a set of extended attributes. Fails if one is not in the `user.` namespace.
pub fn decode_xattrs(content: &[u8]) -> std::result::Result<Xattrs, DecodeError> {
    let mut decoder = Decoder::new(content);
    let count = decoder.number()?;
    let mut xattrs = Vec::new();
    for _ in 0..count {
        let (name, value) = (decoder.bytes()?.to_vec(), decoder.bytes()?.to_vec());
        // Capabilities and ACLs would take effect on the host.
        if !name.starts_with(USER_PREFIX) {
            return Err(DecodeError::Rule("an extended attribute is not in the user namespace"));
        }
        xattrs.push((name, value));
    }
    decoder.end()?;
    Ok(xattrs)
}

/// The set of extended attributes with this id.
pub(crate) fn xattrs(reader: &dyn Reader, id: &BlobId) -> Result<Xattrs> {
    let content = decode(fetch(reader, id)?)?;
    decode_xattrs(&content).map_err(|error| VaultError::damaged("attribute set", &id.short(), &error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blobs_round_trip(content in proptest::collection::vec(any::<u8>(), 0..5000), repeat in 1..20_usize) {
            let content = content.repeat(repeat);
            let blob = encode(id_of(&content), content.clone());
            prop_assert!(blob.data.len() <= content.len());
            prop_assert_eq!(decode(blob).unwrap(), content);
        }

        #[test]
        fn a_damaged_blob_is_never_returned(
            content in proptest::collection::vec(any::<u8>(), 1..3000),
            at: prop::sample::Index,
            bit in 0..8,
        ) {
            let content = content.repeat(3);
            let mut blob = encode(id_of(&content), content.clone());
            let at = at.index(blob.data.len());
            blob.data[at] ^= 1_u8 << bit;
            // A zstd frame has bits that do not matter; the decoded content is then still the same.
            if let Ok(read) = decode(blob) {
                prop_assert_eq!(read, content);
            }
        }
    }

    #[test]
    fn incompressible_content_is_stored_raw() {
        let noise: Vec<u8> =
            (0..4096_u32).flat_map(|n| blake3::hash(&n.to_le_bytes()).as_bytes()[..1].to_vec()).collect();
        assert_eq!(encode(id_of(&noise), noise.clone()).codec, Codec::Raw);
        let text = b"the same line again\n".repeat(200);
        assert_eq!(encode(id_of(&text), text.clone()).codec, Codec::Zstd);
    }

    /// Hex digits of noise contain no repeats, but only sixteen distinct bytes.
    #[test]
    fn content_of_few_distinct_bytes_is_compressed_at_every_size() {
        for count in [4, 100, 1000, 3000] {
            let digits: String =
                (0..count).map(|n: u32| blake3::hash(&n.to_le_bytes()).to_hex().to_string()).collect();
            let blob = encode(id_of(digits.as_bytes()), digits.clone().into_bytes());
            assert_eq!(blob.codec, Codec::Zstd, "{} bytes", digits.len());
            assert!(blob.data.len() < digits.len() * 7 / 8);
            assert_eq!(decode(blob).unwrap(), digits.into_bytes());
        }
    }

    #[test]
    fn xattrs_round_trip() {
        let set = vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![0; 3000])];
        let blob = encode_xattrs(&set).unwrap();
        assert_eq!(decode_xattrs(&decode(blob).unwrap()).unwrap(), set);
        assert_eq!(encode_xattrs(&Vec::new()), None);
    }

    #[test]
    fn attributes_outside_the_user_namespace_are_refused() {
        for name in ["security.capability", "system.posix_acl_access", "trusted.overlay.opaque", "user", ""] {
            let blob = encode_xattrs(&vec![(name.as_bytes().to_vec(), b"1".to_vec())]).unwrap();
            assert!(decode_xattrs(&decode(blob).unwrap()).is_err(), "{name}");
        }
    }
}
