//! The verbs that measure: a row for each. Their options stand in the model's table of
//! options, by workload.

use jostle_model::plan::Workload;

/// A verb that measures.
#[derive(Debug)]
pub(super) struct Verb {
    /// As typed.
    pub name: &'static str,
    /// The workload of its plans.
    pub workload: Workload,
    /// One line for the list of verbs.
    pub about: &'static str,
    /// The placeholder for a target in the help.
    pub placeholder: &'static str,
    /// One line about it.
    pub target: &'static str,
    /// Stands before each target in the plan; then there must be one.
    pub prefix: &'static str,
    /// Options of the workload that say nothing here.
    pub without: &'static [&'static str],
    /// Options that have another default here, with their help.
    pub instead: &'static [(&'static str, &'static str, &'static str)],
    /// A command to begin with.
    pub example: &'static str,
    /// Below the whole help.
    pub after: &'static str,
}

/// A row without the exceptions.
const PLAIN: Verb = Verb {
    name: "",
    example: "",
    workload: Workload::Contend,
    about: "",
    placeholder: "TARGET",
    target: "",
    prefix: "",
    without: &[],
    instead: &[],
    after: "",
};

/// `NAME WORKLOAD { field: value, ... }`, each a row whose other fields are those of [`PLAIN`].
macro_rules! verbs {
    ($($name:literal $workload:ident { $($field:ident: $value:expr),+ $(,)? })+) => {
        /// In the order of the help.
        pub(super) static VERBS: &[Verb] = &[$({
            let mut verb = Verb { name: $name, workload: Workload::$workload, ..PLAIN };
            $(verb.$field = $value;)+
            verb
        }),+];
    };
}

verbs! {
    "contend" Contend {
        example: "jostle contend flock sysv -w 10:1000",
        about: "Workers contend for a lock: acquire, hold, release, idle",
        target: "What to contend for, such as flock, sysv or flock:/mnt/disk/file",
        after: "Lists: 10:100:1000, 1000..10000+1000, 1k..1Mx10. Times: 250us, 1ms, 10s.\n\
                With no target, flock and sysv are compared. `jostle targets` lists all.",
    }
    "stream" Stream {
        example: "jostle stream lockd redis -n 10k",
        about: "Each worker makes N operations (acquire, release) back to back",
        target: "What to lock, such as lockd, redis or flock",
        after: "One operation is one acquire and one release of a lock, without hold or idle, or one\n\
                request of a target that answers requests. A run begins when all workers are ready,\n\
                and ends when the last one has done its operations.\n\
                Lists: 1000:10000, 1000..10000+1000, 1k..1Mx10. With no target, lockd and flock are measured.",
    }
    "call" Stream {
        example: "jostle call 'ls /' -n 100:1000",
        about: "Starts a command N times: what does a call cost, and which part of it?",
        placeholder: "COMMAND",
        target: "What to start, such as 'grep -q x /etc/passwd'; several are compared",
        prefix: "exec:",
        // They are of locks.
        without: &["names", "pipeline", "slots"],
        // As many calls as one waits for.
        instead: &[
            ("workers", "1", "Workers that call at once, a list"),
            ("operations", "100:1000", "Calls of each worker, a list"),
        ],
        after: "Quote COMMAND as one word; jostle splits it as a shell would. {n} and {worker} in it are the\n\
                numbers of the call and of the worker. `jostle call 'ls /tmp'` is the same as\n\
                `jostle stream 'exec:ls /tmp'`. Lists: 100:1000:10000, 1k..1Mx10.",
    }
    "hold" Hold {
        example: "jostle hold lockd --keys 1k..1Mx10",
        about: "Acquires N different locks, holding all, then releases them",
        target: "What to hold, such as lockd, redis, flock or chained:3000",
        after: "Each worker acquires its locks one after the other, holds all of them, and releases them\n\
                in the same order. Lists: 1000:10000, 1k..1Mx10. With no target, lockd and chained are measured.\n\
                --for keeps the locks and renews their leases: -w 1 --keys N is one session for all locks,\n\
                -w N --keys 1 a session for each.",
    }
    "churn" Churn {
        example: "jostle churn lockd redis",
        about: "A session for each lock: open, acquire, release, close",
        target: "What to lock, such as lockd, redis, postgres or flock",
        after: "Each worker repeatedly opens a session (a connection with login; for a file lock, the file),\n\
                acquires its lock, releases it and closes the session. The table shows the time of each part\n\
                and the session's share. By default each worker has a lock of its own and nobody waits.\n\
                `jostle stream TARGET --names own` measures the same with sessions that are kept. Lists: 300:3000. With no target, lockd and flock are measured.",
    }
    "connect" Connect {
        example: "jostle connect tcp --open 100:1k:10k",
        about: "Opens N connections and keeps them open: what does one more cost?",
        target: "What to connect to: tcp, unix (servers of our own), tcp://HOST:PORT or unix:PATH",
        after: "One sweep opens connections from none to the greatest number and keeps them open. The figures at\n\
                each listed number are those of the connections added since the number before.\n\
                Lists: 1k:5k:10k, 1k..1Mx10. By default one source address is measured beside many.",
    }
    "rate" Rate {
        example: "jostle rate lockd --rate 1k:5k:20k",
        about: "Sends requests at a fixed rate, whether or not the last was answered: response time, knee",
        target: "What to ask, such as lockd, redis or 'exec:true'",
        after: "An open loop: it is fixed before the run when each request is due. The response time counts from\n\
                the due time, the service time from the sending. A request to a lock is an acquisition and a\n\
                release. Lists: 100:1k:10k, 1k..5k+1k. With no target, lockd.",
    }
    "spread" Spread {
        example: "jostle spread lockd --in-flight 90 --generators 3:9",
        about: "Keeps N requests in flight, from few or many generators: which side is the bottleneck?",
        target: "What to ask, such as lockd, redis or any lock (acquired and released), or exec:COMMAND",
        after: "A closed loop: each worker sends its next request when the last was answered. Few generators and\n\
                many keep the same number of requests in flight; if many reach a higher rate, the generators\n\
                were the bottleneck. Both sides need their own CPUs: by default the generators use the first\n\
                half, and servers that jostle launches the others. Lists: 3:6:9:18, 1..8+1.",
    }
    "recover" Recover {
        example: "jostle recover flock lockd",
        about: "Injects a fault while the lock is held: how long until the next grant?",
        target: "What to lock, such as flock, lockd or redis",
        after: "One process owns the lock and others wait for it. Then the owner is killed, stopped or cut off\n\
                (kill, stop, cut), or the whole service is killed or stopped (server-kill, server-stop). The\n\
                table shows the time until the next grant, how long two processes believed that they owned\n\
                the lock, whether the old owner was told, and whether a resource that checks fencing tokens\n\
                refused its write. Faults: kill,stop. Times: 3s, 500ms. With no target, flock and lockd.",
    }
    "verify" Verify {
        example: "jostle verify flock lockd --for 60s",
        about: "Does this lock keep its promise through a long time of random faults?",
        target: "What to lock, such as flock, lockd, redis or 'pipe:my_lock {redis}'",
        after: "Clients lock and release while faults strike at random: clients are killed, stopped or cut off\n\
                (kill, stop, cut, cut-to, cut-from), servers that jostle launches are killed, stopped or\n\
                restarted empty (server-kill, server-stop, server-wipe), their wall clock is set (clock).\n\
                Each hold is judged by the target's promise (`jostle targets NAME`); a violation is printed\n\
                as the smallest excerpt that shows it, and tried again three times with the same seed.\n\
                Exit code 3: the promise is broken. With no target, flock and lockd.",
    }
}
