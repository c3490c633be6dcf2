//! The words above columns, before lines and in sentences, each with its meaning: `jostle explain
//! WORD` prints it. Checks, causes and fields of a result file have their own tables.

/// Words, and what they mean here.
pub struct Word {
    /// As it is printed; other ways to print the same follow.
    pub names: &'static [&'static str],
    /// One or two sentences.
    pub means: &'static str,
}

/// The entries that this is a name of, or a part of one.
pub fn explained(asked: &str) -> Vec<&'static Word> {
    let asked = asked.to_lowercase();
    let asked = asked.trim();
    let is = |word: &&Word| word.names.iter().any(|name| name.to_lowercase() == asked);
    let exact: Vec<&Word> = WORDS.iter().filter(is).collect();
    if !exact.is_empty() {
        return exact;
    }
    let has = |name: &&str| {
        let name = name.to_lowercase();
        name.split([' ', '-', '/']).any(|part| part == asked)
    };
    let part = |word: &&Word| word.names.iter().any(has);
    WORDS.iter().filter(part).collect()
}

macro_rules! words {
    ($($($name:literal)|+: $means:literal;)*) => {
        /// All of them, those of columns first.
        pub static WORDS: &[Word] = &[$(Word { names: &[$($name),+], means: $means }),*];
    };
}

words! {
    // Columns.
    "target": "What was measured, as it was typed: a lock, a service, a server, a command. `jostle targets` lists all.";
    "workers": "How many processes, threads or tasks take locks or send requests at the same time. Of `stream`, in brackets: whether they share one lock or have their own.";
    "n": "Operations of each worker, or locks that each worker holds.";
    "locks/s": "Acquisitions a second of all workers together: the median over the runs.";
    "ops/s" | "operations/s": "Operations a second of all workers together: the median over the runs.";
    "requests/s" | "requests /s" | "calls/s": "Requests (or calls of a command) a second, answered: the median over the runs.";
    "±95%": "Half of the 95 % confidence interval of the median over the runs, relative to it. It takes six runs.";
    "±range": "Half of the range over the runs, relative to the median: there are too few runs for an interval.";
    "±": "Half of the interval or, in rows with under six runs, of the range, relative to the median.";
    "alone ns" | "uncontended": "Nanoseconds that one worker alone takes to acquire and release the lock, measured before the runs.";
    "without others": "Where other programs ran: the share of the time without them, of which the rate is; or between which bounds the rate would lie without them.";
    "of max" | "maximum": "The measured rate by that of a lock which costs nothing: 1 / hold, or with few workers workers / (hold + idle).";
    "idle though wanted": "Share of the time in which nobody owned the lock although a worker waited for it.";
    "longest wait": "The longest wait of any worker in any run, those included that the end of a run cut off.";
    "turns per worker" | "turns" | "per worker": "How often the workers got the lock: the fewest and the most turns, in the run of median spread.";
    "got none" | "none": "Workers that never got the lock, in the same run.";
    "CPU us /lock" | "CPU us /op" | "CPU us /req" | "CPU us /req." | "CPU us": "CPU time of the workers for each operation, waiting included, in microseconds.";
    "CPU us client" | "client": "CPU time of the client for each connection, in microseconds.";
    "server us/lock" | "server us/op" | "server us/req." | "server us" | "server" | "CPU us server": "CPU time of the server for each operation, in microseconds.";
    "round trips": "Requests and answers between a worker and its server for each lock.";
    "network B/lock": "Bytes that workers and server sent each other for each lock.";
    "mean ops/s": "The mean rate over the runs, beside the median.";
    "of echo": "The rate by that of a server which only answers, over the same kind of connection.";
    "waited": "Share of the acquisitions that found the lock taken.";
    "hand-off us" | "hand-off": "Time from one worker's release to the next one's acquisition, where that one waited: the median, in microseconds.";
    "acquire p50 us" | "acquire us" | "acquire": "Time of an acquisition, in microseconds: the median (p50), or of `churn` the mean.";
    "acquire p99 us": "99 of 100 acquisitions took at most so many microseconds.";
    "release us" | "release": "Time of a release, in microseconds.";
    "batch p50 us" | "batch": "Time of the requests that are sent together (--pipeline): the median, in microseconds.";
    "batch p99 us": "99 of 100 batches took at most so many microseconds.";
    "bytes /lock": "Memory of the server for each held lock.";
    "failed": "Requests that were not answered as expected.";
    "mean us": "Mean time of a request, in microseconds.";
    "mean p99 us": "99 of 100 requests took at most so many microseconds.";
    "less null us" | "less null": "Mean time of a request, less that of one which does nothing (--null); `unresolved` where both may be equal.";
    "CPU": "CPU time: what the workers, or the server, used for each operation.";
    "cycle us" | "cycle": "Mean time from opening a session to its end, in microseconds.";
    "cycle p99 us": "99 of 100 cycles took at most so many microseconds.";
    "open us": "Mean time to open a session, in microseconds.";
    "close us" | "close": "Time to close a session or a connection, in microseconds.";
    "session" | "close session": "Opening and closing the session, as a share of the cycle.";
    "renewals /min": "Renewals of a held lock's lease in a minute.";
    "latest by": "By how much the latest renewal came after it was due.";
    "leases ended": "Locks whose lease ended although they were still held.";
    "CPU us /min": "CPU time of the workers for each held lock in a minute, in microseconds.";
    "server us/min": "CPU time of the server for each held lock in a minute, in microseconds.";
    "less idle": "The same without what the idle server uses.";
    "server bytes": "Memory of the server for each held lock.";
    "connec- tions" | "connections": "Connections between workers and server.";
    "source addrs" | "addrs": "Source addresses that the client's connections come from.";
    "other listen" | "listen": "Other sockets that listened meanwhile.";
    "open": "Connections that were open when the figure was taken.";
    "connect p50 us" | "connect" | "connect()": "Time of one connect() with so many connections open: the median, in microseconds.";
    "connect p99 us": "99 of 100 calls of connect() took at most so many microseconds.";
    "bind p50 us" | "bind": "Time of one bind(): the median, in microseconds.";
    "last 100 us": "Median time of the last hundred connections before this number.";
    "accept us" | "accept": "Median time of accept(), in microseconds.";
    "kernel kB": "Memory that the kernel's slab caches grew by for each connection.";
    "offered /s" | "offered": "Requests a second that were due, whether or not those before were answered.";
    "done /s": "Requests a second that were answered.";
    "answered": "Share of the requests that were due and were answered within the run.";
    "response p50" | "response": "Time from when a request was due to its answer: half of them took at most so long. What it waited before it was sent is part of it.";
    "response p99": "99 of 100 responses took at most so long.";
    "queued p99" | "queued": "99 of 100 requests waited at most so long until one of the workers was free to send them.";
    "service p99" | "service": "99 of 100 requests were answered so soon after they were sent.";
    "sender late p99" | "sender": "99 of 100 requests were sent so soon after they were due although a worker was free: the generator's own lateness.";
    "gene- rators" | "generators": "Processes that send requests.";
    "in flight": "Requests that were sent and not answered yet, on average.";
    "at the server": "Of these, on average, at the server.";
    "gen. busy": "Share of its time that the busiest generator worked or waited for a CPU.";
    "response p50 ms": "Half of the responses took at most so many milliseconds.";
    "response p99 ms": "99 of 100 responses took at most so many milliseconds.";
    "limit": "What kept the rate from being higher: the generators, the server, the path between them, or the machine; `?`: not known.";
    "fault": "What failed while one owned the lock and others waited for it.";
    "next grant median": "Time from the fault until another got the lock: the median over the runs. `kept 6/12`: the owner kept it in 6 of 12 runs and released it later.";
    "next grant 99 of 100" | "99 of 100": "In 99 of 100 runs the next grant came so soon.";
    "next grant worst" | "worst": "The longest time until the next grant over all runs.";
    "after release": "Where the owner kept the lock: time from its release to the next grant.";
    "after lease's end": "Time from the end of the old owner's lease to the next grant, the least and the most.";
    "after return": "Time from the return of the server to the next grant.";
    "two owners for up to" | "two owners": "The longest time for which two processes both thought that they owned the lock.";
    "old owner was told": "Whether the old owner learned, by its client or its release, that it had lost the lock.";
    "stale write refused" | "stale write": "Whether a resource that checks fencing tokens refused what the old owner still wrote.";
    "in order": "Whether waiters got the lock in the order in which they came.";
    "grants": "Requests for a lock that were granted.";
    "faults struck" | "struck": "Faults that struck clients or servers, of all kinds together; `Tried` has them by kind.";
    "viola- tions" | "violations": "What breaks the lock's promise: two entitled owners, a release of another's lock, a fencing token that fell, a free lock that was not granted in time.";
    "outside promise" | "outside": "Overlaps after a fault which the promise leaves out, so that they are to be expected.";
    "unde- cided" | "undecided": "Overlaps of which nobody knows whether they break the promise: it leaves them open, or a stamp is missing. They are no pass.";
    "unknown calls" | "unknown": "Calls whose end nobody saw, since their client was killed or the run ended.";
    "longest free": "The longest time that a lock was certainly free while a client waited for it.";
    "free at most" | "at most": "The bound of that time: lease, its lag, the poll, outages of the server, and CPU time that waiters did not get. Beyond it is a violation.";
    "given up, granted": "Grants to clients that had given up, so that nobody owned what was granted.";
    "calls": "Requests, releases and renewals that were made.";
    "renewals": "Renewals of leases that succeeded.";
    "failed calls": "Calls that failed, by a fault or not.";
    "verdict" | "VALID" | "SUSPECT" | "INVALID": "Whether the row may be used. VALID: no check has an objection. SUSPECT: it may be distorted; the note has the reason. INVALID: no figure of it is used; a bound or `-` stands in its place.";
    "spawn us" | "spawn": "Time to start the command, in microseconds.";
    "run us": "Time for which the command ran, in microseconds.";
    "reap us" | "reap": "Time to collect the ended command, in microseconds.";
    "bind us": "Time of LDAP's bind, in microseconds.";
    "search us" | "search": "Time of LDAP's search, in microseconds.";
    "unbind us" | "unbind": "Time of LDAP's unbind, in microseconds.";
    "connect us": "Time to open the connection of a request, in microseconds.";
    "request us" | "request": "Time from sending a request until its answer begins, in microseconds.";
    "body us" | "body": "Time to read the body of an answer, in microseconds.";
    "send us" | "send": "Time to send a request, in microseconds.";
    "reply us" | "reply": "Time until the reply is read, in microseconds.";
    // Lines.
    "Fairness": "How evenly workers get the lock. `in order`: as a queue. `varied as if drawn at random`: no test tells the counts from those of a lottery. `evenly`: close to equal, though no queue.";
    "varied as if drawn at random" | "lot": "The turns of the workers vary as if each were drawn by lot; a test of their dispersion does not tell them from that.";
    "evenly": "The turns of the workers are closer to equal than by lot.";
    "Wait": "How long workers wait for the lock. The p99 counts waits that the end of a run cut off; not known where too many were cut off.";
    "Throughput": "Operations a second, of all workers together.";
    "Time": "How long one operation takes.";
    "Safety": "Whether two workers owned the lock at the same time. Each acquisition is checked; an overlap shorter than the time that stands there would not be seen.";
    "overlap": "Two owners of a lock at the same time.";
    "Growth": "How a figure changes with the number of workers, locks, operations or connections.";
    "Cliff": "The step between two numbers of open connections at which one more becomes several times as expensive.";
    "Why": "The cause of the cliff, where the ports that the kernel chose show it.";
    "Avoid": "What avoids the cliff.";
    "Balance": "How evenly connections went to the processes that accept them.";
    "Knee": "The highest rate at which the requests are answered in time; beyond it, what is known of the limit.";
    "Found": "What `rate --find` found.";
    "Next grant": "When another gets the lock after a fault.";
    "Lease": "The service granted another lease than was asked for.";
    "Errors": "Errors that a process met again and again.";
    "Cost": "What a held lock costs in a minute, or one more connection.";
    "Memory": "What a held lock takes of the server's memory.";
    "Promise": "What the lock promises, or whether it kept that through the faults: the certificate, or the violations.";
    "Judged by": "What the lock promises its owners. A fault may take away what it does not promise.";
    "Tried": "Which faults struck how often, how many of them while a client owned a lock, and which could not strike.";
    "Checked": "What was counted and compared.";
    "Trust": "The verdicts of the rows, and from what part of the time the rates are.";
    "impression" | "look": "A test cannot decide (too few runs, or other programs may have moved them), but all runs of one target lie at least a quarter beyond those of the other, whatever other programs did. How often chance alone does so with equal targets stands beside it. It decides nothing.";
    "chance": "How often equal targets would lie so far apart by chance, with so many targets and runs.";
    "p99": "99 of 100 values are at most this.";
    "p50": "Half of the values are at most this: the median.";
    "seed": "Every random choice follows from it: the same seed repeats them.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headline::headline;
    use crate::{ResultSet, closing, made, read};
    use jostle_stats::summary::summarize;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn every() -> Vec<ResultSet> {
        let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
        let files = std::fs::read_dir(records).unwrap();
        let files = files.map(|file| file.unwrap());
        // Those of the validation have short runs of what was disturbed, or are no result files.
        let files =
            files.filter(|file| !file.file_name().to_string_lossy().starts_with("validate"));
        let read = files.filter_map(|file| read(file.path()).ok()).flatten();
        let made = [
            made::set(),
            made::broken(),
            made::counts_only(),
            made::calls(),
            made::connections(),
            made::recovered(),
            made::verified(),
            made::spread(),
            made::rated(&[1_000, 1_000], 1_000),
        ];
        read.chain(made).collect()
    }

    #[test]
    fn every_word_above_a_column_and_before_a_line_is_explained() {
        let mut unknown = BTreeSet::new();
        for set in every() {
            let points = summarize(&set.experiment, &set.runs);
            let columns = headline(&points).map_or_else(Vec::new, |table| table.grid.columns);
            let mut upper = String::new();
            for column in columns {
                let [over, lower] = &column.title;
                if !over.is_empty() {
                    upper.clone_from(over);
                }
                let title = format!("{upper} {lower}");
                let names = [title.trim(), lower.as_str()];
                if names.iter().all(|name| explained(name).is_empty()) {
                    unknown.insert(title.trim().to_owned());
                }
            }
            for line in closing::lines(&set, &points) {
                if explained(line.question).is_empty() {
                    unknown.insert(line.question.to_owned());
                }
            }
        }
        assert_eq!(unknown, BTreeSet::new());
    }

    /// `contend` spoke of BASE and NEW, which are words of `compare`, and a note named "other programs
    /// (; kernel threads ...)".
    #[test]
    fn lines_and_notes_have_no_words_of_another_verb_and_no_empty_lists() {
        for set in every() {
            let points = summarize(&set.experiment, &set.runs);
            let notes = headline(&points).map_or_else(Vec::new, |table| table.notes);
            let lines = closing::lines(&set, &points).into_iter();
            for text in lines.map(|line| line.text()).chain(notes) {
                // What is typed may have braces.
                let text = text.replace("user{n}", "");
                for wrong in ["BASE", "NEW", "(;", "{"] {
                    assert!(!text.contains(wrong), "{wrong}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_word_has_one_meaning_and_a_sentence() {
        let names = WORDS.iter().flat_map(|word| word.names);
        let all: Vec<String> = names.map(|name| name.to_lowercase()).collect();
        let once: BTreeSet<&String> = all.iter().collect();
        let twice = all
            .iter()
            .filter(|name| all.iter().filter(|other| other == name).count() > 1);
        assert_eq!(
            once.len(),
            all.len(),
            "{:?}",
            twice.collect::<BTreeSet<_>>()
        );
        for word in WORDS {
            assert!(
                word.means.ends_with('.') && word.means.len() > 20,
                "{:?}",
                word.names
            );
        }
    }

    #[test]
    fn a_part_of_a_name_leads_to_it() {
        assert_eq!(explained("longest")[0].names, ["longest wait"]);
        assert!(explained("LONGEST WAIT").len() == 1 && explained("nothing").is_empty());
    }
}
