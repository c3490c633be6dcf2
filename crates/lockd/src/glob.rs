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
        }
        // Stars in plenty must not take time in plenty.
        assert!(!glob(&b"*a".repeat(200), &[b'a'; 190]));
    }
}
