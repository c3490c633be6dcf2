//! The context that a figure is worth nothing without: the environment, what the tool costs, and
//! the plan that makes it again.

use super::conclusion::is_all_invalid;
use super::labels::{Difference, differences, labels, where_and_when};
use super::units::trimmed;
use crate::ResultSet;
use crate::command::command;
use jostle_model::record::OwnCost;
use jostle_model::serial::plans_to_toml;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// All of it, for all experiments side by side.
pub(super) fn about(sets: &[ResultSet]) -> Markup {
    let all: Vec<&ResultSet> = sets.iter().collect();
    let names = columns(&all);
    let differences = differences(&all);
    let whole = html! {
            @if !differences.is_empty() {
                h3 { "What differs" }
                (differing(&differences, &names))
            }
            h3 { "Environment" }
            (environment(&all, &names))
            h3 { "What the tool costs" }
            (calibration(&all, &names))
            h3 { "Plan" }
            @for (set, name) in all.iter().zip(&names) { (plan(set, name, names.len() > 1)) }
    };
    // Below results without a figure it would be all that is seen.
    html! {
        section #about {
            @if sets.iter().all(is_all_invalid) {
                details { summary { "How it was measured" } (whole) }
            } @else {
                h2 { "How it was measured" }
                (whole)
            }
        }
    }
}

/// A heading for each experiment.
fn columns(sets: &[&ResultSet]) -> Vec<String> {
    let labels = labels(sets).into_iter().zip(sets);
    labels
        .map(|(label, set)| match label.is_empty() {
            true => set.experiment.started_at.clone(),
            false => label,
        })
        .collect()
}

fn differing(differences: &[Difference], names: &[String]) -> Markup {
    html! {
        div.wide { table.facts {
            (head("", names))
            tbody { @for fact in differences { (row(&fact.name, &fact.values)) } }
        } }
    }
}

fn head(corner: &str, names: &[String]) -> Markup {
    html! { thead { tr { th scope="col" { (corner) } @for name in names { th scope="col" { (name) } } } } }
}

fn row(name: &str, values: &[Option<String>]) -> Markup {
    html! { tr {
        th scope="row" { (name) }
        @for value in values { td { (value.as_deref().unwrap_or("–")) } }
    } }
}

/// Facts in the order of the record; limits are many, and so folded.
fn environment(sets: &[&ResultSet], names: &[String]) -> Markup {
    let facts: Vec<BTreeMap<String, String>> = sets.iter().map(|set| where_and_when(set)).collect();
    let known: BTreeSet<&String> = facts.iter().flat_map(BTreeMap::keys).collect();
    let (limits, others): (Vec<&String>, Vec<&String>) = known
        .into_iter()
        .partition(|name| name.starts_with("limits."));
    let values = |name: &String| -> Vec<Option<String>> {
        facts.iter().map(|facts| facts.get(name).cloned()).collect()
    };
    html! {
        div.wide { table.facts {
            @if names.len() > 1 { (head("", names)) }
            tbody { @for name in others { (row(name, &values(name))) } }
        } }
        @if !limits.is_empty() {
            details {
                summary { "limits" }
                div.wide { table.facts { tbody {
                    @for name in limits { (row(name.trim_start_matches("limits."), &values(name))) }
                } } }
            }
        }
    }
}

fn calibration(sets: &[&ResultSet], names: &[String]) -> Markup {
    let several = names.len() > 1;
    // Where requests are made there is no lock whose cycle could be taken.
    let any = sets
        .iter()
        .any(|set| !set.experiment.calibration.own_cost.is_empty());
    html! {
        @if any { p.note {
            "One cycle of one worker without hold and idle: with counting alone (the target's own cost), and \
             what stamps, histograms and the witness of exclusion add to it."
        } }
        @if any { div.wide { table.facts.numbers {
            thead { tr {
                @if several { th scope="col" { "experiment" } }
                @for heading in ["target", "alone ns", "full adds ns", "from", "to", "one stamped in"] {
                    th scope="col" { (heading) }
                }
            } }
            tbody {
                @for (set, name) in sets.iter().zip(names) {
                    @for (target, cost) in &set.experiment.calibration.own_cost {
                        tr {
                            @if several { th scope="row" { (name) } }
                            th scope="row" { (target) }
                            @for figure in costs(cost) { td { (figure) } }
                        }
                    }
                }
            }
        } } }
        @for (set, name) in sets.iter().zip(names) {
            @let calibration = &set.experiment.calibration;
            p.note {
                @if several { (name) ": " }
                "clock " (calibration.clock) ", one stamp " (trimmed(calibration.stamp_ns, 3)) " ns"
                @if let Some(u) = calibration.clock_uncertainty_ns {
                    ", clocks of two CPUs at most " (trimmed(u, 3)) " ns apart"
                }
                "."
            }
        }
    }
}

fn costs(cost: &OwnCost) -> [String; 5] {
    let [low, high] = cost.added_range_ns;
    [
        trimmed(cost.pair_ns, 3),
        trimmed(cost.added_ns, 3),
        trimmed(low, 3),
        trimmed(high, 3),
        cost.stamp_every.to_string(),
    ]
}

fn plan(set: &ResultSet, name: &str, several: bool) -> Markup {
    let plan = &set.experiment.plan;
    html! {
        @if several { h4 { (name) } }
        pre.command tabindex="0" { (command(plan)) }
        details {
            summary { "the resolved plan, for jostle run" }
            pre tabindex="0" { (plans_to_toml(std::slice::from_ref(plan))) }
        }
    }
}
