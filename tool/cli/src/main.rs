//! The `jostle` binary; all of it is in the library beside it, so that fuzzers can
//! read command lines and plans without starting anything.

use std::process::ExitCode;

fn main() -> ExitCode {
    jostle_cli::main()
}
