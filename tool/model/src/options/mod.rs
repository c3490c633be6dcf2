//! The options of experiments: the type of an option, and reading the one table of options.
//!
//! `table.rs` has one row for each option: its field in a plan, its type, its word on the
//! command line and in files, and for each workload that knows it the default and the
//! help. Everything else about an option follows from its row:
//!
//! ```text
//! table.rs --options!--> struct Plan      its fields, read and written by serde
//!                  '---> OPTIONS          the rows, as data that every crate walks
//!
//! OPTIONS -> defaults.rs             what a plan asks for where it says nothing
//!         -> cli/args/measure.rs     arguments, help, manual pages, completions
//!         -> engine/resolve.rs       a workload refuses options of others
//!         -> report/command.rs       a plan as the command that asks for it
//!         -> tool/docs/options.md         by `cargo xtask docs`
//! ```
//!
//! To add an option: write its row, then use `plan.FIELD` where it takes effect. A type
//! that no option has yet needs a [`Value`].

mod table;
mod value;

pub use table::{MOST_KEYS, OPTIONS, Plan};
pub use value::{Value, ValueKind};

use crate::plan::Workload;
use crate::time::{Nanos, Unit};

/// One option: a row of [`OPTIONS`].
#[derive(Debug)]
pub struct Opt {
    /// As in a plan file, and behind `--` on the command line.
    pub word: &'static str,
    /// The letter of the short form, without its `-`.
    pub short: Option<char>,
    /// The kind of its values.
    pub kind: ValueKind,
    /// The placeholder for a value in the help, such as `TIME`.
    pub value_name: &'static str,
    /// A value, as typed.
    pub example: &'static str,
    /// The unit of a bare number on the command line; of times only.
    pub unit: Unit,
    /// The least and the greatest number that it may be, where that does not depend on
    /// anything else; of times in nanoseconds.
    pub bounds: Option<(u64, u64)>,
    /// Where it stands in the help.
    pub heading: Heading,
    /// The workloads that know it, those with the same default and help together.
    pub uses: &'static [Use],
    access: Access,
}

/// The use of an option by some workloads.
#[derive(Debug)]
pub struct Use {
    /// To these.
    pub workloads: &'static [Workload],
    /// The value that holds where the plan says nothing.
    pub default: DefaultValue,
    /// One line for the user, without the default.
    pub help: &'static str,
}

/// The default of an option. Values are written as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This value.
    Fixed(&'static str),
    /// These values, in turn. Printed commands name them, since they are what was asked.
    Swept(&'static str),
    /// This value, where the targets answer requests.
    OfRequests(&'static str),
    /// A value that is determined before the first run, in words for the help.
    Decided(&'static str),
    /// It is not done, or there is no limit.
    Absent,
}

/// The parts of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// The work itself: the workload's own options.
    Workload,
    /// Options of targets that answer requests.
    Requests,
    /// Under what conditions, how often and how long.
    Measuring,
}

impl Heading {
    /// All, in the order of the help.
    pub const ALL: [Heading; 3] = [Heading::Workload, Heading::Requests, Heading::Measuring];

    /// As printed; the workload's own options stand under no heading.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Heading::Workload => None,
            Heading::Requests => Some("Requests"),
            Heading::Measuring => Some("How to measure"),
        }
    }
}

/// How the field of a plan is read and written.
struct Access {
    get: fn(&Plan) -> Option<String>,
    set: fn(&mut Plan, &str, Unit) -> Result<(), String>,
    clear: fn(&mut Plan),
    numbers: fn(&Plan) -> Option<Vec<u64>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

impl Opt {
    /// The option that is typed so, such as `-w` or `--workers`.
    pub fn typed_as(flag: &str) -> Option<&'static Opt> {
        OPTIONS.iter().find(|option| {
            let short = flag.strip_prefix('-').map(|letter| letter.chars());
            let is_short = short.is_some_and(|letter| letter.eq(option.short));
            is_short || flag.strip_prefix("--") == Some(option.word)
        })
    }

    /// As one types it: the short form where there is one.
    pub fn flag(&self) -> String {
        match self.short {
            Some(letter) => format!("-{letter}"),
            None => format!("--{}", self.word),
        }
    }

    /// Its use in a workload; None where the workload does not know it.
    pub fn in_workload(&self, workload: Workload) -> Option<&'static Use> {
        let mut uses = self.uses.iter();
        uses.find(|known| known.workloads.contains(&workload))
    }

    /// The workloads that know it.
    pub fn workloads(&self) -> impl Iterator<Item = Workload> {
        let known = |workload: &Workload| self.in_workload(*workload).is_some();
        Workload::ALL.iter().copied().filter(known)
    }

    /// Its value in a plan, as typed with its unit; None where the plan says nothing.
    pub fn get(&self, plan: &Plan) -> Option<String> {
        (self.access.get)(plan)
    }

    /// Sets it in a plan, as if it had been typed on the command line.
    ///
    /// # Errors
    /// A sentence for the user: what was typed, and what would be right.
    pub fn set(&self, plan: &mut Plan, typed: &str) -> Result<(), String> {
        (self.access.set)(plan, typed, self.unit)
    }

    /// Leaves it out of a plan.
    pub fn clear(&self, plan: &mut Plan) {
        (self.access.clear)(plan);
    }

    /// Its bounds, as printed: `1 to 1000`.
    pub fn range(&self) -> Option<String> {
        self.bounds.map(|(least, most)| match self.kind {
            ValueKind::Time => format!("{} to {}", Nanos(least), Nanos(most)),
            _ => format!("{least} to {most}"),
        })
    }

    /// Whether its value in a plan lies outside of its bounds, or holds no number at all.
    pub fn is_out_of_bounds(&self, plan: &Plan) -> bool {
        let (Some((least, most)), Some(numbers)) = (self.bounds, (self.access.numbers)(plan))
        else {
            return false;
        };
        let mut numbers = numbers.iter();
        numbers.len() == 0 || numbers.any(|number| !(least..=most).contains(number))
    }

    /// The help of a use: what it does, the unit of a bare number, the default.
    pub fn help(&self, used: &Use) -> String {
        let unit = match (self.kind, self.unit) {
            (ValueKind::Time | ValueKind::Busy | ValueKind::Times, Unit::Micros) => {
                "; bare numbers are us"
            }
            (ValueKind::Time | ValueKind::Busy | ValueKind::Times, Unit::Seconds) => {
                "; bare numbers are seconds"
            }
            _ => "",
        };
        let default = match used.default {
            DefaultValue::Fixed(_) if self.is_switch(used) => String::new(),
            DefaultValue::Absent => String::new(),
            DefaultValue::Fixed(text)
            | DefaultValue::Swept(text)
            | DefaultValue::OfRequests(text)
            | DefaultValue::Decided(text) => format!(" [default: {text}]"),
        };
        format!("{}{unit}{default}", used.help)
    }

    /// Whether it is a switch without a value.
    pub fn is_switch(&self, used: &Use) -> bool {
        self.kind == ValueKind::Flag && used.default == DefaultValue::Fixed("false")
    }

    /// The letter of its short form.
    const fn short(mut self, letter: char) -> Opt {
        self.short = Some(letter);
        self
    }

    /// The unit of a bare number.
    const fn unit(mut self, unit: Unit) -> Opt {
        self.unit = unit;
        self
    }

    /// The least and the greatest number that it may be.
    const fn between(mut self, least: u64, most: u64) -> Opt {
        self.bounds = Some((least, most));
        self
    }

    /// Sets the placeholder for a value in the help.
    const fn value(mut self, name: &'static str) -> Opt {
        self.value_name = name;
        self
    }

    /// Where it stands in the help.
    const fn under(mut self, heading: Heading) -> Opt {
        self.heading = heading;
        self
    }
}

/// Makes the plan and the list of options from the rows of the table, each of which is
///
/// ```text
/// field: Type = "word" else (value), setting(value), ... {
///     Workload | Workload => Default, "help";
///     ...
/// }
/// ```
///
/// Settings are methods of [`Opt`], such as `short('w')`. `else` has what is done where a
/// workload has no such option, or leaves it absent; it makes a method of the plan that has the
/// field's name and always a value. No default stands anywhere else.
macro_rules! options {
    ($(
        $(#[$attribute:meta])*
        $field:ident: $type:ty = $word:literal $(else ($otherwise:expr))?
        $(, $setting:ident($($value:expr),+))* {
            $($($workload:ident)|+ => $default:expr, $help:literal;)+
        }
    )+) => {
        /// One experiment: one verb, its targets and its options. An option that its
        /// workload does not know stays absent.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Plan {
            /// The verb.
            pub workload: Workload,
            /// The targets as typed, such as `flock:/mnt/x` or `delay:5ms`.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub targets: Vec<String>,
            /// Targets that are measured too where they can be reached. A resolved plan
            /// has none: those that can be stand among its targets.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub optional: Vec<String>,
            $(
                $(#[doc = concat!("- ", $("`", stringify!($workload), "` ",)+ ": ", $help)])+
                $(#[$attribute])*
                #[serde(rename = $word, default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )+
        }

        /// Every option, in the order in which plans and commands are written.
        pub static OPTIONS: &[Opt] = &[$(
            Opt {
                word: $word,
                short: None,
                kind: <$type as Value>::KIND,
                value_name: <$type as Value>::KIND.value_name(),
                example: <$type as Value>::EXAMPLE,
                unit: Unit::Seconds,
                bounds: None,
                heading: Heading::Workload,
                uses: &[$(Use {
                    workloads: &[$(Workload::$workload),+],
                    default: $default,
                    help: $help,
                }),+],
                access: Access {
                    get: |plan| plan.$field.as_ref().map(Value::typed),
                    set: |plan, typed, unit| {
                        plan.$field = Some(Value::read(typed, unit)?);
                        Ok(())
                    },
                    clear: |plan| plan.$field = None,
                    numbers: |plan| plan.$field.as_ref().map(Value::numbers),
                },
            }
            $(.$setting($($value),+))*
        ),+];

        impl Plan {
            /// A plan with only a workload; everything else takes its default.
            pub fn of(workload: Workload) -> Plan {
                Plan { workload, targets: Vec::new(), optional: Vec::new(), $($field: None),+ }
            }

            $($(
                /// The option of this name; what is done without it where the plan has none.
                pub fn $field(&self) -> $type {
                    self.$field.as_ref().cloned().unwrap_or($otherwise)
                }
            )?)+

            /// Takes from `other` what is absent here. Targets stay as they are.
            pub fn fill_from(&mut self, other: Plan) {
                $(if self.$field.is_none() { self.$field = other.$field; })+
            }
        }
    };
}

use options;
