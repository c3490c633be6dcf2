//! Requests. Oracles: the outcome does not depend on where the bytes were split;
//! `needed` is more than there is and never too much; what was decoded, encoded
//! again, decodes to the same.
use jostle_resp::request::{decode, encode};
use jostle_resp::{Args, Limits, Progress, RequestError};

const LIMITS: Limits = Limits {
    args: 16,
    bytes: 512,
};

type Decoded = Result<Option<(Vec<Vec<u8>>, usize)>, RequestError>;

fn decoded(bytes: &[u8], needed: &mut usize) -> Decoded {
    let mut args = Args::new();
    Ok(match decode(bytes, LIMITS, &mut args)? {
        Progress::Complete { used } => {
            assert!(used <= bytes.len());
            Some((args.iter(bytes).map(<[u8]>::to_vec).collect(), used))
        }
        Progress::Incomplete { needed: more } => {
            assert!(more > bytes.len());
            *needed = (*needed).max(more);
            None
        }
    })
}

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let mut needed = 0;
    let whole = decoded(bytes, &mut 0);
    let split = (0..=bytes.len())
        .map(|end| (end, decoded(&bytes[..end], &mut needed)))
        .find(|(_, outcome)| *outcome != Ok(None));
    match split {
        None => assert_eq!(whole, Ok(None)),
        Some((end, outcome)) => {
            assert_eq!(whole, outcome);
            if outcome.is_ok() {
                assert!(needed <= end, "waited for {needed} bytes of {end}");
            }
        }
    }
    let args = whole.ok().flatten().map(|(args, _)| args);
    let is_whole = args.is_some();
    if let Some(args) = args.filter(|args| !args.is_empty()) {
        let borrowed: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let mut again = Vec::new();
        encode(&mut again, &borrowed);
        if again.len() <= LIMITS.bytes {
            assert_eq!(decoded(&again, &mut 0), Ok(Some((args, again.len()))));
        }
    }
    is_whole
}
