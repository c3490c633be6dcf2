//! The options of `jostle judge`.

use super::seconds;
use clap::Args;
use jostle_judge::Reach;
use jostle_model::judged::Limit;
use jostle_model::{Nanos, ServerAt};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "The command runs unmodified, with its own input and output. The report follows on stderr.\n\
    Exit codes: 3 the generator was at its limit (with --require: something else was); 1 nothing to judge, or the command failed.\n\
    Examples: jostle judge -- redis-benchmark -c 50 -n 1000000 -t get\n\
    \u{20}         jostle judge --double -- wrk -t2 -c{50} -d5s http://127.0.0.1:8080/"
)]
pub(crate) struct Judge {
    /// The load generator with its arguments; for --double, put one number in braces: -c {50}
    #[arg(
        required_unless_present = "watch_server",
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<String>,
    /// The server, if the command's connections do not show it: :PORT, pid:N, unix:PATH, cgroup:PATH
    #[arg(long, value_name = "WHICH")]
    pub server: Option<ServerAt>,
    /// Start the server by this command before each run, wait until it listens, and end it after the run
    #[arg(long, value_name = "SERVER")]
    pub start_server: Option<String>,
    /// Also watch the server on its machine, by ssh ([USER@]HOST) or where --watch-server listens (tcp:HOST:PORT)
    #[arg(long, value_name = "HOST")]
    pub server_host: Option<Reach>,
    /// Copy this program to the server's machine for the time of the run
    #[arg(long, requires = "server_host")]
    pub copy_binary: bool,
    /// The token of both sides of tcp:HOST:PORT, in a file of mode 600
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Run no command: watch a server of this machine for a judge elsewhere, on standard input (-) or at ADDRESS:PORT
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["command", "server_host"])]
    pub watch_server: Option<String>,
    /// Time between two looks; longer where a look costs more than 0.2 % of it
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = seconds)]
    pub every: Nanos,
    /// Run the command with the number in braces and with twice that, in interleaved pairs
    #[arg(long)]
    pub double: bool,
    /// Run one copy of the command and N copies at the same time, in interleaved pairs
    #[arg(long, value_name = "N", conflicts_with = "double", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub copies: Option<u32>,
    /// Pairs of --double or --copies [default: 6, and 9 or 12 where these do not decide]
    #[arg(long, value_name = "PAIRS")]
    pub repeat: Option<u32>,
    /// Also write the result file, a record for each run
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the result file if it exists
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// Also write a page with the time series for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Exit with 3 unless this was at its limit: server, generator, machine, path
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    pub require: Option<Limit>,
    /// How to print the report: text, json (the records), markdown
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "markdown"])]
    pub format: String,
    /// Do not touch the command's output; for full-screen programs
    #[arg(long)]
    pub no_parse: bool,
    /// Do not print the report
    #[arg(short, long)]
    pub quiet: bool,
}

/// As records name it.
fn limit(word: &str) -> Result<Limit, String> {
    let found = serde_json::from_value(word.into());
    // The error lists the limits that there are.
    found.map_err(|error| error.to_string())
}
