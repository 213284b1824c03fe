//! Standard Base64 with padding; a value has one encoding, and other spellings of it are rejected.

use data_encoding::{BASE64, BASE64_NOPAD};

/// Encodes bytes as standard Base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes standard Base64 with padding.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    // `BASE64` would also accept several padded values in a row.
    let digits = text.trim_end_matches('=');
    let padded = digits.len().next_multiple_of(4) == text.len();
    if padded { BASE64_NOPAD.decode(digits.as_bytes()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        for bad in ["Z", "Zg=", "Zg", "====", "Zg==Zg==", "Z?==", "=m8=", "Zh==", "Z===", "Zm9v===="] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }
}
