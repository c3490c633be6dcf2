//! The options of requests: of `jostle call`, and of `jostle stream` where its
//! target answers requests.

use super::{Counted, Output, seconds};
use clap::Args;
use jostle_model::plan::{Connection, Plan, Workload};
use jostle_model::{List, Nanos};

// clap takes `{n}` in a help text for a line break. The empty style within it keeps clap
// from seeing it, and is left out where the text is no terminal's.

/// How many numbers `{n}` runs over.
const NUMBERS: &str =
    "{\u{1b}[0mn} counts so many numbers, again and again [default: all requests]";

/// Below the help of `call`.
const PLACES: &str = "\
COMMAND is one word for the shell, and is split as a shell would; {\u{1b}[0mn} and {worker} in it
are the number of the call and of the worker. `jostle call 'ls /tmp'` is the same as
`jostle stream 'exec:ls /tmp'`. Lists: 100:1000:10000, 1k..1Mx10.";

/// What there is to say about requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Requests")]
pub struct Asked {
    /// Codes that are a success, such as 0:3; any other is an error [default: the target's]
    #[arg(long, value_name = "LIST")]
    pub expect: Option<List>,
    /// How long one may take; bare numbers are seconds [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub call_timeout: Option<Nanos>,
    /// Append the output of commands to this file [default: to nowhere]
    #[arg(long, value_name = "FILE")]
    pub command_output: Option<String>,
    /// A target that does nothing, measured beside; or none [default: exec:true, of commands]
    #[arg(long, value_name = "TARGET")]
    pub null: Option<String>,
    #[arg(long, value_name = "N", help = NUMBERS)]
    pub numbers: Option<u64>,
    /// each: a connection for each request; keep: one for each worker [default: the target's]
    #[arg(long, value_name = "WHICH")]
    pub connection: Option<Connection>,
    /// Name in its first line, password in its second [default: of the environment, or anonymous]
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<String>,
    /// Count in this log what the server did, instead of asking it
    #[arg(long, value_name = "FILE")]
    pub server_log: Option<String>,
}

impl Asked {
    /// The plan with these options.
    pub fn apply(&self, plan: Plan) -> Plan {
        Plan {
            expect: self.expect.clone(),
            call_timeout: self.call_timeout,
            command_output: self.command_output.clone(),
            null: self.null.clone(),
            numbers: self.numbers,
            connection: self.connection,
            credentials: self.credentials.clone(),
            server_log: self.server_log.clone(),
            ..plan
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub struct Call {
    /// What to start, such as 'grep -q x /etc/passwd'; several stand side by side
    #[arg(value_name = "COMMAND", required = true)]
    pub commands: Vec<String>,
    /// Calls of each worker, a list [default: 100:1000]
    #[arg(short = 'n', long, value_name = "LIST")]
    pub operations: Option<List>,
    /// Workers that call at the same time, a list [default: 1]
    #[arg(short, long, value_name = "LIST")]
    pub workers: Option<List>,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub counted: Counted,
    #[command(flatten)]
    pub output: Output,
}

impl Call {
    /// The plan as typed, with the numbers of calls that one waits for.
    pub fn plan(&self) -> Plan {
        let list = |typed: &Option<List>, usual: &[u64]| {
            let typed = typed.clone();
            Some(typed.unwrap_or_else(|| List(usual.to_vec())))
        };
        let commands = self.commands.iter();
        self.asked.apply(Plan {
            targets: commands.map(|command| format!("exec:{command}")).collect(),
            operations: list(&self.operations, &[100, 1_000]),
            workers: list(&self.workers, &[1]),
            ..self.counted.plan(Workload::Stream)
        })
    }
}
