//! Trials, what their blocks gave, and how that is printed and kept.

use super::Ground;
use crate::validate::Required;
use Figure::*;
use anyhow::Result;
use jostle_stats::intervals::median;
use serde_json::{Value, json};

/// Where the client is as busy as this and the server is not, the figure is the
/// client's.
const BUSY: f64 = 0.9;

/// Rows that are measured in one block, and what is claimed of them.
pub(super) struct Trial {
    /// The name that `--only` looks at.
    pub name: String,
    pub title: String,
    pub cells: Vec<Cell>,
    pub claims: Vec<Claim>,
}

/// One measurement, which is a row.
pub(super) struct Cell {
    row: String,
    measure: Measure,
}

/// Gives a row's figures.
type Measure = Box<dyn Fn(&Ground) -> Result<Figures>>;

/// The figures of all rows, from one block.
pub(super) type Block = Vec<Figures>;

/// The measured figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Operations per second.
    Rate,
    /// CPU of the server for each, in microseconds.
    ServerCpu,
    /// CPU of the client for each, in microseconds.
    ClientCpu,
    /// Share of its CPU that the server used.
    ServerBusy,
    /// Share of its CPU that the client used.
    ClientBusy,
    /// Share of all CPUs that others used, or the hypervisor.
    Elsewhere,
    /// The longest time that requests which were sent together took, in milliseconds.
    Batch,
    /// Bytes of the server's memory for each lock.
    Bytes,
    /// Requests and replies of an operation.
    RoundTrips,
}

/// Each figure in the order of the enum: its heading, its name in the record, and the width of
/// its column.
const COLUMNS: [(Figure, &str, &str, usize); 9] = [
    (Rate, "operations/s", "operations_per_s", 21),
    (ServerCpu, "server CPU, us", "server_cpu_us", 21),
    (ClientCpu, "client CPU, us", "client_cpu_us", 21),
    (ServerBusy, "server busy", "server_busy", 11),
    (ClientBusy, "client busy", "client_busy", 11),
    (Elsewhere, "elsewhere", "elsewhere", 9),
    (Batch, "longest batch, ms", "longest_batch_ms", 18),
    (Bytes, "bytes each", "bytes_each", 14),
    (RoundTrips, "round trips", "round_trips", 20),
];

/// The figures of a cell. What it does not have is NaN, and not printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures([f64; COLUMNS.len()]);

impl Figures {
    /// These, and no others.
    pub(super) fn only(those: &[(Figure, f64)]) -> Figures {
        let mut all = [f64::NAN; COLUMNS.len()];
        for (figure, value) in those {
            all[*figure as usize] = *value;
        }
        Figures(all)
    }
}

impl std::ops::Index<Figure> for Figures {
    type Output = f64;

    fn index(&self, figure: Figure) -> &f64 {
        &self.0[figure as usize]
    }
}

/// A figure of a row, or its ratio to that of another, and its bound.
pub(super) struct Claim {
    pub figure: Figure,
    /// Number of the row.
    pub row: usize,
    /// Number of the row that it is divided by.
    pub by: Option<usize>,
    pub required: Required,
}

/// A claim about the ratio of two rows.
pub(super) fn ratio(figure: Figure, row: usize, by: usize, required: Required) -> Claim {
    Claim {
        figure,
        row,
        by: Some(by),
        required,
    }
}

impl Cell {
    pub(super) fn new(row: &str, measure: impl Fn(&Ground) -> Result<Figures> + 'static) -> Cell {
        Cell {
            row: row.to_owned(),
            measure: Box::new(measure),
        }
    }
}

impl Trial {
    /// Measures every cell once, in order or in reverse.
    pub(super) fn block(&self, ground: &Ground, reverse: bool) -> Result<Block> {
        let measure = |cell: &Cell| (cell.measure)(ground);
        if !reverse {
            return self.cells.iter().map(measure).collect();
        }
        let mut block: Block = self
            .cells
            .iter()
            .rev()
            .map(measure)
            .collect::<Result<_, _>>()?;
        block.reverse();
        Ok(block)
    }
}

/// A requirement, as it is printed.
fn text(required: Required) -> String {
    match required {
        Required::AtLeast(least) => format!(">= {}", number(least)),
        Required::AtMost(most) => format!("<= {}", number(most)),
        _ => String::new(),
    }
}

/// Median, lowest and highest over the blocks.
#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// None without values.
    fn over(values: &[f64]) -> Option<Spread> {
        let each = || values.iter().copied();
        Some(Spread {
            median: median(values)?,
            low: each().reduce(f64::min)?,
            high: each().reduce(f64::max)?,
        })
    }
}

/// `median [lowest-highest]`.
impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [median, low, high] = [self.median, self.low, self.high].map(number);
        write!(f, "{median} [{low}-{high}]")
    }
}

/// Three digits or so: `5.05M`, `20.1k`, `943`, `1.04`, `0.180`.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 999_950.0 => format!("{:.2}M", value / 1e6),
        v if v >= 9_999.5 => format!("{:.1}k", value / 1e3),
        v if v >= 99.95 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A trial's blocks, ready to be printed.
pub(super) struct Outcome<'t> {
    trial: &'t Trial,
    /// The blocks' figures of each row.
    rows: Vec<(&'t str, Vec<Figures>)>,
    /// The value of each claim in each block.
    claims: Vec<(&'t Claim, Vec<f64>)>,
}

impl<'t> Outcome<'t> {
    pub(super) fn new(trial: &'t Trial, blocks: &[Block]) -> Outcome<'t> {
        let row = |(at, cell): (usize, &'t Cell)| {
            let figures = blocks.iter().map(|block| block[at]);
            (cell.row.as_str(), figures.collect())
        };
        let value = |claim: &Claim, block: &Block| {
            let divided_by = claim.by.map_or(1.0, |by| block[by][claim.figure]);
            block[claim.row][claim.figure] / divided_by
        };
        let values = |claim| blocks.iter().map(|block| value(claim, block)).collect();
        let claims = trial.claims.iter();
        Outcome {
            trial,
            rows: trial.cells.iter().enumerate().map(row).collect(),
            claims: claims.map(|claim| (claim, values(claim))).collect(),
        }
    }

    /// How many requirements there are.
    pub(super) fn judged(&self) -> usize {
        let claims = self.claims.iter();
        claims
            .filter(|(claim, _)| claim.required != Required::Nothing)
            .count()
    }

    /// How many are missed.
    pub(super) fn missed(&self) -> usize {
        let claims = self.claims.iter();
        claims.filter(|(claim, values)| !met(claim, values)).count()
    }

    /// Whether the client was the limit in a row.
    fn client_bound(&self, row: usize) -> bool {
        let [client, server] = [ClientBusy, ServerBusy].map(|figure| {
            let values: Vec<f64> = self.rows[row].1.iter().map(|block| block[figure]).collect();
            median(&values).unwrap_or(f64::NAN)
        });
        client >= BUSY && server < BUSY
    }

    /// `Redis / jostled: server CPU`, and a word of warning.
    fn describe(&self, claim: &Claim) -> (String, String) {
        let rows = [Some(claim.row), claim.by].into_iter().flatten();
        let name = |row: usize| self.rows[row].0;
        let names: Vec<&str> = rows.clone().map(name).collect();
        let bound = rows.filter(|row| claim.figure == Rate && self.client_bound(*row));
        let bound: Vec<&str> = bound.map(name).collect();
        let note = match &bound[..] {
            [] => String::new(),
            bound => format!("client-bound: {}", bound.join(", ")),
        };
        let (_, figure, ..) = COLUMNS[claim.figure as usize];
        (format!("{}, {figure}", names.join(" : ")), note)
    }

    /// A line of JSON with every block's figures.
    pub(super) fn record(&self, about: &str) -> Value {
        let rows = self.rows.iter().map(|(name, blocks)| {
            let mut row = json!({ "row": name });
            for (figure, _, key, _) in COLUMNS {
                // What is NaN is null.
                let values: Vec<f64> = blocks.iter().map(|block| block[figure]).collect();
                row[key] = json!(values);
            }
            row
        });
        let claims = self.claims.iter().map(|(claim, values)| {
            let (what, note) = self.describe(claim);
            json!({
                "claim": what,
                "values": values,
                "median": median(values),
                "required": text(claim.required),
                "met": (claim.required != Required::Nothing).then(|| met(claim, values)),
                "note": note,
            })
        });
        json!({
            "trial": self.trial.name,
            "title": self.trial.title,
            "about": about,
            "rows": rows.collect::<Vec<_>>(),
            "claims": claims.collect::<Vec<_>>(),
        })
    }
}

/// Medians are judged; of longest batches the shortest: a stall that the server makes itself
/// comes in every block, while the machine's come now and then, to any server.
fn met(claim: &Claim, values: &[f64]) -> bool {
    Spread::over(values).is_some_and(|spread| match claim.figure {
        Batch => claim.required.holds(spread.low),
        _ => claim.required.holds(spread.median),
    })
}

/// The line above all trials.
pub(super) fn heading() -> String {
    columns("", COLUMNS.map(|(_, heading, ..)| heading.to_owned()))
}

impl std::fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.trial.name, self.trial.title)?;
        for (name, blocks) in &self.rows {
            let figures = COLUMNS.map(|(figure, ..)| {
                let values: Vec<f64> = blocks.iter().map(|block| block[figure]).collect();
                let is_there = values.iter().all(|value| value.is_finite());
                match (Spread::over(&values).filter(|_| is_there), figure) {
                    (None, _) => String::new(),
                    (Some(spread), ServerBusy | ClientBusy | Elsewhere) => {
                        format!("{:.0} %", spread.median * 100.0)
                    }
                    (Some(spread), _) => spread.to_string(),
                }
            });
            writeln!(f, "{}", columns(&format!("  {name}"), figures))?;
        }
        for (claim, values) in &self.claims {
            let (what, note) = self.describe(claim);
            let value = Spread::over(values).map_or_else(String::new, |spread| spread.to_string());
            let verdict = match met(claim, values) {
                _ if claim.required == Required::Nothing => "",
                true => "met",
                false => "MISSED",
            };
            let line = format!(
                "    {what:<58} {value:>20}  {:<9} {verdict:<6}  {note}",
                text(claim.required)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn columns(name: &str, figures: [String; COLUMNS.len()]) -> String {
    let cells = figures.iter().zip(COLUMNS);
    let cells = cells.map(|(figure, (.., width))| format!(" {figure:>width$}"));
    let line = format!("{name:<30}{}", cells.collect::<String>());
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::services::SMOKE;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn figures(rate: f64, client_busy: f64) -> Figures {
        Figures::only(&[
            (Rate, rate),
            (ServerCpu, 1e6 / rate),
            (ClientCpu, 1.0),
            (ServerBusy, 0.5),
            (ClientBusy, client_busy),
            (Elsewhere, 0.0),
        ])
    }

    fn trial(measure: impl Fn(&str) -> Figures + Clone + 'static) -> Trial {
        let cell = |name: &'static str| {
            let measure = measure.clone();
            Cell::new(name, move |_| Ok(measure(name)))
        };
        let claim = |required| Claim {
            figure: Figure::Rate,
            row: 0,
            by: Some(1),
            required,
        };
        Trial {
            name: "t".to_owned(),
            title: "a title".to_owned(),
            cells: vec![cell("ours"), cell("theirs")],
            claims: vec![claim(Required::AtLeast(2.0)), claim(Required::AtMost(2.0))],
        }
    }

    #[test]
    fn blocks_are_measured_in_order_or_in_reverse_and_rows_keep_their_places() {
        let order = Rc::new(RefCell::new(String::new()));
        let seen = Rc::clone(&order);
        let trial = trial(move |name| {
            seen.borrow_mut().push_str(&name[..1]);
            figures(if name == "ours" { 2.0 } else { 1.0 }, 0.0)
        });
        let ground = Ground {
            jostled: "/nonexistent".into(),
            jostle: "/nonexistent".into(),
            lab: "/nonexistent".into(),
            server_cpu: 0,
            client_cpu: 0,
            scale: SMOKE,
        };
        for reverse in [false, true] {
            let block = trial.block(&ground, reverse).unwrap();
            assert_eq!((block[0][Rate], block[1][Rate]), (2.0, 1.0));
        }
        assert_eq!(*order.borrow(), "otto");
    }

    #[test]
    fn ratios_are_taken_within_a_block_and_their_median_is_judged() {
        // The machine is ten times slower in the second block.
        let trial = trial(|_| figures(1.0, 0.0));
        let pair = |ours: f64, theirs: f64| vec![figures(ours, 0.0), figures(theirs, 0.0)];
        let result = Outcome::new(
            &trial,
            &[pair(300.0, 100.0), pair(30.0, 10.0), pair(10.0, 10.0)],
        );
        assert_eq!(result.claims[0].1, [3.0, 3.0, 1.0]);
        assert_eq!((result.judged(), result.missed()), (2, 1));
        let text = result.to_string();
        assert!(text.contains("3 [1-3]  >= 2      met\n"), "{text}");
        assert!(text.contains("3 [1-3]  <= 2      MISSED\n"), "{text}");
    }

    #[test]
    fn what_is_only_shown_is_not_judged() {
        let mut trial = trial(|_| figures(1.0, 0.0));
        trial.claims[1].required = Required::Nothing;
        let block = vec![figures(3.0, 0.1), figures(1.0, 0.1)];
        let result = Outcome::new(&trial, &[block]);
        assert_eq!((result.judged(), result.missed()), (1, 0));
        assert!(result.to_string().ends_with("3 [3-3]\n"));
        assert_eq!(result.record("")["claims"][1]["met"], Value::Null);
    }

    #[test]
    fn of_batches_the_shortest_is_judged() {
        let claim = |figure| Claim {
            figure,
            row: 0,
            by: None,
            required: Required::AtMost(2.0),
        };
        let values = [4.0, 1.0, 4.0];
        assert!(met(&claim(Figure::Batch), &values));
        assert!(!met(&claim(Figure::Bytes), &values));
        assert!(!met(&claim(Figure::Batch), &[4.0, 2.1]));
        assert!(!met(&claim(Figure::Batch), &[]));
    }

    #[test]
    fn a_row_whose_client_was_the_limit_is_named() {
        let trial = trial(|_| figures(1.0, 0.0));
        let bound = |busy| {
            let block = vec![figures(3.0, busy), figures(1.0, 0.1)];
            Outcome::new(&trial, &[block]).to_string()
        };
        assert!(bound(0.95).contains("client-bound: ours\n"));
        assert!(!bound(0.85).contains("client-bound"));
    }

    #[test]
    fn the_record_holds_each_block_and_leaves_out_what_was_not_measured() {
        let trial = trial(|_| figures(1.0, 0.0));
        let block = || vec![figures(3.0, 0.1), figures(1.0, 0.1)];
        let record = Outcome::new(&trial, &[block(), block()]).record("a machine");
        assert_eq!(record["rows"][0]["operations_per_s"], json!([3.0, 3.0]));
        assert_eq!(record["rows"][1]["bytes_each"], json!([null, null]));
        assert_eq!(record["claims"][0]["median"], json!(3.0));
        assert_eq!(record["claims"][1]["met"], json!(false));
    }

    #[test]
    fn the_median_is_the_middle_value_or_between_the_middle_two() {
        let spread = |values: &[f64]| Spread::over(values).map(|s| (s.median, s.low, s.high));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(spread(&[5.0]), Some((5.0, 5.0, 5.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn numbers_keep_about_three_digits() {
        for (value, text) in [
            (5_046_120.0, "5.05M"),
            (999_960.0, "1.00M"),
            (20_090.0, "20.1k"),
            (9_999.9, "10.0k"),
            (943.2, "943"),
            (99.97, "100"),
            (14.25, "14.2"),
            (1.0412, "1.04"),
            (0.1804, "0.180"),
            (0.0, "0"),
            (3.0, "3"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn each_figure_has_its_place_among_the_columns() {
        for (at, (figure, ..)) in COLUMNS.iter().enumerate() {
            assert_eq!(*figure as usize, at);
        }
    }
}
