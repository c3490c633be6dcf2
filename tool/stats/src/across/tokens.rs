//! Errors that fencing tokens show, with or without the clocks.

use super::place::Placed;

/// Grants whose token is wrong, each with one that shows it.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Another grant before had the same token.
    pub repeated: Vec<(usize, usize)>,
    /// The token is older than that of a hold that had ended before.
    pub out_of_order: Vec<(usize, usize)>,
}

/// Checks the grants of one lock, given in the order of host, worker and time.
///
/// A token grows with each grant of the lock. Therefore no two grants have the same token
/// (shared owners have one each, or one together), and the tokens of a worker's own grants
/// ascend. If B certainly ended before A began, A's token is not the older one: otherwise
/// A's owner would have owned the lock since before B. This last rule does not hold for
/// shared owners, nor under a lease, which may have ended before A received its grant.
pub(super) fn look_at(grants: &[Placed], leased: bool) -> Tokens {
    let mut order: Vec<(u64, usize)> = (0..grants.len())
        .filter_map(|at| Some((grants[at].token?, at)))
        .collect();
    order.sort_unstable_by_key(|(token, at)| (*token, grants[*at].g.middle(), *at));
    let mut wrong = vec![None; grants.len()];
    for of_worker in by(&order, |at| (grants[at].host, grants[at].worker)) {
        older(grants, &of_worker, &mut wrong, Seen::OwnSequence);
    }
    if !leased {
        for of_host in by(&order, |at| (grants[at].host, 0)) {
            older(grants, &of_host, &mut wrong, Seen::OwnClock);
        }
        older(grants, &order, &mut wrong, Seen::CommonClock);
    }
    let out_of_order = wrong.into_iter().enumerate();
    Tokens {
        repeated: repeated(grants, &order),
        out_of_order: out_of_order
            .filter_map(|(at, by)| Some((at, by?)))
            .collect(),
    }
}

fn repeated(grants: &[Placed], order: &[(u64, usize)]) -> Vec<(usize, usize)> {
    let same = order.chunk_by(|one, other| one.0 == other.0);
    same.filter(|same| same.iter().any(|(_, at)| !grants[*at].shared))
        .flat_map(|same| same.windows(2).map(|pair| (pair[1].1, pair[0].1)))
        .collect()
}

/// Splits the order by owner.
fn by(order: &[(u64, usize)], who: impl Fn(usize) -> (usize, u32)) -> Vec<Vec<(u64, usize)>> {
    let mut sorted = order.to_vec();
    sorted.sort_by_key(|(_, at)| who(*at));
    let groups = sorted.chunk_by(|one, other| who(one.1) == who(other.1));
    groups.map(<[_]>::to_vec).collect()
}

/// By what two grants are put in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// One after the other, whatever they are.
    OwnSequence,
    /// Both of one host.
    OwnClock,
    /// They may be of any two hosts.
    CommonClock,
}

/// When a grant was over, and which.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End(i64, usize);

impl End {
    /// The end that no grant has.
    const MAX: End = End(i64::MAX, usize::MAX);
}

/// Notes grants that began after the end of a grant with a later token. `order` is sorted
/// by token.
fn older(grants: &[Placed], order: &[(u64, usize)], wrong: &mut [Option<usize>], seen: Seen) {
    let begins = |grant: &Placed| match seen {
        Seen::CommonClock => grant.g.least,
        Seen::OwnSequence | Seen::OwnClock => grant.raw.0 as i64,
    };
    let ends = |grant: &Placed| match seen {
        Seen::CommonClock => grant.r.most,
        Seen::OwnSequence | Seen::OwnClock => grant.raw.1 as i64,
    };
    // The earliest end among the later tokens: of those that exclude all, of all.
    let (mut exclusive, mut all) = (End::MAX, End::MAX);
    for same in order.chunk_by(|one, other| one.0 == other.0).rev() {
        for (_, at) in same {
            let grant = &grants[*at];
            let against = match seen {
                Seen::OwnSequence => all,
                _ if grant.shared => exclusive,
                _ => all,
            };
            if against.0 < begins(grant) {
                wrong[*at].get_or_insert(against.1);
            }
        }
        for (_, at) in same {
            let end = End(ends(&grants[*at]), *at);
            all = all.min(end);
            if !grants[*at].shared {
                exclusive = exclusive.min(end);
            }
        }
    }
}
