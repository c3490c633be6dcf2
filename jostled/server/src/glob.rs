//! Patterns for names, as Redis has them. A pattern is compiled once; matching then takes
//! a step for each byte of the name and each 64 elements of the pattern, whatever both are.

/// A pattern of `*`, `?`, `[a-c]`, `[^x]` and `\` before a byte that is meant as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Vec<u8>,
    /// Bytes at its beginning that stand for themselves.
    plain: usize,
    /// The machine that matches the rest, unless that is empty or a star.
    rest: Option<Box<Machine>>,
}

impl Pattern {
    pub(crate) fn new(text: &[u8]) -> Self {
        let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        let plain = text.iter().position(special).unwrap_or(text.len());
        let rest = &text[plain..];
        Self {
            text: text.to_vec(),
            plain,
            rest: (!rest.is_empty() && rest != b"*").then(|| Box::new(Machine::new(rest))),
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
        self.matches_within(name, &mut 0)
    }

    /// [`Self::matches`]; adds the steps that it takes.
    pub(crate) fn matches_within(&self, name: &[u8], steps: &mut u64) -> bool {
        let Some(name) = name.strip_prefix(&self.text[..self.plain]) else {
            return false;
        };
        match &self.rest {
            Some(machine) => {
                *steps += SET_OUT + (name.len() * machine.words) as u64;
                machine.matches(name)
            }
            None => name.is_empty() || self.text.len() > self.plain,
        }
    }
}

/// The least cost of matching, in steps.
const SET_OUT: u64 = 16;

/// All states of a pattern at once, each a bit: bit n is set if the first n elements
/// match what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    /// Numbers of 64 bits that hold the states.
    words: usize,
    /// For each byte, the elements that match it.
    matching: Vec<u64>,
    /// States with a star behind them, which every byte leaves as they are.
    stars: Vec<u64>,
    /// The number of elements, whose state means that all of the name matches.
    end: usize,
}

impl Machine {
    fn new(pattern: &[u8]) -> Self {
        // Elements never outnumber the bytes.
        let words = pattern.len() / 64 + 1;
        let mut machine = Self {
            words,
            matching: vec![0; 256 * words],
            stars: vec![0; words],
            end: 0,
        };
        let mut rest = pattern;
        while let Some(first) = rest.first() {
            if *first == b'*' {
                machine.stars[machine.end / 64] |= 1 << (machine.end % 64);
                rest = &rest[1..];
            } else {
                rest = &rest[machine.element(rest)..];
            }
        }
        machine
    }

    /// Adds the element at the start of a pattern; returns its length.
    fn element(&mut self, pattern: &[u8]) -> usize {
        let (place, bit) = (self.end / 64, 1 << (self.end % 64));
        let mut add = |byte: u8| self.matching[usize::from(byte) * self.words + place] |= bit;
        let length = match pattern {
            [b'?', ..] => {
                (0..=255).for_each(add);
                1
            }
            [b'\\', escaped, ..] => {
                add(*escaped);
                2
            }
            [b'[', class @ ..] => match class.iter().position(|byte| *byte == b']') {
                Some(end) => {
                    let (negated, inner) = match &class[..end] {
                        [b'^', inner @ ..] => (true, inner),
                        inner => (false, inner),
                    };
                    let found = class_of(inner);
                    (0..=255u8)
                        .filter(|byte| found[usize::from(*byte)] != negated)
                        .for_each(add);
                    end + 2
                }
                // A class without an end matches nothing.
                None => pattern.len(),
            },
            [plain, ..] => {
                add(*plain);
                1
            }
            [] => 0,
        };
        self.end += 1;
        length
    }

    fn matches(&self, name: &[u8]) -> bool {
        let mut states = vec![0; self.words];
        states[0] = 1;
        for byte in name {
            let matching = &self.matching[usize::from(*byte) * self.words..][..self.words];
            let mut carried = 0;
            for ((state, matching), stars) in states.iter_mut().zip(matching).zip(&self.stars) {
                let went_on = *state & matching;
                *state = (*state & stars) | went_on << 1 | carried;
                carried = went_on >> 63;
            }
        }
        states[self.end / 64] >> (self.end % 64) & 1 == 1
    }
}

/// The bytes that a class names.
fn class_of(mut class: &[u8]) -> [bool; 256] {
    let mut found = [false; 256];
    while let Some(first) = class.first() {
        let (from, to, length) = match class {
            [low, b'-', high, ..] => (low.min(high), low.max(high), 3),
            _ => (first, first, 1),
        };
        (*from..=*to).for_each(|byte| found[usize::from(byte)] = true);
        class = &class[length..];
    }
    found
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

#[cfg(test)]
mod tests {
    use super::{Pattern, SET_OUT};

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
            ("a\\", "a\\", true),
            ("*?*?*", "a", false),
            ("*?*?*", "ab", true),
            ("[a-c]*[^x]", "b", false),
            ("[a-c]*[^x]", "b-y", true),
        ] {
            let (text, bytes) = (pattern.as_bytes(), name.as_bytes());
            let kept = Pattern::new(text);
            assert_eq!(kept.matches(bytes), expected, "{pattern} {name}");
            if let Some(beginning) = kept.beginning() {
                let quick = expected && name.len() >= 8;
                assert_eq!(beginning.is_of(bytes), quick, "{pattern} {name}");
            }
        }
    }

    /// 50 connections that asked for a class of 60,000 letters held up all others for
    /// 1.6 s: it was read anew for each byte of each name.
    #[test]
    fn steps_grow_with_the_name_and_not_with_stars_or_classes() {
        let class = [&b"*["[..], &[b'x'; 60_000], b"]b"].concat();
        let stars = b"*a".repeat(31);
        for pattern in [&class, &stars] {
            let (pattern, mut steps) = (Pattern::new(pattern), 0);
            assert!(!pattern.matches_within(&[b'a'; 30], &mut steps));
            let words = pattern.text().len() / 64 + 1;
            assert_eq!(steps, SET_OUT + 30 * words as u64);
        }
        let long = Pattern::new(&b"?*".repeat(100));
        let mut steps = 0;
        assert!(long.matches_within(&[b'a'; 100], &mut steps));
        assert!(!long.matches_within(&[b'a'; 99], &mut steps));
        assert_eq!(steps, 2 * SET_OUT + 199 * 4);
    }
}
