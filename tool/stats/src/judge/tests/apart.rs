//! The server on a second machine: what is compared with a machine is compared with the side's own.

use super::*;
use jostle_model::judged::ServerHost;

/// With these shares of time on a CPU and in the queue there; db1 has eight CPUs, and here are two.
fn apart(cpu: f64, queued: f64) -> Planted {
    Planted::busy(0.3, cpu).with(|watched| {
        watched
            .server
            .iter_mut()
            .for_each(|side| queue(side, queued));
        watched.server_host = Some(ServerHost {
            host: "db1".to_owned(),
            machine: Some(Machine {
                cpus: 8,
                stolen_s: column(0.0),
                others_s: Some(column(0.02)),
                tool_s: column(0.0),
                ..Machine::default()
            }),
            seen: Some([0, LOOKS as u64]),
            ..ServerHost::default()
        });
    })
}

fn there(watched: &mut Watched) -> &mut Machine {
    watched
        .server_host
        .as_mut()
        .unwrap()
        .machine
        .as_mut()
        .unwrap()
}

fn all_cpus(watched: &mut Watched, used: f64) {
    watched.server.as_mut().unwrap().cpu_s = column(used);
}

#[test]
fn a_server_s_cpus_and_neighbours_are_those_of_its_machine() {
    apart(0.95, 0.0).is(Limit::Server, "busiest thread");
    // Two of eight CPUs are no limit, and eight of eight are.
    let found = find(
        &apart(0.3, 0.0)
            .with(|watched| all_cpus(watched, 1.95))
            .watched,
    );
    assert_eq!(found.limit, Limit::Path, "{found:?}");
    apart(0.3, 0.0)
        .with(|watched| all_cpus(watched, 7.9))
        .is(Limit::Server, "7.90 of the 8 CPUs");
    // A program here takes nothing from a thread there; one there does.
    let found = apart(0.5, 0.45).with(|watched| hog(watched, 1.0));
    found.is(Limit::Server, "busiest thread");
    let hogged = apart(0.5, 0.45).with(|watched| {
        hog(watched, 1.0);
        let neighbours = std::mem::take(&mut watched.machine.neighbours);
        there(watched).neighbours = neighbours;
        watched.machine.others_s = Some(column(0.0));
        there(watched).others_s = Some(column(1.0));
    });
    let found = hogged.is(
        Limit::Machine,
        "without running on db1, while other programs",
    );
    assert!(found.reasons[0].contains("stress (pid 99)"), "{found:?}");
    // Where others cannot be seen there, the server's own threads do not explain the wait.
    let unseen = |share: f64| {
        apart(0.5, 0.45).with(|watched| {
            there(watched).others_s = None;
            all_cpus(watched, share);
        })
    };
    unseen(0.5).is(Limit::Machine, "cannot be seen there");
    unseen(7.0).is(Limit::Server, "busiest thread");
}

#[test]
fn limits_of_the_server_s_machine_name_it() {
    apart(0.3, 0.0)
        .with(|watched| there(watched).stolen_s = column(0.9))
        .is(
            Limit::Machine,
            "took 11 % of the CPUs' time on the server's machine db1",
        );
    apart(0.3, 0.0)
        .with(|watched| {
            all_cpus(watched, 5.0);
            there(watched).behind_s = Some(column(2.8));
        })
        .is(
            Limit::Machine,
            "the 8 CPUs of the server's machine db1 were all in use: 5.00 by the server, 0.00",
        );
    // One name, on two machines.
    let throttled = |side: &mut Side| {
        side.throttled_s = Some(column(0.5));
        side.quota_group = Some("/app".to_owned());
    };
    apart(0.3, 0.0)
        .with(|watched| {
            throttled(&mut watched.generator);
            watched.server.iter_mut().for_each(throttled);
        })
        .is(Limit::Undecided, "kept the server from running");
}

#[test]
fn what_was_not_seen_there_is_not_judged() {
    // The watcher began after three seconds, in which the server seems to idle.
    let late = apart(0.95, 0.0).with(|watched| {
        watched.server_host.as_mut().unwrap().seen = Some([30, LOOKS as u64]);
        let side = watched.server.as_mut().unwrap();
        side.busiest[0].cpu_s[..30].fill(0.0);
    });
    assert_eq!(late.is(Limit::Server, "busiest thread").from_s, 3.0);
    let unseen = || {
        Planted::busy(0.3, 0.0).with(|watched| {
            watched.server = None;
            watched.traffic.as_mut().unwrap().address = Some("198.18.1.1".to_owned());
        })
    };
    let found = unseen().is(Limit::Undecided, "not found on this machine");
    let next = "jostle judge --server-host 198.18.1.1 -- redis-benchmark -c 50";
    assert_eq!(found.next.as_deref(), Some(next));
    let lost = unseen().with(|watched| {
        watched.server_host = Some(ServerHost {
            host: "db1".to_owned(),
            unseen: Some("its watcher was lost".to_owned()),
            ..ServerHost::default()
        });
    });
    let found = lost.is(Limit::Undecided, "not found on this machine");
    assert!(
        found.reasons[1].contains("not seen on db1: its watcher was lost"),
        "{found:?}"
    );
    assert_ne!(found.next.as_deref(), Some(next));
}
