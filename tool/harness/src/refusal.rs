//! Why something cannot be measured here, in words.

/// Why a point cannot run here, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The limit's name, such as `pids.max` or `RLIMIT_NOFILE`.
    pub limit: &'static str,
    /// The whole sentence.
    pub text: String,
}

/// Bytes as people read them: `512 B`, `200.0 KiB`, `1.9 GiB`.
pub fn bytes(n: u64) -> String {
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
