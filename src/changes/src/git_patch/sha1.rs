//! The object id of a git blob: SHA-1 over a short header and the content.
//!
//! Used only for `index` lines, where the format requires it. No trust is based on such an id.

const BLOCK_BYTES: usize = 64;

/// The id of a blob as 40 hexadecimal digits.
#[must_use]
pub fn blob_id(content: &[u8]) -> String {
    let header = format!("blob {}\0", content.len());
    let digest = sha1(&[header.as_bytes(), content]);
    digest.iter().map(|word| format!("{word:08x}")).collect()
}

fn sha1(parts: &[&[u8]]) -> [u32; 5] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut held = Vec::with_capacity(2 * BLOCK_BYTES);
    let mut length = 0_u64;
    for part in parts {
        length += part.len() as u64;
        let mut rest = *part;
        if !held.is_empty() {
            let (first, others) = rest.split_at(rest.len().min(BLOCK_BYTES - held.len()));
            held.extend_from_slice(first);
            rest = others;
            if held.len() == BLOCK_BYTES {
                add_block(&mut state, &held);
                held.clear();
            }
        }
        let mut blocks = rest.chunks_exact(BLOCK_BYTES);
        blocks.by_ref().for_each(|block| add_block(&mut state, block));
        held.extend_from_slice(blocks.remainder());
    }
    held.push(0x80);
    while held.len() % BLOCK_BYTES != BLOCK_BYTES - 8 {
        held.push(0);
    }
    held.extend_from_slice(&(length * 8).to_be_bytes());
    held.chunks_exact(BLOCK_BYTES).for_each(|block| add_block(&mut state, block));
    state
}

fn add_block(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next =
            a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, added) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_equal_those_of_git() {
        // Output of `git hash-object --stdin`.
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
        // Every length of the last block, with the length field in it or in an additional block.
        let ids: Vec<String> = (0..130).map(|length| blob_id(&vec![b'x'; length])).collect();
        let all: String = ids.concat();
        assert_eq!(blob_id(all.as_bytes()), LENGTHS);
    }

    /// The id of the concatenated ids of 0 to 129 times `x`, computed by git.
    const LENGTHS: &str = "077e18cacdd4ccc75896cdc2dbbfd3b15644209b";
}
