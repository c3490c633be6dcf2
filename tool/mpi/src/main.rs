//! The `jostle-mpi` binary: jostle, with the link of the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    jostle_cli::main_of_ranks(jostle_mpi::join)
}
