use super::*;
use crate::names::BYTES;

/// A reply, or an event.
fn framed(xid: i32, zxid: i64, error: i32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    jute::framed(&mut out, |out| {
        jute::int(out, xid);
        out.extend_from_slice(&zxid.to_be_bytes());
        jute::int(out, error);
        fill(out);
    });
    out
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    jute::sized(out, |out| out.extend_from_slice(text));
}

fn created(xid: i32, sequence: u32) -> Vec<u8> {
    framed(xid, 40, 0, |out| {
        text(out, format!("/x/_c_guid-lock-{sequence:010}").as_bytes());
    })
}

fn listed(xid: i32, sequences: &[u32]) -> Vec<u8> {
    framed(xid, 0, 0, |out| {
        jute::int(out, sequences.len() as i32);
        for sequence in sequences {
            text(out, format!("_c_{sequence}-lock-{sequence:010}").as_bytes());
        }
    })
}

fn failed(xid: i32, error: i32) -> Vec<u8> {
    framed(xid, 0, error, |_| {})
}

fn gone(path: &[u8]) -> Vec<u8> {
    framed(EVENT, -1, 0, |out| {
        const DELETED: i32 = 2;
        const CONNECTED: i32 = 3;
        jute::int(out, DELETED);
        jute::int(out, CONNECTED);
        text(out, path);
    })
}

fn asking(asking: Asking) -> ZookeeperWire {
    let place = tempfile::tempdir().unwrap();
    let ledger = jostle_sys::ledger::Ledger::create_in(place.path()).unwrap();
    let setup = crate::Setup {
        argument: None,
        ledger: &ledger,
        workers: 1,
        keys: 1,
        carrier: jostle_model::plan::Carrier::Threads,
        range: jostle_model::plan::Range::Same,
        open_each: false,
        slots: 1,
        members: 1,
        wait_replicas: 0,
        holds_many: false,
        kept: false,
        stays: false,
        lease: None,
        common_name: Some(7),
        shared: false,
        timed: false,
        credentials: None,
        seed: 7,
        launcher: &Nobody,
    };
    let names = Names::new(&setup).unwrap();
    let session = Identity {
        id: 9,
        ..Identity::default()
    };
    let mut wire = ZookeeperWire::new(names, 1, (session, 3_000_000), None);
    wire.acquire(0, Mode::Exclusive, asking, &mut Vec::new());
    wire
}

#[derive(Debug)]
struct Nobody;

impl crate::Launcher for Nobody {
    fn launch(&self, _server: &str) -> Result<String, crate::SetupError> {
        Err(crate::SetupError(String::new()))
    }
    fn follow(
        &self,
        _recipe: &dyn crate::program::LaunchRecipe,
    ) -> Result<crate::program::Launched, crate::SetupError> {
        Err(crate::SetupError(String::new()))
    }
    fn answering_program(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The wire's answer to some bytes; None where more are needed. The type of the request that
/// follows, 0 for none.
fn hears(wire: &mut ZookeeperWire, input: &[u8]) -> Result<Option<(Answer, i32)>, CallError> {
    let Some((reply, length)) = wire.decode(input, "x")? else {
        return Ok(None);
    };
    assert_eq!(length, input.len());
    let answer = wire.acquired(0, reply)?;
    let mut out = Vec::new();
    wire.go_on(&mut out);
    let kind = Reader(out.get(8..).unwrap_or_default()).int();
    Ok(Some((answer, kind.unwrap_or(0))))
}

#[test]
fn a_name_is_as_long_as_curator_s() {
    let wire = asking(Asking::Block);
    let mut path = Vec::new();
    wire.own(0, &mut path);
    const UUID: usize = 36;
    assert_eq!(
        path.len(),
        1 + BYTES + "/_c_-lock-".len() + UUID + DIGITS,
        "{}",
        String::from_utf8_lossy(&path)
    );
}

#[test]
fn a_waiter_watches_the_node_before_its_own_and_lists_again() {
    let pending = |kind| Ok(Some((Answer::Pending, kind)));
    let mut wire = asking(Asking::Block);
    assert_eq!(hears(&mut wire, &created(1, 12)), pending(op::GET_CHILDREN));
    // Not in order, with another recipe's node among them.
    let listing = listed(2, &[12, 3, 11, 15]);
    assert_eq!(hears(&mut wire, &listing), pending(op::GET_DATA));
    assert!(wire.elder.ends_with(b"_c_11-lock-0000000011"));
    let elder = wire.elder.clone();
    // An answer to a ping and an event that nobody waits for are no answer.
    let news = [failed(PING, 0), gone(b"/other")].concat();
    assert_eq!(hears(&mut wire, &news), Ok(None));
    // The event comes with the answer that set the watch.
    let both = [news, failed(3, 0), gone(&elder)].concat();
    for cut in 0..both.len() {
        let heard = wire.decode(&both[..cut], "x");
        assert!(matches!(heard, Ok(None | Some(_))), "{cut}");
    }
    assert_eq!(hears(&mut wire, &both), pending(op::GET_CHILDREN));
    // Another one was killed meanwhile: the one before that is gone, too.
    assert_eq!(
        hears(&mut wire, &listed(4, &[12, 3])),
        pending(op::GET_DATA)
    );
    let gone_already = failed(5, error::NO_NODE);
    assert_eq!(hears(&mut wire, &gone_already), pending(op::GET_CHILDREN));
    let heard = hears(&mut wire, &listed(6, &[15, 12]));
    assert_eq!(heard, Ok(Some((Answer::Granted, 0))));
    assert_eq!(wire.token, 40);
}

#[test]
fn a_waiter_whose_session_was_taken_up_again_has_its_node_already() {
    let next = |wire: &mut ZookeeperWire| {
        let mut out = Vec::new();
        wire.acquire(0, Mode::Exclusive, Asking::Block, &mut out);
        Reader(&out[8..]).int()
    };
    let mut wire = asking(Asking::Block);
    hears(&mut wire, &created(1, 12)).unwrap();
    wire.xid = 0;
    assert_eq!(next(&mut wire), Some(op::GET_CHILDREN));
    assert_eq!(
        hears(&mut wire, &listed(1, &[12])),
        Ok(Some((Answer::Granted, 0)))
    );
    // The attempt is over, and the next one has a node of its own.
    assert_eq!(next(&mut wire), Some(op::CREATE));
}

/// A node whose creation was made and not answered would block the lock until the session
/// ends.
#[test]
fn a_node_that_was_made_without_an_answer_is_removed_when_it_is_seen() {
    let pending = |kind| Ok(Some((Answer::Pending, kind)));
    let mut wire = asking(Asking::Block);
    let mut own = Vec::new();
    wire.own(0, &mut own);
    let stem = own[..own.len() - DIGITS].to_vec();
    wire.doubt = Some(State::Creating);
    let mut out = Vec::new();
    wire.acquire(0, Mode::Exclusive, Asking::Block, &mut out);
    let again = out.windows(stem.len()).any(|part| part == stem);
    assert!(again, "by the same name");
    assert_eq!(hears(&mut wire, &created(2, 12)), pending(op::GET_CHILDREN));
    let name = stem.rsplit(|byte| *byte == b'/').next().unwrap();
    let both = |xid, sequences: &[u32]| {
        framed(xid, 0, 0, |out| {
            jute::int(out, sequences.len() as i32);
            for sequence in sequences {
                text(out, &[name, format!("{sequence:010}").as_bytes()].concat());
            }
        })
    };
    let listing = both(3, &[11, 12]);
    let (reply, _) = wire.decode(&listing, "x").unwrap().unwrap();
    assert_eq!(wire.acquired(0, reply), Ok(Answer::Pending));
    out.clear();
    wire.go_on(&mut out);
    let eleventh = [&stem[..], b"0000000011"].concat();
    assert!(out.windows(eleventh.len()).any(|part| part == eleventh));
    assert_eq!(hears(&mut wire, &failed(4, 0)), pending(op::GET_CHILDREN));
    let granted = hears(&mut wire, &both(5, &[12]));
    assert_eq!(granted, Ok(Some((Answer::Granted, 0))));
    assert_eq!(wire.doubt, None);
}

#[test]
fn a_release_that_was_made_without_an_answer_is_one_where_the_session_lives() {
    for (doubt, expected) in [(None, Err(LOST)), (Some(State::Releasing), Ok(()))] {
        let mut wire = asking(Asking::Block);
        hears(&mut wire, &created(1, 12)).unwrap();
        hears(&mut wire, &listed(2, &[12])).unwrap();
        wire.doubt = doubt;
        wire.release(0, Mode::Exclusive, &mut Vec::new());
        let gone = failed(3, error::NO_NODE);
        let (reply, _) = wire.decode(&gone, "x").unwrap().unwrap();
        assert_eq!(wire.released(reply), expected);
    }
}

#[test]
fn a_parent_that_the_server_removed_is_made_again() {
    let pending = |kind| Ok(Some((Answer::Pending, kind)));
    let mut wire = asking(Asking::Block);
    let no_node = failed(1, error::NO_NODE);
    assert_eq!(hears(&mut wire, &no_node), pending(op::CREATE_CONTAINER));
    let exists = failed(2, error::NODE_EXISTS);
    assert_eq!(hears(&mut wire, &exists), pending(op::CREATE));
    assert_eq!(hears(&mut wire, &created(3, 1)), pending(op::GET_CHILDREN));
}

#[test]
fn who_gives_up_takes_its_node_away() {
    let pending = |kind| Ok(Some((Answer::Pending, kind)));
    // Cases: a try that finds another node; a wait that timed out; the end of the run,
    // even if the lock was granted just then.
    let mut wire = asking(Asking::Try);
    assert_eq!(hears(&mut wire, &created(1, 2)), pending(op::GET_CHILDREN));
    assert_eq!(hears(&mut wire, &listed(2, &[1, 2])), pending(op::DELETE));
    let left = hears(&mut wire, &failed(3, 0));
    assert_eq!(left, Ok(Some((Answer::Taken, 0))));

    let mut wire = asking(Asking::Until(clock::monotonic() + 1));
    hears(&mut wire, &created(1, 2)).unwrap();
    assert_eq!(hears(&mut wire, &listed(2, &[1, 2])), pending(op::DELETE));

    let mut wire = asking(Asking::Block);
    let mut out = Vec::new();
    wire.give_up(&mut out);
    assert!(out.is_empty(), "its node is not there yet");
    assert_eq!(hears(&mut wire, &created(1, 2)), pending(op::DELETE));
    assert_eq!(
        hears(&mut wire, &failed(2, error::NO_NODE)),
        Ok(Some((Answer::Taken, 0)))
    );
}

#[test]
fn what_is_amiss_is_an_error_with_its_reason() {
    let says = |error: CallError| error.said.unwrap_or_default();
    let after = |frame: &[u8]| {
        let mut wire = asking(Asking::Block);
        hears(&mut wire, &created(1, 5)).unwrap();
        says(hears(&mut wire, frame).unwrap_err())
    };
    // Our node is gone; the server says so itself; an answer to
    // nothing; one that is cut off.
    assert!(after(&listed(2, &[4, 6])).contains("our node was gone"));
    assert!(after(&failed(2, error::EXPIRED)).contains("expired"));
    assert_eq!(after(&listed(9, &[5])), surplus::SAID);
    let twice = [listed(2, &[5]), listed(2, &[5])].concat();
    assert_eq!(after(&twice), surplus::SAID);
    let cut = framed(2, 0, 0, |out| jute::int(out, 7));
    assert!(after(&cut).contains("another kind"));
}

#[test]
fn a_server_that_answers_no_ping_is_given_up() {
    let mut wire = asking(Asking::Block);
    assert_eq!(wire.patience_ns(), Some(1_000_000));
    let mut out = Vec::new();
    for _ in 0..PINGS {
        out.clear();
        assert_eq!(wire.due(&mut out), Ok(()));
        assert_eq!(out[4..], [255, 255, 255, 254, 0, 0, 0, 11]);
    }
    assert_eq!(wire.due(&mut out), Err(SILENT));
}

#[test]
fn a_waiter_whose_pings_are_answered_waits_on() {
    let mut wire = asking(Asking::Block);
    for answer in [created(1, 12), listed(2, &[12, 11]), failed(3, 0)] {
        hears(&mut wire, &answer).unwrap();
    }
    assert_eq!(wire.state, State::Watching);
    // The answers stay in the input until what is awaited comes.
    let (mut input, mut out) = (Vec::new(), Vec::new());
    for nth in 0..10 {
        assert_eq!(wire.due(&mut out), Ok(()), "{nth}");
        input.extend_from_slice(&failed(PING, 0));
        assert_eq!(hears(&mut wire, &input), Ok(None));
    }
    for _ in 0..PINGS {
        assert_eq!(wire.due(&mut out), Ok(()));
    }
    assert_eq!(wire.due(&mut out), Err(SILENT));
}
