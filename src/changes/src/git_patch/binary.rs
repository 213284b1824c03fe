//! Binary content in the `GIT binary patch` format: a zlib stream in base 85.
//!
//! The stream stores the content uncompressed: git inflates it like any other stream, and no compressor is needed.

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// Bytes per line, as in git.
const LINE_BYTES: usize = 52;
/// Maximum bytes of a stored block in a zlib stream.
const STORED_BYTES_MAX: usize = 0xffff;

/// The lines for both directions: `new` replaces `old`, and the reverse for `git apply -R`.
pub fn lines(old: &[u8], new: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = vec![b"GIT binary patch".to_vec()];
    for content in [new, old] {
        lines.push(format!("literal {}", content.len()).into_bytes());
        lines.extend(zlib_stored(content).chunks(LINE_BYTES).map(base_85_line));
        lines.push(Vec::new());
    }
    lines
}

/// A letter for the number of bytes, then five digits for every four bytes.
fn base_85_line(bytes: &[u8]) -> Vec<u8> {
    let letters = (b'A'..=b'Z').chain(b'a'..=b'z');
    let mut line: Vec<u8> = letters.skip(bytes.len().saturating_sub(1)).take(1).collect();
    for group in bytes.chunks(4) {
        let mut number = (0..4).fold(0, |n, at| n << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[usize::try_from(number % 85).unwrap_or(0)];
            number /= 85;
        }
        line.extend(digits);
    }
    line
}

fn zlib_stored(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut rest = content;
    loop {
        let (block, others) = rest.split_at(rest.len().min(STORED_BYTES_MAX));
        rest = others;
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(rest.is_empty()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(block);
        if rest.is_empty() {
            break;
        }
    }
    out.extend(adler_32(content).to_be_bytes());
    out
}

fn adler_32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    // The largest number of additions that cannot overflow.
    const RUN_BYTES: usize = 5552;
    let (mut a, mut b) = (1_u32, 0_u32);
    for run in content.chunks(RUN_BYTES) {
        for byte in run {
            a += u32::from(*byte);
            b += a;
        }
        (a, b) = (a % MODULUS, b % MODULUS);
    }
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_git_writes_them() {
        // 52 bytes are 13 groups of four; the letter stands for the number of bytes.
        let line = base_85_line(&[0; 52]);
        assert_eq!((line[0], line.len()), (b'z', 66));
        assert_eq!(base_85_line(&[0xff; 4]), b"D|NsC0");
        assert_eq!(base_85_line(&[0]), b"A00000");
        assert_eq!(adler_32(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(adler_32(&[0xff; 20_000]), adler_slow(&[0xff; 20_000]));
    }

    fn adler_slow(content: &[u8]) -> u32 {
        let step = |(a, b): (u64, u64), byte: &u8| {
            ((a + u64::from(*byte)) % 65_521, (a + u64::from(*byte) + b) % 65_521)
        };
        let (a, b) = content.iter().fold((1, 0), step);
        u32::try_from(b << 16 | a).unwrap()
    }
}
