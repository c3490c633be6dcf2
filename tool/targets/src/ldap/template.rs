//! Text of a search in which `{n}` and `{worker}` stand for numbers.

/// Text with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Number,
    Worker,
}

/// What fills the holes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// For `{n}`.
    pub nth: u64,
    /// For `{worker}`.
    pub worker: u64,
}

impl Template {
    /// Reads text whose pieces between the holes `decode` turns into bytes.
    pub(super) fn parse(
        text: &str,
        decode: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((at, hole, part)) = first_hole(rest) {
            if at > 0 {
                parts.push(Part::Text(decode(&rest[..at])?));
            }
            parts.push(part);
            rest = &rest[at + hole..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(decode(rest)?));
        }
        Ok(Template(parts))
    }

    /// The bytes, with the holes filled.
    pub(super) fn fill(&self, numbers: Numbers) -> Vec<u8> {
        let mut filled = Vec::with_capacity(32);
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.extend_from_slice(text),
                Part::Number => write(&mut filled, numbers.nth),
                Part::Worker => write(&mut filled, numbers.worker),
            }
        }
        filled
    }
}

/// Where the first hole is, how long, and what belongs there.
fn first_hole(text: &str) -> Option<(usize, usize, Part)> {
    const HOLES: [(&str, Part); 2] = [("{n}", Part::Number), ("{worker}", Part::Worker)];
    HOLES
        .into_iter()
        .filter_map(|(hole, part)| Some((text.find(hole)?, hole.len(), part)))
        .min_by_key(|(at, ..)| *at)
}

fn write(to: &mut Vec<u8>, number: u64) {
    use std::io::Write as _;
    // Writing to memory does not fail.
    let _ = write!(to, "{number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_and_other_braces_stay() {
        let table = [
            ("user{n}", "user17"),
            ("{worker}-{n}-{worker}", "3-17-3"),
            ("{m}{", "{m}{"),
            ("", ""),
        ];
        for (text, expected) in table {
            let template = Template::parse(text, |piece| Ok(piece.into())).unwrap();
            let numbers = Numbers { nth: 17, worker: 3 };
            assert_eq!(template.fill(numbers), expected.as_bytes(), "{text}");
        }
    }
}
