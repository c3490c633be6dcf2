//! How values stand on an axis, in a hover text and in a table of data: with
//! their unit, everywhere.

pub(super) use crate::format::trimmed;

use jostle_stats::figures::Figure;

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// Times; a value of 1 is so many nanoseconds.
    Time(f64),
    /// So many a second, of these.
    PerSecond(&'static str),
    /// Parts of one, shown as per cent.
    Share,
    /// A plain number from 0 to 1.
    Index,
    /// A plain number of these.
    Number(&'static str),
    /// Memory.
    Bytes,
}

impl Unit {
    /// That of a figure, whose rates are counted in this.
    pub(super) fn shown(figure: &Figure, per_second: &'static str) -> Unit {
        match figure.unit {
            "per_s" => Unit::PerSecond(per_second),
            "ns" => Unit::Time(1.0),
            "s" => Unit::Time(1e9),
            "share" => Unit::Share,
            "index" => Unit::Index,
            "" => Unit::Number("requests"),
            unit if unit.starts_with("us_") => Unit::Time(1e3),
            unit if unit.starts_with("bytes_") => Unit::Bytes,
            unit => Unit::Number(unit),
        }
    }

    /// Parts of a whole are read as they are: a logarithm would stretch what is
    /// next to nothing.
    pub(super) fn logarithmic(self) -> bool {
        !matches!(self, Unit::Share | Unit::Index)
    }

    /// Above the axis.
    pub(super) fn title(self) -> &'static str {
        match self {
            Unit::Time(_) => "time",
            Unit::PerSecond(of) | Unit::Number(of) => of,
            Unit::Share => "share",
            Unit::Index => "index",
            Unit::Bytes => "memory",
        }
    }

    /// At the head of a column of [`Unit::cell`]s; times and shares bear theirs.
    pub(super) fn heading(self, what: &str) -> String {
        match self {
            Unit::PerSecond(of) | Unit::Number(of) => format!("{what}, {of}"),
            Unit::Bytes => format!("{what}, bytes"),
            _ => what.to_owned(),
        }
    }

    /// At a tick, short.
    pub(super) fn tick(self, value: f64) -> String {
        match self {
            Unit::Time(ns) => time(value * ns, 3),
            Unit::Share => format!("{} %", trimmed(100.0 * value, 3)),
            Unit::Index => trimmed(value, 3),
            Unit::PerSecond(_) | Unit::Number(_) => compact(value),
            Unit::Bytes => format!("{}B", spaced(compact(value))),
        }
    }

    /// In words, to six significant digits.
    pub(super) fn exact(self, value: f64) -> String {
        match self {
            Unit::PerSecond(of) | Unit::Number(of) => format!("{} {of}", self.cell(value)),
            Unit::Bytes => self.cell(value) + " bytes",
            _ => self.cell(value),
        }
    }

    /// In a table whose heading or title names what is counted.
    pub(super) fn cell(self, value: f64) -> String {
        match self {
            Unit::Time(ns) => time(value * ns, 6),
            Unit::Share => format!("{} %", trimmed(100.0 * value, 6)),
            _ => trimmed(value, 6),
        }
    }
}

/// `1000`, `20k`, `2.5M`: from 10,000 on in thousands, as lists are typed.
pub(super) fn compact(value: f64) -> String {
    const STEPS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e4, "k")];
    let Some((from, letter)) = STEPS.into_iter().find(|(from, _)| value.abs() >= *from) else {
        return trimmed(value, 4).replace(',', "");
    };
    let scale = if letter == "k" { 1e3 } else { from };
    format!("{}{letter}", trimmed(value / scale, 4).replace(',', ""))
}

/// `20 k` before a unit.
fn spaced(text: String) -> String {
    match text.strip_suffix(['k', 'M', 'G']) {
        Some(number) => format!("{number} {}", &text[number.len()..]),
        None => text + " ",
    }
}

/// Nanoseconds in the largest unit that leaves something before the point.
pub(super) fn time(ns: f64, digits: usize) -> String {
    const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
    if ns == 0.0 {
        return "0".to_owned();
    }
    // A hair under, since a tick of 1 ms may be 0.999999... ms.
    let fits = |scale: f64| ns.abs() >= scale * (1.0 - 1e-9);
    let (scale, unit) = UNITS
        .into_iter()
        .find(|(scale, _)| fits(*scale))
        .unwrap_or(UNITS[3]);
    format!("{} {unit}", trimmed(ns / scale, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short_and_bear_their_unit() {
        for (unit, value, text) in [
            (Unit::Time(1.0), 0.0, "0"),
            (Unit::Time(1.0), 2_500_000.0, "2.5 ms"),
            (Unit::Time(1e3), 0.2, "200 ns"), // CPU time is recorded in us
            (Unit::Time(1.0), 999_999.999_9, "1 ms"),
            (Unit::PerSecond("locks/s"), 1000.0, "1000"),
            (Unit::PerSecond("locks/s"), 20_000.0, "20k"),
            (Unit::Number("workers"), 2_500_000.0, "2.5M"),
            (Unit::Share, 0.125, "12.5 %"),
            (Unit::Share, 0.0, "0 %"),
            (Unit::Index, 0.25, "0.25"),
            (Unit::Bytes, 139.0, "139 B"),
            (Unit::Bytes, 20_000.0, "20 kB"),
        ] {
            assert_eq!(unit.tick(value), text);
        }
    }

    #[test]
    fn exact_figures_have_six_digits_and_no_idle_zeros() {
        for (unit, value, text) in [
            (
                Unit::PerSecond("locks/s"),
                967.133_203_68,
                "967.133 locks/s",
            ),
            (Unit::PerSecond("ops/s"), 4_828_329.4, "4,828,329 ops/s"),
            (Unit::Time(1.0), 4_113_823_744.0, "4.11382 s"),
            (Unit::Time(1.0), 508.0, "508 ns"),
            (Unit::Share, 1.0, "100 %"),
        ] {
            assert_eq!(unit.exact(value), text);
        }
    }
}
