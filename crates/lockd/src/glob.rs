//! Patterns for names, as Redis has them.

/// [`glob`], and what it has cost: some 30 ns each. With several stars the time
/// can grow with the product of the lengths.
pub(crate) fn glob_cost(pattern: &[u8], name: &[u8]) -> (bool, u64) {
    let stars = pattern.iter().filter(|&&byte| byte == b'*').count();
    let steps = match stars {
        0 | 1 => pattern.len() + name.len(),
        _ => pattern.len() * name.len(),
    };
    (glob(pattern, name), steps as u64 / 16)
}

/// A pattern of `*`, `?`, `[a-c]`, `[^x]` and `\` before a byte that is meant as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Vec<u8>,
    /// Bytes at its beginning that stand for themselves.
    plain: usize,
}

impl Pattern {
    pub(crate) fn new(text: &[u8]) -> Self {
        let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        let plain = text.iter().position(special).unwrap_or(text.len());
        Self {
            text: text.to_vec(),
            plain,
        }
    }

    /// Its beginning, if it is nothing but a short one and a star.
    pub(crate) fn beginning(&self) -> Option<Beginning> {
        let (plain, rest) = self.text.split_at(self.plain);
        (plain.len() <= 8 && rest == b"*").then(|| Beginning::new(plain))
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether a name matches it.
    #[inline]
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let (plain, rest) = self.text.split_at(self.plain);
        // Most patterns are a name, or the beginning of one and a star.
        match name.strip_prefix(plain) {
            None => false,
            Some(_) if rest == b"*" => true,
            Some(name) => glob(rest, name),
        }
    }
}

/// At most eight bytes with which names begin, to be compared in one go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    bytes: u64,
    /// The bits that count.
    mask: u64,
}

impl Beginning {
    fn new(bytes: &[u8]) -> Self {
        let none = Self { bytes: 0, mask: 0 };
        bytes.iter().rev().fold(none, |of, byte| Self {
            bytes: of.bytes << 8 | u64::from(*byte),
            mask: of.mask << 8 | 0xff,
        })
    }

    /// Whether a name of eight bytes or more begins so. False for any shorter one.
    #[inline]
    pub(crate) fn is_of(self, name: &[u8]) -> bool {
        let first = name.first_chunk::<8>();
        first.is_some_and(|first| u64::from_le_bytes(*first) & self.mask == self.bytes)
    }
}

/// Whether `name` matches a [`Pattern`] that is used once.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on when what follows the last star does not match: the star
    // then stands for one byte more.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            if p == pattern.len() {
                return true;
            }
            retry = Some((p - 1, n));
            continue;
        }
        if n == name.len() && p == pattern.len() {
            return true;
        }
        if n < name.len()
            && p < pattern.len()
            && let Some(used) = matches_one(&pattern[p..], name[n])
        {
            p += used;
            n += 1;
            continue;
        }
        match retry {
            Some((star, from)) if from < name.len() => {
                retry = Some((star, from + 1));
                (p, n) = (star + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// The length of the pattern's first element, if it matches the byte.
fn matches_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => {
            let (negated, class) = match class {
                [b'^', rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let end = class.iter().position(|&at| at == b']')?;
            let mut found = false;
            let mut at = 0;
            while at < end {
                match class[at..end] {
                    [low, b'-', high, ..] => {
                        found |= (low.min(high)..=low.max(high)).contains(&byte);
                        at += 3;
                    }
                    [single, ..] => {
                        found |= single == byte;
                        at += 1;
                    }
                    [] => break,
                }
            }
            (found != negated).then_some(1 + usize::from(negated) + end + 1)
        }
        [plain, ..] => (*plain == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, glob};

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a*b*c", "a-b-b-c", true),
            ("*ab", "aab", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a[bc]d", "abd", true),
            ("a[a-c]d", "abd", true),
            ("a[^a-c]d", "abd", false),
            ("a[^a-c]d", "axd", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a[", "a[", false),
            ("job:*", "job:1", true),
            ("job:*", "jobs", false),
            ("job:*", "job:", true),
            ("job:*", "job:12345", true),
            ("job:*", "jab:12345", false),
            ("job-2026*", "job-2026", true),
            ("job-2026*", "job-2025", false),
            ("job-2026*", "job-2026-11", true),
            ("job-2026-*", "job-2026-11", true),
            ("job-2026-*", "job-2026", false),
            ("*", "a long name", true),
            ("job:", "job:*", false),
            ("a*", "a*", true),
            ("a**", "ab", true),
            ("a[*]", "a*", true),
            ("a[b]", "a[b]", false),
            ("a\\b", "a\\b", false),
            ("a\\b", "ab", true),
        ] {
            let (text, bytes) = (pattern.as_bytes(), name.as_bytes());
            assert_eq!(glob(text, bytes), expected, "{pattern} {name}");
            let kept = Pattern::new(text);
            assert_eq!(kept.matches(bytes), expected, "{pattern} {name}");
            if let Some(beginning) = kept.beginning() {
                let quick = expected && name.len() >= 8;
                assert_eq!(beginning.is_of(bytes), quick, "{pattern} {name}");
            }
        }
        // Stars in plenty must not take time in plenty.
        assert!(!glob(&b"*a".repeat(200), &[b'a'; 190]));
    }
}
