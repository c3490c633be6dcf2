//! The types that options have: how each is typed on a command line.

use crate::connect::PortRange;
use crate::list::List;
use crate::objective::Objective;
use crate::plan::{Fault, Place};
use crate::server_at::ServerAt;
use crate::time::{Busy, Nanos, Unit};

/// The kind of an option's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Yes or no.
    Flag,
    /// A whole number.
    Count,
    /// A number with a fraction.
    Share,
    /// Whole numbers; what is swept is one.
    List,
    /// A time.
    Time,
    /// A time; negative: spinning instead of sleeping.
    Busy,
    /// Several times.
    Times,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text of one of these forms.
    Form(&'static str),
    /// Any text.
    Text,
}

impl ValueKind {
    /// The placeholder for a value in the help, where the option has no better name.
    pub const fn value_name(self) -> &'static str {
        match self {
            ValueKind::Flag => "BOOL",
            ValueKind::Count => "N",
            ValueKind::Share => "SHARE",
            ValueKind::List => "LIST",
            ValueKind::Time | ValueKind::Busy => "TIME",
            ValueKind::Times => "TIMES",
            ValueKind::Choice(_) => "HOW",
            ValueKind::Form(_) => "WHICH",
            ValueKind::Text => "TEXT",
        }
    }
}

/// A type that an option can have.
pub trait Value: Sized {
    /// The kind that the table of options gives it.
    const KIND: ValueKind;
    /// One value as typed, for tests that walk all options.
    const EXAMPLE: &'static str;

    /// Reads what was typed; a bare time is in this unit.
    ///
    /// # Errors
    /// A sentence for the user: what was typed, and what would be right.
    fn read(typed: &str, unit: Unit) -> Result<Self, String>;

    /// As typed; times with their unit.
    fn typed(&self) -> String;

    /// The whole numbers in it, which an option's bounds are for; times in nanoseconds.
    fn numbers(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// A type that is typed in one way only, by its `FromStr` and `Display`.
macro_rules! plain {
    ($($type:ty: $kind:expr, $example:literal, $wrong:expr $(, $numbers:expr)?;)+) => {$(
        impl Value for $type {
            const KIND: ValueKind = $kind;
            const EXAMPLE: &'static str = $example;

            fn read(typed: &str, _: Unit) -> Result<$type, String> {
                typed.parse().map_err(|error| $wrong(typed, error))
            }

            fn typed(&self) -> String {
                self.to_string()
            }

            $(fn numbers(&self) -> Vec<u64> {
                vec![$numbers(*self)]
            })?
        }
    )+};
}

plain! {
    bool: ValueKind::Flag, "true", |typed, _| format!("`{typed}` is neither true nor false");
    u32: ValueKind::Count, "2", not_whole, u64::from;
    u64: ValueKind::Count, "2", not_whole, u64::from;
    f64: ValueKind::Share, "0.5", |typed, _| format!("`{typed}` is not a number, such as 0.5");
    String: ValueKind::Text, "a b", |_, never| match never {};
    Place: ValueKind::Form("none, same, cross, cpus:0-3"), "cpus:0,2", own_words;
    PortRange: ValueKind::Form("LO-HI"), "40000-49999", own_words;
    Objective: ValueKind::Form("p99<5ms, errors<0.1%"), "p99<5ms,errors<0.1%", own_words;
    ServerAt: ValueKind::Form(":PORT, pid:N, unix:PATH, cgroup:PATH"), "pid:7", own_words;
}

fn not_whole(typed: &str, _: std::num::ParseIntError) -> String {
    format!("`{typed}` is not a whole number")
}

fn own_words(_: &str, error: String) -> String {
    error
}

impl Value for List {
    const KIND: ValueKind = ValueKind::List;
    const EXAMPLE: &'static str = "3:7";

    fn read(typed: &str, _: Unit) -> Result<List, String> {
        typed.parse()
    }

    fn typed(&self) -> String {
        self.to_string()
    }

    fn numbers(&self) -> Vec<u64> {
        self.0.clone()
    }
}

impl Value for Nanos {
    const KIND: ValueKind = ValueKind::Time;
    const EXAMPLE: &'static str = "7ms";

    fn read(typed: &str, unit: Unit) -> Result<Nanos, String> {
        Nanos::parse(typed, unit)
    }

    fn typed(&self) -> String {
        self.to_string()
    }

    fn numbers(&self) -> Vec<u64> {
        vec![self.0]
    }
}

impl Value for Busy {
    const KIND: ValueKind = ValueKind::Busy;
    const EXAMPLE: &'static str = "-250us";

    fn read(typed: &str, unit: Unit) -> Result<Busy, String> {
        Busy::parse(typed, unit)
    }

    fn typed(&self) -> String {
        self.to_string()
    }
}

impl Value for Vec<Nanos> {
    const KIND: ValueKind = ValueKind::Times;
    const EXAMPLE: &'static str = "1ms:1s";

    fn read(typed: &str, unit: Unit) -> Result<Vec<Nanos>, String> {
        let times = typed.split(':');
        times.map(|time| Nanos::parse(time, unit)).collect()
    }

    fn typed(&self) -> String {
        let times: Vec<String> = self.iter().map(Nanos::to_string).collect();
        times.join(":")
    }
}

/// As the help of `jostle recover` has them: with commas. `all` are all that there are.
impl Value for Vec<Fault> {
    const KIND: ValueKind = ValueKind::Form("kill, stop, cut, server-kill, server-stop");
    const EXAMPLE: &'static str = "kill,stop";

    fn read(typed: &str, _: Unit) -> Result<Vec<Fault>, String> {
        match typed {
            "all" => Ok(Fault::ALL.to_vec()),
            _ => {
                // Colons part them, too, but for those within a word.
                let commas = typed.replace(':', ",").replace("partition,", "partition:");
                commas.split(',').map(str::parse).collect()
            }
        }
    }

    fn typed(&self) -> String {
        let words: Vec<&str> = self.iter().map(|fault| fault.as_str()).collect();
        words.join(",")
    }
}
