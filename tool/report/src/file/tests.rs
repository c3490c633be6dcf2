use super::*;
use crate::made;
use jostle_model::record::{Resumed, Scheduled};

fn records(set: &ResultSet) -> Vec<Record> {
    set.records().collect()
}

fn write(path: &Path, sets: &[ResultSet]) {
    let mut writer = Writer::create(path, false).unwrap();
    for record in sets.iter().flat_map(records) {
        writer.write(&record).unwrap();
    }
}

fn parse(text: &str) -> Result<Vec<ResultSet>, String> {
    read_from(&mut text.as_bytes(), "x.jsonl").map_err(|error| error.to_string())
}

fn text_of(set: &ResultSet) -> String {
    crate::json::render(std::slice::from_ref(set))
}

#[test]
fn what_is_written_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.jsonl");
    let mut unfinished = made::recorded();
    unfinished.end = None;
    let sets = [made::recorded(), unfinished, made::recorded()];
    write(&path, &sets);
    assert_eq!(read(&path).unwrap(), sets);
}

#[test]
fn every_line_is_in_the_file_before_the_next_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.jsonl");
    let mut writer = Writer::create(&path, false).unwrap();
    for (made, record) in records(&made::recorded()).iter().enumerate() {
        writer.write(record).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), made + 1);
        assert!(text.ends_with('\n'));
    }
}

#[test]
fn a_crash_in_the_middle_of_a_line_costs_that_line() {
    let set = made::recorded();
    let whole = text_of(&set);
    let lines: Vec<&str> = whole.lines().collect();
    for kept in 1..lines.len() {
        let torn = &lines[kept][..lines[kept].len() / 2];
        let text = format!("{}\n{torn}", lines[..kept].join("\n"));
        let read = parse(&text).unwrap().remove(0);
        assert_eq!(read.runs, set.runs[..set.runs.len().min(kept - 1)]);
        assert_eq!(read.end, None);
        assert_eq!(read.notes.len(), 1);
        assert!(read.notes[0].contains(&format!("line {}", kept + 1)));
    }
}

#[test]
fn only_the_newline_missing_loses_nothing() {
    let set = made::recorded();
    assert_eq!(parse(text_of(&set).trim_end()).unwrap(), [set]);
}

#[test]
fn a_torn_line_in_the_middle_is_named() {
    let whole = text_of(&made::recorded());
    let lines: Vec<&str> = whole.lines().collect();
    let text = format!("{}\n{}\n{}\n", lines[0], &lines[1][..40], lines[2]);
    let error = parse(&text).unwrap_err();
    assert_eq!(
        error,
        "x.jsonl, line 2: not a whole record (EOF while parsing a string, column 40); \
         remove the line to read the others"
    );
}

/// `report /dev/zero` once took all memory.
#[test]
fn a_line_that_does_not_end_is_named_with_the_bound() {
    let whole = text_of(&made::recorded());
    let first = whole.split_inclusive('\n').next().unwrap();
    for (head, line) in [("", 1), (first, 2)] {
        let mut endless = BufReader::new(head.as_bytes().chain(io::repeat(0)));
        assert_eq!(
            read_from(&mut endless, "x.jsonl").unwrap_err().to_string(),
            format!(
                "x.jsonl, line {line}, is longer than 64 MiB, the most that is read of a \
                 line; name a file that -o has written"
            )
        );
    }
}

#[test]
fn records_without_an_experiment_are_named() {
    let whole = text_of(&made::recorded());
    let (experiment, rest) = whole.split_once('\n').unwrap();
    let error = parse(rest).unwrap_err();
    assert!(error.starts_with("x.jsonl, line 1: a run that belongs to no experiment"));
    let end = whole.lines().last().unwrap();
    let twice = format!("{experiment}\n{end}\n{end}\n");
    let error = parse(&twice).unwrap_err();
    assert!(error.starts_with("x.jsonl, line 3: an end that belongs to no experiment"));
}

#[test]
fn another_version_is_refused_and_both_are_named() {
    let ours = text_of(&made::recorded());
    let same_shape = ours.replace(SCHEMA, "jostle/7");
    let other_shape = "{\"record\":\"experiment\",\"schema\":\"jostle/7\"}\n";
    for text in [same_shape.as_str(), other_shape] {
        assert_eq!(
            parse(text).unwrap_err(),
            "x.jsonl, line 1: the file is in format jostle/7, and this jostle reads \
             jostle/1, jostle/2 and jostle/3; use the version of jostle that wrote it"
        );
    }
}

#[test]
fn a_number_that_cannot_be_measured_is_no_record() {
    let mut set = made::recorded();
    set.runs[1].throughput_per_s = 1e300;
    let error = parse(&text_of(&set)).unwrap_err();
    assert!(
        error.contains("line 3: 1e+300 is nothing that can be measured"),
        "{error}"
    );
    // A seed belongs to an experiment, and its machine may allow any value.
    let mut set = made::recorded();
    set.experiment.plan.seed = Some(u64::MAX);
    assert!(parse(&text_of(&set)).is_ok());
}

#[test]
fn what_is_no_result_file_is_said_to_be_none() {
    for text in ["", "\n\n", "{\"record\":\"experi"] {
        assert!(parse(text).unwrap_err().contains("holds no results"));
    }
    assert_eq!(
        parse("# a plan\n[[experiment]]\n").unwrap_err(),
        "x.jsonl, line 1: not a whole record (expected value, column 1); \
         a result file, as -o writes it, begins otherwise"
    );
}

#[test]
fn finished_results_are_replaced_only_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.jsonl");
    write(&path, &[made::recorded(), made::recorded()]);
    let refusal = Writer::create(&path, false).unwrap_err().to_string();
    assert_eq!(
        refusal,
        format!(
            "{} holds results already; name another file, or replace it with --overwrite",
            path.display()
        )
    );
    assert_eq!(read(&path).unwrap().len(), 2);
    // The first record replaces them, and nothing before it.
    let mut writer = Writer::create(&path, true).unwrap();
    assert_eq!(read(&path).unwrap().len(), 2);
    for record in records(&made::recorded()) {
        writer.write(&record).unwrap();
    }
    assert_eq!(read(&path).unwrap(), [made::recorded()]);
    drop(writer);
    // Empty, it is free to use.
    std::fs::write(&path, "").unwrap();
    assert!(Writer::create(&path, false).is_ok());
}

#[test]
fn a_full_disk_is_reported_with_its_name_and_what_to_do() {
    let mut writer = Writer::create("/dev/full", false).unwrap();
    let error = writer.write(&records(&made::recorded())[0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write /dev/full: No space left on device (os error 28); \
         make room there, or write elsewhere with -o"
    );
}

#[test]
fn a_file_that_is_removed_meanwhile_is_an_error_and_no_silent_loss() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("results");
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("locks.jsonl");
    let records = records(&made::recorded());
    let mut writer = Writer::create(&path, false).unwrap();
    writer.write(&records[0]).unwrap();
    // Moved, it still holds what is written.
    let moved = inner.join("moved.jsonl");
    std::fs::rename(&path, &moved).unwrap();
    writer.write(&records[1]).unwrap();
    assert_eq!(read(&moved).unwrap()[0].runs.len(), 1);
    std::fs::remove_dir_all(&inner).unwrap();
    let error = writer.write(&records[2]).unwrap_err().to_string();
    assert!(
        error.contains("locks.jsonl was removed during the run"),
        "{error}"
    );
}

#[test]
fn no_password_is_written_nor_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.jsonl");
    let mut set = made::recorded();
    let target = "http://user:secret@host/";
    set.experiment.plan.targets = vec![target.to_owned()];
    set.runs[0].target = target.to_owned();
    set.runs[0].around.messages = vec![format!("cannot ask {target}: refused")];
    write(&path, std::slice::from_ref(&set));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret") && text.contains("http://user:***@host/"));
    // As an older jostle wrote it.
    std::fs::write(&path, text_of(&set)).unwrap();
    let read = read(&path).unwrap().remove(0);
    assert!(!text_of(&read).contains("secret"));
    assert_eq!(read.runs[0].target, "http://user:***@host/");
}

/// It waited without a word, and no signal ended it.
#[test]
fn a_pipe_that_nobody_reads_is_an_error_and_no_endless_wait() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    let error = Writer::create(&path, false).unwrap_err().to_string();
    assert!(
        error.ends_with("; start first what reads this pipe"),
        "{error}"
    );
    let mut reader = File::options();
    reader
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    let mut reader = reader.open(&path).unwrap();
    let mut writer = Writer::create(&path, false).unwrap();
    writer.write(&records(&made::recorded())[0]).unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("{\"record\":\"experiment\""), "{text}");
}

#[test]
fn devices_that_cannot_sync_are_fine() {
    let mut writer = Writer::create("/dev/null", false).unwrap();
    writer.write(&records(&made::recorded())[0]).unwrap();
}

#[test]
fn paths_that_cannot_be_written_or_read_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("no/such/file");
    let table = [
        (directory.path(), "Is a directory", "name a file in it"),
        (&missing, "No such file", "make its directory first"),
    ];
    for (path, cause, remedy) in table {
        let error = Writer::create(path, false).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), cause, remedy] {
            assert!(error.contains(part), "{error}");
        }
    }
    let error = read(&missing).unwrap_err().to_string();
    assert!(error.contains("cannot open to read") && error.contains("No such file"));
    let error = read(directory.path()).unwrap_err().to_string();
    assert!(error.contains("Is a directory"), "{error}");
}

#[test]
fn a_resumed_result_is_read_as_it_was_written() {
    let mut set = made::recorded();
    let breaks = [1, 3, 3, 7].map(|block| Resumed {
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        block,
        left_out: 1,
    });
    set.scheduled = Some(Scheduled::default());
    set.resumed = breaks.to_vec();
    let text = text_of(&set);
    assert_eq!(parse(&text).unwrap(), [set]);
    let kinds = text.lines().filter_map(|line| line.split('"').nth(3));
    let kinds: Vec<&str> = kinds.collect();
    assert_eq!(kinds[..4], ["experiment", "scheduled", "resumed", "run"]);
}

#[test]
fn a_cut_line_is_replaced_by_what_follows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.jsonl");
    let whole = text_of(&made::recorded());
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let text = lines[..3].concat();
    std::fs::write(&path, format!("{text}{}", &lines[3][..40])).unwrap();
    let (sets, bytes) = read_whole_lines(&path).unwrap();
    assert_eq!((sets[0].runs.len(), bytes.len()), (2, text.len()));
    let mut writer = Writer::append(&path, bytes.len() as u64).unwrap();
    let point = record_from_json(lines[3]).unwrap();
    writer.write(&point).unwrap();
    writer.write(&point).unwrap();
    let expected = format!("{text}{}{}", lines[3], lines[3]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
}

#[test]
fn a_file_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one.jsonl");
    let first = Writer::create(&path, false).unwrap();
    let second = Writer::append(&path, 0).unwrap_err().to_string();
    assert!(second.contains("another jostle writes to"), "{second}");
    drop(first);
    Writer::append(&path, 0).unwrap();
}
