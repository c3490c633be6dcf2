use super::*;
use proptest::prelude::*;

fn identity(name: &str, parent: u32, reaped_ns: u64) -> Identity {
    Identity {
        name: name.to_owned(),
        parent,
        is_kernel: false,
        reaped_ns,
    }
}

fn look(each: &[(u32, Identity, u64)]) -> Look {
    Look {
        identities: each
            .iter()
            .map(|(pid, who, _)| (*pid, who.clone()))
            .collect(),
        census: each.iter().map(|(pid, _, ns)| (*pid, *ns)).collect(),
    }
}

/// A shell waits for a build of sixteen seconds that ends within a window of half a
/// second: it once stood in the record with all sixteen.
#[test]
fn what_a_child_had_used_before_the_run_is_not_its_parent_s_within() {
    let before = look(&[
        (50, identity("bash", 1, 0), 5),
        (51, identity("cargo", 50, 9_000), 7_000),
        (52, identity("rustc", 51, 0), 4_000),
    ]);
    let opened = Census::from([(50, 5), (51, 7_100), (52, 4_400)]);
    // Cargo used 300 more, and rustc 200, until both had ended.
    let used = 7_100 + 300 + 9_000 + 4_400 + 200;
    let after = look(&[(50, identity("bash", 1, used), 5)]);
    let none = Look::default();
    assert_eq!(
        reaped([&before, &none, &after], [&opened, &Census::new()]),
        BTreeMap::from([(50, 500)])
    );
}

/// A server with a process for each connection, such as PostgreSQL: they begin with the
/// workers, and end with them before anybody asks whose they were. They once were other
/// programs without a name.
#[test]
fn a_server_s_processes_that_end_with_the_window_are_booked_to_it_once() {
    /// No processes of this machine can have these (PID_MAX_LIMIT is 2^22).
    const SERVER: u32 = 5_000_010;
    const SESSION: u32 = SERVER + 1;
    let before = look(&[(SERVER, identity("postgres", 1, 0), 5)]);
    let closing = look(&[
        (SERVER, identity("postgres", 1, 0), 5),
        (SESSION, identity("postgres", SERVER, 0), 1_000),
    ]);
    let opened = Census::from([(SERVER, 5), (SESSION, 700)]);
    let closed = Census::from([(SERVER, 5), (SESSION, 1_000)]);
    // The session used 20 more after the window.
    let after = look(&[(SERVER, identity("postgres", 1, 1_020), 5)]);
    let looks = [&before, &closing, &after];
    assert_eq!(
        reaped(looks, [&opened, &closed]),
        BTreeMap::from([(SERVER, 20)])
    );
    let kin = Kin {
        looks: [&after, &closing, &before].map(|look| &look.identities),
        top: 1,
        of_a_job: false,
        workers: &[],
        server: vec![SERVER],
    };
    assert_eq!(kin.owner(SESSION), Owner::Server);
}

/// Workers end the programs that they keep before anybody asks whose they were.
#[test]
fn what_a_worker_kept_is_booked_to_requests() {
    /// No process of this machine can have it (PID_MAX_LIMIT is 2^22).
    const WORKER: u32 = 5_000_000;
    let closing = look(&[
        (WORKER, identity("jostle-worker", 1, 0), 0),
        (WORKER + 1, identity("sh", WORKER, 0), 0),
        (WORKER + 2, identity("java", WORKER + 1, 0), 0),
        (WORKER + 3, identity("cargo", 1, 0), 0),
    ]);
    let books = Books {
        closing: RefCell::new(closing),
        ..books(Vec::new())
    };
    let closed = Entry {
        census: Census::from([
            (WORKER + 1, 1_000_000_000),
            (WORKER + 2, 2_000_000_000),
            (WORKER + 3, 500_000_000),
        ]),
        ..Entry::default()
    };
    let known = Known {
        between_ns: 4_000_000_000,
        workers: &[WORKER],
        ..Known::default()
    };
    let accounts = books.close(&Entry::default(), &closed, &known);
    assert_eq!(accounts.requests_s, Some(3.0));
    assert_eq!(accounts.others_s, Some(0.5));
}

/// A lock in bash starts a flock(1) for each call, which lives for a millisecond. Their time was
/// that of other programs, on an idle machine.
#[test]
fn what_a_kept_program_s_children_used_is_its_own() {
    const WORKER: u32 = 5_000_000;
    let books = Books {
        closing: RefCell::new(look(&[
            (WORKER, identity("jostle-worker", 1, 0), 0),
            // Over warm-up and window, of which the window is four fifths.
            (WORKER + 1, identity("bash", WORKER, 2_500_000_000), 0),
            (WORKER + 2, identity("make", 1, 900_000_000), 0),
        ])),
        worked_ns: [1_000_000_000, 6_000_000_000].map(Cell::new),
        ..books(Vec::new())
    };
    let closed = Entry {
        census: Census::from([(WORKER + 1, 1_000_000_000), (WORKER + 2, 500_000_000)]),
        ..Entry::default()
    };
    let known = Known {
        between_ns: 4_000_000_000,
        workers: &[WORKER],
        ..Known::default()
    };
    let accounts = books.close(&Entry::default(), &closed, &known);
    assert_eq!(accounts.requests_s, Some(3.0));
    assert_eq!(accounts.others_s, Some(0.5));
}

pub(super) fn books(cpus: Vec<usize>) -> Books {
    Books {
        top: 20,
        of_a_job: false,
        cpus,
        whole: None,
        complete: true,
        server: ServerProcesses::default(),
        before: Look::default(),
        closing: RefCell::default(),
        began_ns: 0,
        worked_ns: Default::default(),
        diag: RefCell::default(),
        sockets: RefCell::default(),
        exits: None,
    }
}

proptest! {
    /// Whoever used it, the parts add up to the whole, and no process has more than all.
    #[test]
    fn the_accounts_add_up(
        workers_ns in 0..1_000_000_000u64,
        alive_ns in 0..1_000_000_000u64,
        dead_ns in 0..5_000_000_000u64,
        kernel_ns in 0..1_000_000_000u64,
        unknown_ns in 0..1_000_000_000u64,
    ) {
        let whole = workers_ns + alive_ns + kernel_ns + unknown_ns;
        let entry = |whole_ns| Entry { whole_ns: Some([whole_ns; 2]), ..Entry::default() };
        let sums = Sums { alive_ns, dead_ns, kernel_ns, ..Sums::default() };
        let known = Known {
            between_ns: 2_000_000_000,
            workers_ns,
            ..Known::default()
        };
        let accounts = books(vec![0]).accounts(&entry(7), &entry(7 + whole), &known, sums);
        let parts = accounts.workers_s
            + accounts.machine_s
            + accounts.others_s.unwrap()
            + accounts.unexplained_s.unwrap();
        prop_assert!((parts - accounts.whole_s.unwrap()).abs() < 1e-6);
        prop_assert!(accounts.others_s.unwrap() + 1e-9 >= alive_ns as f64 / 1e9);
        prop_assert!((accounts.foreign_s.unwrap() * 1e9 - (whole - workers_ns) as f64).abs() < 1.0);
    }
}

/// Two hundred short programs of one shell stood in the record as the shell's own, with up
/// to 200 % of a CPU.
#[test]
fn programs_that_ended_have_no_name_and_no_more_time_than_is_left() {
    let mut sums = Sums::default();
    sums.other(51, "bash", 40_000_000, 9_000_000_000);
    let entry = |ns| Entry {
        whole_ns: Some([ns; 2]),
        ..Entry::default()
    };
    let known = Known {
        between_ns: 2_000_000_000,
        workers_ns: 1_000_000_000,
        ..Known::default()
    };
    let accounts = books(vec![0]).accounts(&entry(0), &entry(1_740_000_000), &known, sums);
    let named = accounts
        .others
        .iter()
        .map(|one| (one.name.as_str(), one.cpu_s));
    let named: Vec<_> = named.collect();
    assert_eq!(named, [("programs that ended", 0.7), ("bash", 0.04)]);
    assert!((accounts.others_s.unwrap() - 0.74).abs() < 1e-9);
}

/// A program that started others for a millisecond each was named with all their time, and
/// later nobody was.
#[test]
fn programs_that_ended_are_named_with_who_started_them_where_the_kernel_tells() {
    let exit = |name: &str, pid, parent, used_us| Exit {
        name: name.to_owned(),
        pid,
        parent,
        used_us,
    };
    let told = [
        exit("sleep", 61, 51, 300_000),
        exit("sleep", 62, 51, 300_000),
        exit("ld", 63, 64, 200_000), // whose parent ended too
        exit("cc", 64, 99, 0),
        exit("worker", 70, 22, 900_000),
        exit("a thread", 51, 1, 900_000), // of a process that lives
    ];
    let after = look(&[
        (51, identity("bash", 1, 0), 5),
        (22, identity("jostle", 20, 0), 5),
    ]);
    let none = BTreeMap::new();
    let kin = Kin {
        looks: [&after.identities, &none, &none],
        top: 20,
        of_a_job: false,
        workers: &[22],
        server: Vec::new(),
    };
    let named = |dead_ns| {
        let mut sums = Sums::default();
        sums.ended(&told, &kin, &after);
        let told_ns = sums.name_the_dead(dead_ns);
        let others = largest(sums.others);
        let others = others.into_iter().map(|one| (one.name, one.cpu_s));
        (told_ns, others.collect::<Vec<_>>())
    };
    let both = |sleep, ld| {
        let sleeps = ("sleep started by bash (51)".to_owned(), sleep);
        vec![sleeps, ("ld started by cc".to_owned(), ld)]
    };
    assert_eq!(named(1_000_000_000), (800_000_000, both(0.6, 0.2)));
    // Ticks are coarse, and no more is shared out than there was.
    assert_eq!(named(400_000_000), (400_000_000, both(0.3, 0.1)));
}

/// Under `taskset -c 0` the other CPU's interrupts and programs were taken for ours.
#[test]
fn our_cpus_are_those_that_we_inherit_where_none_are_given() {
    let allowed = jostle_sys::cpu::allowed();
    assert_eq!(ours([&vec![]]), allowed);
    assert_eq!(ours([&vec![3, 1]]), [1, 3]);
    assert_eq!(ours([&vec![70], &vec![70]]), [70]);
    let mut both = [allowed, vec![4_000]].concat();
    both.sort_unstable();
    assert_eq!(ours([&vec![4_000], &vec![]]), both);
}

#[test]
fn what_cannot_be_seen_is_absent_and_not_zero() {
    let mut hidden = books(vec![]);
    hidden.complete = false;
    let accounts = hidden.accounts(
        &Entry::default(),
        &Entry::default(),
        &Known::default(),
        Sums::default(),
    );
    assert_eq!((accounts.others_s, accounts.whole_s), (None, None));
    assert_eq!((accounts.server_s, accounts.waited_s), (None, None));
    assert_eq!((accounts.stolen_s, accounts.unexplained_s), (None, None));
}
