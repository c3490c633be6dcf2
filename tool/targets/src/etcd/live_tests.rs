use super::*;
use jostle_etcd::fake::{self, Calls, Says};
use jostle_etcd::messages::{Header, ResponseOp};
use prost::Message;
use std::sync::mpsc::Receiver;
use std::time::Instant;

fn message(message: &impl Message) -> Says {
    Says::Message(message.encode_to_vec())
}

fn kept(ttl_s: i64) -> Says {
    message(&KeepAliveResponse { id: 7, ttl_s })
}

/// Our key has been put, and an older one is there.
fn second() -> Says {
    let elder = KeyValue {
        key: b"elder".to_vec(),
        create_revision: 3,
        ..KeyValue::default()
    };
    let found = RangeResponse {
        kvs: vec![elder],
        ..RangeResponse::default()
    };
    message(&TxnResponse {
        header: Some(Header {
            revision: 5,
            ..Header::default()
        }),
        succeeded: true,
        responses: vec![
            ResponseOp { range: None },
            ResponseOp { range: Some(found) },
        ],
    })
}

/// A session with such a lease, at a server that answers so. The paths of the calls.
fn session(ttl_s: i64, says: fn(&str) -> Says) -> (EtcdLock, Receiver<String>) {
    let Calls { address, paths } = fake::answers_calls(says);
    let address = Address::Tcp(address);
    let channel = Channel::open(&address).unwrap();
    let lock = EtcdLock {
        earlier: Traffic::default(),
        before: channel.traffic(),
        is_resumed: false,
        channel,
        names: Names::of_run(7),
        lease: 7,
        keeping: Keeping::session(KEEP_ALIVE_CALL, ttl_s as u64 * 1_000_000_000),
        renewed_ns: clock::monotonic(),
        is_over: false,
        token: None,
        place: None,
    };
    (lock, paths)
}

fn age(lock: &mut EtcdLock, age_ms: u64) {
    lock.renewed_ns = clock::monotonic().saturating_sub(age_ms * 1_000_000);
}

#[test]
fn a_slow_answer_renews_while_the_lease_lives() {
    // Slower than the time after which the next renewal is due.
    let (mut lock, _paths) = session(60, |_| {
        Says::Later(Duration::from_millis(1_200), Box::new(kept(60)))
    });
    lock.keeping.every_ns = 1_000_000_000;
    age(&mut lock, 1_001);
    let before = clock::monotonic();
    assert_eq!(lock.renew_in_time(), Ok(()));
    assert!(lock.renewed_ns >= before);
}

#[test]
fn a_lease_that_is_over_is_told_from_a_silent_server() {
    let (mut lock, _paths) = session(60, |_| kept(0));
    age(&mut lock, 61_000);
    assert_eq!(lock.renew_in_time(), Err(LEASE_OVER));
}

#[test]
fn a_watch_ends_when_the_next_renewal_is_due() {
    let (mut lock, _paths) = session(60, |_| Says::Nothing);
    let wait = Wait::Block {
        last_resort_ns: u64::MAX,
    };
    // Soon, and by now.
    for aged in [19_800, 20_000] {
        age(&mut lock, aged);
        let start = Instant::now();
        let seen = lock.watch(b"elder".to_vec(), 5, wait).unwrap();
        assert!(seen.is_none());
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn a_failed_wait_takes_its_key_out_of_the_queue() {
    let wait = Wait::Block {
        last_resort_ns: u64::MAX,
    };
    let refusing: fn(&str) -> Says = |path| match path {
        TXN => second(),
        RANGE => Says::Status(14, "no leader"),
        _ => message(&DeleteRangeResponse { deleted: 1 }),
    };
    // The second server does not let the key be deleted either.
    let broken: fn(&str) -> Says = |path| match path {
        TXN => second(),
        RANGE => Says::Status(14, "no leader"),
        _ => Says::Status(14, "not now"),
    };
    for says in [refusing, broken] {
        let (mut lock, paths) = session(60, says);
        let error = lock.acquire(0, Mode::Exclusive, wait).unwrap_err();
        assert_eq!(error.call, "Range");
        assert!(error.said.unwrap_or_default().contains("no leader"));
        let asked: Vec<String> = paths.try_iter().collect();
        assert_eq!(asked, [TXN, RANGE, DELETE_RANGE]);
    }
}
