//! A file of what a validation measured: a line for each piece, written when it is
//! over, so that the next call goes on where this one was ended.

use anyhow::Context;
use jostle_model::record::Run;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// The histograms that checks of open loops look at; all of them together are as long
/// as the rest of a run.
const HISTOGRAMS: [&str; 4] = [
    "response_ns",
    "unanswered_ns",
    "generator_lag_ns",
    "canary_lag_ns",
];

/// Takes from a run the slices, and the histograms that no check looks at.
pub(super) fn slim(point: &mut Run) {
    let is_open = point.open_loop.is_some();
    point
        .histograms
        .retain(|name, _| is_open && HISTOGRAMS.contains(&name.as_str()));
    point.series.clear();
}

/// The lines so far, and where more go.
pub(crate) struct Store<Line> {
    pub lines: Vec<Line>,
    file: Option<File>,
}

impl<Line: Serialize + DeserializeOwned> Store<Line> {
    /// Without a path nothing is kept.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Store<Line>> {
        let Some(path) = path else {
            return Ok(Store {
                lines: Vec::new(),
                file: None,
            });
        };
        let name = || path.display().to_string();
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let mut file = file.with_context(name)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(name)?;
        // A line without an end was being written when the machine stopped: the next
        // one would be appended to it.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).with_context(name)?;
        file.seek(std::io::SeekFrom::End(0)).with_context(name)?;
        Ok(Store {
            lines: parse(&text[..whole]).with_context(name)?,
            file: Some(file),
        })
    }

    /// The lines of a file that is there, which is not changed.
    pub(super) fn read(path: &Path) -> anyhow::Result<Store<Line>> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(name)?;
        Ok(Store {
            lines: parse(&text).with_context(name)?,
            file: None,
        })
    }

    pub(crate) fn add(&mut self, line: Line) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            let text = serde_json::to_string(&line)? + "\n";
            file.write_all(text.as_bytes())?;
        }
        self.lines.push(line);
        Ok(())
    }
}

fn parse<Line: DeserializeOwned>(text: &str) -> anyhow::Result<Vec<Line>> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(nth, line)| serde_json::from_str(line).with_context(|| format!("line {}", nth + 1)));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_call_goes_on_behind_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.jsonl");
        for nth in 0..3 {
            let mut store: Store<u64> = Store::open(Some(&path)).unwrap();
            assert_eq!(store.lines.len(), nth as usize);
            store.add(10 + nth).unwrap();
        }
        assert_eq!(Store::<u64>::read(&path).unwrap().lines, [10, 11, 12]);
    }

    #[test]
    fn a_line_that_was_cut_off_is_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.jsonl");
        std::fs::write(&path, "10\n11\n12").unwrap();
        let mut store: Store<u64> = Store::open(Some(&path)).unwrap();
        assert_eq!(store.lines, [10, 11]);
        store.add(13).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "10\n11\n13\n");
        std::fs::write(&path, "10\nnothing\n").unwrap();
        let error = Store::<u64>::open(Some(&path)).err().unwrap();
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
    }

    #[test]
    fn what_no_check_looks_at_is_left_out() {
        use jostle_model::open_loop::OpenLoop;
        use jostle_model::record::Buckets;
        let histograms = ["response_ns", "service_ns"].map(|name| {
            let buckets = Buckets(vec![(1, 1)]);
            (name.to_owned(), buckets)
        });
        let mut closed = Run {
            histograms: histograms.into(),
            ..Run::default()
        };
        let mut open = Run {
            open_loop: Some(Box::new(OpenLoop::default())),
            ..closed.clone()
        };
        slim(&mut closed);
        slim(&mut open);
        assert!(closed.histograms.is_empty());
        assert_eq!(open.histograms.keys().collect::<Vec<_>>(), ["response_ns"]);
    }
}
