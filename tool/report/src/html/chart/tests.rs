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

fn told(text: &str) -> Told {
    Told {
        whose: text.to_owned(),
        doubts: text.to_owned(),
    }
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
    chart.marks(Style::default(), 0.0, &told("flock"), &[valid("100 ns")]);
    let svg = chart.draw("x").into_string();
    let line = svg.split("class=\"line c0\"").nth(1).unwrap();
    let both: Vec<&str> = line.split('"').nth(3).unwrap().split(' ').collect();
    assert_eq!(both.len(), 2 * 5);
    assert_eq!((both[0], both[5]), ("M", "L"));
    let shown = line.split('"').nth(1).unwrap();
    assert_eq!(
        shown,
        format!("M{} {}L{} {}", both[1], both[3], both[6], both[8])
    );
    assert!(svg.contains("data-v=\"100\" data-says=\"100 ns\""));
}

#[test]
fn a_drawing_that_opens_linear_shows_linear_positions() {
    let mut chart = chart().opening(Scale::Linear);
    chart.line("c0", "none", &[(1.0, 10.0), (100.0, 1000.0)]);
    chart.marks(Style::default(), 0.0, &told("flock"), &[valid("100 ns")]);
    let svg = chart.draw("x").into_string();
    let line = svg.split("class=\"line c0\"").nth(1).unwrap();
    let both: Vec<&str> = line.split('"').nth(3).unwrap().split(' ').collect();
    let shown = line.split('"').nth(1).unwrap();
    assert_eq!(
        shown,
        format!("M{} {}L{} {}", both[2], both[4], both[7], both[9])
    );
    let mark = svg.split("class=\"pt mark\"").nth(1).unwrap();
    let four: Vec<&str> = mark.split('"').nth(3).unwrap().split(' ').collect();
    assert!(mark.contains(&format!("translate({} {})", four[1], four[3])));
}

#[test]
fn a_label_that_was_moved_has_a_leader_from_the_point_that_it_names() {
    let mut chart = chart();
    for (text, value) in [("p50", 100.0), ("p90", 101.0)] {
        chart.label("quiet", (10.0, value), text);
    }
    let names = [100.0, 101.0].map(|value| chart.at((10.0, value), 0.0));
    let svg = chart.draw("x").into_string();
    let leaders: Vec<&str> = svg.split("class=\"leader\" d=\"").skip(1).collect();
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
        says: String::new(),
    };
    chart.marks(Style::default(), 0.0, &told("INVALID: no"), &[mark]);
    let svg = chart.draw("x").into_string();
    assert!(!svg.contains("12345") && !svg.contains("data-v"));
    assert!(svg.contains("INVALID: no"));
}

#[test]
fn names_cannot_break_out() {
    let mut chart = chart();
    let evil = "\"><script>alert(1)</script>";
    chart.marks(Style::default(), 0.0, &told(evil), &[valid(evil)]);
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
