//! The data made for lockscale work with jostle.

use crate::common::{Place, must_have};
use std::fs;

/// The header of one block of lockscale's output, and the nine columns of the points
/// that other programs did not make INVALID: those are a comment.
fn lockscale_block(block: &str) -> (String, Vec<Vec<f64>>) {
    let mut lines = block.lines();
    let header = lines.next().unwrap().to_owned();
    let figure = |text: &str| text.parse().unwrap();
    let row = |line: &str| line.split(' ').map(figure).collect();
    let rows = lines.filter(|line| !line.starts_with('#'));
    (header, rows.map(row).collect())
}

#[test]
fn a_script_made_for_lockscale_plots_the_gnuplot_format() {
    must_have("gnuplot", "gnuplot-nox");
    let place = Place::beside_others();
    let line = "contend flock fcntl -w 2:4:8 -b 500 -i 10 -t 0.1 --runs 3 --format gnuplot -o result.jsonl";
    let data = place.jostle(line).run_cleanly().measures().stdout;
    let blocks: Vec<_> = data.split("\n\n\n").map(lockscale_block).collect();
    assert_eq!(blocks.len(), 2, "{data}");
    let disturbed = data.matches(" INVALID: ").count();
    for ((header, rows), name) in blocks.iter().zip(["flock", "fcntl"]) {
        // Name, hold us, idle us, duration s.
        assert!(header.starts_with(&format!("# {name} 500 10 ")), "{header}");
        assert!((3 - disturbed.min(3)..=3).contains(&rows.len()), "{data}");
        for row in rows {
            let [
                workers,
                duration,
                user,
                system,
                total,
                min,
                max,
                mean,
                stddev,
            ] = row[..]
            else {
                panic!("{} columns in {data}", row.len());
            };
            assert!(
                (duration - 0.1).abs() < 1e-6 && user >= 0.0 && system >= 0.0,
                "{row:?}"
            );
            // Beside the other tests no run may be without others, and then none shows how
            // evenly workers were served.
            if ![min, max, mean, stddev].iter().all(|share| share.is_nan()) {
                assert!(min <= mean && mean <= max && stddev >= 0.0, "{row:?}");
                // With one decimal.
                assert!((mean - total / workers).abs() < 0.051, "{row:?}");
            }
            let real = place.runs("result.jsonl").into_iter().find(|run| {
                run.target == *name
                    && run.at.workers == Some(workers as u64)
                    && run.operations as f64 == total
            });
            assert!(real.is_some(), "no run of {name} has {total} acquisitions");
        }
    }
    if disturbed > 0 {
        // gnuplot draws no target without points.
        return;
    }
    fs::write(place.file("locks.dat"), &data).unwrap();
    let script = "set terminal png\n\
        set output 'locks.png'\n\
        set logscale x\n\
        set xlabel 'processes'\n\
        plot for [i=0:1] 'locks.dat' index i using 1:($5/$2) with linespoints title columnheader(2), \
             for [i=0:1] '' index i using 1:8:6:7 with yerrorbars notitle\n\
        set output\n\
        stats 'locks.dat' index 1 using 1:(1e6*($3+$4)/$5) nooutput\n\
        print STATS_records, STATS_max_x\n";
    fs::write(place.file("locks.gp"), script).unwrap();
    let (_, printed) = place.program(&["gnuplot", "locks.gp"]);
    assert_eq!(printed.trim(), "3 8.0");
    let picture = fs::read(place.file("locks.png")).unwrap();
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 1_000,
        "{} bytes",
        picture.len()
    );
}
