//! The range of numbers that a record may hold.

use serde_json::Value;

/// Counts and nanoseconds; beyond, JSON readers lose digits.
const MOST_COUNTED: f64 = (1u64 << 53) as f64;
/// Readings of a clock that may have run since long before the run, and tokens, whose
/// values are the lock's own. The sum of two does not overflow.
const MOST_READ: f64 = (1u64 << 62) as f64;
/// Figures, and what fits extrapolate from them.
const MOST: f64 = 1e100;
/// Their reciprocals.
const LEAST: f64 = 1e-100;

/// The first number in a record that is too large or too small: its sums, squares or
/// reciprocal could overflow, and the writers would print infinities.
pub(super) fn beyond_measure(value: &Value) -> Option<String> {
    beyond("", value)
}

/// The number out of range in the value of the field `name`.
fn beyond(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| beyond(name, value)),
        Value::Array(items) => items.iter().find_map(|value| beyond(name, value)),
        Value::Number(number) => {
            let size = number.as_f64().unwrap_or(f64::INFINITY).abs();
            let most = match number.is_f64() {
                true => MOST,
                false if is_read(name) => MOST_READ,
                false => MOST_COUNTED,
            };
            (size > most || (size != 0.0 && size < LEAST)).then(|| number.to_string())
        }
        _ => None,
    }
}

fn is_read(name: &str) -> bool {
    name.ends_with("at_ns") || ["struck_by_ns", "clock_ahead_ns", "token"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_cannot_be_measured_is_found() {
        let table = [
            (
                r#"{"a":1,"b":-0.0,"c":[9007199254740992,1e100,-1e-100]}"#,
                None,
            ),
            (r#"{"a":9007199254740993}"#, None), // the same to a reader of floats
            (r#"{"a":9007199254740994}"#, Some("9007199254740994")),
            (r#"{"a":[1,-1e308]}"#, Some("-1e+308")),
            (r#"{"a":5e-324}"#, Some("5e-324")),
            (r#"{"a \" 1e308":"1e308 \\","b":2e307}"#, Some("2e+307")),
            // The clock of a machine that has run for 139 days, or another's beside it.
            (r#"{"at_ns":12000000000000000}"#, None),
            (r#"{"struck_at_ns" : 12000000000000000}"#, None),
            (r#"{"clock_ahead_ns":-12000000000000000}"#, None),
            (r#"{"token":4611686018427387904}"#, None),
            (
                r#"{"token":4611686018427388928}"#,
                Some("4611686018427388928"),
            ),
            (
                r#"{"token":1,"b":12000000000000000}"#,
                Some("12000000000000000"),
            ),
            (
                r#"{"b":["token",12000000000000000]}"#,
                Some("12000000000000000"),
            ),
        ];
        for (text, number) in table {
            let found = beyond_measure(&text.parse().unwrap());
            assert_eq!(found.as_deref(), number, "{text}");
        }
    }
}
