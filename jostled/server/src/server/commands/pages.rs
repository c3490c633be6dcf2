//! Replies in pages: `CURSOR c [MATCH pattern] [COUNT n]`, and the bounds of replies
//! that are not paged.

use jostle_resp::{Writer, parse_u64};

use super::call::Call;
use crate::glob::Pattern;

/// Rows that are shown at most.
pub(super) const SHOWN_MAX: usize = 1000;
/// Rows of a page that names no COUNT.
const COUNT: usize = 100;
/// Bytes of rows, after which a page ends however few they are.
pub(super) const REPLY_BYTES: usize = 512 << 10;
/// The budget of a walk, in slots visited: some hundred microseconds for a page, some
/// milliseconds for a reply that must be complete.
const WALK_PAGE: u64 = 1 << 14;
pub(super) const WALK_AT_ONCE: u64 = 1 << 18;
/// Bytes of the patterns, or of the names, of one request.
pub(super) const PATTERN_MAX: usize = 1024;
/// Steps of matching that cost as much as a slot visited.
const STEPS: u64 = 16;

/// A pattern, if it is short enough.
pub(super) fn pattern(text: &[u8]) -> Result<Pattern, &'static str> {
    match text.len() <= PATTERN_MAX {
        true => Ok(Pattern::new(text)),
        false => Err("ERR a pattern has at most 1024 bytes"),
    }
}

/// Whether a pattern, if there is one, matches, and what that has cost, in slots visited.
pub(super) fn cost(pattern: Option<&Pattern>, name: &[u8]) -> (bool, u64) {
    let mut steps = 0;
    let matches = pattern.is_none_or(|pattern| pattern.matches_within(name, &mut steps));
    (matches, steps / STEPS)
}

/// A part of a list.
pub(super) struct Page {
    /// Where the page begins; `None`: the reply is not a page but complete.
    pub(super) cursor: Option<u64>,
    /// Rows at most.
    pub(super) count: usize,
    /// The budget of the walk that finds the rows.
    pub(super) budget: u64,
}

impl Page {
    /// Begins the reply, if it is a page: the next one's cursor, 0 at the end. The rows follow.
    pub(super) fn begin(&self, reply: &mut Writer<'_>, next: Option<u64>) {
        if self.cursor.is_some() {
            reply.array(2);
            reply.bulk(next.unwrap_or(0).to_string().as_bytes());
        }
    }
}

/// The part of a list that a command asks for.
pub(super) struct Paging {
    pub(super) pattern: Option<Pattern>,
    pub(super) page: Page,
}

impl Paging {
    /// Parses the options from `index` on, if there are any; without, as many rows as are shown.
    pub(super) fn or_all(call: &Call<'_>, index: usize) -> Result<Self, String> {
        match Self::read(call, index)? {
            Some(paging) => Ok(paging),
            None if call.args.len() > index => Err(call.wrong_word(index)),
            None => Ok(Self {
                pattern: None,
                page: Page {
                    cursor: None,
                    count: SHOWN_MAX,
                    budget: u64::MAX,
                },
            }),
        }
    }

    /// Parses the options from `index` on; `None` unless CURSOR and at least one more
    /// argument stand there.
    pub(super) fn read(call: &Call<'_>, index: usize) -> Result<Option<Self>, String> {
        let begins = call.arg(index).eq_ignore_ascii_case(b"CURSOR");
        if !begins || call.args.len() < index + 2 {
            return Ok(None);
        }
        let cursor = parse_u64(call.arg(index + 1)).ok_or("ERR invalid cursor")?;
        let (mut count, mut pattern) = (COUNT, None);
        let mut at = index + 2;
        while at < call.args.len() {
            let (word, value) = (call.arg(at), call.arg(at + 1));
            if at + 1 == call.args.len() {
                return Err(call.wrong_word(at));
            }
            if word.eq_ignore_ascii_case(b"COUNT") {
                let number = parse_u64(value).filter(|n| (1..=SHOWN_MAX as u64).contains(n));
                count = number.ok_or("ERR COUNT is 1 to 1000")? as usize;
            } else if word.eq_ignore_ascii_case(b"MATCH") {
                pattern = Some(self::pattern(value)?);
            } else {
                return Err(call.wrong_word(at));
            }
            at += 2;
        }
        let page = Page {
            cursor: Some(cursor),
            count,
            budget: WALK_PAGE,
        };
        Ok(Some(Self { pattern, page }))
    }
}
