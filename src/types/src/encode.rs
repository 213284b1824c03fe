//! The encoding of numbers and byte strings where each value must have exactly one encoding: objects, digests, keys.

/// Appends a number as LEB128: 7 bits per byte, the lowest first.
pub fn put_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push((n & 0x7f) as u8);
}

/// Appends the length of `bytes` as LEB128, then the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
