//! Looks at the connections to the server while workers work: requests that it has not read,
//! and what clients have written and could not send.

use super::Run;
use crate::order::WorkloadOrder;
use jostle_model::record::TcpQueues;
use jostle_sys::sock_diag::{SockDiag, Tcp, Wanted};
use jostle_sys::stat;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Between two looks, in nanoseconds.
const EVERY_NS: u64 = 200_000_000;

/// Time between two looks, by the CPU time that the last one took: each walks all sockets of the
/// kernel, and looks cost at most 0.5 % of a CPU.
const REST: u64 = 200;

/// All looks of a run.
#[derive(Default)]
pub(super) struct Sockets(RefCell<How>);

#[derive(Default)]
enum How {
    /// Nobody has looked yet.
    #[default]
    Unasked,
    /// No server with ports, or no sock_diag.
    Blind,
    Seen {
        diag: SockDiag,
        ports: BTreeSet<u16>,
        next_ns: u64,
        queues: TcpQueues,
    },
}

impl Sockets {
    /// Looks, if it is time. Not where a request is a wait for a lock, which a server reads at
    /// once.
    pub(super) fn look(&self, run: &Run<'_>) {
        let mut how = self.0.borrow_mut();
        if matches!(*how, How::Unasked) {
            *how = begin(run);
        }
        let How::Seen {
            diag,
            ports,
            next_ns,
            queues,
        } = &mut *how
        else {
            return;
        };
        let now_ns = run.now();
        if now_ns < *next_ns {
            return;
        }
        let began_ns = stat::own_cpu_ns();
        let wanted = Wanted {
            carried: true,
            ..Wanted::default()
        };
        add(queues, &diag.tcp(wanted).unwrap_or_default(), ports);
        let took_ns = stat::own_cpu_ns() - began_ns;
        *next_ns = now_ns + EVERY_NS.max(REST * took_ns);
    }

    /// The queues; None where nothing was seen.
    pub(super) fn taken(&self) -> Option<TcpQueues> {
        match self.0.take() {
            How::Seen { queues, .. } => Some(queues).filter(|queues| queues.looks > 0),
            _ => None,
        }
    }
}

fn begin(run: &Run<'_>) -> How {
    let is_lock = matches!(
        run.order.workload,
        WorkloadOrder::Contend(_) | WorkloadOrder::Hold(_)
    );
    let ports = match is_lock || !run.work.is_remote() {
        true => BTreeSet::new(),
        false => run.books.server.ports(),
    };
    match SockDiag::open() {
        Ok(diag) if !ports.is_empty() => How::Seen {
            diag,
            ports,
            next_ns: 0,
            queues: TcpQueues::default(),
        },
        _ => How::Blind,
    }
}

/// Adds one look. Looks without connections are none.
fn add(queues: &mut TcpQueues, sockets: &[Tcp], ports: &BTreeSet<u16>) {
    let count =
        |is_it: &dyn Fn(&Tcp) -> bool| sockets.iter().filter(|one| is_it(one)).count() as u64;
    let is_client = |one: &Tcp| ports.contains(&one.other_port) && !ports.contains(&one.own_port);
    let connections = count(&is_client);
    if connections == 0 {
        return;
    }
    let unread = count(&|one| ports.contains(&one.own_port) && one.unread > 0);
    queues.looks += 1;
    queues.connections += connections;
    queues.unread += unread;
    queues.looks_unread += u64::from(unread >= 2);
    queues.unsent += count(&|one| is_client(one) && one.carried.is_some_and(|of| of.unsent > 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::sock_diag::Carried;

    #[test]
    fn requests_unread_at_the_server_and_unsent_at_clients_are_counted() {
        let socket = |own_port, other_port, unread, unsent| Tcp {
            own_port,
            other_port,
            unread,
            carried: Some(Carried {
                unsent,
                ..Carried::default()
            }),
            ..Tcp::default()
        };
        let mut queues = TcpQueues::default();
        let ports = BTreeSet::from([80]);
        let look = [
            socket(4001, 80, 9, 7),
            socket(4002, 80, 0, 0),
            socket(80, 4001, 5, 3),
            socket(80, 4002, 5, 0),
            // Somebody else's.
            socket(4003, 443, 5, 5),
        ];
        add(&mut queues, &look, &ports);
        add(&mut queues, &look[..3], &ports);
        add(&mut queues, &look[4..], &ports);
        let expected = TcpQueues {
            looks: 2,
            connections: 4,
            unread: 3,
            looks_unread: 1,
            unsent: 2,
        };
        assert_eq!(queues, expected);
    }
}
