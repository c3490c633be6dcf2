//! Replies. Oracles: the outcome does not depend on where the bytes were split;
//! the framer, which counts, and the tree, which nests, agree on where a reply
//! ends.
use jostle_resp::Value;
use jostle_resp::token::Framer;
use jostle_resp::value::ValueLimits;

const LIMITS: ValueLimits = ValueLimits {
    bulk: 256,
    depth: 64,
};

fn end_by_framer(bytes: &[u8]) -> Option<usize> {
    let mut framer = Framer::default();
    let mut at = 0;
    loop {
        let (_, used, whole) = framer.step(&bytes[at..], LIMITS.bulk).ok()??;
        at += used;
        if whole {
            return Some(at);
        }
    }
}

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let whole = Value::decode(bytes, LIMITS);
    let split = (0..=bytes.len())
        .map(|end| Value::decode(&bytes[..end], LIMITS))
        .find(|outcome| *outcome != Ok(None))
        .unwrap_or(Ok(None));
    // By their print: NaN is not equal to itself.
    assert_eq!(format!("{whole:?}"), format!("{split:?}"));
    let end = whole.ok().flatten().map(|(_, used)| used);
    assert!(end.is_none() || end_by_framer(bytes) == end, "{end:?}");
    end.is_some()
}
