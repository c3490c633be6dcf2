//! `jostle judge`: runs a foreign load generator, watches it, and reports the bottleneck on
//! stderr. Standard output belongs to the command.

use crate::args::{Judge, Report};
use crate::html::{self, Page};
use crate::measure::rfc3339;
use crate::messages::{say_if_taken, write_result};
use crate::signals::Signals;
use crate::{COMMIT, Failure, VERSION, messages, print, shown, told};
use anyhow::{Context, anyhow};
use jostle_engine::environment::environment;
use jostle_engine::experiment::exit;
use jostle_engine::keeper;
use jostle_judge::{Order, Reach, Remote, watch};
use jostle_model::ServerAt;
use jostle_model::judged::{Doubled, Limit, Peer, StartedBy, Turn, Watched};
use jostle_model::record::Record;
use jostle_report::Writer;
use jostle_report::judged::{self, Judgements};
use jostle_stats::judge::{Run, is_open, looks, settle};
use jostle_sys::limits::Machine;
use jostle_sys::serving::{Address, is_served};
use jostle_sys::spawn;
use std::time::SystemTime;

/// Pairs, at most.
const MOST_PAIRS: u32 = 1_000;

/// The shortest interval between two looks, in nanoseconds: threads' clocks advance in
/// ticks of up to 10 ms.
const SHORTEST_NS: u64 = 10_000_000;

/// Runs the command and returns the exit code.
///
/// # Errors
/// What is impossible, before anything has started; that the command could not be
/// started, or its guard was killed.
pub(crate) fn judge(args: &Judge) -> Result<u8, Failure> {
    let token = args.token_file.as_deref().map(jostle_judge::token);
    let token = token.transpose().map_err(Failure::Usage)?;
    let build = jostle_judge::build(VERSION, COMMIT);
    if let Some(at) = &args.watch_server {
        return watch_server(at, token.as_deref(), &build);
    }
    let remote = args.server_host.clone().map(|at| Remote {
        at,
        copies: args.copy_binary,
        token,
        build,
    });
    check_remote(args, remote.as_ref())?;
    let words = jostle_judge::words(&args.command);
    let turns = turns(args, &words)?;
    if args.every.0 < SHORTEST_NS {
        return Err(Failure::Usage("--every: give at least 10ms".to_owned()));
    }
    let start_server = server_words(args)?;
    match &args.server {
        Some(named) if start_server.is_some() => agrees(named)?,
        Some(named) if remote.is_none() => keeper::check_server(named).map_err(Failure::Usage)?,
        _ => {}
    }
    for words in [Some(&words), start_server.as_ref()].into_iter().flatten() {
        let program = words.first().map_or("", String::as_str);
        spawn::find(program).with_context(|| {
            format!("cannot start {program}; check its name and PATH, or name its whole path")
        })?;
    }
    let open = |path: &std::path::Path| Writer::create(path, args.overwrite);
    let (writer, page) = html::reserve_both(args.output.as_deref(), &open, args.html.as_deref())?;
    // Until the last run, because each one forks.
    messages::hold();
    let mut bench = Bench {
        args,
        words,
        start_server,
        remote,
        signals: Signals::listen().context("cannot listen to signals")?,
        writer,
        found: Judgements::default(),
    };
    let done = bench.run(&turns);
    let done = done.and_then(|code| bench.settle(code));
    both(done, bench.show(page))
}

/// Watches a server of this machine for a judge elsewhere.
fn watch_server(at: &str, token: Option<&[u8]>, build: &str) -> Result<u8, Failure> {
    if at == "-" {
        let attended = jostle_judge::attend_here(build);
        attended.context("the session of the judge elsewhere ended early")?;
        return Ok(exit::DONE);
    }
    let listener = jostle_judge::listen(at, token.is_some()).map_err(Failure::Usage)?;
    let address = listener.local_addr().context("cannot listen")?;
    messages::say(format!(
        "jostle: watching for one judge at a time at {address}\n"
    ));
    jostle_judge::serve(&listener, token, build);
    Ok(exit::DONE)
}

/// Options that a second machine does not go with, or that need one.
fn check_remote(args: &Judge, remote: Option<&Remote>) -> Result<(), Failure> {
    let is_tcp = remote.is_some_and(|remote| matches!(remote.at, Reach::Tcp(_)));
    let problem = match &args.server {
        Some(named) if remote.is_some() && !matches!(named, ServerAt::Port(_)) => {
            "--server names a port on the --server-host: write :PORT"
        }
        _ if args.copy_binary && is_tcp => "--copy-binary needs a --server-host reached by ssh",
        _ if args.token_file.is_some() && !is_tcp => {
            "--token-file belongs to --server-host tcp:HOST:PORT, or to --watch-server ADDRESS:PORT"
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(problem.to_owned()))
}

/// The error of what was done before that of showing it. Where there are both, the second
/// is printed here.
fn both(done: Result<u8, Failure>, shown: Result<(), Failure>) -> Result<u8, Failure> {
    match (done, shown) {
        (done, Ok(())) => done,
        (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(second)) => {
            told(Err(second));
            Err(first)
        }
    }
}

/// The words of `--start-server`.
fn server_words(args: &Judge) -> Result<Option<Vec<String>>, Failure> {
    let words = args.start_server.as_ref();
    let words = words.map(|line| jostle_judge::words(std::slice::from_ref(line)));
    match words.as_deref() {
        Some([line]) if line.trim().is_empty() || line.contains(' ') => {
            Err(Failure::Usage(format!(
                "--start-server '{line}': give the command that starts the server, quoted as for a \
                 shell, such as --start-server 'nginx -c FILE'"
            )))
        }
        _ => Ok(words),
    }
}

/// Whether a server that is started by us can be named so.
fn agrees(named: &ServerAt) -> Result<(), Failure> {
    let address = match named {
        ServerAt::Port(port) => Address::Port(*port),
        ServerAt::Unix(path) => Address::Unix(path.clone()),
        _ => {
            return Err(Failure::Usage(format!(
                "--server {named}: --start-server starts another process in each run; name its \
                 :PORT or unix:PATH, or leave --server out"
            )));
        }
    };
    match is_served(&address) {
        true => Err(Failure::Usage(format!(
            "--server {named}: somebody listens there before --start-server has started anything; \
             end that server (ss -ltnp), or leave --start-server out"
        ))),
        false => Ok(()),
    }
}

/// The runs to make: one, or pairs.
fn turns(args: &Judge, words: &[String]) -> Result<Vec<Option<Turn>>, Failure> {
    if !args.double && args.copies.is_none() {
        return match args.repeat {
            Some(_) => Err(Failure::Usage(
                "--repeat needs --double or --copies".to_owned(),
            )),
            None => Ok(vec![None]),
        };
    }
    let loads = match args.copies {
        Some(copies) => [1, copies.into()],
        None => braces(words)?,
    };
    let most = looks().max().unwrap_or(0) as u32;
    let pairs = args.repeat.unwrap_or(most);
    if pairs == 0 || pairs > MOST_PAIRS {
        return Err(Failure::Usage(format!("--repeat takes 1 to {MOST_PAIRS}")));
    }
    let turn = |block: u32, doubled: bool| Turn {
        block: block.into(),
        load: loads[usize::from(doubled)],
        doubled,
        copies: args.copies.is_some(),
    };
    // Every second pair is in reverse order, so that a drift of the machine affects both
    // loads alike.
    let pairs = (1..=pairs).flat_map(|block| {
        let first = block % 2 == 0;
        [turn(block, first), turn(block, !first)]
    });
    Ok(pairs.map(Some).collect())
}

/// The number in the braces of `--double`, and its double.
fn braces(words: &[String]) -> Result<[u64; 2], Failure> {
    let loads = words.iter().filter_map(|word| braced(word));
    match loads.map(|(_, load, _)| load).collect::<Vec<u64>>()[..] {
        [load] if load > 0 && load <= u64::from(u32::MAX) => Ok([load, 2 * load]),
        _ => Err(Failure::Usage(
            "--double: put the number of connections in braces, once, such as -c {50}; it is at \
             least 1"
                .to_owned(),
        )),
    }
}

/// The command so many times at the same time: it fails if one of them does.
fn copied(words: &[String], copies: u64) -> Vec<String> {
    const SCRIPT: &str = "n=$1; shift; all=; failed=0; \
        while [ $n -gt 0 ]; do \"$@\" & all=\"$all $!\"; n=$((n - 1)); done; \
        for one in $all; do wait $one || failed=$?; done; exit $failed";
    let shell = ["sh", "-c", SCRIPT, "sh"].map(str::to_owned);
    let shell = shell.into_iter().chain([copies.to_string()]);
    shell.chain(words.iter().cloned()).collect()
}

/// The text before the braces, the number in them, and the text behind.
fn braced(word: &str) -> Option<(&str, u64, &str)> {
    let (before, rest) = word.split_once('{')?;
    let (number, after) = rest.split_once('}')?;
    Some((before, number.parse().ok()?, after))
}

/// The command with this number in place of the braces.
fn filled(words: &[String], load: u64) -> Vec<String> {
    let fill = |word: &String| match braced(word) {
        Some((before, _, after)) => format!("{before}{load}{after}"),
        None => word.clone(),
    };
    words.iter().map(fill).collect()
}

struct Bench<'a> {
    args: &'a Judge,
    words: Vec<String>,
    start_server: Option<Vec<String>>,
    remote: Option<Remote>,
    signals: Signals,
    writer: Option<Writer>,
    found: Judgements,
}

impl Bench<'_> {
    /// All runs in turn, until one fails.
    fn run(&mut self, turns: &[Option<Turn>]) -> Result<u8, Failure> {
        let machine = environment(&Machine::read(), VERSION, COMMIT);
        for (nth, turn) in (1..).zip(turns) {
            if let (Some(turn), false) = (turn, self.args.quiet) {
                let what = if turn.copies { "copies" } else { "load" };
                let most = if self.args.repeat.is_some() {
                    ""
                } else {
                    "at most "
                };
                say_if_taken(&format!(
                    "jostle: run {nth} of {most}{}: {what} {}\n",
                    turns.len(),
                    turn.load
                ));
            }
            let order = Order {
                command: match turn {
                    Some(turn) if turn.copies => copied(&self.words, turn.load),
                    Some(turn) => filled(&self.words, turn.load),
                    None => self.words.clone(),
                },
                server: self.args.server.clone().or_else(|| self.judged()),
                start_server: self.start_server.clone(),
                every_ns: self.args.every.0,
                environment: machine.clone(),
                started_at: rfc3339(SystemTime::now()),
                pair: turn.clone(),
                parse: !self.args.no_parse,
                remote: self.remote.clone(),
            };
            let signals = &self.signals;
            let mut asked = || signals.exit_code().map(|code| i32::from(code) - 128);
            let watched = match watch(&order, &mut asked) {
                Ok(watched) => watched,
                // While a server was started, or its machine was being reached.
                Err(error) => match self.signals.exit_code() {
                    Some(code) => return Ok(code),
                    None => return Err(Failure::Failed(error.into())),
                },
            };
            let code = code_of(&watched, self.args.require);
            // Before it is written, because a full disk must not cost the report, too.
            self.found.watched.push(watched.clone());
            self.write(Record::Judged(Box::new(watched)))?;
            if let Some(code) = self.signals.exit_code() {
                return Ok(code);
            }
            if self.copies_its_server() {
                return Err(Failure::Failed(anyhow!(
                    "--copies: the command starts its own server, so that each copy would start \
                     another, and would show no more than that the machine has room; start the \
                     server apart, and copy the load alone: jostle judge --start-server SERVER \
                     --copies N -- LOAD"
                )));
            }
            let has_failed = code == exit::FAILED && !self.is_of_a_pair();
            if has_failed || turns.len() == 1 {
                return Ok(code);
            }
            if nth % 2 == 0 && self.is_decided(nth / 2) {
                break;
            }
        }
        Ok(exit::DONE)
    }

    fn copies_its_server(&self) -> bool {
        let own = |watched: &Watched| {
            let server = watched.server.as_ref();
            server.and_then(|side| side.started_by) == Some(StartedBy::Command)
        };
        self.args.copies.is_some() && self.found.watched.iter().any(own)
    }

    /// The server of the first run, if it listens before each run: of two servers with similar
    /// work, another could be found in each run of a pair.
    fn judged(&self) -> Option<ServerAt> {
        let first = self.found.watched.first()?;
        let traffic = first
            .traffic
            .as_ref()
            .filter(|_| first.server_at.is_some())?;
        let port = u16::try_from(traffic.port).ok()?;
        // The address would be lost by which these two are told apart.
        let is_shared = |peer: &Peer| peer.at.ends_with(&format!(":{port}"));
        let is_alone = !traffic.others.iter().any(is_shared);
        (is_alone && is_served(&Address::Port(port))).then_some(ServerAt::Port(port))
    }

    /// Whether the latest run can be compared although nothing was seen of its connections.
    fn is_of_a_pair(&self) -> bool {
        let last = self.found.watched.last();
        last.is_some_and(|last| last.exit == Some(0) && Run::from_watched(last).is_some())
    }

    /// Whether so many pairs are enough: at the [`looks`], unless `--repeat` fixes them.
    fn is_decided(&self, pairs: usize) -> bool {
        let looked = self.args.repeat.is_none() && looks().any(|look| look == pairs);
        looked && self.pairs().is_some_and(|doubled| !is_open(&doubled))
    }

    fn pairs(&self) -> Option<Doubled> {
        let runs: Vec<Run> = self
            .found
            .watched
            .iter()
            .filter_map(Run::from_watched)
            .collect();
        settle(&self.words, &runs, self.args.repeat.is_none())
    }

    /// Settles the pairs, once all of them are there.
    fn settle(&mut self, code: u8) -> Result<u8, Failure> {
        let is_pairs = self.args.double || self.args.copies.is_some();
        if !is_pairs || code != exit::DONE {
            return Ok(code);
        }
        let Some(doubled) = self.pairs() else {
            return Err(Failure::Failed(anyhow!(
                "jostle saw neither TCP connections of the command nor a rate that it printed, so it \
                 cannot compare the work; let the command use TCP and run for a second or more"
            )));
        };
        let code = exit_code(doubled.limit, self.args.require);
        self.found.doubled.push(doubled.clone());
        self.write(Record::Doubled(Box::new(doubled)))?;
        Ok(code)
    }

    fn write(&mut self, record: Record) -> Result<(), Failure> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        writer
            .write(&record)
            .map_err(|error| Failure::Failed(error.into()))
    }

    /// Prints the report: that of the run, or the result of all pairs. The result file also
    /// has the single runs.
    fn show(&self, page: Option<Page>) -> Result<(), Failure> {
        if self.found.watched.is_empty() {
            return Ok(());
        }
        let last = match &self.found.doubled[..] {
            [] => self.found.watched.last(),
            _ => None,
        };
        let shortly = Judgements {
            watched: last.cloned().into_iter().collect(),
            doubled: self.found.doubled.clone(),
            notes: Vec::new(),
        };
        let text = judged::render(&self.args.format, &shortly);
        if !self.args.quiet {
            // If stderr is closed, the error cannot be reported.
            let _ = write_result(std::io::stderr(), &shown(&text));
        }
        if let Some(page) = page {
            html::write_text(
                page,
                &jostle_report::html_of_judged(std::slice::from_ref(&self.found)),
            )?;
        }
        Ok(())
    }
}

/// The exit code of one run. A failure of the command comes first; that there is nothing to
/// judge is one too.
fn code_of(watched: &Watched, required: Option<Limit>) -> u8 {
    match (watched.exit, watched.finding.limit) {
        (Some(0), Limit::Nothing) => exit::FAILED,
        (Some(0), limit) => exit_code(limit, required),
        _ => exit::FAILED,
    }
}

/// Whether the limit is what was required; if nothing was, not the generator.
fn exit_code(limit: Limit, required: Option<Limit>) -> u8 {
    let is_good = match required {
        Some(required) => limit == required,
        None => limit != Limit::Generator,
    };
    if is_good { exit::DONE } else { exit::INVALID }
}

/// Prints results of `judge` again. `alone`: whether all the result files are such.
///
/// # Errors
/// Options that these results do not have, other results beside them, and whatever the
/// system says.
pub(crate) fn report(report: &Report, found: &[Judgements], alone: bool) -> Result<u8, Failure> {
    let refused = match () {
        () if !alone => Some("cannot stand beside others: report them alone"),
        () if report.tidy => Some("have one form of csv: leave --tidy out"),
        () if report.card.is_some() => Some("have no card; --figures writes their figures"),
        () => None,
    };
    if let Some(why) = refused {
        return Err(Failure::Usage(format!("results of `jostle judge` {why}")));
    }
    let page = html::reserve(report.html.as_deref())?;
    let texts: Vec<String> = found
        .iter()
        .map(|found| judged::render(&report.format, found))
        .collect();
    print(&texts.join("\n"))?;
    if let Some(page) = page {
        html::write_text(page, &jostle_report::html_of_judged(found))?;
    }
    let files = || jostle_report::svg_files_of_judged(found);
    crate::figures::write(report.figures.as_deref(), files)?;
    let limited = |found: &Judgements| match &found.doubled[..] {
        [] => found
            .watched
            .iter()
            .any(|watched| watched.finding.limit == Limit::Generator),
        settled => settled
            .iter()
            .any(|settled| settled.limit == Limit::Generator),
    };
    let strict = report.strict && found.iter().any(limited);
    Ok(if strict { exit::INVALID } else { exit::DONE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(command: &str, double: bool, repeat: Option<u32>) -> Judge {
        Judge {
            command: command.split(' ').map(str::to_owned).collect(),
            server: None,
            start_server: None,
            server_host: None,
            copy_binary: false,
            token_file: None,
            watch_server: None,
            every: jostle_model::Nanos(SHORTEST_NS),
            double,
            copies: None,
            repeat,
            output: None,
            overwrite: false,
            html: None,
            require: None,
            format: "text".to_owned(),
            no_parse: false,
            quiet: false,
        }
    }

    #[test]
    fn pairs_take_turns_and_the_number_in_braces_is_doubled() {
        let args = args("wrk -c{50} -d1s", true, Some(2));
        let turns = turns(&args, &args.command).ok().unwrap();
        let loads: Vec<u64> = turns.iter().flatten().map(|turn| turn.load).collect();
        assert_eq!(loads, [50, 100, 100, 50]);
        assert_eq!(filled(&args.command, 100), ["wrk", "-c100", "-d1s"]);
    }

    #[test]
    fn only_a_limit_that_was_required_passes() {
        let (server, generator) = (Limit::Server, Limit::Generator);
        let table = [
            (server, None, exit::DONE),
            (Limit::Undecided, None, exit::DONE),
            (generator, None, exit::INVALID),
            (server, Some(server), exit::DONE),
            (Limit::Undecided, Some(server), exit::INVALID),
            (generator, Some(server), exit::INVALID),
            (generator, Some(generator), exit::DONE),
        ];
        for (limit, required, code) in table {
            assert_eq!(exit_code(limit, required), code, "{limit:?}, {required:?}");
        }
        let failed = Watched {
            exit: Some(1),
            ..Watched::default()
        };
        assert_eq!(code_of(&failed, Some(Limit::Undecided)), exit::FAILED);
    }

    #[test]
    fn copies_are_pairs_of_one_command_and_several_and_only_pairs_are_repeated() {
        let mut args = args("wrk -c50", false, Some(1));
        assert!(turns(&args, &args.command).is_err());
        (args.copies, args.repeat) = (Some(2), None);
        let turns = turns(&args, &args.command).ok().unwrap();
        let loads: Vec<u64> = turns.iter().flatten().map(|turn| turn.load).collect();
        assert_eq!((turns.len(), &loads[..4]), (24, &[1, 2, 2, 1][..]));
    }

    #[test]
    fn pairs_without_one_number_are_refused() {
        for command in ["wrk -c50", "wrk -c{50} -t{2}", "wrk -c{0}", "wrk -c{many}"] {
            let args = args(command, true, None);
            assert!(turns(&args, &args.command).is_err(), "{command}");
        }
        let none = args("wrk -c{50}", true, Some(0));
        assert!(turns(&none, &none.command).is_err());
    }

    mod live_tests {
        use super::*;

        #[test]
        fn copies_print_what_each_prints_and_end_as_one_of_them() {
            let words = copied(&["sh", "-c", "echo x; exit 3"].map(str::to_owned), 2);
            let done = std::process::Command::new(&words[0])
                .args(&words[1..])
                .output()
                .unwrap();
            assert_eq!(
                (done.status.code(), &done.stdout[..]),
                (Some(3), &b"x\nx\n"[..])
            );
        }
    }
}
