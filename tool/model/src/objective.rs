//! The goals a load has to meet: `p99<5ms`, `errors<0.1%`, or several at once.
//!
//! Each goal bounds a share of the requests that were due: of a percentile, those that were not
//! answered in time; of errors, those that were not answered as expected. A request that was
//! dropped, or that is still unanswered, misses both.

use crate::time::{Nanos, Unit};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use std::fmt;
use std::str::FromStr;

/// Goals that have to be met at the same time.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Objective(pub Vec<Goal>);

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// From the intended start to the answer; None where only an answer is asked for.
    pub within: Option<Nanos>,
    /// Fewer requests than this miss it, in millionths.
    pub most_ppm: u32,
}

/// A goal that fewer may miss takes more than 300,000 requests a step.
const LEAST_PPM: u32 = 100;

const FORMS: &str = "write p99<5ms, p50<800us, p99.9<20ms or errors<0.1%, several with commas";

impl Goal {
    /// Fewer than this share of the requests miss it.
    pub fn most(self) -> f64 {
        f64::from(self.most_ppm) / 1e6
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        let unknown = || format!("`{text}` is no objective; {FORMS}");
        let (figure, bound) = text.split_once('<').ok_or_else(unknown)?;
        let (figure, bound) = (figure.trim(), bound.trim());
        let percent = |digits: &str| -> Option<f64> {
            let plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
            let percent = digits.parse().ok().filter(|_| plain)?;
            (0.0 < percent && percent < 100.0).then_some(percent)
        };
        let (within, missing) = if figure == "errors" {
            let wrong =
                || format!("`{text}`: a share above 0 and below 100 %, such as errors<0.1%");
            let share = bound.strip_suffix('%').map(str::trim_end);
            (None, share.and_then(percent).ok_or_else(wrong)?)
        } else {
            let rank = figure.strip_prefix('p').and_then(percent);
            let rank = rank.ok_or_else(unknown)?;
            if bound.ends_with(|c: char| c.is_ascii_digit()) {
                return Err(format!("`{text}`: the time has no unit; write {text}ms"));
            }
            let within =
                Nanos::parse(bound, Unit::Seconds).map_err(|why| format!("`{text}`: {why}"))?;
            if within == Nanos::ZERO {
                return Err(format!("`{text}`: no request is answered in no time"));
            }
            (Some(within), 100.0 - rank)
        };
        let most_ppm = (missing * 1e4).round() as u32;
        match most_ppm < LEAST_PPM {
            true => Err(format!(
                "`{text}`: a step would need more than 300,000 requests; p99.99 and 0.01% are the \
                 most that is judged"
            )),
            false => Ok(Goal { within, most_ppm }),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.most_ppm) / 1e4;
        match self.within {
            Some(within) => write!(
                f,
                "p{}<{within}",
                f64::from(1_000_000 - self.most_ppm) / 1e4
            ),
            None => write!(f, "errors<{percent}%"),
        }
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Objective, String> {
        let goals = text.split(',').map(|goal| goal.trim().parse());
        goals.collect::<Result<_, _>>().map(Objective)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goals: Vec<String> = self.0.iter().map(Goal::to_string).collect();
        f.write_str(&goals.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_errors_are_shares_that_may_miss() {
        let table = [
            ("p99<5ms", "p99<5ms", Some(5_000_000), 10_000),
            (" p50 < 800us ", "p50<800us", Some(800_000), 500_000),
            ("p99.9<1.5s", "p99.9<1500ms", Some(1_500_000_000), 1_000),
            ("errors<0.1%", "errors<0.1%", None, 1_000),
            ("errors < 5 %", "errors<5%", None, 50_000),
        ];
        for (typed, printed, within, most_ppm) in table {
            let within = within.map(Nanos);
            let goal = Goal { within, most_ppm };
            assert_eq!(typed.parse(), Ok(goal), "{typed}");
            assert_eq!(goal.to_string(), printed);
            assert_eq!(printed.parse(), Ok(goal), "{typed}");
        }
        let both: Objective = "p99<5ms, errors<0.1%".parse().unwrap();
        assert_eq!(both.to_string(), "p99<5ms,errors<0.1%");
    }

    #[test]
    fn anything_else_is_refused_with_what_would_do() {
        for (typed, says) in [
            ("", "is no objective; write p99<5ms"),
            ("p99", "is no objective"),
            ("p99>5ms", "is no objective"),
            ("q99<5ms", "is no objective"),
            ("p100<5ms", "is no objective"),
            ("p0<5ms", "is no objective"),
            ("p+9<5ms", "is no objective"),
            ("p99<5", "has no unit; write p99<5ms"),
            ("p99<-5ms", "`-5ms` is not a time"),
            ("p99<", "is not a time"),
            ("p99<0ms", "in no time"),
            ("p99.999<5ms", "more than 300,000 requests"),
            ("errors<1", "such as errors<0.1%"),
            ("errors<0%", "above 0 and below 100"),
            ("errors<-1%", "above 0 and below 100"),
            ("errors<0.001%", "more than 300,000 requests"),
            ("p99<5ms,", "is no objective"),
        ] {
            let error = typed.parse::<Objective>().unwrap_err();
            assert!(error.contains(says), "{typed}: {error}");
        }
    }
}
