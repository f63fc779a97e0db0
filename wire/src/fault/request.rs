//! Which requests a fault on answers is about: a method, the beginning of a path, or all.

/// Bytes of a path's beginning that can be compared.
pub const PATH: usize = 64;
/// Bytes of a method with the space after it that can be compared.
pub const METHOD: usize = 8;
const WORDS: usize = PATH / 8;

/// The requests whose answers are selected. All zero selects every one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestRule {
    /// The method and the space after it.
    pub method: u64,
    /// Ones where `method` counts.
    pub method_mask: u64,
    /// The path's beginning.
    pub path: [u64; WORDS],
    /// Ones where `path` counts.
    pub path_mask: [u64; WORDS],
}

impl RequestRule {
    /// A rule for a method of at most seven letters and a path's beginning of at most [`PATH`] bytes; what is longer is cut.
    #[must_use]
    pub fn new(method: Option<&str>, path: Option<&str>) -> Self {
        let mut rule = Self::default();
        if let Some(method) = method {
            let letters = method.bytes().take(METHOD - 1).chain(core::iter::once(b' '));
            (rule.method, rule.method_mask) = word(letters);
        }
        let mut bytes = path.unwrap_or_default().bytes();
        for (path, mask) in rule.path.iter_mut().zip(&mut rule.path_mask) {
            (*path, *mask) = word(bytes.by_ref().take(8));
        }
        rule
    }

    /// Whether every request is meant.
    #[inline(always)]
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.method_mask == 0 && self.path_mask[0] == 0
    }

    /// Whether a request that begins with these eight bytes has the method.
    #[inline(always)]
    #[must_use]
    pub fn has_method(&self, first: u64) -> bool {
        first & self.method_mask == self.method
    }

    /// Whether a target that begins with these bytes, zeros after its end, has the path's beginning.
    #[inline(always)]
    #[must_use]
    pub fn has_path(&self, target: &[u64; WORDS]) -> bool {
        let mut differs = 0;
        let mut n = 0;
        while n < WORDS {
            differs |= target[n] & self.path_mask[n] ^ self.path[n];
            n += 1;
        }
        differs == 0
    }
}

/// Where the target begins in a request line of which the first eight bytes are given; `None` after a longer method.
#[inline(always)]
#[must_use]
pub fn target_at(first: u64) -> Option<u32> {
    let bytes = first.to_ne_bytes();
    let (mut n, mut at) = (0, 1);
    while n < METHOD {
        if bytes[n] == b' ' {
            return Some(at);
        }
        n += 1;
        at += 1;
    }
    None
}

/// Up to eight bytes as they lie in memory, and ones where they are.
fn word(bytes: impl Iterator<Item = u8>) -> (u64, u64) {
    let (mut word, mut mask) = ([0; 8], [0; 8]);
    for ((to, ones), byte) in word.iter_mut().zip(&mut mask).zip(bytes) {
        (*to, *ones) = (byte, 0xff);
    }
    (u64::from_ne_bytes(word), u64::from_ne_bytes(mask))
}

const _: () = assert!(size_of::<RequestRule>() == 16 + 2 * PATH);

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(rule: &RequestRule, line: &str) -> bool {
        let mut first = [0; 8];
        first.copy_from_slice(&line.as_bytes()[..8]);
        let first = u64::from_ne_bytes(first);
        let Some(at) = target_at(first) else { return rule.is_any() };
        let mut target = [0; WORDS];
        let mut bytes = line.bytes().skip(at as usize);
        for to in &mut target {
            to.clone_from(&word(bytes.by_ref().take(8)).0);
        }
        rule.has_method(first) && rule.has_path(&target)
    }

    #[test]
    fn a_method_is_matched_whole_and_a_path_by_its_beginning() {
        for (method, path, line, expected) in [
            (None, None, "GET / HTTP/1.1", true),
            (Some("GET"), None, "GET / HTTP/1.1", true),
            (Some("GET"), None, "GETX / HTTP/1.1", false),
            (Some("POST"), None, "GET / HTTP/1.1", false),
            (Some("OPTIONS"), None, "OPTIONS * HTTP/1.1", true),
            (None, Some("/orders"), "GET /orders HTTP/1.1", true),
            (None, Some("/orders"), "DELETE /orders/17?x=1 HTTP/1.1", true),
            (None, Some("/orders/"), "GET /orders HTTP/1.1", false),
            (None, Some("/orders"), "GET /order HTTP/1.1", false),
            (Some("POST"), Some("/a"), "POST /abc HTTP/1.1", true),
            (Some("POST"), Some("/a"), "PUT /abc HTTP/1.1", false),
            (None, Some("/"), "PROPFIND / HTTP/1.1", false),
            (None, Some("/0123456789abcdef0123456789abcdef"), "GET /0123456789abcdef0123456789abcdeX HTTP/1.1", false),
            (None, Some("/0123456789abcdef0123456789abcdef"), "GET /0123456789abcdef0123456789abcdef0 HTTP/1.1", true),
        ] {
            assert_eq!(matches(&RequestRule::new(method, path), line), expected, "{method:?} {path:?} {line}");
        }
    }
}
