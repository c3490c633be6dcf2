//! One figure of several targets, at one point that they have: which is better is decided by runs
//! of the same blocks ([`jostle_stats::comparison`]), and below the runs that a test takes there is
//! a look ([`jostle_stats::look`]), which is printed as one.

use super::{Values, View};
use crate::compare::place;
use crate::format::{counted, each_once, grouped, range, significant, time};
use crate::recover::struck;
use crate::requests::short;
use jostle_model::Nanos;
use jostle_model::plan::Workload;
use jostle_model::record::At;
use jostle_stats::comparison::{Change, Compared, How, compare_figure};
use jostle_stats::figures::{
    ACQUIRE_P99, Better, CPU, FIGURES, Figure, Fold, OF_IDEAL, RESPONSE_P99, THROUGHPUT,
};
use jostle_stats::intervals::median;
use jostle_stats::look::{Look, MOST, look};
use jostle_stats::ratio::{self, Outcome};
use jostle_stats::summary::PointSummary;

/// Targets that a list names, at most; those between are counted.
const NAMED: usize = 6;

/// Blocks without which no pair of targets has an interval.
const FEWEST: usize = 6;

/// The threshold of `compare`.
const WITHIN: f64 = 0.05;

/// A lock that reaches this share of what holds allow has little left to differ in.
const NEARLY_ALL: f64 = 0.9;

/// From this factor on the CPU time of two targets differs for every reader.
const PLAIN: f64 = 25.0;

/// What is known of the order of several targets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// A test decided that the best is better than the worst.
    Decided,
    /// Too few undisturbed runs for a test, and the intervals of all runs lie apart.
    Looked(Look),
    /// So few runs, of the one that has fewer, that chance alone parts them; they lie apart.
    Untested(usize),
    /// A test decided that they are the same, within the threshold.
    Same,
    /// None of the above, and holds leave no room for a difference.
    Capped,
    /// The runs do not tell, and why.
    Open(String),
}

/// One figure of several targets at one point.
pub(crate) struct Beside<'v, 'a> {
    figure: &'static Figure,
    /// From the best to the worst.
    ranked: Vec<(&'v PointSummary<'a>, f64)>,
    pub(super) order: Order,
    /// The place of the last that can be judged.
    worst: usize,
    /// The targets whose point is INVALID.
    invalid: Vec<String>,
    /// Other targets of which the figure is not known.
    unknown: Vec<String>,
    /// The second beside the best, where there is a look at the worst.
    next: Option<Look>,
}

/// None where fewer than two targets have the figure at one point.
pub(crate) fn beside<'v, 'a>(
    view: &View<'v, 'a>,
    figure: &'static Figure,
) -> Option<Beside<'v, 'a>> {
    // Generators that could do no more say nothing of their servers.
    let known = view.points.iter().filter(|point| !point.is_of_generators());
    let known = known.filter_map(|point| Some((*point, value(figure, point)?)));
    let mut ranked: Vec<_> = known.collect();
    let at = common(&ranked.iter().map(|(point, _)| *point).collect::<Vec<_>>())?;
    ranked.retain(|(point, _)| point.at == at);
    ranked.sort_by(|(_, one), (_, other)| match figure.better {
        Better::More => other.total_cmp(one),
        Better::Less => one.total_cmp(other),
    });
    let best = ranked[0].0;
    let of_best = |nth: usize| {
        let order = order(view, figure, best, ranked[nth].0, nth + 1);
        (nth, order)
    };
    // One that other programs leave without bounds is passed over, whatever its figure.
    let is_judged = |(nth, order): &(usize, Order)| {
        !matches!(order, Order::Open(_)) || ranked[*nth].0.is_bounded(figure)
    };
    let last = ranked.len() - 1;
    let mut tried = (1..=last).rev().map(of_best);
    let (worst, order) = tried.find(is_judged).unwrap_or_else(|| of_best(last));
    let is_look = matches!(order, Order::Looked(_)) && worst > 1;
    let second = ranked.get(1).filter(|_| is_look);
    let ranks = |point: &PointSummary<'_>| ranked.iter().any(|(own, _)| own.target == point.target);
    let others = view.all.iter();
    let others = others.filter(|point| point.at == at && !ranks(point));
    let (unknown, invalid): (Vec<_>, Vec<_>) = others.partition(|point| point.is_usable());
    let names = |points: Vec<&PointSummary<'_>>| {
        points
            .into_iter()
            .map(|point| short(point.target))
            .collect()
    };
    // Others may be without what it counts: a server, a grant that the fault let through.
    let of_each = [ACQUIRE_P99, RESPONSE_P99, CPU, THROUGHPUT];
    let is_of_each = of_each.iter().any(|of| of.name == figure.name);
    let lacks_it = |point: &&PointSummary<'_>| is_of_each && !point.is_of_generators();
    let mut found = Beside {
        figure,
        invalid: names(invalid),
        unknown: names(unknown.into_iter().filter(lacks_it).collect()),
        next: second
            .and_then(|(second, _)| look(figure, best, second, worst + 1))
            .filter(|look| look.chance <= MOST),
        order,
        worst,
        ranked,
    };
    let is_shown = matches!(found.order, Order::Decided | Order::Looked(_));
    let holds = || {
        view.plan()
            .hold
            .is_some_and(|hold| hold.span() > Nanos::ZERO)
    };
    let of_ideal = found
        .least_of_ideal()
        .filter(|_| figure.name == THROUGHPUT.name);
    if !is_shown && holds() && of_ideal >= Some(NEARLY_ALL) {
        found.order = Order::Capped;
    }
    (found.ranked.len() > 1).then_some(found)
}

fn order(
    view: &View<'_, '_>,
    figure: &'static Figure,
    best: &PointSummary<'_>,
    worst: &PointSummary<'_>,
    targets: usize,
) -> Order {
    if figure.fold == Fold::OneRun {
        return of_pairs(figure, best, worst);
    }
    let Some(compared) = compared(view, figure, best, worst) else {
        return Order::Open(String::new());
    };
    match compared.said {
        Change::Worse => Order::Decided,
        Change::Same => Order::Same,
        Change::Better => Order::Open(String::new()),
        // Other programs may have moved all runs of one, by much less than both lie apart.
        Change::Undecided => match look(figure, best, worst, targets) {
            Some(look) if look.chance > MOST => Order::Untested(look.runs),
            Some(look) => Order::Looked(look),
            None => Order::Open(why(&compared, best, worst)),
        },
    }
}

/// Why a pair is not decided, with the names of both.
fn why(compared: &Compared, best: &PointSummary<'_>, worst: &PointSummary<'_>) -> String {
    let runs = best.runs.len().min(worst.runs.len());
    match runs < FEWEST {
        true => format!(
            "a test takes {FEWEST} undisturbed runs of each (--runs 12), and this has {runs} in all"
        ),
        false => {
            let why = compared.why.clone().unwrap_or_default();
            let why = why.replace("of BASE", &format!("of {}", short(best.target)));
            let why = why.replace("in BASE", &format!("of {}", short(best.target)));
            let why = why.replace("of NEW", &format!("of {}", short(worst.target)));
            why.replace("in NEW", &format!("of {}", short(worst.target)))
        }
    }
}

/// Of a figure that one run stands for.
fn of_pairs(figure: &Figure, best: &PointSummary<'_>, worst: &PointSummary<'_>) -> Order {
    let of = |point: &PointSummary<'_>, block: u32| {
        let run = point.timed.iter().find(|run| run.block == block)?;
        (figure.of)(run)
    };
    let pairs = best.timed.iter();
    let pairs = pairs.filter_map(|run| Some(((figure.of)(run)?, of(worst, run.block)?)));
    let ratio = ratio::paired(&pairs.collect::<Vec<_>>());
    match ratio.map(|ratio| (ratio.outcome, ratio.ratio < 1.0)) {
        Some((Outcome::Differs, true)) => Order::Decided,
        Some((Outcome::Same, _)) => Order::Same,
        _ => Order::Open(String::new()),
    }
}

fn compared(
    view: &View<'_, '_>,
    figure: &'static Figure,
    base: &PointSummary<'_>,
    new: &PointSummary<'_>,
) -> Option<Compared> {
    let how = How {
        within: WITHIN,
        all: true,
        paired: true,
    };
    compare_figure(&view.set.experiment.plan, figure, base, new, how)
}

fn value(figure: &Figure, point: &PointSummary<'_>) -> Option<f64> {
    match figure.fold {
        Fold::OneRun => {
            (figure.of)(point.timed.first()?)?;
            Some(point.per_worker?.jain)
        }
        _ => median(point.each(figure)),
    }
}

/// The greatest load that more than half of the targets have, or else two; of equal loads the one
/// that most have. None where no two have the same.
pub(super) fn common(points: &[&PointSummary<'_>]) -> Option<At> {
    let targets = targets(points).len();
    let have = |at: At| points.iter().filter(|point| point.at == at).count();
    let rank = |at: At| {
        let have = have(at);
        (2 * have > targets, have > 1, load(at), have)
    };
    let most = points.iter().max_by_key(|point| rank(point.at))?.at;
    (have(most) > 1).then_some(most)
}

/// How much is asked for at a point; greater is more.
pub(super) fn load(at: At) -> At {
    At {
        listeners: None,
        sources: None,
        fault: None,
        ..at
    }
}

impl Beside<'_, '_> {
    /// The least share of what a lock without any cost would do.
    pub(super) fn least_of_ideal(&self) -> Option<f64> {
        let shares = self.ranked.iter().map(|(point, _)| point.median(OF_IDEAL));
        let shares: Option<Vec<f64>> = shares.collect();
        shares?.into_iter().reduce(f64::min)
    }

    /// How far the best and the worst lie apart.
    fn times(&self) -> f64 {
        let [best, worst] = self.ends().map(|(_, value)| *value);
        (best / worst).max(worst / best)
    }

    fn ends(&self) -> [&(&PointSummary<'_>, f64); 2] {
        [&self.ranked[0], &self.ranked[self.worst]]
    }

    /// The name of the best.
    pub(super) fn best(&self) -> String {
        short(self.ranked[0].0.target)
    }

    /// What a template may name.
    pub(super) fn values(&self) -> Values {
        let [best, worst] = self.ends().map(|(point, _)| short(point.target));
        let two = |times: f64| significant(times, 2);
        let times = match &self.order {
            Order::Looked(look) => range(two(look.low), &two(look.high)),
            _ => two(self.times()),
        };
        let mut values = vec![
            ("best", best),
            ("worst", worst),
            ("times", times),
            ("list", self.list()),
            ("per", noun(self.ranked[0].0).to_owned()),
            ("with", with(self.ranked[0].0.at)),
        ];
        match &self.order {
            Order::Looked(look) => {
                let behind = |next: Look| {
                    let times = range(two(next.low), &two(next.high));
                    format!(
                        "; the best is {times} times ahead of {}, the second",
                        short(self.ranked[1].0.target)
                    )
                };
                values.push(("look", self.looked(look)));
                values.push(("next", self.next.map_or_else(String::new, behind)));
            }
            Order::Open(why) if !why.is_empty() => values.push(("why", format!(": {why}"))),
            Order::Untested(runs) => {
                values.push(("runs", format!("{}, ", counted(*runs as u64, "run"))))
            }
            _ => values.push(("why", String::new())),
        }
        values
    }

    /// The template of what is told of the order, and its values; None where holds leave no room for
    /// a difference.
    pub(super) fn told(
        &self,
        says: &str,
        what: &str,
        [now, then]: [&str; 2],
    ) -> Option<(String, Values)> {
        let (verb, template) = match &self.order {
            Order::Decided => (now, format!("{says}{{with}} ({{list}}).")),
            Order::Looked(_) => (
                then,
                format!("{says}{{with}} ({{list}}){{next}}. {{look}}."),
            ),
            Order::Same => (
                now,
                format!("No difference in {what}{{with}}, within 5 % ({{list}})."),
            ),
            Order::Untested(_) => (
                then,
                format!("{says}{{with}} ({{list}}; {{runs}}not tested)."),
            ),
            Order::Open(_) if self.is_plain() => {
                (then, format!("{says}{{with}} ({{list}}; not tested)."))
            }
            Order::Open(_) => (
                now,
                format!("No difference in {what} is shown{{with}} ({{list}}){{why}}."),
            ),
            Order::Capped => return None,
        };
        let mut values = self.values();
        values.push(("verb", verb.to_owned()));
        Some((template, values))
    }

    /// Where the targets are compared.
    pub(super) fn at(&self) -> At {
        self.ranked[0].0.at
    }

    /// The weight of what is told, for the title of a page: a decision before a look, and then by
    /// how far best and worst lie apart; None where no difference is told.
    pub(super) fn weight(&self) -> Option<(u8, f64)> {
        match self.order {
            Order::Decided => Some((2, self.times().ln())),
            Order::Looked(_) => Some((0, self.times().ln())),
            _ => None,
        }
    }

    /// `3 runs are too few for a test, so this is an impression: by chance two equal targets
    /// would differ like this in 10 of 100 cases`.
    fn looked(&self, look: &Look) -> String {
        let judged = &self.ranked[..=self.worst];
        let all = judged.iter().map(|(point, _)| point.runs.len()).min();
        let runs = match all > Some(look.runs) {
            true => counted(look.runs as u64, "undisturbed run"),
            false => counted(look.runs as u64, "run"),
        };
        let equal = match judged.len() {
            2 => "two equal targets".to_owned(),
            n => format!("best and worst of {n} equal targets"),
        };
        let why = match look.runs < FEWEST {
            true => format!("{runs} are too few for a test"),
            false => format!("Other programs may have moved too many of {runs} for a test"),
        };
        format!(
            "{why}, so this is an impression: by chance {equal} would differ like this in {} of \
             100 cases",
            percent_of(look.chance)
        )
    }

    /// `sysv 73 us, flock 286 us`, the best first; of many the first and the last.
    fn list(&self) -> String {
        let told = |(point, value): &(&PointSummary<'_>, f64)| {
            format!(
                "{} {}",
                short(point.target),
                printed(self.figure, *value, point)
            )
        };
        let mut all: Vec<String> = self.ranked.iter().map(told).collect();
        let beyond = all.split_off(self.worst + 1);
        let not_judged = [
            ("not judged, see the notes", &beyond),
            ("not known", &self.unknown),
            ("INVALID", &self.invalid),
        ]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(why, names)| format!("; {why}: {}", names.join(", ")))
        .collect::<String>();
        match all.len() > NAMED {
            false => all.join(", ") + &not_judged,
            true => format!(
                "{}, {} between, {}{not_judged}",
                all[..NAMED - 2].join(", "),
                all.len() - NAMED + 1,
                all[all.len() - 1]
            ),
        }
    }

    /// Whether it is told whatever a test says: of CPU time, from a factor of 25 on.
    fn is_plain(&self) -> bool {
        self.figure.unit == "us_per_operation" && self.times() >= PLAIN
    }
}

/// The figure with this unit and these words: Jain's index has no name.
pub(super) fn fairness() -> &'static Figure {
    let index = |of: &&Figure| of.unit == "index" && !of.best.is_empty();
    FIGURES.iter().find(index).unwrap_or(&FIGURES[0])
}

/// Chances in 100, at least 1.
fn percent_of(chance: f64) -> u64 {
    ((100.0 * chance).round() as u64).max(1)
}

/// ` with 200 workers`, ` with the owner killed`; empty where nothing was swept.
pub(super) fn with(at: At) -> String {
    match (at.fault, place(at).as_str()) {
        (Some(fault), _) => format!(" with the {}", struck(fault)),
        (None, "") => String::new(),
        (None, place) => format!(" with {place}"),
    }
}

pub(super) fn noun(point: &PointSummary<'_>) -> &'static str {
    match (point.requests.is_some(), point.workload) {
        (true, _) => "request",
        (_, Workload::Contend | Workload::Churn) => "lock",
        _ => "operation",
    }
}

/// A figure as a list has it.
pub(super) fn printed(figure: &Figure, value: f64, point: &PointSummary<'_>) -> String {
    match figure.unit {
        "per_s" => significant(value, 3),
        "ns" => time(value),
        "index" => {
            let shares = point.per_worker.unwrap_or_default();
            format!("{} to {}", grouped(shares.min), grouped(shares.max))
        }
        _ => time(1e3 * value),
    }
}

/// Each target of these points once, in order.
pub(super) fn targets<'a>(points: &[&PointSummary<'a>]) -> Vec<&'a str> {
    each_once(points.iter().map(|point| point.target))
}
