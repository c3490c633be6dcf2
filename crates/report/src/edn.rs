//! `--format edn`: the histories of `recover` as Jepsen writes them, an operation a line:
//! `:process`, `:type` (`:invoke`, `:ok`, `:fail`, `:info`), `:f`, `:value`, `:time` in
//! nanoseconds since the first event of the run. A comment opens each run.
//!
//! Faults, returns and ends of leases are events of the nemesis. An acquisition has no
//! completion if its process was killed, or if it waited until the end of the run.

use crate::ResultSet;
use jostle_model::record::{Event, Point, What};

/// All runs.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let points = sets.iter().flat_map(|set| &set.points);
    points.filter_map(of_run).collect()
}

fn of_run(point: &Point) -> Option<String> {
    let recovery = point.recovery.as_deref()?;
    let first = recovery.history.first()?.at_ns;
    let mut text = format!(
        "; {} {} run {}\n",
        point.target.replace('\n', " "),
        recovery.fault,
        point.run
    );
    for event in &recovery.history {
        text += &line(event, first, recovery.fault.as_str());
    }
    Some(text)
}

fn line(event: &Event, first: u64, fault: &str) -> String {
    let (kind, f) = match event.what {
        What::Acquire => ("invoke", "acquire"),
        What::Granted | What::GrantedFromDead => ("ok", "acquire"),
        // Unknown: the service may have granted it.
        What::NotGranted => ("info", "acquire"),
        What::Release => ("invoke", "release"),
        What::Released => ("ok", "release"),
        // Unknown: the answer was not waited for any longer.
        What::NotReleased | What::GaveUp => ("info", "release"),
        What::CutOff => ("info", "cut-off"),
        What::Lost => ("info", "lost"),
        What::Written => ("ok", "write"),
        What::WriteRefused => ("fail", "write"),
        What::JoinedAgain => ("info", "join"),
        What::Awake => ("info", "awake"),
        What::Fault => ("info", fault),
        What::Return => ("info", "return"),
        What::LeaseEnd => ("info", "lease-end"),
    };
    let process = match event.process {
        Some(number) => number.to_string(),
        None => ":nemesis".to_owned(),
    };
    let value = event.token.map_or("nil".to_owned(), |t| t.to_string());
    let error = match &event.said {
        Some(said) => format!(", :error {}", quoted(said)),
        None => String::new(),
    };
    format!(
        "{{:process {process}, :type :{kind}, :f :{f}, :value {value}, :time {}{error}}}\n",
        event.at_ns.saturating_sub(first)
    )
}

/// A string in edn. The escapes used here are the same as JSON's.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted += "\\n",
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use crate::{made, render};

    #[test]
    fn a_history_as_jepsen_reads_it() {
        insta::assert_snapshot!(render("edn", &[made::recovered()]));
        assert_eq!(render("edn", &[made::set()]), "");
    }

    #[test]
    fn what_was_said_is_quoted() {
        assert_eq!(super::quoted("a \"b\"\\\n\u{7}"), r#""a \"b\"\\\n ""#);
    }
}
