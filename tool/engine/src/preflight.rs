//! What this machine would do to a measurement, reported before one starts: [`survey`] for
//! users who ask (`jostle doctor`), [`allow`] for a point that is about to be run and would
//! not fit, [`neighbours`] for programs that are busy beside us.
//!
//! The first two are pure functions of one reading of the machine. What happens during a
//! run is left to the verdicts.

mod allow;
mod connect;
pub mod neighbours;
mod one_host;
pub(crate) mod processes;
mod survey;

pub use allow::{Need, Refusal, allow, fits};
pub use connect::{bound, demand, explain, forecast, limits, memory_floor, remedy};
pub use one_host::OneHost;
pub use survey::{Finding, SHELL, Severity, survey};

/// Bytes as people read them: `512 B`, `200.0 KiB`, `1.9 GiB`.
fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_printed_in_the_largest_unit_that_keeps_a_whole_part() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (200 << 10, "200.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (2_000_000_000, "1.9 GiB"),
            (5 << 40, "5.0 TiB"),
            (5 << 50, "5120.0 TiB"),
        ];
        for (n, text) in table {
            assert_eq!(super::bytes(n), text);
        }
    }
}
