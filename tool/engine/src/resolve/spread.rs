//! A plan's generators: defaults, and the combinations refused.

use super::{UsageError, refuse};
use jostle_model::Nanos;
use jostle_model::plan::{Place, Plan, Workload};
use jostle_sys::limits::cpu_group::LEAST_CPUS;

/// To fit the budget, where nobody asked for a window.
pub(super) const SHORTEST_WINDOW: Nanos = Nanos::from_millis(500);

/// Puts the generators on the first half of the CPUs, so that the servers that
/// jostle launches have the others: only apart can be told who is the limit.
pub(super) fn fill_in(plan: &mut Plan, allowed: &[usize]) {
    if plan.workload == Workload::Spread && plan.place.is_none() {
        plan.place = Some(match allowed.len() {
            0 | 1 => Place::None,
            many => Place::Cpus(allowed[..many / 2].to_vec()),
        });
    }
}

/// # Errors
/// In words for the user.
pub(super) fn check(plan: &Plan, allowed: &[usize]) -> Result<(), UsageError> {
    if plan.workload != Workload::Spread {
        return Ok(());
    }
    let in_flight = plan.in_flight.unwrap_or(0);
    let generators = plan.generators.as_ref().map_or(&[][..], |list| &list.0);
    refuse_where! {
        generators.is_empty() || generators.contains(&0) => "--generators: give at least one";
    }
    if let Some(many) = generators.iter().find(|k| **k > in_flight) {
        return refuse(format!(
            "--generators {many} --in-flight {in_flight}: each generator keeps at least one in \
             flight; use fewer generators, or more in flight"
        ));
    }
    let most = allowed.len().max(1) as f64;
    match plan.generator_cpu {
        Some(cpus) if !(LEAST_CPUS..=most).contains(&cpus) => refuse(format!(
            "--generator-cpu takes a number of CPUs from {LEAST_CPUS} to {most}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Resolved, resolve};
    use super::*;
    use jostle_model::List;

    fn resolution(change: impl FnOnce(&mut Plan)) -> Result<Resolved, UsageError> {
        let mut plan = Plan::of(Workload::Spread);
        change(&mut plan);
        resolve(plan, 7, &[0, 1, 2])
    }

    #[test]
    fn nothing_said_is_cern_s_question_of_the_daemon() {
        let resolved = resolution(|_| {}).unwrap();
        let generators: Vec<_> = resolved
            .points()
            .iter()
            .map(|(_, at)| at.generators.unwrap())
            .collect();
        assert_eq!(generators, [3, 6, 9, 18]);
        let plan = resolved.plan;
        assert_eq!(
            (plan.in_flight, plan.place.clone()),
            (Some(90), Some(Place::Cpus(vec![0])))
        );
        assert_eq!(resolve(plan.clone(), 9, &[0, 1, 2]).unwrap().plan, plan);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        type Case = (fn(&mut Plan), &'static str);
        let table: &[Case] = &[
            (|p| p.in_flight = Some(0), "--in-flight: 1 to"),
            (|p| p.generators = Some(List(vec![0])), "at least one"),
            (|p| p.generators = Some(List(vec![100])), "fewer generators"),
            (|p| p.generator_cpu = Some(0.001), "from 0.01 to 3"),
            (|p| p.generator_cpu = Some(f64::NAN), "from 0.01 to 3"),
            (|p| p.workers = Some(List(vec![1])), "spread has no workers"),
            (|p| p.targets = vec!["tcp".into()], "is not a lock"),
        ];
        for (change, part) in table {
            let error = resolution(*change).unwrap_err().to_string();
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}
