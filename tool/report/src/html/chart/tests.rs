use super::*;
use crate::html::strokes::number;
use crate::html::units::Unit;

fn chart() -> Chart {
    let size = (300.0, 200.0);
    let (across, up) = frame(size, 5);
    let x = Axis::of_sweep(&[1.0, 10.0, 100.0], across);
    let y = Axis::of_values(Unit::Time(1.0), &[10.0, 1000.0], up);
    Chart::new(size, 5, (x, "workers".to_owned()), (y, "time".to_owned()))
}

fn valid(says: &str) -> Mark {
    Mark {
        look: Look::Valid,
        at: (10.0, 100.0),
        says: says.to_owned(),
    }
}

#[test]
fn whatever_has_a_position_has_it_for_both_scales() {
    let mut chart = chart();
    chart.line("c0", "none", &[(1.0, 10.0), (100.0, 1000.0)]);
    chart.marks(Style::default(), 0.0, &[valid("100 ns")]);
    let svg = chart.draw("x").into_string();
    // The swept values of a whole drawing are pairs, heights stand with each path.
    let line = attributes(&svg, "line c0");
    let at = [(1.0, 10.0), (100.0, 1000.0)].map(chart_at);
    let [from, to] = at.map(|(x, y)| format!("{} {}", number(x.log), number(y.log)));
    assert_eq!(line["d"], format!("M{from}L{to}"));
    let ups = at.map(|(_, y)| number(y.linear)).join(" ");
    assert_eq!(line["data-up"], ups);
    let pairs = attributes(&svg, "chart")["data-across"].clone();
    for (x, _) in at {
        assert!(
            pairs.contains(&format!("{} {}", number(x.log), number(x.linear))),
            "{pairs}"
        );
    }
    assert_eq!(attributes(&svg, "pt mark c0 s0")["data-say"], "100 ns");
}

/// The attributes of the element of this class.
fn attributes(svg: &str, class: &str) -> std::collections::BTreeMap<String, String> {
    let element = svg.split(&format!("class=\"{class}\"")).nth(1).unwrap();
    let words = element
        .split('>')
        .next()
        .unwrap()
        .split('"')
        .collect::<Vec<_>>();
    let pairs = words.chunks(2).filter(|pair| pair.len() == 2);
    let name = |text: &str| text.trim().trim_end_matches('=').to_owned();
    pairs
        .map(|pair| (name(pair[0]), pair[1].to_owned()))
        .collect()
}

fn chart_at(point: (f64, f64)) -> (Both, Both) {
    chart().at(point, 0.0)
}

/// Two swept values that stand at one place on the first scale do not on the other.
#[test]
fn where_one_place_would_be_two_each_path_has_its_own() {
    let (across, up) = frame((300.0, 200.0), 5);
    let x = Axis::of_sweep(&[0.001, 0.002, 100.0], across);
    let y = Axis::of_values(Unit::Time(1.0), &[10.0, 1000.0], up);
    let axes = ((x, String::new()), (y, String::new()));
    let mut chart = Chart::new((300.0, 200.0), 5, axes.0, axes.1).opening(Scale::Linear);
    chart.line("c0", "none", &[(0.001, 10.0), (0.002, 10.0), (100.0, 10.0)]);
    let svg = chart.draw("x").into_string();
    assert!(
        !attributes(&svg, "chart").contains_key("data-across"),
        "{svg}"
    );
    let own = attributes(&svg, "line c0")["data-across"].clone();
    assert_eq!(own.split(' ').count(), 3);
}

#[test]
fn a_drawing_that_opens_linear_shows_linear_positions() {
    let mut chart = chart().opening(Scale::Linear);
    chart.line("c0", "none", &[(1.0, 10.0), (100.0, 1000.0)]);
    chart.marks(Style::default(), 0.0, &[valid("100 ns")]);
    let svg = chart.draw("x").into_string();
    let [from, to] = [(1.0, 10.0), (100.0, 1000.0)].map(chart_at);
    let place = |(x, y): (Both, Both)| format!("{} {}", number(x.linear), number(y.linear));
    let line = attributes(&svg, "line c0");
    assert_eq!(line["d"], format!("M{}L{}", place(from), place(to)));
    let mark = attributes(&svg, "pt mark c0 s0");
    let at = format!("M{}m", place(chart_at((10.0, 100.0))));
    assert!(mark["d"].starts_with(&at), "{mark:?}");
}

#[test]
fn a_label_that_was_moved_has_a_leader_from_the_point_that_it_names() {
    let mut chart = chart();
    for (text, value) in [("p50", 100.0), ("p90", 101.0)] {
        chart.label("quiet", (10.0, value), text);
    }
    let names = [100.0, 101.0].map(|value| chart.at((10.0, value), 0.0));
    let svg = chart.draw("x").into_string();
    let leaders: Vec<&str> = svg.split("class=\"leader quiet\" d=\"").skip(1).collect();
    assert_eq!(leaders.len(), 2);
    for (leader, (x, y)) in leaders.iter().zip(names) {
        let start = format!("M{} {}L", number(x.log), number(y.log));
        assert!(leader.starts_with(&start), "{leader:.40} {start}");
    }
}

#[test]
fn an_invalid_mark_has_no_value() {
    let mut chart = chart();
    let mark = Mark {
        look: Look::Invalid,
        at: (10.0, 12_345.0),
        says: "INVALID: no".to_owned(),
    };
    chart.marks(Style::default(), 0.0, &[mark]);
    let svg = chart.draw("x").into_string();
    assert!(!svg.contains("12345"));
    assert!(svg.contains("INVALID: no"));
}

#[test]
fn names_cannot_break_out() {
    let mut chart = chart();
    let evil = "\"><script>alert(1)</script>";
    chart.marks(Style::default(), 0.0, &[valid(evil)]);
    chart.label("c0", (10.0, 10.0), evil);
    let svg = chart.draw(evil).into_string();
    assert!(!svg.contains("<script"), "{svg}");
}

#[test]
fn labels_are_moved_apart_and_stay_inside() {
    let placed = apart(&[100.0, 101.0, 20.0, 199.0, 198.0], 13.0, 20.0, 200.0);
    let mut sorted = placed.clone();
    sorted.sort_by(f64::total_cmp);
    for pair in sorted.windows(2) {
        assert!(pair[1] - pair[0] >= 13.0 - 1e-9, "{placed:?}");
    }
    assert!(sorted[0] >= 20.0 && sorted[4] <= 200.0);
    assert!(placed[0] < placed[1] && placed[4] < placed[3]);
}
