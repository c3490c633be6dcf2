//! `--format json`: the records, exactly the lines that the result file holds.

use crate::ResultSet;
use jostle_model::serial::record_to_json;

/// One record a line.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let records = sets.iter().flat_map(ResultSet::records);
    records
        .map(|record| record_to_json(&record) + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{Writer, made, read};

    #[test]
    fn what_is_printed_is_what_the_file_holds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.jsonl");
        let printed = super::render(&[made::recorded(), made::recorded()]);
        std::fs::write(&path, &printed).unwrap();
        let sets = read(&path).unwrap();
        assert_eq!(sets, [made::recorded(), made::recorded()]);

        let copy = directory.path().join("copy.jsonl");
        let mut writer = Writer::create(&copy, false).unwrap();
        for line in printed.lines() {
            writer.write(&serde_json::from_str(line).unwrap()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), printed);
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let text = super::render(&[made::counts_only()]);
        assert!(!text.contains("null"));
        assert!(!text.contains("acquire_ns"));
    }
}
