//! Procedures that call one library function with long, many or odd arguments, once or without
//! end. The oracle: none takes the thread's CPU for more than `GRACE` beyond the time limit, in
//! three attempts (wall time would report what other programs do).
//!
//! The first byte chooses the time limit, the others the call and its arguments.

use jostle_procd::lua::{Limits, run_once};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The engine's promise.
const GRACE: Duration = Duration::from_millis(50);

/// Where each call is made with: texts `s` and `j` (JSON), a pattern `p`, a table `t`, and for
/// `N` and `*` a number and all elements of the table.
const CALLS: &str = "
s:find(p); s:find(s, N, true); s:find(s .. 'x', 1, true); s:match(p, N); s:gsub(p, s)
s:gsub(p, t); s:gsub(p, tostring, N); s:gsub('', s); for _ in s:gmatch(p) do end
s:rep(N); s:rep(N, s); s:format(*); p:format(s, N, s); ('%99.99f%q%s'):format(N, s, s)
('%99.99f'):rep(N):format(*); s:byte(N, N); s:byte(1, -1); string.char(*); s:lower(); s:upper()
s:reverse(); s:sub(N, N); s:len(); table.concat(t, s); table.concat(t, s, N, N)
table.sort(t); table.sort(t, rawequal); table.sort(t, function() return s < s .. 'a' end)
table.unpack(t); table.unpack(t, N, N); table.pack(*); table.insert(t, N, s)
table.insert(t, 1, N); table.remove(t, N); table.remove(t, 1); table.move(t, N, N, N)
table.move(t, 1, #t, N, {}); utf8.len(s); utf8.len(s, N, N, true); utf8.char(*)
utf8.codepoint(s, 1, -1); utf8.offset(s, N); utf8.offset(s, N, N); for _ in utf8.codes(s) do end
json.decode(j); json.decode(s); tonumber(s); tonumber(s, 36); tostring(s); math.max(*)
math.min(*); math.floor(s); math.fmod(s, s); math.random(s); math.tointeger(s); select(s, *)
select('#', *); select(N, *); print(*); print(s); error(s); assert(N, *); next(t); rawlen(t)
rawequal(s, s .. ''); rawget(t, s); pcall(error, s); xpcall(error, tostring, s); log(s)
setmetatable(t, {__index = t}); spool.read(s); exit(s); ipairs(t); math.randomseed(N, s)
type(s); s = s .. s; t[1] = s < s .. 'a'; t[1] = s | 0; t[1] = s + 1; t[1] = -s
t[s .. 'a'] = 1; t[1] = #t; t[1] = {*}; t = {}; t[#t + 1] = {}";

const UNITS: &str = r" |a|b|0|0.|%|%d|%5.1s|\0|\xff|é|(|\n|-1e308|[|[0,|aab";
const COUNTS: &str = "0|1|-1|60|999|300000|262080|1e6|4e6|7.9e6|1e18|-1e18|2^53|0/0";
const PIECES: &str =
    "^|$|(|)|()|.|.-|.*|a|a-|a*|b*|b?|%1|%b()|%f[a]|%s*|[a-z]|[^b]|[^%s]*|x|%d|%s|%q|[|]|%5.1s";
const ELEMENTS: &str = "i|i + 0.1|s|tostring(i)|{}|-i|65|i % 7";
const JSON: &str = r#"[|{"a":|1,|null,|"x",|1e999,|[],|{},|{"a":[1]},"#;

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        self.0.next().copied().unwrap_or(0).into()
    }

    fn one_of(&mut self, words: &'static str) -> &'static str {
        let count = words.split('|').count();
        words.split('|').nth(self.next() % count).unwrap_or("")
    }

    fn procedure(&mut self) -> String {
        let calls: Vec<&str> = CALLS.trim().split(['\n', ';']).collect();
        let at = self.next() % calls.len();
        let mut call = calls[at].replace('*', "table.unpack(t)");
        while call.contains('N') {
            call = call.replacen('N', self.one_of(COUNTS), 1);
        }
        let (unit, times) = (self.one_of(UNITS), self.one_of(COUNTS));
        let (tail, tails) = (self.one_of(UNITS), self.one_of(COUNTS));
        let (element, size) = (self.one_of(ELEMENTS), self.one_of(COUNTS));
        let (json, nested) = (self.one_of(JSON), self.one_of(COUNTS));
        let call = match self.next() % 2 {
            0 => format!("while true do pcall(function() {call} end) end"),
            _ => call,
        };
        let pieces: String = (0..self.next() % 24).map(|_| self.one_of(PIECES)).collect();
        format!(
            "local s, p = ('{unit}'):rep({times}) .. ('{tail}'):rep({tails}), '{pieces}'
             local j, t = '[' .. ('{json}'):rep({nested}) .. '0]', {{}}
             for i = 1, math.min({size}, 4e5) do t[i] = {element} end
             {call}"
        )
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// True if the procedure compiles.
///
/// # Panics
/// It took more CPU time than it may.
pub fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes(data.iter());
    let limits = Limits {
        time: Duration::from_millis([100, 400][bytes.next() % 2]),
        memory: 16 << 20,
        output: 64 << 10,
    };
    let source = bytes.procedure();
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let started = cpu_time();
        let compiles = run_once(source.as_bytes(), limits);
        least = least.min(cpu_time() - started);
        if least <= limits.time + GRACE {
            return compiles;
        }
    }
    panic!("{least:?} with {limits:?}:\n{source}");
}
