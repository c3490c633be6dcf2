//! Trials, what their blocks gave, and how that is printed and kept.

use super::Ground;
use super::cells::Figures;
use crate::peers::figures::{Spread, number, spread};
use serde_json::{Value, json};

/// Where the client is as busy as this and the server is not, the figure is the
/// client's.
const BUSY: f64 = 0.9;

/// Rows that are measured in one block, and what is claimed of them.
pub(super) struct Trial {
    /// What `--only` looks at.
    pub name: String,
    pub title: String,
    pub cells: Vec<Cell>,
    pub claims: Vec<Claim>,
}

/// One measurement, which is a row.
pub(super) struct Cell {
    pub row: String,
    pub measure: Measure,
}

/// Gives a row's figures.
pub(super) type Measure = Box<dyn Fn(&Ground) -> anyhow::Result<Figures>>;

/// The figures of all rows, from one block.
pub(super) type Block = Vec<Figures>;

/// Which figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Rate,
    ServerCpu,
    ClientCpu,
    Batch,
    Bytes,
}

/// What is required.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: printed for comparison.
    Shown,
}

/// A figure of a row, or its ratio to that of another, and its bound.
pub(super) struct Claim {
    pub figure: Figure,
    /// Number of the row.
    pub row: usize,
    /// Number of the row that it is divided by.
    pub by: Option<usize>,
    pub bound: Bound,
}

impl Trial {
    /// Measures every cell once, in order or in reverse.
    pub(super) fn block(&self, ground: &Ground, reverse: bool) -> anyhow::Result<Block> {
        let mut order: Vec<usize> = (0..self.cells.len()).collect();
        if reverse {
            order.reverse();
        }
        let mut measured = vec![None; self.cells.len()];
        for at in order {
            measured[at] = Some((self.cells[at].measure)(ground)?);
        }
        Ok(measured.into_iter().flatten().collect())
    }

    fn row_names(&self) -> Vec<&str> {
        self.cells.iter().map(|cell| &*cell.row).collect()
    }
}

impl Figure {
    fn of(self, figures: &Figures) -> f64 {
        match self {
            Figure::Rate => figures.rate,
            Figure::ServerCpu => figures.server_us,
            Figure::ClientCpu => figures.client_us,
            Figure::Batch => figures.batch_ms,
            Figure::Bytes => figures.bytes,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Figure::Rate => "operations/s",
            Figure::ServerCpu => "server CPU",
            Figure::ClientCpu => "client CPU",
            Figure::Batch => "longest batch",
            Figure::Bytes => "bytes each",
        }
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
            Bound::Shown => true,
        }
    }

    fn text(self) -> String {
        match self {
            Bound::AtLeast(least) => format!(">= {}", number(least)),
            Bound::AtMost(most) => format!("<= {}", number(most)),
            Bound::Shown => String::new(),
        }
    }
}

/// A trial's blocks, ready to be printed.
pub(super) struct Result<'t> {
    trial: &'t Trial,
    /// The figures of all blocks, for each row.
    rows: Vec<Vec<Figures>>,
    /// The value of each claim in each block.
    values: Vec<Vec<f64>>,
}

impl<'t> Result<'t> {
    pub(super) fn of(trial: &'t Trial, blocks: &[Block]) -> Result<'t> {
        let rows = trial.row_names();
        let rows = (0..rows.len()).map(|row| blocks.iter().map(|block| block[row]).collect());
        let value = |claim: &Claim, block: &Block| {
            let value = claim.figure.of(&block[claim.row]);
            match claim.by {
                Some(by) => value / claim.figure.of(&block[by]),
                None => value,
            }
        };
        let values = |claim| blocks.iter().map(|block| value(claim, block)).collect();
        Result {
            rows: rows.collect(),
            values: trial.claims.iter().map(values).collect(),
            trial,
        }
    }

    /// How many requirements there are.
    pub(super) fn judged(&self) -> usize {
        let claims = self.trial.claims.iter();
        claims.filter(|claim| claim.bound != Bound::Shown).count()
    }

    /// How many are missed.
    pub(super) fn missed(&self) -> usize {
        let claims = self.trial.claims.iter().zip(&self.values);
        claims.filter(|(claim, values)| !met(claim, values)).count()
    }

    /// Whether the client was the limit in a row.
    fn client_bound(&self, row: usize) -> bool {
        let median = |figure: fn(&Figures) -> f64| {
            let values: Vec<f64> = self.rows[row].iter().map(figure).collect();
            Spread::of(&values).map_or(f64::NAN, |spread| spread.median)
        };
        median(|figures| figures.client_busy) >= BUSY
            && median(|figures| figures.server_busy) < BUSY
    }

    /// `Redis / jostled: server CPU`, and a word of warning.
    fn describe(&self, claim: &Claim) -> (String, String) {
        let names = self.trial.row_names();
        let rows = match claim.by {
            Some(by) => format!("{} : {}", names[claim.row], names[by]),
            None => names[claim.row].to_owned(),
        };
        let bound: Vec<&str> = [Some(claim.row), claim.by]
            .into_iter()
            .flatten()
            .filter(|row| claim.figure == Figure::Rate && self.client_bound(*row))
            .map(|row| names[row])
            .collect();
        let note = match &bound[..] {
            [] => String::new(),
            bound => format!("client-bound: {}", bound.join(", ")),
        };
        (format!("{rows}, {}", claim.figure.name()), note)
    }

    /// A line of JSON with every block's figures.
    pub(super) fn record(&self, about: &str) -> Value {
        let names = self.trial.row_names();
        let rows = names.iter().zip(&self.rows).map(|(name, blocks)| {
            let column = |figure: fn(&Figures) -> f64| -> Vec<Option<f64>> {
                let values = blocks.iter().map(figure);
                values
                    .map(|value| value.is_finite().then_some(value))
                    .collect()
            };
            json!({
                "row": name,
                "operations_per_s": column(|f| f.rate),
                "server_cpu_us": column(|f| f.server_us),
                "client_cpu_us": column(|f| f.client_us),
                "server_busy": column(|f| f.server_busy),
                "client_busy": column(|f| f.client_busy),
                "elsewhere": column(|f| f.elsewhere),
                "longest_batch_ms": column(|f| f.batch_ms),
                "bytes_each": column(|f| f.bytes),
            })
        });
        let claims = self.trial.claims.iter().zip(&self.values);
        let claims = claims.map(|(claim, values)| {
            let (what, note) = self.describe(claim);
            json!({
                "claim": what,
                "values": values,
                "median": Spread::of(values).map(|spread| spread.median),
                "required": claim.bound.text(),
                "met": (claim.bound != Bound::Shown).then(|| met(claim, values)),
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
    Spread::of(values).is_some_and(|spread| match claim.figure {
        Figure::Batch => claim.bound.holds(spread.low),
        _ => claim.bound.holds(spread.median),
    })
}

/// The line above all trials.
pub(super) fn heading() -> String {
    columns(
        "",
        &[
            "operations/s",
            "server us each",
            "client us each",
            "server busy",
            "client busy",
            "elsewhere",
            "longest batch, ms",
            "bytes each",
        ]
        .map(str::to_owned),
    )
}

impl std::fmt::Display for Result<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.trial.name, self.trial.title)?;
        for (name, blocks) in self.trial.row_names().iter().zip(&self.rows) {
            let column = |figure: fn(&Figures) -> f64| -> Option<Spread> {
                let values: Vec<f64> = blocks.iter().map(figure).collect();
                let there = values.iter().all(|value| value.is_finite());
                Spread::of(&values).filter(|_| there)
            };
            let plain = |figure| column(figure).map_or_else(String::new, spread);
            let percent = |figure| {
                column(figure).map_or_else(String::new, |s| format!("{:.0} %", s.median * 100.0))
            };
            let figures = [
                plain(|f| f.rate),
                plain(|f| f.server_us),
                plain(|f| f.client_us),
                percent(|f| f.server_busy),
                percent(|f| f.client_busy),
                percent(|f| f.elsewhere),
                plain(|f| f.batch_ms),
                plain(|f| f.bytes),
            ];
            writeln!(f, "{}", columns(&format!("  {name}"), &figures))?;
        }
        for (claim, values) in self.trial.claims.iter().zip(&self.values) {
            let (what, note) = self.describe(claim);
            let value = Spread::of(values).map_or_else(String::new, spread);
            let verdict = match met(claim, values) {
                _ if claim.bound == Bound::Shown => "",
                true => "met",
                false => "MISSED",
            };
            let line = format!(
                "    {what:<58} {value:>20}  {:<9} {verdict:<6}  {note}",
                claim.bound.text()
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn columns(name: &str, figures: &[String; 8]) -> String {
    let [
        rate,
        server,
        client,
        server_busy,
        client_busy,
        elsewhere,
        batch,
        bytes,
    ] = figures;
    format!(
        "{name:<30} {rate:>21} {server:>21} {client:>21} {server_busy:>11} {client_busy:>11} {elsewhere:>9} {batch:>18} {bytes:>14}"
    )
    .trim_end()
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::services::SMOKE;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn figures(rate: f64, client_busy: f64) -> Figures {
        Figures {
            rate,
            server_us: 1e6 / rate,
            client_us: 1.0,
            server_busy: 0.5,
            client_busy,
            elsewhere: 0.0,
            batch_ms: f64::NAN,
            bytes: f64::NAN,
        }
    }

    fn trial(measure: impl Fn(&str) -> Figures + Clone + 'static) -> Trial {
        let cell = |name: &'static str| {
            let measure = measure.clone();
            Cell {
                row: name.to_owned(),
                measure: Box::new(move |_| Ok(measure(name))),
            }
        };
        let claim = |bound| Claim {
            figure: Figure::Rate,
            row: 0,
            by: Some(1),
            bound,
        };
        Trial {
            name: "t".to_owned(),
            title: "a title".to_owned(),
            cells: vec![cell("ours"), cell("theirs")],
            claims: vec![claim(Bound::AtLeast(2.0)), claim(Bound::AtMost(2.0))],
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
            assert_eq!((block[0].rate, block[1].rate), (2.0, 1.0));
        }
        assert_eq!(*order.borrow(), "otto");
    }

    #[test]
    fn ratios_are_taken_within_a_block_and_their_median_is_judged() {
        // The machine is ten times slower in the second block.
        let trial = trial(|_| figures(1.0, 0.0));
        let pair = |ours: f64, theirs: f64| vec![figures(ours, 0.0), figures(theirs, 0.0)];
        let result = Result::of(
            &trial,
            &[pair(300.0, 100.0), pair(30.0, 10.0), pair(10.0, 10.0)],
        );
        assert_eq!(result.values[0], [3.0, 3.0, 1.0]);
        assert_eq!((result.judged(), result.missed()), (2, 1));
        let text = result.to_string();
        assert!(text.contains("3 [1-3]  >= 2      met\n"), "{text}");
        assert!(text.contains("3 [1-3]  <= 2      MISSED\n"), "{text}");
    }

    #[test]
    fn what_is_only_shown_is_not_judged() {
        let mut trial = trial(|_| figures(1.0, 0.0));
        trial.claims[1].bound = Bound::Shown;
        let block = vec![figures(3.0, 0.1), figures(1.0, 0.1)];
        let result = Result::of(&trial, &[block]);
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
            bound: Bound::AtMost(2.0),
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
            Result::of(&trial, &[block]).to_string()
        };
        assert!(bound(0.95).contains("client-bound: ours\n"));
        assert!(!bound(0.85).contains("client-bound"));
    }

    #[test]
    fn the_record_holds_each_block_and_leaves_out_what_was_not_measured() {
        let trial = trial(|_| figures(1.0, 0.0));
        let block = || vec![figures(3.0, 0.1), figures(1.0, 0.1)];
        let record = Result::of(&trial, &[block(), block()]).record("a machine");
        assert_eq!(record["rows"][0]["operations_per_s"], json!([3.0, 3.0]));
        assert_eq!(record["rows"][1]["bytes_each"], json!([null, null]));
        assert_eq!(record["claims"][0]["median"], json!(3.0));
        assert_eq!(record["claims"][1]["met"], json!(false));
    }
}
