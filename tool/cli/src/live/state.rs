//! The state shown by the page and the metrics.

use super::http::event;
use jostle_engine::order::Running;
use jostle_model::record::Accounts;
use jostle_report::openmetrics::{self, Now};
use serde::Serialize;
use serde_json::json;

/// The run in progress, as the page shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Current {
    /// The point, as options.
    pub point: String,
    /// The latest look, without its latencies; None before the first.
    pub look: Option<Running>,
    /// The timed latency, by its name in the record.
    pub timed: Option<String>,
    /// Operations a second since the look before.
    pub per_s: Option<f64>,
    /// Percentiles and maximum of the latency in nanoseconds: p50, p90, p99, max; without those
    /// that too few times lie beyond.
    pub ns: Option<[Option<u64>; 4]>,
    /// CPUs in use by workers, server, jostle and others.
    pub cpus: Option<[f64; 4]>,
}

/// How much of it a page has: the numbers of the last change and of the last table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    changes: u64,
    tables: u64,
}

impl Seen {
    /// The state of a page that has just connected.
    pub(super) const NOTHING: Seen = Seen {
        changes: u64::MAX,
        tables: 0,
    };
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The measurement, in words.
    title: String,
    /// Where the runs are, as the progress line has it.
    progress: String,
    current: Option<Current>,
    /// Point and CPU time of the last finished run.
    accounts: Option<(String, Accounts)>,
    /// The table of finished points, as HTML.
    results: String,
    /// The finished points as metrics, and the measurement under way.
    metrics_finished: String,
    pub(super) now: Now,
    /// How it ended, in words.
    ended: Option<String>,
    /// Whether no more changes come.
    pub(super) closed: bool,
    /// The state of a page that has seen all of it.
    pub(super) latest: Seen,
}

impl State {
    /// Time goes by.
    pub(super) fn tick(&mut self, elapsed_s: f64, progress: String) {
        self.now.elapsed_s = elapsed_s;
        self.progress = progress;
        self.latest.changes += 1;
    }

    /// A run is in progress, or none is.
    pub(super) fn run(&mut self, current: Option<Current>) {
        self.current = current;
        self.latest.changes += 1;
    }

    /// A run is finished.
    pub(super) fn accounts(&mut self, point: String, accounts: Accounts) {
        self.accounts = Some((point, accounts));
        self.latest.changes += 1;
    }

    /// Finished points, as HTML and as metrics, and what all of it is.
    pub(super) fn results(&mut self, html: String, metrics: String, title: String) {
        (self.results, self.metrics_finished, self.title) = (html, metrics, title);
        self.latest.changes += 1;
        self.latest.tables += 1;
    }

    /// It is over.
    pub(super) fn end(&mut self, how: String) {
        self.ended = Some(how);
        self.latest.changes += 1;
    }

    /// No more changes come.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The news for a page, as events: everything but the table, which is larger than all of it,
    /// and the table. The end comes last.
    pub(super) fn since(&self, seen: Seen) -> (String, Seen) {
        let mut text = String::new();
        if seen.tables != self.latest.tables {
            text += &event("results", &json!(self.results).to_string());
        }
        if seen.changes != self.latest.changes {
            let all = json!({
                "title": self.title,
                "progress": self.progress,
                "run": self.current,
                "accounts": self.accounts,
                "ended": self.ended,
            });
            text += &event("state", &all.to_string());
        }
        (text, self.latest)
    }

    /// As OpenMetrics.
    pub(super) fn metrics(&self) -> String {
        openmetrics::joined(&self.metrics_finished, &self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_what_changed_and_the_table_only_with_a_new_one() {
        let mut state = State::default();
        let (first, seen) = state.since(Seen::NOTHING);
        assert!(first.starts_with("event: state\ndata: {"), "{first}");
        assert_eq!(state.since(seen), (String::new(), seen));
        state.results("<p>".to_owned(), String::new(), "jostle contend".to_owned());
        let (both, seen) = state.since(seen);
        assert!(both.starts_with("event: results\ndata: \"<p>\"\n\nevent: state"));
        state.tick(1.0, "run 1".to_owned());
        state.tick(2.0, "run 2".to_owned());
        let (latest, seen) = state.since(seen);
        assert_eq!(latest.matches("event: ").count(), 1);
        assert!(
            latest.contains("run 2") && latest.ends_with("\n\n"),
            "{latest}"
        );
        assert_eq!(state.since(seen).0, "");
        // One that comes late gets the table too.
        assert!(state.since(Seen::NOTHING).0.contains("event: results"));
    }
}
