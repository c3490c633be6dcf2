//! Durations as users type them and as programs count them.
//!
//! A number in the program is always [`Nanos`], so that the unit is in the
//! type. On the command line and in plans a time carries its unit as text
//! (`1ms`, `250us`, `1.5s`); a bare number takes the unit that the option
//! documents, as lockscale's options did (microseconds for hold and idle,
//! seconds for the duration).

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_with::SerializeDisplay;
use std::fmt;

/// A span of time in whole nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay)]
pub struct Nanos(pub u64);

/// The unit that a bare number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds: `-b` and `-i`.
    Micros,
    /// Seconds: `-t`.
    Seconds,
}

impl Unit {
    const fn nanos(self) -> u64 {
        match self {
            Unit::Micros => 1_000,
            Unit::Seconds => 1_000_000_000,
        }
    }
}

/// The longest time that is accepted: one day. More is assumed to be a typing error.
const LONGEST: Nanos = Nanos(86_400_000_000_000);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Reads `1ms`, `250us`, `10s`, `1.5s`, `2m`, or a bare number in `bare`.
    ///
    /// # Errors
    /// A sentence for the user: what was typed, and what would be right.
    pub fn parse(text: &str, bare: Unit) -> Result<Nanos, String> {
        let trimmed = text.trim();
        let digits = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let scale = match unit.trim() {
            "" => bare.nanos(),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            _ => return Err(complaint(text)),
        };
        let number: f64 = number.parse().map_err(|_| complaint(text))?;
        let nanos = (number * scale as f64).round();
        if nanos > LONGEST.0 as f64 {
            return Err(format!("`{text}` is longer than a day"));
        }
        Ok(Nanos(nanos as u64))
    }
}

fn complaint(text: &str) -> String {
    format!("`{text}` is not a time; write a number and its unit, such as 250us, 1ms or 10s")
}

/// Prints exactly, in the largest unit that divides the time: `1ms`, `1500us`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            n if n % 1_000_000_000 == 0 => (1_000_000_000, "s"),
            n if n % 1_000_000 == 0 => (1_000_000, "ms"),
            n if n % 1_000 == 0 => (1_000, "us"),
            _ => (1, "ns"),
        };
        write!(f, "{}{unit}", self.0 / scale)
    }
}

/// A text that `parse` reads. A bare number is refused, because its unit would be unclear.
fn with_unit<'de, D: Deserializer<'de>, T>(
    d: D,
    parse: fn(&str, Unit) -> Result<T, String>,
    bare: Unit,
) -> Result<T, D::Error> {
    let text = String::deserialize(d)?;
    if text.trim().ends_with(|c: char| c.is_ascii_digit()) && text.trim() != "0" {
        return Err(D::Error::custom(complaint(&text)));
    }
    parse(&text, bare).map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for Nanos {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Nanos, D::Error> {
        with_unit(d, Nanos::parse, Unit::Seconds)
    }
}

/// An owner's activity while it holds the lock, or between two acquisitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay)]
pub enum Busy {
    /// Sleeps for this long; zero means not at all (no system call either).
    Sleep(Nanos),
    /// Keeps the CPU busy for this long. Typed as a negative time.
    Spin(Nanos),
}

impl Busy {
    /// The span, however it is passed.
    #[inline] // the measured loop asks
    pub fn span(self) -> Nanos {
        match self {
            Busy::Sleep(span) | Busy::Spin(span) => span,
        }
    }

    /// Reads a time; a leading minus means spinning, as in lockscale.
    ///
    /// # Errors
    /// As [`Nanos::parse`].
    pub fn parse(text: &str, bare: Unit) -> Result<Busy, String> {
        match text.trim().strip_prefix('-') {
            Some(rest) => Nanos::parse(rest, bare).map(Busy::Spin),
            None => Nanos::parse(text, bare).map(Busy::Sleep),
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Busy::Sleep(span) => write!(f, "{span}"),
            Busy::Spin(span) => write!(f, "-{span}"),
        }
    }
}

impl<'de> Deserialize<'de> for Busy {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Busy, D::Error> {
        with_unit(d, Busy::parse, Unit::Micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit_or_the_option_s() {
        let table: &[(&str, Unit, u64)] = &[
            ("1ms", Unit::Seconds, 1_000_000),
            ("250us", Unit::Seconds, 250_000),
            ("10s", Unit::Micros, 10_000_000_000),
            ("0.5s", Unit::Micros, 500_000_000),
            ("1.5", Unit::Seconds, 1_500_000_000),
            ("1000", Unit::Micros, 1_000_000), // lockscale's -b 1000
            ("0", Unit::Micros, 0),
            ("2m", Unit::Micros, 120_000_000_000),
            ("7ns", Unit::Seconds, 7),
        ];
        for (text, bare, nanos) in table {
            assert_eq!(Nanos::parse(text, *bare), Ok(Nanos(*nanos)), "{text}");
        }
        for sad in [
            "", "ms", "1 parsec", "-1ms", "1..2", "2000000s", "NaN", "inf",
        ] {
            assert!(Nanos::parse(sad, Unit::Seconds).is_err(), "{sad}");
        }
    }

    #[test]
    fn a_negative_hold_spins() {
        assert_eq!(
            Busy::parse("-250us", Unit::Micros),
            Ok(Busy::Spin(Nanos(250_000)))
        );
        assert_eq!(
            Busy::parse("-5", Unit::Micros),
            Ok(Busy::Spin(Nanos(5_000)))
        );
        assert_eq!(
            Busy::parse("1000", Unit::Micros),
            Ok(Busy::Sleep(Nanos(1_000_000)))
        );
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back(nanos in 0u64..=LONGEST.0 / 1000) {
            let time = Nanos(nanos);
            proptest::prop_assert_eq!(Nanos::parse(&time.to_string(), Unit::Seconds), Ok(time));
        }
    }
}
