//! What the page and the metrics show, and the latest changes of it.

use super::changes::changes;
use super::history::{Added, History, Sample};
use super::http::event;
use jostle_report::openmetrics::{self, Now};
use serde::Serialize;
use serde_json::json;
use std::collections::VecDeque;

/// Changes that are kept for pages that are a little behind; one that is further behind
/// gets everything again.
const RECENT: usize = 16;

/// The run in progress, as the page shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Current {
    /// The point, as options.
    pub point: String,
    /// Seconds of the window so far.
    pub elapsed_s: f64,
    /// Its length; absent where operations end the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// Operations so far.
    pub operations: u64,
    /// Operations that end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<u64>,
    /// What is timed, by its name in the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<String>,
    /// Operations of the workers, ascending; an even sample of many.
    pub shares: Vec<u64>,
    /// Workers, and those without an operation.
    pub workers: u64,
    /// See `workers`.
    pub none: u64,
    /// Acquisitions that found another owner inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlaps: Option<u64>,
}

/// CPU time of the last finished run by owner, with the names of neighbours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Owners {
    /// The point, as options.
    pub point: String,
    /// Seconds between the readings.
    pub between_s: f64,
    /// Name and CPU seconds.
    pub owners: Vec<(String, f64)>,
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What is measured, in words.
    title: String,
    /// Where the runs are, as the progress line has it.
    progress: String,
    elapsed_s: f64,
    /// CPUs of the machine.
    cores: u64,
    /// Targets and names of the points that samples belong to.
    points: Vec<[String; 2]>,
    history: History,
    current: Option<Current>,
    owners: Option<Owners>,
    /// The table of finished points, as HTML.
    results: String,
    /// The same as metrics, and what is going on.
    metrics_finished: String,
    now: Now,
    /// How it ended, in words.
    ended: Option<String>,
    closed: bool,
    /// The number of the last change, and the latest ones.
    number: u64,
    recent: VecDeque<String>,
}

impl State {
    /// What all of it is.
    pub(super) fn entitle(&mut self, title: String) {
        if self.title != title {
            self.title = title;
            self.change_all();
        }
    }

    /// How many CPUs the machine has.
    pub(super) fn has_cores(&mut self, cores: u64) {
        if self.cores != cores {
            self.cores = cores;
            self.change_all();
        }
    }

    /// Time goes by.
    pub(super) fn tick(&mut self, elapsed_s: f64, progress: String) {
        (self.elapsed_s, self.progress) = (elapsed_s, progress);
        self.now.elapsed_s = elapsed_s;
        let data = json!({ "elapsed_s": self.elapsed_s, "progress": self.progress });
        self.change("tick", &data.to_string());
    }

    /// The place of a point among those that samples belong to.
    pub(super) fn point(&mut self, target: &str, name: &str) -> usize {
        let known = self.points.iter().position(|[_, known]| known == name);
        known.unwrap_or_else(|| {
            let point = [target, name].map(str::to_owned);
            self.change("point", &json!(point).to_string());
            self.points.push(point);
            self.points.len() - 1
        })
    }

    /// Something was seen.
    pub(super) fn sample(&mut self, sample: Sample) {
        let added = self.history.add(sample);
        let last = json!(self.history.samples().last()).to_string();
        match added {
            Added::New => self.change("sample", &last),
            Added::ToLast => self.change("again", &last),
            Added::Thinned => self.change_all(),
        }
    }

    /// A run is in progress, or none is.
    pub(super) fn run(&mut self, current: Option<Current>) {
        self.change("run", &json!(current).to_string());
        self.current = current;
    }

    /// A run is finished.
    pub(super) fn owners(&mut self, owners: Owners) {
        self.change("owners", &json!(owners).to_string());
        self.owners = Some(owners);
    }

    /// Finished points, as HTML and as metrics.
    pub(super) fn results(&mut self, html: String, metrics: String) {
        let changes = changes(&self.results, &html);
        self.change("results", &json!(changes).to_string());
        (self.results, self.metrics_finished) = (html, metrics);
    }

    /// What metrics have of what is going on.
    pub(super) fn now(&mut self) -> &mut Now {
        &mut self.now
    }

    /// It is over.
    pub(super) fn end(&mut self, how: String) {
        self.change("end", &json!(how).to_string());
        self.ended = Some(how);
    }

    /// No more changes come.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether no more changes come.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The events after number `last`, or everything where they are not known any more;
    /// and the number of the last of them.
    pub(super) fn since(&self, last: Option<u64>) -> (String, u64) {
        let oldest = self.number - self.recent.len() as u64;
        let text = match last {
            Some(last) if last >= oldest => {
                let known = (last - oldest) as usize;
                self.recent.iter().skip(known).map(String::as_str).collect()
            }
            _ => event("state", &self.all()),
        };
        (text, self.number)
    }

    /// As OpenMetrics.
    pub(super) fn metrics(&self) -> String {
        openmetrics::joined(&self.metrics_finished, &self.now)
    }

    fn all(&self) -> String {
        json!({
            "title": self.title,
            "progress": self.progress,
            "elapsed_s": self.elapsed_s,
            "cores": self.cores,
            "points": self.points,
            "samples": self.history.samples(),
            "run": self.current,
            "owners": self.owners,
            "results": self.results,
            "ended": self.ended,
        })
        .to_string()
    }

    fn change(&mut self, name: &str, data: &str) {
        self.number += 1;
        self.recent.push_back(event(name, data));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// So much that everything is told again.
    fn change_all(&mut self) {
        self.number += 1;
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_what_it_has_missed_and_everything_if_that_is_too_much() {
        let mut state = State::default();
        state.entitle("jostle contend".to_owned());
        let (first, seen) = state.since(None);
        assert!(first.starts_with("event: state\ndata: {"), "{first}");
        assert_eq!(state.since(Some(seen)), (String::new(), seen));
        state.tick(1.0, "run 1".to_owned());
        state.tick(2.0, "run 1".to_owned());
        let (missed, now) = state.since(Some(seen));
        assert_eq!(missed.matches("event: tick").count(), 2);
        assert!(missed.ends_with("\n\n") && now == seen + 2);
        (0..RECENT).for_each(|_| state.tick(3.0, String::new()));
        let (again, _) = state.since(Some(seen));
        assert!(again.starts_with("event: state"), "{again}");
    }

    #[test]
    fn when_the_history_is_thinned_pages_get_it_anew() {
        let mut state = State::default();
        let point = state.point("flock", "flock -w 2");
        for _ in 0..super::super::history::MOST {
            state.sample(Sample::default());
        }
        let (_, seen) = state.since(None);
        state.sample(Sample {
            point,
            ..Sample::default()
        });
        let (text, _) = state.since(Some(seen));
        assert_eq!(text.matches("event: state").count(), 1);
        assert!(text.len() < 100_000);
    }
}
