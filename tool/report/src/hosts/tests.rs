use super::*;
use crate::page::pages;
use crate::{html, made, markdown, table};
use jostle_model::record::Verdict;

#[test]
fn few_hosts_and_many_as_people_see_them() {
    insta::assert_snapshot!(table::render(&[made::hosts()]));
}

#[test]
fn the_same_for_a_page() {
    insta::assert_snapshot!(markdown::render(&[made::hosts()]));
}

/// The texts of the cells (`td`, or `th`) of all rows of all tables of a page.
fn cells(page: &str, kind: &str) -> Vec<Vec<String>> {
    let (opens, closes) = (format!("<{kind}"), format!("</{kind}>"));
    let of_row = |row: &str| {
        let cells = row.split("</tr>").next().unwrap().split(&opens).skip(1);
        let texts = cells.filter_map(|cell| cell.split_once('>')?.1.split(&closes).next());
        texts.map(str::to_owned).collect()
    };
    page.split("<tr").skip(1).map(of_row).collect()
}

#[test]
fn a_browser_shows_the_same_rows() {
    let mut set = made::hosts();
    let alone = |rank: u64| HostCeiling {
        target: set.runs[0].target.clone(),
        rank,
        host: format!("h{}", rank + 1),
        throughput_per_s: 4_321.0,
        of_median: 1.0,
        ..HostCeiling::default()
    };
    set.experiment.calibration.host_ceilings = (0..18).map(alone).collect();
    let sets = [set];
    let mut tables = pages(&sets).remove(0).tables.into_iter();
    let console = tables.find(|table| table.title.starts_with(TITLE)).unwrap();
    let page = html::html(&sets);
    let columns = console.grid.columns.iter();
    let heading: Vec<String> = columns
        .map(|heading| match &heading.title {
            [upper, lower] if upper.is_empty() => lower.clone(),
            [upper, lower] => format!("{upper}<br>{lower}"),
        })
        .collect();
    assert!(heading.contains(&"alone<br>ops/s".to_owned()));
    let headings = cells(&page, "th");
    assert!(headings.contains(&heading), "{heading:?}");
    let rows = cells(&page, "td");
    let first = rows.iter().position(|row| *row == console.grid.rows[0]);
    let first = first.unwrap_or_else(|| panic!("{:?}", console.grid.rows[0]));
    assert_eq!(rows[first..][..console.grid.rows.len()], console.grid.rows);
    for text in [&console.title, &console.notes[0].1] {
        assert!(page.contains(text.as_str()), "{text}");
    }
    let row = &console.grid.rows[0];
    assert!(row.contains(&"h1".to_owned()) && row.contains(&"4,321".to_owned()));
}

#[test]
fn every_host_that_was_invalid_has_its_line_and_the_rest_one() {
    let mut set = made::hosts();
    set.runs.retain(|point| point.at.generators == Some(18));
    let weak = set.runs[0].hosts[6].verdict.clone();
    for run in &mut set.runs {
        for (nth, part) in run.hosts.iter_mut().enumerate() {
            part.verdict = match nth {
                // Once is enough.
                ..10 if run.run == 1 || nth == 6 => weak.clone(),
                _ => Verdict::default(),
            };
        }
    }
    let text = table::render(&[set]);
    let once = text
        .lines()
        .filter(|line| line.contains("INVALID (1 of 6)["));
    assert_eq!(once.count(), 9, "{text}");
    assert!(text.contains("7 others "), "{text}");
}

#[test]
fn ranks_of_one_machine_are_told_apart() {
    let mut set = made::hosts();
    for run in &mut set.runs {
        for part in run.hosts.iter_mut().take(2) {
            part.host = "vm".to_owned();
        }
    }
    let text = table::render(&[set]);
    for name in [" vm rank 0 ", " vm rank 1 ", " h3 "] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn the_uncertainty_of_starts_is_that_of_the_clocks() {
    let row = |late_ns, clock_within_ns| HostPart {
        late_ns,
        clock_within_ns,
        ..HostPart::default()
    };
    let run = |hosts: &[(i64, u64)]| Run {
        hosts: hosts
            .iter()
            .map(|(late, within)| row(*late, *within))
            .collect(),
        ..Run::default()
    };
    let table: [(&[Run], Option<&str>); 5] = [
        (&[], None),
        (&[run(&[(5_000, 0)])], None),
        (
            &[run(&[(-80_000, 4_000), (400_000, 6_010)])],
            Some("2 hosts began within 480 us of each other, ± 11 us."),
        ),
        // A host in between of which less is known.
        (
            &[run(&[(0, 0), (90_000, 30_000), (100_000, 1_000)])],
            Some("3 hosts began within 100 us of each other, ± 20 us."),
        ),
        (
            &[
                run(&[(0, 0), (1_000, 100)]),
                run(&[(0, 0), (9_000, 200), (5_000, 1)]),
            ],
            Some("2 to 3 hosts began within 9.0 us of each other, ± 200 ns."),
        ),
    ];
    for (runs, said) in table {
        assert_eq!(began(runs).as_deref(), said);
    }
}

#[test]
fn an_uncertainty_never_looks_smaller_than_it_is() {
    for (nanos, text) in [
        (0, ""),
        (7, "±7 ns"),
        (8_010, "±8.1 us"),
        (8_000, "±8.0 us"),
        (99_100, "±100 us"),
    ] {
        assert_eq!(uncertainty(nanos), text);
    }
}
