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
