//! Lua's patterns (reference manual, 6.4.1), matched under a budget.
//!
//! The interpreter's own matcher is a C function that no hook interrupts, and
//! `(".-"):rep(20)` keeps it busy for years: so procedures get this one, which
//! asks its caller every few thousand steps whether to go on. The tests compare
//! it with the original.

/// Captures at most.
const CAPTURES: usize = 32;
/// How deep it may recurse.
const DEPTH: u32 = 200;
/// Steps between two calls of `go_on`.
const STEPS: usize = 4096;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The pattern makes no sense; why.
    Malformed(&'static str),
    /// The caller stopped the search.
    Stopped,
}

/// The text that one pair of parentheses caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// A part of the subject.
    Part {
        /// Its first byte.
        start: usize,
        /// The byte behind its last.
        end: usize,
    },
    /// `()`: a place in the subject, counted from 0.
    Place(usize),
    /// Still open.
    Open(usize),
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// Its first byte.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
    /// The captures; empty if the pattern has no parentheses.
    pub captures: Vec<Capture>,
}

/// A subject and a pattern.
pub(crate) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    go_on: &'a dyn Fn() -> bool,
    /// Steps until the next call of `go_on`.
    left: usize,
    depth: u32,
    captures: Vec<Capture>,
}

type Found = Result<Option<usize>, PatternError>;

fn malformed<T>(why: &'static str) -> Result<T, PatternError> {
    Err(PatternError::Malformed(why))
}

impl<'a> Matcher<'a> {
    /// `go_on` is called now and then; `false` ends the search.
    pub(crate) fn new(
        subject: &'a [u8],
        pattern: &'a [u8],
        go_on: &'a dyn Fn() -> bool,
    ) -> Matcher<'a> {
        Matcher {
            subject,
            pattern,
            go_on,
            left: STEPS,
            depth: 0,
            captures: Vec::new(),
        }
    }

    /// The first match that starts at `from` or later (exactly there if
    /// `anchored`, or with a leading `^` where `caret` allows it), and does not
    /// end at `not_end`.
    ///
    /// # Errors
    /// [`PatternError`].
    pub(crate) fn search(
        &mut self,
        from: usize,
        caret: bool,
        not_end: Option<usize>,
    ) -> Result<Option<Match>, PatternError> {
        let anchored = caret && self.pattern.first() == Some(&b'^');
        let mut start = from;
        while start <= self.subject.len() {
            self.captures.clear();
            let end = self.matches(start, usize::from(anchored))?;
            if let Some(end) = end.filter(|end| Some(*end) != not_end) {
                return self.found(start, end).map(Some);
            }
            if anchored {
                break;
            }
            start += 1;
        }
        Ok(None)
    }

    fn found(&self, start: usize, end: usize) -> Result<Match, PatternError> {
        let open = |capture: &Capture| matches!(capture, Capture::Open(_));
        if self.captures.iter().any(open) {
            return malformed("unfinished capture");
        }
        let captures = self.captures.clone();
        Ok(Match {
            start,
            end,
            captures,
        })
    }

    fn step(&mut self) -> Result<(), PatternError> {
        self.steps(1)
    }

    /// So many at once may be more than are left.
    fn steps(&mut self, steps: usize) -> Result<(), PatternError> {
        if self.left > steps {
            self.left -= steps;
            return Ok(());
        }
        self.left = STEPS;
        match (self.go_on)() {
            true => Ok(()),
            false => Err(PatternError::Stopped),
        }
    }

    /// The end of a match of the pattern's rest from `p` that starts at `s`.
    fn matches(&mut self, s: usize, p: usize) -> Found {
        self.depth += 1;
        if self.depth > DEPTH {
            return malformed("pattern too complex");
        }
        let end = self.run(s, p);
        self.depth -= 1;
        end
    }

    fn run(&mut self, mut s: usize, mut p: usize) -> Found {
        loop {
            self.step()?;
            match self.pattern.get(p) {
                None => return Ok(Some(s)),
                Some(b'(') if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.capture(Capture::Place(s), s, p + 2);
                }
                Some(b'(') => return self.capture(Capture::Open(s), s, p + 1),
                Some(b')') => return self.close(s, p + 1),
                Some(b'$') if p + 1 == self.pattern.len() => {
                    return Ok((s == self.subject.len()).then_some(s));
                }
                Some(b'%') if self.is_special(p + 1) => match self.special(s, p)? {
                    Some(next) => (s, p) = next,
                    None => return Ok(None),
                },
                Some(_) => {
                    let next = self.class_end(p)?;
                    // Each look at a set, here and in `single`, may go through all of it.
                    self.steps((next - p) / 4)?;
                    match self.pattern.get(next) {
                        Some(b'?') => {
                            if self.single(s, p, next)
                                && let Some(end) = self.matches(s + 1, next + 1)?
                            {
                                return Ok(Some(end));
                            }
                            p = next + 1;
                        }
                        Some(b'+') if self.single(s, p, next) => {
                            return self.most(s, 1, p, next);
                        }
                        Some(b'+') => return Ok(None),
                        Some(b'*') => return self.most(s, 0, p, next),
                        Some(b'-') => return self.least(s, p, next),
                        _ if !self.single(s, p, next) => return Ok(None),
                        _ => (s, p) = (s + 1, next),
                    }
                }
            }
        }
    }

    fn is_special(&self, p: usize) -> bool {
        matches!(self.pattern.get(p), Some(b'b' | b'f' | b'0'..=b'9'))
    }

    /// `%b`, `%f` and `%1`: where subject and pattern go on.
    fn special(&mut self, s: usize, p: usize) -> Result<Option<(usize, usize)>, PatternError> {
        match self.pattern[p + 1] {
            b'b' => Ok(self.balance(s, p + 2)?.map(|end| (end, p + 4))),
            b'f' => {
                if self.pattern.get(p + 2) != Some(&b'[') {
                    return malformed("missing '[' after '%f' in pattern");
                }
                let end = self.class_end(p + 2)?;
                self.steps((end - p) / 4)?;
                let before = s.checked_sub(1).map_or(0, |before| self.subject[before]);
                let here = self.subject.get(s).copied().unwrap_or(0);
                let edge =
                    !self.in_set(before, p + 2, end - 1) && self.in_set(here, p + 2, end - 1);
                Ok(edge.then_some((s, end)))
            }
            digit => {
                let index = usize::from(digit).checked_sub(usize::from(b'1'));
                let (start, end) = match index.and_then(|index| self.captures.get(index)) {
                    Some(Capture::Part { start, end }) => (start, end),
                    // A position has no text that could come again.
                    Some(Capture::Place(_)) => return Ok(None),
                    Some(Capture::Open(_)) | None => return malformed("invalid capture index"),
                };
                let part = &self.subject[*start..*end];
                let (same, length) = (self.subject[s..].starts_with(part), part.len());
                self.steps(length / 64)?;
                Ok(same.then_some((s + length, p + 2)))
            }
        }
    }

    fn balance(&mut self, s: usize, p: usize) -> Found {
        let (Some(&opening), Some(&closing)) = (self.pattern.get(p), self.pattern.get(p + 1))
        else {
            return malformed("malformed pattern (missing arguments to '%b')");
        };
        if self.subject.get(s) != Some(&opening) {
            return Ok(None);
        }
        let mut open = 1;
        for at in s + 1..self.subject.len() {
            self.step()?;
            // The closing one first, in case they are the same.
            if self.subject[at] == closing {
                open -= 1;
                if open == 0 {
                    return Ok(Some(at + 1));
                }
            } else if self.subject[at] == opening {
                open += 1;
            }
        }
        Ok(None)
    }

    fn capture(&mut self, capture: Capture, s: usize, p: usize) -> Found {
        if self.captures.len() >= CAPTURES {
            return malformed("too many captures");
        }
        let known = self.captures.len();
        self.captures.push(capture);
        let end = self.matches(s, p)?;
        if end.is_none() {
            self.captures.truncate(known);
        }
        Ok(end)
    }

    fn close(&mut self, s: usize, p: usize) -> Found {
        let open = |capture: &Capture| matches!(capture, Capture::Open(_));
        let Some(index) = self.captures.iter().rposition(open) else {
            return malformed("invalid pattern capture");
        };
        let before = self.captures[index];
        if let Capture::Open(start) = before {
            self.captures[index] = Capture::Part { start, end: s };
        }
        let end = self.matches(s, p)?;
        if end.is_none() {
            self.captures[index] = before;
        }
        Ok(end)
    }

    /// As many as there are, then fewer.
    fn most(&mut self, s: usize, least: usize, p: usize, next: usize) -> Found {
        let mut count = least;
        while self.single(s + count, p, next) {
            self.steps(1 + (next - p) / 4)?;
            count += 1;
        }
        loop {
            if let Some(end) = self.matches(s + count, next + 1)? {
                return Ok(Some(end));
            }
            if count == least {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few as will do.
    fn least(&mut self, mut s: usize, p: usize, next: usize) -> Found {
        loop {
            if let Some(end) = self.matches(s, next + 1)? {
                return Ok(Some(end));
            }
            if !self.single(s, p, next) {
                return Ok(None);
            }
            self.steps((next - p) / 4)?;
            s += 1;
        }
    }

    /// The place behind the single-character class at `p`.
    fn class_end(&self, p: usize) -> Result<usize, PatternError> {
        match self.pattern[p] {
            b'%' if p + 1 >= self.pattern.len() => malformed("malformed pattern (ends with '%')"),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // A `]` in the first place stands for itself.
                loop {
                    let Some(byte) = self.pattern.get(at) else {
                        return malformed("malformed pattern (missing ']')");
                    };
                    at += if *byte == b'%' { 2 } else { 1 };
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn single(&self, s: usize, p: usize, next: usize) -> bool {
        let Some(&byte) = self.subject.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, next - 1),
            plain => plain == byte,
        }
    }

    /// Whether a byte is in the set that opens at `p` and closes at `end`.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut at = p + 1;
        let negated = self.pattern[at] == b'^';
        if negated {
            at += 1;
        }
        while at < end {
            let found;
            if self.pattern[at] == b'%' {
                found = in_class(byte, self.pattern[at + 1]);
                at += 2;
            } else if at + 2 < end && self.pattern[at + 1] == b'-' {
                found = (self.pattern[at]..=self.pattern[at + 2]).contains(&byte);
                at += 3;
            } else {
                found = self.pattern[at] == byte;
                at += 1;
            }
            if found {
                return !negated;
            }
        }
        negated
    }
}

/// The classes of the "C" locale, in which the engine runs.
fn in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        // isspace(3) knows the vertical tab.
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        // Older than zeros in patterns, and still understood.
        b'z' => byte == 0,
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlua::{Lua, Value, Variadic};
    use proptest::prelude::*;

    /// The result of the interpreter's own matcher: places from 1, captures. (Only its
    /// `find` takes a pattern without special characters as plain text, and counts a
    /// lone `)` as such a pattern.)
    fn original(lua: &Lua, subject: &[u8], pattern: &[u8]) -> Result<Vec<String>, String> {
        let plain = !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte));
        let code = if plain {
            "return function(s, p) return string.match(s, '()' .. p .. '()') end"
        } else {
            "return string.find"
        };
        let find: mlua::Function = lua.load(code).eval().unwrap();
        let subject = lua.create_string(subject).unwrap();
        let pattern = lua.create_string(pattern).unwrap();
        let found: mlua::Result<Variadic<Value>> = find.call((subject, pattern));
        let text = |value: &Value| match value {
            Value::String(text) => format!("{:?}", text.as_bytes()),
            Value::Integer(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        match found {
            Ok(values) if values[0].is_nil() => Ok(Vec::new()),
            Ok(values) if plain => {
                let places = values.iter().map(|value| value.as_integer().unwrap());
                let ends = places
                    .enumerate()
                    .map(|(index, place)| place - index as i64);
                Ok(ends.map(|end| end.to_string()).collect())
            }
            Ok(values) => Ok(values.iter().map(text).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn ours(subject: &[u8], pattern: &[u8]) -> Result<Vec<String>, PatternError> {
        let found = Matcher::new(subject, pattern, &|| true).search(0, true, None)?;
        let Some(found) = found else {
            return Ok(Vec::new());
        };
        let mut values = vec![(found.start + 1).to_string(), found.end.to_string()];
        values.extend(found.captures.iter().map(|capture| match *capture {
            Capture::Part { start, end } => format!("{:?}", &subject[start..end]),
            Capture::Place(place) => (place + 1).to_string(),
            Capture::Open(_) => unreachable!("checked"),
        }));
        Ok(values)
    }

    #[track_caller]
    fn same(lua: &Lua, subject: &[u8], pattern: &[u8]) {
        let shown = || format!("{} ~ {}", subject.escape_ascii(), pattern.escape_ascii());
        match (ours(subject, pattern), original(lua, subject, pattern)) {
            (Ok(ours), Ok(original)) => assert_eq!(ours, original, "{}", shown()),
            (Err(PatternError::Malformed(why)), Err(original)) => {
                assert!(original.contains(why), "{}: {why}, {original}", shown());
            }
            (ours, original) => panic!("{}: {ours:?}, {original:?}", shown()),
        }
    }

    #[test]
    fn patterns_match_as_the_interpreters_own() {
        let lua = Lua::new();
        for (subject, patterns) in [
            ("", &["", "^", "$", "^$", ".", "()", "%f[%w]"][..]),
            (
                "hello world from lua",
                &[
                    "o",
                    "l+",
                    "wor",
                    "^h",
                    "^w",
                    "a$",
                    "(%w+) (%w+)",
                    "()ll()",
                    "%f[%w]%w+",
                    "[^%s]+$",
                    "h?e",
                    "x?h",
                    "z*",
                    "lo-",
                    "l-o",
                    ".-o",
                    "(h)(e)(l)%3",
                    "%b ",
                    "[a-f]+",
                    "[%a-]",
                    "[]]",
                    "[^]]",
                    "[a-]",
                    "[%-x]+",
                    "%u",
                    "%S+$",
                    "((h)e)",
                ],
            ),
            ("f(a(b)c)d", &["%b()", "%bxx", "(%b())d", "%f[(]"]),
            (
                "aaa",
                &[
                    "a-$", "(a*)(a-)", "^(a?)%1", "(a)%1%1", "%1", "(%1)", "()%1", "a()a%1", "a**",
                    "-", "+",
                ],
            ),
            (
                "key = value; k2=v2",
                &["(%w+)%s*=%s*(%w+)", "^%s*(.-)%s*$", "[%w_]+%s*;"],
            ),
            (
                "%",
                &[
                    "%%", "[%%]", "%", "[%", "[", "[a", "(", ")", "(()", "%b", "%bx", "%f", "%fx",
                ],
            ),
            ("\0a\u{b}\u{7f}", &["%z", "%c", "\0", "[\0-a]+", "%s", "%G"]),
        ] {
            for pattern in patterns {
                same(&lua, subject.as_bytes(), pattern.as_bytes());
            }
        }
        let deep = "(".repeat(33);
        same(&lua, b"a", deep.as_bytes());
        same(&lua, b"a", "a?".repeat(250).as_bytes());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn random_patterns_match_as_the_interpreters_own(
            subject in "[ab()%. ]{0,12}",
            pattern in r"(%[abswdfAB1()]|[ab.()^$\[\]*+?-]|\[[ab%]{1,3}\]|\[\^a-b\]|%b\(\)){0,7}",
        ) {
            same(&Lua::new(), subject.as_bytes(), pattern.as_bytes());
        }
    }

    #[test]
    fn a_search_without_end_is_stopped() {
        let (subject, pattern) = ("a".repeat(60), ".-".repeat(20) + "b");
        let asked = std::cell::Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() < 100
        };
        let found = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &go_on);
        let mut found = found;
        assert_eq!(found.search(0, true, None), Err(PatternError::Stopped));
        assert_eq!(asked.get(), 100);
    }

    /// The clock was read at exact multiples of 4096 steps, and comparisons that count for many
    /// jumped past them: a search ran for 5.2 s under a limit of 1 s.
    #[test]
    fn steps_that_count_for_many_are_not_jumped_past() {
        let (back, set) = ("b".repeat(65_472) + &"a".repeat(40_000), "a".repeat(2000));
        for (subject, pattern, least) in [
            (&back, "^(b*)a.-%1x".to_owned(), 40_000 * 1023 / 8192),
            (
                &set,
                format!("^[{}a]*x", "b".repeat(4096)),
                2000 * 1024 / 8192,
            ),
        ] {
            let asked = std::cell::Cell::new(0);
            let go_on = || asked.replace(asked.get() + 1) < least;
            let mut found = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &go_on);
            let found = found.search(0, true, None);
            assert_eq!(found, Err(PatternError::Stopped), "{pattern:.20}");
        }
    }
}
