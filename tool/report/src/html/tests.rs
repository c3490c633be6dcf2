use super::html as page;
use super::*;
use crate::made;
use jostle_model::record::{Distribution, Run};
use jostle_stats::figures;
use jostle_stats::summary::{Estimate, summarize};

/// The text between the first `from` and the next `to`.
pub(super) fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    text.split_once(from).unwrap().1.split(to).next().unwrap()
}

/// The page as a reader sees it, without marks of the markup.
fn words(page: &str) -> String {
    let body = between(page, "<body>", "<script>");
    let mut text = String::new();
    for part in body.split('<').filter_map(|part| part.split_once('>')) {
        text += part.1;
        text.push(' ');
    }
    // A word of a command is an element.
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .join(" ")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
        .replace("&quot;", "\"")
}

/// The row of a figure's table about one point, heading by heading; nothing where it has no figure,
/// and only where a mark refers to the row.
fn told(page: &str, title: &str, series: &str, swept: &str) -> Vec<(String, String)> {
    let mut figures = page.split("<figure");
    let figure = figures.find(|figure| figure.contains(&format!("<strong>{title}")));
    let figure = figure.unwrap();
    let texts = |part: &str, tag: &str| -> Vec<String> {
        let cells = part.split(tag).skip(1);
        let texts = cells.map(|cell| between(cell, ">", "<"));
        texts.map(str::to_owned).collect()
    };
    let headings = texts(figure.split("</thead>").next().unwrap(), "<th ");
    let rows = figure.split("<tbody>").nth(1).unwrap().split("<tr").skip(1);
    let (number, row) = rows
        .map(|row| texts(row, "<td"))
        .enumerate()
        .find(|(_, row)| row[0] == series && row[1] == swept)
        .unwrap();
    let marks = figure.split("<path class=\"").skip(1);
    let marks = marks.filter(|mark| !mark.starts_with("pt mark invalid"));
    let says = marks.flat_map(|mark| mark.split("data-say=\"").nth(1)?.split('"').next());
    let mut rows = says.flat_map(|says| says.split('|'));
    if !rows.any(|row| row == number.to_string()) {
        return Vec::new();
    }
    let cells = headings.into_iter().zip(row);
    cells.filter(|(_, cell)| cell != "–").collect()
}

/// One of them.
fn cell(page: &str, title: &str, (series, swept): (&str, &str), heading: &str) -> String {
    let row = told(page, title, series, swept);
    let cell = row.iter().find(|(of, _)| of.contains(heading));
    cell.unwrap_or_else(|| panic!("{title}: {heading} of {row:?}"))
        .1
        .clone()
}

/// One of everything that a page can be made of.
fn every() -> Vec<(&'static str, Vec<ResultSet>)> {
    let mut cut = made::set();
    cut.runs.truncate(3);
    cut.end = None;
    cut.notes = vec!["x.jsonl, line 5, was torn".to_owned()];
    let mut bare = made::set();
    bare.runs.clear();
    let mut failing = made::set();
    failing.runs[0].around.messages = vec!["flock: no locks available".to_owned()];
    vec![
        ("nothing", vec![]),
        ("no run", vec![bare.clone()]),
        ("a comparison", vec![made::set()]),
        ("INVALID points", vec![made::broken()]),
        ("failures", vec![failing]),
        ("counts alone", vec![made::counts_only()]),
        ("cut off", vec![cut.clone()]),
        ("several", vec![made::set(), cut, bare, made::counts_only()]),
    ]
}

#[test]
fn table_and_sentences_are_those_of_the_console() {
    for (what, sets) in every() {
        let text = words(&page(&sets));
        for console in pages(&sets) {
            let lines = console.lines.iter().map(|line| line.text());
            let lines = lines.chain(console.failures).chain(console.ended).chain([
                console.what,
                console.measured,
                console.details,
                console.next,
            ]);
            for line in lines {
                assert!(text.contains(&line), "{what}: {line}\n{text}");
            }
            let Some(headline) = console.headline else {
                continue;
            };
            for note in headline.notes {
                assert!(text.contains(&note), "{what}: {note}");
            }
            let cells = headline.grid.rows.iter().flatten();
            for cell in cells.filter(|cell| *cell != "-" && !cell.contains('[')) {
                assert!(text.contains(cell.as_str()), "{what}: {cell}");
            }
        }
    }
}

#[test]
fn the_page_begins_with_the_closing_sentences_of_the_console() {
    for (what, sets) in every() {
        let page = page(&sets);
        let first = page.split("<section").nth(1).unwrap();
        assert!(
            first.starts_with(" class=\"conclusion\""),
            "{what}: {first:.60}"
        );
        let first = words(&format!("<body><p{first}"));
        let mut from = 0;
        for console in pages(&sets) {
            // Each experiment has its own, in order.
            for line in &console.lines {
                let at = first[from..].find(&line.text());
                from += at.unwrap_or_else(|| panic!("{what}: {line:?}"));
            }
        }
    }
}

/// Without a figure its first lines were the subject and the word INVALID.
#[test]
fn a_page_without_any_figure_says_first_why_and_what_to_do() {
    let mut set = made::counts_only();
    for run in &mut set.runs {
        run.around.errors = [("EIO".to_owned(), 1_000)].into();
    }
    let page = page(&[set]);
    for tag in ["title", "h1"] {
        let text = between(&page, &format!("<{tag}>"), "<");
        assert!(text.starts_with("INVALID: "), "{text}");
    }
    let (_, below) = page.split_once("</h1>").unwrap();
    let div = below.trim_start_matches("<div class=\"sets\"><div class=\"of\">");
    assert!(div.starts_with("<p class=\"next\">Next: "), "{div:.80}");
}

/// Two points of the same colour looked alike where more series stood in a drawing than there are
/// colours.
#[test]
fn no_two_series_look_alike() {
    use super::chart::Style;
    let looks = |styles: Vec<Style>| {
        let all = styles.len();
        let each = styles.into_iter().map(|style| style.of_series(0));
        let each = each.map(|style| format!("{style:?}"));
        (each.collect::<BTreeSet<_>>().len(), all)
    };
    let (alone, all) = looks((0..24).map(|at| Style::numbered(at, at, 0)).collect());
    assert_eq!(alone, all);
    let of_three = (0..16).flat_map(|at| (0..3).map(move |set| Style::numbered(at, set, set)));
    let (beside, all) = looks(of_three.collect());
    assert_eq!(beside, all);
    // Lines without marks, too.
    let [first, ninth] = [0, 8].map(|at| Style::numbered(at, at, 0));
    assert_eq!(first.colour(), ninth.colour());
    assert_ne!(first.dashes(), ninth.dashes());
}

#[test]
fn a_switch_is_there_only_for_an_axis_that_some_drawing_has_in_both_scales() {
    let switches = |workers: [u64; 2]| {
        let mut set = made::counts_only();
        let runs = set.runs.clone();
        set.runs.clear();
        for (workers, times) in workers.into_iter().zip([1.0, 2.0]) {
            set.runs.extend(runs.iter().cloned().map(|mut run| {
                run.at.workers = Some(workers);
                run.throughput_per_s *= times;
                run
            }));
        }
        let page = page(&[set]);
        ["x", "y"].map(|axis| page.contains(&format!("name=\"{axis}\"")))
    };
    assert!(switches([10, 1_000])[0]);
    assert!(!switches([10, 20])[0]);
}

#[test]
fn a_figure_of_the_answer_is_not_repeated_in_the_detail() {
    let page = page(&[made::set()]);
    assert_eq!(page.matches("<strong>Throughput</strong>").count(), 1);
    let (answer, detail) = page.split_once("In detail").unwrap();
    assert!(answer.contains("<strong>Throughput</strong>"));
    assert!(detail.contains("<strong>Time to acquire</strong>"));
}

/// Fourteen targets were one smear, with "ideal" fourteen times.
#[test]
fn beyond_eight_series_each_has_a_drawing_of_its_own() {
    let many = |targets: usize| {
        let mut set = made::set();
        set.runs.retain(|run| run.target == "sysv");
        let runs = std::mem::take(&mut set.runs);
        set.experiment.plan.targets = (1..=targets).map(|n| format!("t{n}")).collect();
        for target in &set.experiment.plan.targets {
            set.runs.extend(runs.iter().cloned().map(|run| Run {
                target: target.clone(),
                ..run
            }));
        }
        let page = page(&[set]);
        let mut figures = page.split("<figure");
        let throughput = figures.find(|figure| figure.contains("<strong>Throughput</strong>"));
        let throughput = throughput.unwrap();
        let labels = throughput.matches("text class=\"label ideal\"").count();
        (throughput.matches("<svg class=\"chart").count(), labels)
    };
    assert_eq!(many(8), (1, 1));
    assert_eq!(many(14), (14, 1));
}

/// The page of 14 targets had 2.3 MB with 7 points of each, and 4.1 MB with 12: every number
/// stood in it up to five times.
#[test]
fn a_page_of_many_points_is_light() {
    let page = page(&[made::wide(14, 12)]);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    // What a browser's tab shows was a list of the targets.
    let title = between(&page, "<title>", "</title>");
    assert!(
        title.chars().count() <= 70 && title.ends_with(" - jostle contend"),
        "{title}"
    );
    let elements = page.matches('<').count() - page.matches("</").count();
    assert!(elements < 36_000, "{elements}");
    // Ticks that many drawings have are there once, and each reference has its own.
    let groups: Vec<&str> = page.split("<g id=\"").skip(1).collect();
    for used in page.split("href=\"#t").skip(1) {
        let id = format!("t{}\"", used.split('"').next().unwrap());
        assert!(groups.iter().any(|group| group.starts_with(&id)), "{id}");
    }
    assert!(page.matches("<use ").count() > 10 * groups.len());
}

#[test]
fn a_curve_needs_no_vertex_where_it_is_straight_on_every_scale() {
    use super::chart::{Chart, frame};
    let (across, up) = frame((300.0, 200.0), 0);
    let x = scale::Axis::of_sweep(&[10.0, 1000.0], across);
    let y = scale::Axis::of_values(units::Unit::Time(1.0), &[10.0, 1000.0], up);
    let vertices = |shape: fn(f64) -> f64| {
        let axes = (x.clone(), String::new());
        let mut chart = Chart::new((300.0, 200.0), 0, axes, (y.clone(), String::new()));
        let points = (0..=48).map(|n| 10f64.powf(1.0 + f64::from(n) / 24.0));
        let points: Vec<(f64, f64)> = points.map(|x| (x, shape(x))).collect();
        chart.curve("law", &points);
        let svg = chart.draw("").into_string();
        let line = between(&svg, "class=\"line law\" d=\"", "\"");
        line.matches(['M', 'L']).count()
    };
    assert_eq!(vertices(|_| 100.0), 2);
    let bent = vertices(|x| x);
    assert!((4..49).contains(&bent), "{bent}");
}

#[test]
fn two_results_have_their_ratios_and_one_has_none() {
    let (old, mut new) = (made::set(), made::set());
    new.label = Some("new".to_owned());
    let differs = "What differs between the results";
    assert!(page(&[old.clone(), new]).contains(differs));
    assert!(!page(&[old]).contains(differs));
}

#[test]
fn the_marks_of_a_figure_are_the_figures_of_the_summary() {
    let set = made::set();
    let sets = [set.clone()];
    let page = page(&sets);
    let points = summarize(&set.experiment, &set.runs);
    assert_eq!(points.len(), 4);
    for point in &points {
        let workers = crate::format::grouped(point.at.workers.unwrap());
        let cell = |title, heading| cell(&page, title, (point.target, &workers), heading);
        let median = |figure: Option<Estimate>| figure.unwrap().median;
        assert_eq!(
            cell("Throughput", "median"),
            units::Unit::PerSecond("").cell(median(point.of(figures::THROUGHPUT)))
        );
        let time = |ns: f64| units::Unit::Time(1.0).cell(ns);
        assert_eq!(
            cell("CPU time of the workers", "median"),
            time(1e3 * median(point.of(figures::CPU)))
        );
        let shares = point.per_worker.unwrap();
        for (heading, value) in [("mean", shares.mean), ("least", shares.min as f64)] {
            assert_eq!(
                cell("Acquisitions of a worker", heading),
                units::Unit::Number("").cell(value)
            );
        }
        let longest = point.longest_wait_ns.unwrap() as f64;
        // The median, a bound of p99, and the longest of all.
        assert_eq!(cell("Time to acquire", "max"), time(longest));
        assert_eq!(
            cell("Time to acquire", "p50"),
            time((longest / 4.0).floor())
        );
        assert_eq!(
            cell("Time to acquire", "p99"),
            format!("≥ {}", time((longest / 2.0).floor()))
        );
    }
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    for (what, sets) in every() {
        let page = page(&sets);
        for forbidden in [
            "http:", "https:", "//www", "src=", "url(", "@import", "import(", "fetch(", "XMLHttp",
            "<link", "<iframe", "<object", "<base", "srcset",
        ] {
            assert!(!page.contains(forbidden), "{what}: {forbidden}");
        }
        for link in page.split("href=\"").skip(1) {
            assert!(link.starts_with('#'), "{what}: {link:.40}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(page.starts_with(MARK), "{what}: {page:.80}");
    }
}

#[test]
fn a_name_cannot_turn_the_text_behind_it_round() {
    let mut set = made::set();
    set.experiment.plan.targets = vec!["\u{202e}kcolf".to_owned()];
    for run in &mut set.runs {
        run.target = "\u{202e}kcolf".to_owned();
    }
    for text in [page(&[set.clone()]), live::results(&[set])] {
        assert!(!text.contains('\u{202e}') && text.contains("\\u202ekcolf"));
    }
}

#[test]
fn names_of_users_cannot_become_markup() {
    let evil = "<script>alert('1')</script>\"><img onerror=x>&";
    let mut set = made::set();
    let experiment = &mut set.experiment;
    experiment.plan.targets = vec![evil.to_owned()];
    let environment = &mut experiment.environment;
    for field in [
        &mut environment.host,
        &mut environment.kernel,
        &mut environment.cpu_model,
        &mut environment.libc,
        &mut environment.jostle,
    ] {
        *field = evil.to_owned();
    }
    environment.limits.insert(evil.to_owned(), evil.to_owned());
    let file_systems = &mut environment.file_systems;
    file_systems.insert(evil.to_owned(), evil.to_owned());
    experiment.started_at = evil.to_owned();
    let costs = &mut experiment.calibration.own_cost;
    costs.insert(evil.to_owned(), made::cost(1.0, 2.0));
    for run in &mut set.runs {
        run.target = evil.to_owned();
        if let Some(seen) = &mut run.exclusion {
            seen.violations = 1;
            seen.examples = vec![evil.to_owned()];
        }
    }
    set.notes = vec![evil.to_owned()];
    if let Some(end) = &mut set.end {
        end.error = Some(evil.to_owned());
    }
    let mut other = set.clone();
    other.runs.truncate(1);
    other.runs[0].exclusion = None;
    let page = page(&[set, other]);
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!page.contains("<img"));
    assert!(page.matches("&lt;script&gt;").count() > 20);
}

#[test]
fn of_an_invalid_point_the_reason_stands_below_the_row_and_no_figure() {
    let mut set = made::broken();
    for run in &mut set.runs {
        run.throughput_per_s = 76_543.21;
        run.cpu.cpu_us_per_operation = Some(76_543.21);
    }
    let sets = [set];
    let page = page(&sets);
    assert!(
        !page.contains("76543.21") && !page.contains("76,543"),
        "{page}"
    );
    let mut rows = page.split("<tr");
    let row = rows.find(|row| row.contains("class=\"reason\"")).unwrap();
    assert!(row.contains("found another owner inside"), "{row}");
    assert!(row.contains("colspan"), "{row}");
    assert!(page.contains("left verdict invalid"), "{page}");
}

#[test]
fn an_invalid_point_among_others_is_a_cross_and_breaks_the_line() {
    let mut set = made::set();
    for run in set.runs.iter_mut().filter(|p| p.at.workers == Some(1000)) {
        if let Some(seen) = run.exclusion.as_mut() {
            seen.violations = 1;
        }
    }
    let page = page(&[set]);
    assert!(page.contains("class=\"pt mark invalid c0 s0\""));
    assert!(told(&page, "Throughput", "flock", "1,000").is_empty());
    assert!(!told(&page, "Throughput", "flock", "10").is_empty());
    assert!(!page.contains("class=\"line c0 s0\""));
}

#[test]
fn every_figure_has_its_data_as_a_table() {
    for (what, sets) in every() {
        let page = page(&sets);
        for figure in page.split("<figure").skip(1) {
            let figure = figure.split("</figure>").next().unwrap();
            let table = figure.split("<table class=\"data cards\"").nth(1).unwrap();
            assert!(table.contains("<th scope=\"col\">series</th>"), "{what}");
            let rows = table.matches("<tr").count() - 1;
            for says in figure.split("data-say=\"").skip(1) {
                let says = says.split('"').next().unwrap().split('|');
                let numbers = says.filter_map(|say| say.split('.').next()?.parse::<usize>().ok());
                assert!(numbers.max().is_none_or(|row| row < rows), "{what}: {rows}");
            }
        }
    }
}

#[test]
fn what_was_not_measured_has_no_figure() {
    let mut set = made::set();
    for slice in set.runs.iter_mut().flat_map(|p| &mut p.series) {
        slice.operations = 94;
    }
    let full = page(&[set]);
    let counts = page(&[made::counts_only()]);
    for title in [
        "Time to acquire",
        "Hand-off",
        "Blocked share",
        "Along the run",
    ] {
        assert!(full.contains(title), "{title}");
        assert!(!counts.contains(title), "{title}");
    }
    assert!(counts.contains("Throughput"));
}

#[test]
fn a_distribution_of_another_workload_is_drawn_under_its_name() {
    let mut set = made::set();
    // Stands for a field that this version does not know by words.
    for run in &mut set.runs {
        run.times.handoff_ns = None;
        run.times.failed_try_ns = Some(Distribution {
            count: 100,
            min: 5,
            max: 70,
            mean: 10.0,
            ..Distribution::default()
        });
    }
    let page = page(&[set]);
    let longest = cell(&page, "Time of a refused try", ("flock", "10"), "max");
    assert_eq!(longest, "70 ns");
    assert!(!page.contains("<strong>Hand-off</strong>"));
}

#[test]
fn files_are_labelled_by_what_differs_between_them() {
    let (old, mut new) = (made::set(), made::set());
    new.experiment.environment.kernel = "Linux 6.19".to_owned();
    let page = page(&[old, new]);
    for label in ["flock · Linux 6.18", "flock · Linux 6.19", "What differs"] {
        assert!(page.contains(label), "{label}");
    }
}

#[test]
fn the_page_names_the_command_that_makes_it_again_and_its_plan() {
    let text = words(&page(&[made::set()]));
    assert!(text.contains("jostle contend flock sysv -w 10:1000 -t 5 --runs 6 --seed 42"));
    assert!(text.contains("[[experiment]] workload = \"contend\" "));
    assert!(text.contains("Pentium IV"));
}
