//! Lists of swept values, as typed: `10:100:1000`, `1000..10000+1000` (steps),
//! `1k..1Mx10` (factors), and any of these joined by colons. The colon is
//! lockscale's separator.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The most values in a list; a longer sweep is assumed to be a typing error.
const MOST: usize = 10_000;

/// The fewest values that are printed as a range. Fewer are read more easily as they are.
const LEAST_RANGE: usize = 6;

/// Whole numbers in the order in which they were typed, without repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List(pub Vec<u64>);

impl std::str::FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<List, String> {
        let mut values = Vec::new();
        for part in text.split(':') {
            match part.split_once("..") {
                None => values.push(number(part)?),
                Some((from, rest)) => extend(&mut values, from, rest, part)?,
            }
            if values.len() > MOST {
                return Err(format!("`{text}` has more than {MOST} values"));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        values.retain(|v| seen.insert(*v));
        Ok(List(values))
    }
}

/// As typed, in the shortest of the ways that need no arithmetic: values in equal steps are a
/// range, where there are at least six of them.
impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut between = "";
        while let [first, ..] = rest {
            let step = rest.get(1).and_then(|second| second.checked_sub(*first));
            let step = step.filter(|step| *step > 0);
            let even = |pair: &&[u64]| step.is_some() && pair[1].checked_sub(pair[0]) == step;
            let length = 1 + rest.windows(2).take_while(even).count();
            f.write_str(between)?;
            match step.filter(|_| length >= LEAST_RANGE) {
                Some(step) => {
                    write!(f, "{first}..{}+{step}", rest[length - 1])?;
                    rest = &rest[length..];
                }
                None => {
                    write!(f, "{first}")?;
                    rest = &rest[1..];
                }
            }
            between = ":";
        }
        Ok(())
    }
}

fn extend(values: &mut Vec<u64>, from: &str, rest: &str, part: &str) -> Result<(), String> {
    let from = number(from)?;
    let (to, step, by): (_, _, fn(u64, u64) -> Option<u64>) = match rest.split_once('+') {
        Some((to, step)) => (number(to)?, number(step)?, u64::checked_add),
        None => match rest.split_once('x') {
            Some((to, factor)) => (number(to)?, number(factor)?, u64::checked_mul),
            None => return Err(format!("`{part}` needs a step (+1000) or a factor (x10)")),
        },
    };
    if by(from, step).is_none_or(|next| next <= from) {
        return Err(format!("`{part}` never gets past {from}"));
    }
    let mut value = Some(from);
    while let Some(v) = value.filter(|v| *v <= to && values.len() <= MOST) {
        values.push(v);
        value = by(v, step);
    }
    Ok(())
}

/// Reads `1000`, `1k`, `2.5k`, `1M`.
fn number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, scale) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        _ => (text, 1.0),
    };
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let value = digits.parse::<f64>().ok().filter(|_| plain);
    let value = value.map(|v| v * scale);
    match value {
        Some(v) if v.fract() == 0.0 && v <= 1e12 => Ok(v as u64),
        _ => Err(format!(
            "`{text}` is not a whole number; write 10:100:1000, 1000..10000+1000 or 1k..1Mx10"
        )),
    }
}

/// In a plan a list may be an array of numbers, one number, or the typed text. It is not
/// read as an untagged enum, whose error would only state that the data matched no variant.
impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<List, D::Error> {
        d.deserialize_any(Form)
    }
}

struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whole numbers: [10, 100], 10 or \"10:100:1000\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<List, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<List, E> {
        Ok(List(vec![value]))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<List, E> {
        let value = u64::try_from(value);
        value
            .map(|value| List(vec![value]))
            .map_err(|_| E::custom("a list holds no negative numbers"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<List, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(List(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_typed() {
        let table: &[(&str, &[u64])] = &[
            ("10", &[10]),
            ("10:100:1000", &[10, 100, 1000]),
            ("1000..4000+1000", &[1000, 2000, 3000, 4000]),
            ("1k..1Mx10", &[1000, 10_000, 100_000, 1_000_000]),
            ("1..10x3", &[1, 3, 9]),
            ("2.5k:1", &[2500, 1]),
            ("1:2:2:1", &[1, 2]), // a repeat would be measured twice under one name
        ];
        for (text, values) in table {
            assert_eq!(text.parse(), Ok(List(values.to_vec())), "{text}");
        }
        for sad in [
            "", "a", "1::2", "5..9", "1..9+0", "1..9x1", "0..9x2", "1.5", "-3", "1..1M+1", "1e3",
        ] {
            assert!(sad.parse::<List>().is_err(), "{sad}");
        }
    }

    /// 200 points once made `Next:` a line of 200 numbers.
    #[test]
    fn what_is_printed_is_short_and_reads_as_the_same_values() {
        let table = [
            "7",
            "10:100:1000",
            "1:2:3:4:5",
            "1..200+1",
            "10..60+10:1000:1..6+1",
            "1:3:5..10+1",
            "9:8:7:6:5:4:3",
            "500..100000+500",
        ];
        for text in table {
            let list: List = text.parse().unwrap();
            assert_eq!(list.to_string(), text);
        }
        assert_eq!(List(vec![]).to_string(), "");
        let list: List = "1:2:3:4:5:6:8".parse().unwrap();
        assert_eq!(list.to_string(), "1..6+1:8");
        assert_eq!(list.to_string().parse(), Ok(list));
    }

    #[test]
    fn what_is_wrong_in_a_plan_is_said_in_its_own_words() {
        let read = |text: &str| serde_json::from_str::<List>(text).map_err(|e| e.to_string());
        assert_eq!(read("[10, 100]"), Ok(List(vec![10, 100])));
        assert_eq!(read("10"), Ok(List(vec![10])));
        assert_eq!(read("\"1k..1Mx10\"").unwrap().0.len(), 4);
        for (text, part) in [
            ("\"5..9\"", "needs a step"),
            ("-3", "no negative numbers"),
            ("[1, -3]", "invalid value: integer `-3`"),
            (
                "true",
                "expected whole numbers: [10, 100], 10 or \"10:100:1000\"",
            ),
            ("2.5", "expected whole numbers"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
