//! Programs that keep CPUs busy while a test wants them to.

use std::process::{Child, Command, Stdio};

/// Processes that end when this is dropped.
pub(crate) struct Loops(Vec<Child>);

impl Loops {
    /// Two shells of this name that never sleep. Each is in a session of its own with a
    /// high weight, which root may set: however many others run, these are among the three
    /// largest. They end by themselves after `most_s` seconds.
    pub(crate) fn named(name: &str, most_s: u32) -> Loops {
        Loops::after(":", name, most_s)
    }

    /// Two such shells on this CPU alone.
    pub(crate) fn on_cpu(cpu: usize, name: &str, most_s: u32) -> Loops {
        super::must_have("taskset", "util-linux");
        Loops::after(&format!("taskset -cp {cpu} $$ >/dev/null"), name, most_s)
    }

    /// Processes that are there already.
    pub(crate) fn new(processes: Vec<Child>) -> Loops {
        Loops(processes)
    }

    /// A server in Python, and what it prints first.
    pub(crate) fn python(script: &str, words: &[&str]) -> (Loops, String) {
        super::must_have("python3", "python3");
        let mut command = Command::new("python3");
        command.args(["-c", script]).args(words);
        let quiet = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = quiet.spawn().unwrap();
        let line = super::first_line(&mut server);
        (Loops(vec![server]), line)
    }

    fn after(before: &str, name: &str, most_s: u32) -> Loops {
        let up = std::fs::read_to_string("/proc/uptime").unwrap();
        let up: u32 = up.split('.').next().unwrap().parse().unwrap();
        let script = format!(
            "{before}; echo -15 > /proc/$$/autogroup; printf {name} > /proc/$$/comm; \
             while :; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; \
             read -r up _ < /proc/uptime; [ \"${{up%.*}}\" -lt {} ] || exit 0; done",
            up + most_s
        );
        let start = |_| {
            let mut shell = Command::new("setsid");
            shell.args(["sh", "-c", &script]).stderr(Stdio::null());
            shell.spawn().unwrap()
        };
        Loops((0..2).map(start).collect())
    }

    /// Whether each has ended by itself.
    pub(crate) fn have_ended(&mut self) -> bool {
        self.0
            .iter_mut()
            .all(|one| one.try_wait().unwrap().is_some())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for one in &mut self.0 {
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}
