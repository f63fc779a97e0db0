//! Base64 as etcd's gateway has it: the standard alphabet, padded. Texts only.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes a text.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at) & 63) as usize;
            encoded.push(if at <= chunk.len() { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    encoded
}

/// Decodes a text; `None` if it is none, or not encoded so.
pub(super) fn decode(encoded: &str) -> Option<String> {
    let digits = encoded.trim_end_matches('=').bytes();
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in digits {
        let value = ALPHABET.iter().position(|letter| *letter == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_are_spelled_as_the_rfc_says() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("ä≤?>", "w6TiiaQ/Pg=="),
        ] {
            assert_eq!(encode(text), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(text));
        }
        for bad in ["Zg=a", "Z g", "/w=="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
