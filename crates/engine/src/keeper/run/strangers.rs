//! Who else was connected to a server when a lock was lost, for the verdict's reason.

use super::Run;
use crate::order::RunData;

/// Clients that are named; more are counted.
const NAMED: usize = 3;

impl Run<'_> {
    /// Where a lock was lost, or may have been, adds who else is connected to the server. Of
    /// several hosts, the workers of another may still be.
    pub(super) fn name_strangers(&self, data: &mut RunData) {
        let lapsed = data.kept.as_ref().is_some_and(|kept| kept.lapsed > 0);
        let lost = data.violations > 0 || !data.errors.is_empty() || lapsed;
        if lost && self.order.share.is_none() {
            name(&self.work.strangers(), data);
        }
    }
}

fn name(clients: &[String], data: &mut RunData) {
    if clients.is_empty() {
        return;
    }
    let more = match clients.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = clients[..clients.len().min(NAMED)].join(", ");
    let said = format!("the server has other clients, which may be the cause: {named}{more}");
    match data.examples.first_mut() {
        // It stands in the verdict's reason.
        Some(example) => *example = format!("{example}; {said}"),
        None => data.messages.push(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_clients_stand_with_the_first_overlap_or_with_the_failures() {
        let mut data = RunData::default();
        name(&[], &mut data);
        assert!(data.messages.is_empty());
        name(&["a", "b", "c", "d"].map(str::to_owned), &mut data);
        let said = "the server has other clients, which may be the cause: a, b, c and 1 more";
        assert_eq!(data.messages, [said]);
        data.examples = vec!["worker 1 met worker 2".to_owned(), "other".to_owned()];
        name(&["a".to_owned()], &mut data);
        assert_eq!(data.messages.len(), 1);
        assert_eq!(
            data.examples[0],
            "worker 1 met worker 2; the server has other clients, which may be the cause: a"
        );
    }
}
