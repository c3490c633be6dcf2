//! The recipe of `zookeeper` on a real server, which counts the packets that it receives
//! and sends.

use crate::common::{LOOK, block, settles, until};
use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::remote::RemoteLock;
use jostle_targets::wire::Wire;
use jostle_targets::zookeeper::{Launch, Zookeeper};
use jostle_targets::{Lock, Mode, Outcome, Setup, Target, Wait};
use jostle_testbed::lock_servers as servers;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const GRANTED: Result<Outcome, jostle_targets::CallError> = Ok(Outcome::Granted);

/// A server of one test alone, for nobody else may be counted.
struct Server {
    address: String,
    /// How often it was asked for its counts, which counts too.
    asked: AtomicI64,
}

impl Server {
    fn start(tick_ms: u64) -> Server {
        // The shortest session lasts two ticks.
        let alone = Launch::members(1, Duration::from_millis(2 * tick_ms))
            .unwrap()
            .remove(0);
        let launched = servers::followed(&alone).unwrap();
        Server {
            address: launched.address,
            asked: AtomicI64::new(0),
        }
    }

    /// Packets that it has received, and sent.
    fn packets(&self) -> [i64; 2] {
        self.asked.fetch_add(1, Relaxed);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"srvr").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        ["Received: ", "Sent: "].map(|name| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)).unwrap();
            value.parse().unwrap()
        })
    }

    /// Packets that it receives and sends from now on, without those of [`Self::packets`].
    ///
    /// The server writes an answer first and counts it afterwards, so that a client may look
    /// too early. Therefore the counts must first stand still for ten looks.
    fn since_now(&self) -> impl Fn() -> [i64; 2] {
        let steps = |[a, b]: [[i64; 2]; 2]| [0, 1].map(|side| b[side] - a[side]);
        let mut before = self.packets();
        // What a look itself adds, and how many looks in a row added the same.
        let (mut look, mut alike) = ([0, 0], 0);
        let start = Instant::now();
        while alike < 10 {
            assert!(start.elapsed() < Duration::from_secs(120), "never at rest");
            std::thread::sleep(LOOK);
            let now = self.packets();
            let step = steps([before, now]);
            alike = if step == look { alike + 1 } else { 0 };
            (before, look) = (now, step);
        }
        let asked = self.asked.load(Relaxed);
        move || {
            let packets = self.packets();
            let looks = self.asked.load(Relaxed) - asked;
            [0, 1].map(|side| packets[side] - before[side] - looks * look[side])
        }
    }

    fn prepare(&self, ledger: &Ledger) -> Zookeeper {
        // A server that is down stands before it: the next one is taken.
        let argument = format!("//127.0.0.1:1,{}", self.address);
        let setup = Setup {
            argument: Some(&argument),
            ..servers::setup(ledger, 3)
        };
        Zookeeper::prepare(&setup).unwrap()
    }
}

fn acquire<W: Wire>(lock: &mut RemoteLock<W>, wait: Wait) -> Result<Outcome, String> {
    let acquired = lock.acquire(0, Mode::Exclusive, wait);
    acquired.map_err(|error| error.to_string())
}

#[test]
fn each_acquisition_makes_as_many_round_trips_as_the_recipe_says() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    // A session that needs no ping on a busy machine: it would be counted.
    let server = Server::start(9_990);
    let target = server.prepare(&ledger);
    let (mut one, mut two) = (target.join(0).unwrap(), target.join(1).unwrap());

    // One running sum: an answer that is counted late cannot fall into the next count.
    let since = server.since_now();

    // Free: create, list; delete.
    for _ in 0..20 {
        assert_eq!(one.acquire(0, Mode::Exclusive, block()), GRANTED);
        one.release(0, Mode::Exclusive).unwrap();
    }
    settles(&[60, 60], &since);

    // Taken, and not waited for: create, list, delete, after the owner's create and list.
    assert_eq!(one.acquire(0, Mode::Exclusive, block()), GRANTED);
    assert_eq!(acquire(&mut two, Wait::Try), Ok(Outcome::Refused));
    settles(&[65, 65], &since);

    // Taken: create, list, read the one before with a watch; its event; list; delete. The
    // owner's delete comes on top.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let granted = acquire(&mut two, block());
            granted.map(|_| two.release(0, Mode::Exclusive))
        });
        until(&[68, 68], &since);
        one.release(0, Mode::Exclusive).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(Ok(())));
    });
    settles(&[71, 72], &since);
    ledger.sweep().unwrap();
}

#[test]
fn a_timeout_takes_the_request_back_and_nothing_is_left_of_a_run() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let server = Server::start(1_980);
    let target = server.prepare(&ledger);
    let locks = [0, 1, 2].map(|worker| target.join(worker).unwrap());
    let [mut owner, mut late, mut next] = locks;
    assert_eq!(acquire(&mut owner, block()), Ok(Outcome::Granted));
    let soon = Wait::Until(monotonic() + 30_000_000);
    assert_eq!(acquire(&mut late, soon), Ok(Outcome::Refused));
    owner.release(0, Mode::Exclusive).unwrap();
    // Its node would stand before this one's; and the event of its watch is no answer.
    assert_eq!(acquire(&mut next, Wait::Try), Ok(Outcome::Granted));
    assert!(next.token() > owner.token(), "{next:?}");
    next.release(0, Mode::Exclusive).unwrap();
    assert_eq!(acquire(&mut late, Wait::Try), Ok(Outcome::Granted));
    // It ends its session, and with it goes what it owns.
    late.part().unwrap();
    let start = Instant::now();
    while acquire(&mut next, Wait::Try) != Ok(Outcome::Granted) {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(20));
    }
    target.remove_leftovers().unwrap();
    // The node has gone with its parent.
    let lost = next.release(0, Mode::Exclusive).unwrap_err().to_string();
    assert!(lost.contains("before the release"), "{lost}");
    // The parent is made again where the server has removed it.
    assert_eq!(acquire(&mut next, Wait::Try), Ok(Outcome::Granted));
    next.release(0, Mode::Exclusive).unwrap();
    target.remove_leftovers().unwrap();
    ledger.sweep().unwrap();
}
