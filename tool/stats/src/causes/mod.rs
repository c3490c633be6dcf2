//! The table of causes outside the lock: the one place that makes a sentence about a cause.
//!
//! A record has looks ([`Look`]) and judges nothing. A row of [`CAUSES`] says for certain what
//! it says if all that it needs was seen, and all that refutes it was looked for and not seen.
//! If something that would refute it is unknown, it says that the cause is possible. A cause
//! explains the reasons of some checks, of the run whose looks show it, and lifts no verdict.
//!
//! A new cause is a row, and cases in `tool/stats/tests/causes/`: one that it explains, and a
//! rival for each of its refutations.

mod facts;
mod table;

pub use facts::Facts;
pub use table::CAUSES;

use crate::checks::Evidence;
use jostle_model::record::{Came, Causes, Look, LookedAt, Run, Sign, Signs, When, sign};

/// A question to the looks of a run; None if they do not answer it.
#[derive(Debug)]
pub struct Test {
    /// The statement that holds if the answer is yes.
    pub words: &'static str,
    /// The answer.
    pub of: fn(&Facts<'_>) -> Option<bool>,
}

/// A row: a cause outside the lock.
#[derive(Clone, Copy, Debug)]
pub struct Cause {
    /// Its name, in cases and docs.
    pub name: &'static str,
    /// Tests that must all have answered yes.
    pub needs: &'static [&'static Test],
    /// Tests that show another cause.
    pub refuted: &'static [&'static Test],
    /// Tests that leave it possible, and no more.
    pub doubted: &'static [&'static Test],
    /// The checks whose reasons it explains.
    pub explains: &'static [&'static str],
    /// The clause if it is certain, with signs in braces (`{+sign}`: its growth, `{~sign}`: before
    /// and after); empty where the looks cannot make it certain.
    pub says: &'static str,
    /// The clause if it is possible.
    pub may: &'static str,
    /// Said only where no other cause is certain.
    pub alone: bool,
    /// Causes that look alike.
    pub rivals: &'static str,
}

/// Whether the looks show a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All that it needs, and nothing that speaks against it.
    Certain,
    /// All that it needs; what would refute it is unknown, or something leaves it in doubt.
    Possible,
    /// Something that it needs is missing, or something refutes it.
    No,
}

impl Cause {
    /// Whether these facts show it.
    pub fn shown(&self, facts: &Facts<'_>) -> Shown {
        let answers = |tests: &[&Test]| -> Vec<Option<bool>> {
            tests.iter().map(|test| (test.of)(facts)).collect()
        };
        let refuted = answers(self.refuted);
        if answers(self.needs).iter().any(|is| *is != Some(true)) || refuted.contains(&Some(true)) {
            return Shown::No;
        }
        let mut open = refuted.into_iter().chain(answers(self.doubted));
        match self.says.is_empty() || open.any(|is| is != Some(false)) {
            true => Shown::Possible,
            false => Shown::Certain,
        }
    }

    /// All that it asks the looks.
    pub fn tests(&self) -> impl Iterator<Item = &'static Test> {
        let lists = [self.needs, self.refuted, self.doubted];
        lists.into_iter().flatten().copied()
    }

    /// Whether its needs could be looked at.
    fn was_looked_at(&self, facts: &Facts<'_>) -> bool {
        self.needs.iter().all(|test| (test.of)(facts).is_some())
    }
}

/// The causes of these rows that explain a check, with how well each is shown.
pub fn shown<'r>(rows: &'r [Cause], check: &str, facts: &Facts<'_>) -> Vec<(&'r Cause, Shown)> {
    let explain = rows.iter().filter(|row| row.explains.contains(&check));
    let mut shown: Vec<_> = explain.map(|row| (row, row.shown(facts))).collect();
    if shown.iter().any(|(_, shown)| *shown == Shown::Certain) {
        let beside = shown.iter_mut().filter(|(row, _)| row.alone);
        beside.for_each(|(_, shown)| *shown = Shown::No);
    }
    shown
}

/// The causes that explain the reasons of a check, by the looks of one host at one run.
pub fn judge(check: &str, looks: &[Look]) -> Causes {
    let facts = Facts::new(looks);
    let mut causes = Causes::default();
    for (cause, shown) in shown(CAUSES, check, &facts) {
        match shown {
            Shown::Certain => causes.found.push(facts.fill(cause.says)),
            Shown::Possible => causes.possible.push(facts.fill(cause.may)),
            Shown::No => {}
        }
        if cause.was_looked_at(&facts) {
            let needs = cause.needs.iter().map(|test| test.words);
            let needs: Vec<&str> = needs.collect();
            causes
                .looked_at
                .push(format!("whether {}", needs.join(" and ")));
        }
    }
    let refused = looks.iter().filter(|look| look.came == Came::Refused);
    let in_words = refused.map(|look| match &look.words {
        Some(words) => format!("{} ({words})", of_what(look.at)),
        None => of_what(look.at).to_owned(),
    });
    causes.unseen.extend(in_words);
    causes.unseen.dedup();
    causes
}

/// A look in words.
fn of_what(at: LookedAt) -> &'static str {
    match at {
        LookedAt::Server => "what the server says about itself",
        LookedAt::Owners => "who holds the lock",
        LookedAt::Holders => "who holds the lock, by the server's account",
        LookedAt::Halted => "which processes stand still",
        LookedAt::Path => "the workers' connections",
        LookedAt::Group => "the server's control group",
        LookedAt::Clients => "who else is connected to the server",
        LookedAt::Worker | LookedAt::Run => "the run itself",
    }
}

/// The causes of a reason of this check in one of its runs: by its looks, or as the older version
/// that wrote the record worded it.
pub fn of_run(check: &str, run: &Run, evidence: &Evidence<'_>) -> Causes {
    let mut all = run.around.causes.as_deref().cloned().unwrap_or_default();
    let looks = &run.around.looks;
    let mut hosts: Vec<Option<&str>> = looks.iter().map(|look| look.host.as_deref()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.is_empty() && run.around.server_stood.is_some() {
        // Nothing had to be looked at afterwards; the record of the run is a look, too.
        hosts.push(None);
    }
    for host in hosts {
        let of_host = looks.iter().filter(|look| look.host.as_deref() == host);
        let mut of_host: Vec<Look> = of_host.cloned().collect();
        of_host.push(at_run(run, evidence));
        let mut causes = judge(check, &of_host);
        if let Some(host) = host {
            let said = causes.found.iter_mut().chain(&mut causes.possible);
            said.for_each(|text| *text = format!("{host}: {text}"));
        }
        all.add(&causes);
    }
    all
}

/// The run as its record has it.
fn at_run(run: &Run, evidence: &Evidence<'_>) -> Look {
    let granted = |run: &Run| {
        let checked = run.exclusion.as_ref().map_or(0, |seen| seen.checked);
        run.operations.max(checked)
    };
    let own_cost = &evidence.experiment.calibration.own_cost;
    let mut earlier = evidence.runs.iter().filter(|one| one.run < run.run);
    let before = own_cost.contains_key(&run.target) || earlier.any(|run| granted(run) > 0);
    let mut signs = Signs::new();
    signs.insert(sign::GRANTED.to_owned(), granted(run).into());
    signs.insert(sign::GRANTED_BEFORE.to_owned(), before.into());
    let accounts = run.around.accounts.as_deref();
    let cpus = accounts.and_then(|of| Some(of.server_s? / of.between_s));
    if let Some(cpus) = cpus {
        let milli = Sign::Number((1e3 * cpus) as i64);
        signs.insert(sign::SERVER_CPU_MILLI.to_owned(), milli);
    }
    if let Some(stood) = &run.around.server_stood {
        let mut milli = |name: &str, share: f64| {
            signs.insert(name.to_owned(), Sign::Number((1e3 * share) as i64));
        };
        let looks = stood.looks.max(1) as f64;
        milli(sign::SERVER_STILL_MILLI, stood.still as f64 / looks);
        milli(sign::SERVER_TRACED_MILLI, stood.traced as f64 / looks);
        let window_s = run.window.window_s.max(f64::MIN_POSITIVE);
        let throttled_s = stood.throttled_s.unwrap_or(0.0);
        milli(sign::SERVER_THROTTLED_MILLI, throttled_s / window_s);
    }
    Look {
        at: LookedAt::Run,
        when: When::After,
        asked_ns: 0,
        answered_ns: Some(0),
        came: Came::Answered,
        words: None,
        signs,
        host: None,
    }
}
