//! Replies. Oracles: the outcome does not depend on where the bytes were split;
//! the framer, which counts, and the tree, which nests, agree on where a reply
//! ends.
#![no_main]

use jostle_resp::Value;
use jostle_resp::token::Framer;
use jostle_resp::value::ValueLimits;
use libfuzzer_sys::fuzz_target;

const LIMITS: ValueLimits = ValueLimits { bulk: 256, depth: 64 };

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

fuzz_target!(|bytes: &[u8]| {
    let whole = Value::decode(bytes, LIMITS);
    let split = (0..=bytes.len())
        .map(|end| Value::decode(&bytes[..end], LIMITS))
        .find(|outcome| *outcome != Ok(None))
        .unwrap_or(Ok(None));
    // By their print: NaN is not equal to itself.
    assert_eq!(format!("{whole:?}"), format!("{split:?}"));
    if let Ok(Some((_, used))) = whole {
        assert_eq!(end_by_framer(bytes), Some(used));
    }
});
