//! Each rule beside a rival that shows the same first sign.

use super::*;

/// A rule; a plant that it decides; and what makes another cause of it.
type Row = (&'static str, [f64; 2], fn(&mut Watched), fn(&mut Watched));

const ROWS: &[Row] = &[
    (
        "generator still",
        [0.2, 0.1],
        |run| run.generator.stopped_s = column(0.2),
        |run| run.generator.stopped_s = column(0.01),
    ),
    (
        "hypervisor",
        [0.4, 0.3],
        |run| run.machine.stolen_s = column(0.3),
        |run| {
            run.machine.stolen_s = column(0.0);
            hog(run, 0.3);
        },
    ),
    (
        "server still",
        [0.2, 0.1],
        |run| server(run).stopped_s = column(0.2),
        |run| run.generator.stopped_s = column(0.2),
    ),
    (
        "ports",
        [0.95, 0.3],
        |run| traffic(run).ports_left[40..60].fill(3.0),
        |run| traffic(run).ports_left[41..60].fill(3000.0),
    ),
    (
        "same CPUs",
        [0.47, 0.52],
        |run| {
            run.generator.allowed_cpus = Some(1);
            *server(run) = side("uvicorn", 0.52, 0.45);
            server(run).allowed_cpus = Some(1);
        },
        |run| hog(run, 0.4),
    ),
    (
        "generator busy",
        [0.96, 0.97],
        |run| lay(run, 40.0, 10.0),
        |run| lay(run, 40.0, 1.0),
    ),
    (
        "server limited",
        [0.4, 0.5],
        |run| *server(run) = side("redis-server", 0.5, 0.45),
        |run| hog(run, 0.5),
    ),
    (
        "generator held",
        [0.2, 0.3],
        |run| {
            let name = "app".to_owned();
            run.generator.largest = Some(Process {
                name,
                ..of_python()
            });
        },
        |run| run.generator.largest.as_mut().unwrap().cpu_s = column(0.6),
    ),
    (
        "server held",
        [0.1, 0.3],
        |run| server(run).largest = Some(of_python()),
        |run| server(run).largest.as_mut().unwrap().name = "app".to_owned(),
    ),
    (
        "timer",
        [0.02, 0.02],
        |run| {
            traffic(run).connections.fill(10.0);
            run.network.as_mut().unwrap().delayed_acks.fill(22.0);
        },
        |run| traffic(run).unsent = Some(column(0.0)),
    ),
    (
        "backlog",
        [0.1, 0.3],
        |run| {
            traffic(run).connecting = Some(vec![23.0; LOOKS]);
            run.network.as_mut().unwrap().overflows.fill(2.0);
        },
        |run| run.network.as_mut().unwrap().overflows.fill(0.0),
    ),
    (
        "server's lock",
        [0.1, 0.1],
        |run| server(run).at_locks = Some(vec![49.0; LOOKS]),
        |run| server(run).at_locks = Some(vec![20.0; LOOKS]),
    ),
    (
        "downstream",
        [0.1, 0.3],
        |run| {
            traffic(run).downstream = vec![Peer {
                at: "127.0.0.1:5432".to_owned(),
                connections: 10,
                bytes: 1,
                waiting_share: Some(0.9),
            }];
        },
        |run| traffic(run).downstream[0].connections = 1,
    ),
    (
        "disk",
        [0.1, 0.3],
        |run| {
            server(run).on_disk = Some(vec![1.0; LOOKS]);
            server(run).disk_bytes = Some(12_000_000);
        },
        |run| server(run).disk_bytes = Some(0),
    ),
    (
        "pool",
        [0.1, 0.3],
        |run| traffic(run).server_unread = Some(vec![40.0; LOOKS]),
        |run| *server(run) = side("app", 0.8, 0.01),
    ),
    (
        "in turn",
        [0.1, 0.1],
        |run| {
            let traffic = traffic(run);
            traffic.waiting = Some(vec![48.0; LOOKS]);
            traffic.in_turn = Some(vec![46.0; LOOKS]);
            traffic.unsent = Some(column(0.0));
        },
        |run| traffic(run).in_turn = Some(vec![30.0; LOOKS]),
    ),
    (
        "other programs",
        [0.5, 0.3],
        |run| {
            queue(&mut run.generator, 0.18);
            hog(run, 0.2);
        },
        |run| queue(&mut run.generator, 0.01),
    ),
    (
        "full CPUs",
        [0.5, 0.3],
        |run| server(run).cpu_s = column(1.45),
        |run| server(run).cpu_s = column(1.2),
    ),
    (
        "network",
        [0.4, 0.3],
        |run| traffic(run).backlog = Some(vec![512.0; LOOKS]),
        |run| traffic(run).backlog.as_mut().unwrap()[1..].fill(0.0),
    ),
    (
        "read late",
        [0.8, 0.3],
        |run| traffic(run).generator_unread_bytes = vec![900.0; LOOKS],
        |run| run.generator = side("wrk", 0.4, 0.01),
    ),
    (
        "silent",
        [0.4, 0.5],
        |run| traffic(run).bytes[50..].fill(0.0),
        |run| traffic(run).bytes[55..].fill(1e5),
    ),
];

/// Sets, for 50 connections, requests unread at the server, answers unread at the generator.
fn lay(run: &mut Watched, requests: f64, answers: f64) {
    let traffic = traffic(run);
    traffic.server_unread = Some(vec![requests; LOOKS]);
    traffic.generator_unread = Some(vec![answers; LOOKS]);
    traffic.idle = Some(vec![2.0; LOOKS]);
}

/// Eight threads, none busy, that use one CPU together.
fn of_python() -> Process {
    Process {
        name: "python3".to_owned(),
        threads: 8,
        cpu_s: column(0.98),
        ..Process::default()
    }
}

/// The rule that decides a run, and its limit; without the rule of this name.
fn decided(watched: &Watched, without: &str) -> Option<(&'static str, Limit)> {
    let window = Window::new(watched, window::range(watched));
    let is_held = [held(&window, 0), held(&window, 1)].map(|held| held.is_some());
    let rules = RULES.iter().filter(|rule| rule.name != without);
    rules::first(&window, is_held, rules).map(|(rule, state)| (rule.name, state.limit))
}

/// Each rule decides a plant, which no other says, and says it of no rival; of an innocent run
/// none says anything.
#[test]
fn each_rule_decides_its_plant_and_no_rival() {
    let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(names, ROWS.iter().map(|row| row.0).collect::<Vec<_>>());
    assert_eq!(decided(&Planted::busy(0.4, 0.3).watched, ""), None);
    for (name, [generator, server], plant, rival) in ROWS {
        let mut run = Planted::busy(*generator, *server).with(plant).watched;
        let said = decided(&run, "");
        assert_eq!(said.map(|said| said.0), Some(*name));
        assert_ne!(decided(&run, name), said, "without the rule {name}");
        rival(&mut run);
        assert_ne!(decided(&run, ""), said, "the rival of {name}");
    }
}
