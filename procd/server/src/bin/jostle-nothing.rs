//! Does nothing, built as `jostle-call` is: what a process for each call costs
//! at least, and what the thin client's cost is compared with.

#![no_main]
#![no_builtins]

use jostle_sys::bare::Start;

jostle_sys::bare_main!(nothing);

fn nothing(_: Start) -> u8 {
    0
}
