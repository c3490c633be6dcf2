//! Jostle without MPI when a launcher has started several of it. With MPI: `tool/mpi/tests`.

use std::process::{Command, Output, Stdio};

const JOSTLE: &str = env!("CARGO_BIN_EXE_jostle");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As rank so-and-so of three, by what a launcher sets.
fn as_rank(rank: usize, line: &str) -> Output {
    Command::new(JOSTLE)
        .args(line.split_whitespace())
        .env("OMPI_COMM_WORLD_RANK", rank.to_string())
        .env("OMPI_COMM_WORLD_SIZE", "3")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn what_ranks_do_not_measure_together_is_said_once() {
    for (line, code) in [("targets", 0), ("contend --nosuch", 2)] {
        let (first, other) = (as_rank(0, line), as_rank(2, line));
        assert_eq!(first.status.code(), Some(code), "{line}");
        // Its launcher would end the first before that has spoken.
        assert_eq!(other.status.code(), Some(0), "{line}");
        let said = |output: &Output| output.stdout.len() + output.stderr.len();
        assert!(said(&first) > 0, "{line}");
        assert_eq!(said(&other), 0, "{line}");
    }
}

#[test]
fn a_build_without_mpi_refuses_to_be_several_ranks_and_says_so_once() {
    let line = "contend null -w 1 -t 0.1 --runs 1";
    let (first, other) = (as_rank(0, line), as_rank(1, line));
    let said = text(&first.stderr);
    assert!(
        said.contains("started 3 ranks, and this jostle was built without MPI")
            && said.contains("-p jostle-mpi")
            && said.contains("libopenmpi-dev"),
        "{said}"
    );
    assert_eq!(
        (first.status.code(), other.status.code()),
        (Some(1), Some(0))
    );
    assert_eq!(
        (text(&first.stdout), text(&other.stdout)),
        Default::default()
    );
    assert_eq!(text(&other.stderr), "");
}
