//! The text below the table: one line for each question, made of the clauses of one list.
//!
//! A clause uses only figures of the table and of the record, so that a reader can check it. It
//! compares the targets, or states that the runs show no difference and why. Where data are
//! missing no clause holds. About INVALID points the notes of the table have the reasons; a clause
//! about them would be drawn from figures that must not be used.

pub(crate) mod beside;
pub(crate) mod connect;
pub(crate) mod contend;
pub(crate) mod find;
pub(crate) mod growth;
mod kept;
mod path;
pub(crate) mod rate;
pub(crate) mod recover;
mod requested;
pub(crate) mod spread;
mod trust;
mod turns;
mod verify;

use crate::ResultSet;
use crate::requests::{self, short};
use crate::workloads::churn;
use When::{Ordered, Told};
use beside::{beside, fairness};
use jostle_model::Plan;
use jostle_model::plan::Workload::{
    self, Churn, Connect, Contend, Hold, Rate, Recover, Spread, Stream, Verify,
};
use jostle_stats::figures::{
    ACQUIRE_P99, CONNECT_P50, CPU, Figure, NEXT_GRANT, RESPONSE_P99, SERVER_CPU, THROUGHPUT,
};
use jostle_stats::summary::PointSummary;
use turns::{Fair, fair};

/// A question, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// One or two words.
    pub question: &'static str,
    /// In order.
    pub sentences: Vec<String>,
}

impl Line {
    /// All of it.
    pub(crate) fn text(&self) -> String {
        self.sentences.join(" ")
    }
}

/// What clauses see of a result.
pub(crate) struct View<'v, 'a> {
    pub(crate) set: &'v ResultSet,
    /// Every point.
    pub(crate) all: &'v [PointSummary<'a>],
    /// Those that are not INVALID.
    pub(crate) points: Vec<&'v PointSummary<'a>>,
}

impl<'v, 'a> View<'v, 'a> {
    pub(crate) fn new(set: &'v ResultSet, all: &'v [PointSummary<'a>]) -> View<'v, 'a> {
        let points = all.iter().filter(|point| point.is_usable()).collect();
        View { set, all, points }
    }

    pub(crate) fn plan(&self) -> &'v Plan {
        &self.set.experiment.plan
    }
}

/// What stands for the `{names}` of a template.
pub(crate) type Values = Vec<(&'static str, String)>;

/// When a clause holds.
enum When {
    /// Once for each of these, and not at all without any.
    Told(fn(&View<'_, '_>) -> Vec<Values>),
    /// Where several targets have the figure: their order by it, which is called so. The verb of
    /// the template stands as what a test decided, and as what a look saw.
    Ordered(&'static Figure, &'static str, [&'static str; 2]),
}

/// The workloads that a clause is about, its question, when it holds, and its template.
type Clause = (&'static [Workload], &'static str, When, &'static str);

const ALL: &[Workload] = &[
    Contend, Stream, Hold, Connect, Rate, Spread, Recover, Churn, Verify,
];
const CONTEND: &[Workload] = &[Contend];
const CLOSED: &[Workload] = &[Contend, Stream, Hold, Spread, Churn];
const COUNTED: &[Workload] = &[Stream, Hold];
const ONE_BY_ONE: &[Workload] = &[Stream, Hold, Churn];
const ANSWERED: &[Workload] = &[Rate, Spread];
const CONNECT: &[Workload] = &[Connect];
const RECOVER: &[Workload] = &[Recover];
const VERIFY: &[Workload] = &[Verify];
/// Those whose figures of CPU time are of an operation that one can compare.
const COSTLY: &[Workload] = &[Contend, Stream, Hold, Connect, Rate, Spread, Churn];
const LOCKS: &[Workload] = &[Contend, Stream, Churn];

/// What is told of each target.
const EACH: &str = "{target}{said}.";

/// Every clause, in the order of the lines and of the sentences within them.
#[rustfmt::skip]
static CLAUSES: &[Clause] = &[
    (ALL, "Safety", Told(contend::broken), "{target}: {said}."),
    (CONTEND, "Fairness", Told(contend::alone), "{said}."),
    (CONTEND, "Fairness", Told(|view| fair(view, Fair::Fairest)), "{best} is the fairest{with}. Turns per worker: {list}."),
    (CONTEND, "Fairness", Told(|view| fair(view, Fair::Ways)),
        "The targets differ in the order of service{with}. Turns per worker: {list}."),
    (CONTEND, "Fairness", Told(|view| fair(view, Fair::Alike)),
        "No difference is shown{with}. Turns per worker: {list}."),
    (CONTEND, "Fairness", Told(|view| fair(view, Fair::Alone)), "Turns per worker{with}: {list}."),
    (CONTEND, "Fairness", Told(turns::few_turns),
        "This is an impression: a worker of {of} had {turns} turns on average, and fairness needs \
         {least}."),
    (CONTEND, "Wait", Ordered(ACQUIRE_P99, "waiting (p99)", ["is", "was"]),
        "The p99 wait {verb} {times} times as long with {worst} as with {best}"),
    (CONTEND, "Wait", Told(contend::cut_off),
        "The p99 wait{with} is not known: the end of a run cut off too many waits ({list}; a longer \
         -t)."),
    (CONTEND, "Wait", Told(contend::longest), "The longest wait{with}: {list}."),
    (CONTEND, "Wait", Told(contend::modes), EACH),
    (CONTEND, "Wait", Told(contend::starving), EACH),
    (CONTEND, "Wait", Told(contend::failed), EACH),
    (COSTLY, "CPU", Ordered(CPU, "CPU time", ["uses", "used"]),
        "{worst} {verb} {times} times as much CPU per {per} as {best}"),
    (COSTLY, "CPU", Ordered(SERVER_CPU, "the server's CPU time", ["uses", "used"]),
        "The server of {worst} {verb} {times} times as much CPU per {per} as that of {best}"),
    (CLOSED, "CPU", Told(contend::cpu_of_one), "{value} per {per}{with}."),
    (CONTEND, "CPU", Told(contend::cpu_growth), "{said}."),
    (CONTEND, "CPU", Told(contend::waiting), EACH),
    (CONTEND, "Throughput", Told(contend::capped),
        "No difference is shown{with}: a hold of {hold} allows {most} locks/s at most, and all come \
         close to it ({list}). To compare the locks themselves: -b 0 -i 0 (no hold, no pause)."),
    (CLOSED, "Throughput", Ordered(THROUGHPUT, "throughput", ["does", "did"]),
        "{best} {verb} {times} times the {per}s/s of {worst}"),
    (CLOSED, "Throughput", Told(contend::rate_of_one), "{value} {per}s/s{with}{share}."),
    (CONTEND, "Throughput", Told(contend::moved), EACH),
    (CONTEND, "Throughput", Told(contend::round_trips),
        "Round trips per lock grow {range}: {list}."),
    (CONTEND, "Throughput", Told(contend::striped), EACH),
    (ONE_BY_ONE, "Time", Ordered(ACQUIRE_P99, "the time to acquire (p99)", ["is", "was"]),
        "The p99 time to acquire {verb} {times} times as long with {worst} as with {best}"),
    (ANSWERED, "Time", Ordered(RESPONSE_P99, "the response time (p99)", ["is", "was"]),
        "The p99 response {verb} {times} times as long with {worst} as with {best}"),
    (CONNECT, "Time", Ordered(CONNECT_P50, "connect()", ["takes", "took"]),
        "connect() {verb} {times} times as long with {worst} as with {best}"),
    (RECOVER, "Next grant", Ordered(NEXT_GRANT, "the time to the next grant", ["comes", "came"]),
        "It {verb} {times} times as late with {worst} as with {best}"),
    (RECOVER, "Next grant", Told(recover::worst), "Worst case: {list}."),
    (RECOVER, "Next grant", Told(recover::never), EACH),
    (RECOVER, "Next grant", Told(recover::kept), EACH),
    (RECOVER, "Two owners", Told(recover::two_owners), "There were two owners for up to: {list}."),
    (RECOVER, "Two owners", Told(recover::told), EACH),
    (RECOVER, "Two owners", Told(recover::stopped), EACH),
    (RECOVER, "Promise", Told(recover::promised), EACH),
    (RECOVER, "Lease", Told(recover::leases), EACH),
    (RECOVER, "Errors", Told(recover::errors), EACH),
    (VERIFY, "Promise", Told(verify::promise), EACH),
    (VERIFY, "Judged by", Told(verify::judged_by), EACH),
    (VERIFY, "Tried", Told(verify::tried), EACH),
    (VERIFY, "Outside", Told(verify::outside), EACH),
    (VERIFY, "Next grant", Told(verify::next_grant), EACH),
    (COUNTED, "Time", Told(requested::takes), EACH),
    (&[Churn], "Session", Told(churn::session), EACH),
    (&[Hold], "Cost", Told(kept::cost_of_each), EACH),
    (COUNTED, "Limit", Told(path::limit), EACH),
    (&[Spread], "Limit", Told(spread::limit), EACH),
    (CONNECT, "Cliff", Told(|view| connect::told(view, "Cliff")), EACH),
    (CONNECT, "Why", Told(|view| connect::told(view, "Why")), EACH),
    (CONNECT, "Avoid", Told(|view| connect::told(view, "Avoid")), EACH),
    (CONNECT, "Cost", Told(|view| connect::told(view, "Cost")), EACH),
    (CONNECT, "Balance", Told(|view| connect::told(view, "Balance")), EACH),
    (CONNECT, "Limit", Told(|view| connect::told(view, "Limit")), EACH),
    (&[Rate], "Knee", Told(rate::knees), EACH),
    (&[Rate], "Found", Told(find::found), "{said}."),
    (COUNTED, "Growth", Told(growth::sizes), EACH),
    (&[Hold], "Memory", Told(growth::memory_of_each),
        "The server's memory for each held lock: {list}."),
    // Of `connect` the lines are about the step between two numbers, which no law describes.
    (CLOSED, "Growth", Told(growth::laws), EACH),
    (&[Contend, Stream], "Uncontended", Told(contend::uncontended),
        "Acquire and release, one worker alone: {list}."),
    (LOCKS, "Safety", Told(trust::safety), "{said}."),
    (ALL, "Checked", Told(trust::checked), "{said}"),
    (ALL, "Trust", Told(trust::trust), "{said}."),
];

/// The lines of a result.
pub(crate) fn lines(set: &ResultSet, points: &[PointSummary<'_>]) -> Vec<Line> {
    let view = View::new(set, points);
    let workload = set.experiment.plan.workload;
    let mut lines: Vec<Line> = Vec::new();
    let mut told: Vec<String> = Vec::new();
    let clauses = CLAUSES.iter().filter(|(of, ..)| of.contains(&workload));
    for &(_, question, ref when, says) in clauses {
        let holds: Vec<(String, Values)> = match when {
            Told(when) => {
                let each = when(&view).into_iter();
                each.map(|values| (says.to_owned(), values)).collect()
            }
            Ordered(figure, what, verbs) => {
                let found = beside(&view, figure);
                let told = found.and_then(|found| found.told(says, what, *verbs));
                told.into_iter().collect()
            }
        };
        for (says, values) in holds {
            let text = filled(&says, &values, &mut told);
            match lines.iter_mut().find(|line| line.question == question) {
                Some(line) => line.sentences.push(text),
                None => lines.push(Line {
                    question,
                    sentences: vec![text],
                }),
            }
        }
    }
    lines
}

/// A template with its values; what was told as a reason is not told again.
fn filled(template: &str, values: &Values, told: &mut Vec<String>) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        let again = match *name {
            "why" => Some(", for the same reason"),
            "look" => Some("This is an impression, too"),
            _ => None,
        };
        let again = again.filter(|_| !value.is_empty());
        let value = match again.filter(|_| told.contains(value)) {
            Some(again) => again,
            None => value,
        };
        if again.is_some() {
            told.push(value.to_owned());
        }
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text
}

/// The line that tells most, as the title of a page has it, and how the title of the figure begins
/// that shows it.
pub(crate) struct Lead {
    pub(crate) text: String,
    pub(crate) figure: &'static str,
    /// Whether it tells what was found, not that nothing is shown.
    pub(crate) is_finding: bool,
}

/// The difference that is decided and greatest; else the ways of service, where they differ; else
/// what a look shows; else the first answer of these workloads. None where nothing was found.
pub(crate) fn lead(set: &ResultSet, points: &[PointSummary<'_>], lines: &[Line]) -> Option<Lead> {
    let view = View::new(set, points);
    let of = |question: &str| lines.iter().find(|line| line.question == question);
    let told = |line: Option<&Line>, is_finding: bool| {
        Some(Lead {
            text: line?.sentences[0].clone(),
            figure: "",
            is_finding,
        })
    };
    if !contend::broken(&view).is_empty() {
        return told(of("Safety"), true);
    }
    let workload = set.experiment.plan.workload;
    if workload == Verify {
        let mut sentences = of("Promise")?.sentences.iter();
        let broken = sentences
            .clone()
            .find(|text| text.contains("promise is broken"));
        return Some(Lead {
            text: broken.or_else(|| sentences.next())?.clone(),
            figure: "",
            is_finding: true,
        });
    }
    let clauses = CLAUSES.iter().filter(|(of, ..)| of.contains(&workload));
    let ordered = clauses.filter_map(|(_, _, when, says)| {
        let Ordered(figure, what, verbs) = when else {
            return None;
        };
        let found = beside(&view, figure)?;
        let (says, values) = found.told(says, what, *verbs)?;
        let text = filled(&says, &values, &mut Vec::new());
        Some((found.weight()?, text, figure.lead))
    });
    let fairest = of("Fairness").filter(|_| workload == Contend);
    let fairest = fairest.and_then(|line| {
        let is_other = !fair(&view, Fair::Ways).is_empty();
        let order = beside(&view, fairness()).and_then(|found| found.weight());
        let weight = order.or(is_other.then_some((1, 0.0)))?;
        Some((weight, line.sentences[0].clone(), ""))
    });
    let most = ordered
        .chain(fairest)
        .max_by(|((one, by), ..), ((other, than), ..)| one.cmp(other).then(by.total_cmp(than)));
    match most {
        Some(((class, _), text, figure)) => Some(Lead {
            text,
            figure,
            is_finding: class > 0,
        }),
        None => {
            let single = LEADING.iter().find_map(|question| of(question));
            told(single, beside::targets(&view.points).len() == 1)
        }
    }
}

/// The questions whose answers are a finding about a single target, the most telling first.
const LEADING: [&str; 11] = [
    "Found",
    "Knee",
    "Cliff",
    "Next grant",
    "Cost",
    "Limit",
    "Throughput",
    "Session",
    "Growth",
    "Time",
    "Fairness",
];

/// Names of targets before a text that they share, at most; more are counted.
const SHARING: usize = 3;

/// What is told of each target, once for those that share it, behind their names where there are
/// several targets.
pub(crate) fn each<'v, 'a>(
    points: &[&'v PointSummary<'a>],
    says: impl Fn(&[&'v PointSummary<'a>]) -> Option<String>,
) -> Vec<Values> {
    shared(by_target(points, says), beside::targets(points).len() > 1)
}

/// One list of what is told of each target; where there are several, each has its name.
fn listed<'v, 'a>(
    points: &[&'v PointSummary<'a>],
    says: impl Fn(&[&'v PointSummary<'a>]) -> Option<String>,
) -> Vec<Values> {
    let is_named = beside::targets(points).len() > 1;
    let told = by_target(points, says).into_iter();
    let told = told.map(|(name, text)| match is_named {
        true => format!("{name} {text}"),
        false => text,
    });
    let list: Vec<String> = told.collect();
    match list.is_empty() {
        true => Vec::new(),
        false => vec![vec![("list", list.join(", "))]],
    }
}

/// The targets of which something is told, with that.
fn by_target<'v, 'a>(
    points: &[&'v PointSummary<'a>],
    says: impl Fn(&[&'v PointSummary<'a>]) -> Option<String>,
) -> Vec<(String, String)> {
    let targets = beside::targets(points).into_iter();
    let told = targets.filter_map(|target| {
        let of_target = points.iter().copied();
        let of_target = of_target.filter(|point| point.target == target);
        Some((short(target), says(&of_target.collect::<Vec<_>>())?))
    });
    told.collect()
}

/// Names and texts, each text once.
fn shared(told: Vec<(String, String)>, is_named: bool) -> Vec<Values> {
    let mut all: Vec<(Vec<String>, String)> = Vec::new();
    for (name, text) in told {
        match all.iter_mut().find(|(_, other)| *other == text) {
            Some((names, _)) => names.push(name),
            None => all.push((vec![name], text)),
        }
    }
    let named = all.into_iter().map(|(names, text)| {
        let more = names.len().saturating_sub(SHARING);
        let mut named = names[..names.len() - more].join(", ");
        if more > 0 {
            named += &format!(" and {more} more");
        }
        match is_named && !named.is_empty() {
            true => vec![("target", named + ": "), ("said", text)],
            false => vec![("target", String::new()), ("said", capital(&text))],
        }
    });
    named.collect()
}

/// A text as the beginning of a sentence; what is typed or called stays as it is.
fn capital(text: &str) -> String {
    let word = text.split([' ', ':', ',']).next().unwrap_or_default();
    let is_word = !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase());
    let mut letters = text.chars();
    match letters.next().filter(|_| is_word) {
        Some(first) => first.to_ascii_uppercase().to_string() + letters.as_str(),
        None => text.to_owned(),
    }
}

/// Whether it is requests that were measured.
fn are_requests(view: &View<'_, '_>) -> bool {
    requests::are(view.all)
}

#[cfg(test)]
pub(crate) mod tests;
