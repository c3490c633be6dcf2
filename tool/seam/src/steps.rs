//! Acquisitions in several messages: the part that all wires of such services share.

use crate::CallError;
use crate::wire::{Answer, Decoded, Reply, wrong_kind};

/// A frame and the bytes it takes; None while it is not whole.
pub type Framed<F> = Result<Option<(F, usize)>, CallError>;

/// A wire with one outstanding request, which may receive unsolicited messages between the
/// answers.
pub trait Steps {
    /// An answer or a message.
    type Frame<'a>;

    /// The number of answers, to requests that nobody waits for, that precede the awaited
    /// answer.
    fn unheeded(&self) -> usize {
        0
    }

    /// Whether a frame answers a request; else it is a message.
    fn is_answer(_frame: &Self::Frame<'_>) -> bool {
        true
    }

    /// The frame that `input` begins with.
    fn frame<'a>(input: &'a [u8], call: &'static str) -> Framed<Self::Frame<'a>>;

    /// Takes note of a frame, whether it is awaited or not.
    fn note(&mut self, _frame: &Self::Frame<'_>) -> Result<(), CallError> {
        Ok(())
    }

    /// Whether a frame is the awaited one. A message that follows the answer is for later;
    /// an answer without a request is an error.
    fn awaits(&self, frame: &Self::Frame<'_>) -> Result<bool, CallError>;

    /// The name of what is awaited.
    fn call(&self) -> &'static str;

    /// Interprets an awaited frame for the attempt.
    fn goes_on(&mut self, frame: &Self::Frame<'_>) -> Result<Answer, CallError>;

    /// The attempt is over: nothing is awaited.
    fn rest(&mut self);
}

/// All received bytes, once they contain the awaited frame.
pub fn decode<'a, S: Steps>(steps: &S, input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let (mut rest, mut is_there) = (input, false);
    let mut unheeded = steps.unheeded();
    while !rest.is_empty() {
        let Some((frame, length)) = S::frame(rest, call)? else {
            return Ok(None);
        };
        rest = &rest[length..];
        match unheeded > 0 && S::is_answer(&frame) {
            true => unheeded -= 1,
            false => is_there |= steps.awaits(&frame)?,
        }
    }
    Ok(is_there.then_some((Reply::Text(input), input.len())))
}

/// The awaited frame among those received; None if it has not arrived.
fn awaited<'a, S: Steps>(
    steps: &mut S,
    frames: &mut &'a [u8],
    unheeded: &mut usize,
) -> Result<Option<S::Frame<'a>>, CallError> {
    while let Some((frame, length)) = S::frame(frames, steps.call())? {
        *frames = &frames[length..];
        if *unheeded > 0 && S::is_answer(&frame) {
            *unheeded -= 1;
            continue;
        }
        steps.note(&frame)?;
        if steps.awaits(&frame)? {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

/// The effect of all received frames on the attempt; `call` is its name.
pub fn acquired<S: Steps>(
    steps: &mut S,
    reply: Reply<'_>,
    call: &'static str,
) -> Result<Answer, CallError> {
    let Reply::Text(mut frames) = reply else {
        return Err(wrong_kind(call));
    };
    let (mut answer, mut unheeded) = (Answer::Pending, steps.unheeded());
    // The message that the answer allows may already follow it.
    while let Some(frame) = awaited(steps, &mut frames, &mut unheeded)? {
        answer = steps.goes_on(&frame)?;
        if answer != Answer::Pending {
            steps.rest();
        }
    }
    Ok(answer)
}

/// The answer to a release, which the received frames contain.
///
/// # Errors
/// EPROTO if they do not, or have a second one.
pub fn released<'a, S: Steps>(
    steps: &mut S,
    reply: Reply<'a>,
    call: &'static str,
) -> Result<S::Frame<'a>, CallError> {
    let Reply::Text(mut frames) = reply else {
        return Err(wrong_kind(call));
    };
    let mut unheeded = steps.unheeded();
    let frame = awaited(steps, &mut frames, &mut unheeded)?;
    steps.rest();
    // A second answer is an error.
    awaited(steps, &mut frames, &mut unheeded)?;
    frame.ok_or_else(|| wrong_kind(call))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `m`: a message; `g`: grants; `?`: not whole; any other: an answer.
    #[derive(Default)]
    struct Letters {
        asked: bool,
        unheeded: usize,
        seen: Vec<u8>,
        rests: usize,
    }

    impl Steps for Letters {
        type Frame<'a> = u8;

        fn unheeded(&self) -> usize {
            self.unheeded
        }

        fn is_answer(frame: &u8) -> bool {
            *frame != b'm'
        }

        fn frame(input: &[u8], _call: &'static str) -> Framed<u8> {
            let first = input.first().filter(|letter| **letter != b'?');
            Ok(first.map(|letter| (*letter, 1)))
        }

        fn awaits(&self, frame: &u8) -> Result<bool, CallError> {
            match (*frame, self.asked) {
                (b'm', _) => Ok(false),
                (_, true) => Ok(true),
                (_, false) => Err(wrong_kind("letters")),
            }
        }

        fn call(&self) -> &'static str {
            "letters"
        }

        fn goes_on(&mut self, frame: &u8) -> Result<Answer, CallError> {
            self.seen.push(*frame);
            match *frame {
                b'g' => Ok(Answer::Granted),
                _ => Ok(Answer::Pending),
            }
        }

        fn rest(&mut self) {
            self.rests += 1;
            self.asked = false;
        }
    }

    fn letters(asked: bool) -> Letters {
        Letters {
            asked,
            ..Letters::default()
        }
    }

    #[test]
    fn all_that_came_is_one_reply_once_what_is_awaited_is_there() {
        let length = |asked, input: &[u8]| {
            let whole = decode(&letters(asked), input, "letters").map_err(|error| error.call);
            whole.map(|whole| whole.map(|(_, length)| length))
        };
        assert_eq!(length(true, b"a"), Ok(Some(1)));
        assert_eq!(length(true, b"am"), Ok(Some(2)));
        assert_eq!(length(true, b"a?"), Ok(None));
        assert_eq!(length(false, b"mm"), Ok(None));
        assert_eq!(length(true, b""), Ok(None));
        assert_eq!(length(false, b"a"), Err("letters"));
    }

    #[test]
    fn answers_that_nobody_waits_for_come_first_and_are_passed_over() {
        let mut steps = letters(true);
        steps.unheeded = 2;
        // Messages between them are none of them.
        let length = |input: &[u8]| {
            let whole = decode(&steps, input, "letters").map_err(|error| error.call);
            whole.map(|whole| whole.map(|(_, length)| length))
        };
        assert_eq!(length(b"amb"), Ok(None));
        assert_eq!(length(b"ambg"), Ok(Some(4)));
        let answer = acquired(&mut steps, Reply::Text(b"ambg"), "letters");
        assert_eq!(answer.unwrap(), Answer::Granted);
        assert_eq!(&*steps.seen, b"g");
        // With nothing asked for they are no error either, and one more is.
        let mut steps = letters(false);
        steps.unheeded = 1;
        assert!(matches!(decode(&steps, b"a", "letters"), Ok(None)));
        assert!(decode(&steps, b"ab", "letters").is_err());
        let mut steps = letters(true);
        steps.unheeded = 1;
        assert_eq!(
            released(&mut steps, Reply::Text(b"amb"), "letters").ok(),
            Some(b'b')
        );
    }

    #[test]
    fn frames_are_followed_until_none_is_left_that_is_awaited() {
        let mut steps = letters(true);
        let answer = acquired(&mut steps, Reply::Text(b"abmgmm"), "letters");
        assert_eq!(answer.unwrap(), Answer::Granted);
        assert_eq!((&*steps.seen, steps.rests), (&b"abg"[..], 1));
        assert!(acquired(&mut steps, Reply::Nil, "letters").is_err());
    }

    #[test]
    fn a_release_has_one_answer() {
        let released = |input| released(&mut letters(true), Reply::Text(input), "letters");
        assert_eq!(released(b"ma").ok(), Some(b'a'));
        assert!(released(b"m").is_err());
        assert!(released(b"aa").is_err());
    }
}
