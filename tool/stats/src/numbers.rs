//! Numbers as sentences and tables have them.

/// `28215` as `28,215`.
pub fn grouped(number: u64) -> String {
    group(&number.to_string())
}

/// Decimal digits in groups of three, from the right.
pub fn group(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 worker`, `1000 workers`.
pub fn workers(number: u64) -> String {
    let noun = if number == 1 { "worker" } else { "workers" };
    format!("{number} {noun}")
}

/// With at least so many significant digits, whole numbers never cut: with two,
/// `0.021`, `4.3`, `40`, `1,234`. What is not finite is `-`.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent after rounding: 9.96 with two digits is 10, not 10.0.
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let exponent: i64 = scientific
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let decimals = (digits as i64 - 1 - exponent).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    match text.split_once('.') {
        Some((whole, rest)) => format!("{sign}{}.{rest}", group(whole)),
        None => format!("{sign}{}", group(text)),
    }
}

/// `0 overlaps`, `1 overlap`, `1,200 overlaps`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Nanoseconds in the unit that keeps the number short: `508 ns`, `12 ms`,
/// `1.1 s`.
pub fn time(nanos: f64) -> String {
    time_to(nanos, 2)
}

/// A time with so many significant digits.
pub fn time_to(nanos: f64, digits: usize) -> String {
    const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
    let fits = |scale: f64| (nanos / scale).round().abs() < 1000.0;
    let (scale, unit) = UNITS
        .into_iter()
        .find(|(scale, _)| fits(*scale))
        .unwrap_or(UNITS[3]);
    let value = nanos / scale;
    // Clocks count whole nanoseconds.
    let is_whole = unit == "ns" && value.fract() == 0.0;
    format!(
        "{} {unit}",
        significant(value, if is_whole { 1 } else { digits })
    )
}
