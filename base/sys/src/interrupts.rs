//! Interrupts that CPUs raise for themselves and each other (/proc/interrupts): timers, counters
//! of performance, and calls from CPU to CPU. Devices are in [`crate::stat::MachineTicks`].

use std::collections::BTreeMap;
use std::io;

/// The kinds that are counted. Architectures name them differently; others are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tick and whatever else a timer was set for.
    Timer,
    /// A performance counter that overflowed.
    Monitor,
    /// Another CPU asks: reschedule, call a function, flush the TLB, `irq_work`.
    Call,
}

/// Interrupts since boot by the number of the CPU, each at the place of its [`Kind`].
pub type Interrupts = BTreeMap<usize, [u64; 3]>;

/// Reads /proc/interrupts.
///
/// # Errors
/// Where /proc is not mounted, or hides this file.
pub fn read() -> io::Result<Interrupts> {
    Ok(parse(&std::fs::read_to_string("/proc/interrupts")?))
}

fn parse(text: &str) -> Interrupts {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().split_ascii_whitespace();
    let cpus = head.filter_map(|cpu| cpu.strip_prefix("CPU")?.parse().ok());
    let cpus: Vec<usize> = cpus.collect();
    let mut found: Interrupts = cpus.iter().map(|cpu| (*cpu, [0; 3])).collect();
    for line in lines {
        let Some((label, rest)) = line.split_once(':') else {
            continue;
        };
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let counts: Vec<u64> = words.iter().map_while(|word| word.parse().ok()).collect();
        // A line without one count for each CPU is a total (ERR, MIS).
        if counts.len() < cpus.len() {
            continue;
        }
        if let Some(kind) = kind(label.trim(), &words[cpus.len()..].join(" ")) {
            for (cpu, count) in cpus.iter().zip(counts) {
                found.entry(*cpu).or_default()[kind as usize] += count;
            }
        }
    }
    found
}

fn kind(label: &str, description: &str) -> Option<Kind> {
    const CALLS: [&str; 5] = ["RES", "CAL", "TLB", "IWI", "DBL"];
    let description = description.to_ascii_lowercase();
    match label {
        "PMI" => Some(Kind::Monitor),
        _ if description.contains("pmu") => Some(Kind::Monitor),
        "LOC" => Some(Kind::Timer),
        _ if description.contains("timer") => Some(Kind::Timer),
        _ if CALLS.contains(&label) || label.starts_with("IPI") => Some(Kind::Call),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_apart_on_x86_and_aarch64() {
        let x86 = "           CPU0       CPU2\n\
             24:          1          0  IO-APIC   5-edge      ACPI:Ged\n\
            NMI:          9          9   Non-maskable interrupts\n\
            LOC:     115461     126581   Local timer interrupts\n\
            PMI:          7          8   Performance monitoring interrupts\n\
            IWI:          1          0   IRQ work interrupts\n\
            RES:      21816      19349   Rescheduling interrupts\n\
            TLB:         10         20   TLB shootdowns\n\
            ERR:          5\n";
        let expected = [(0, [115_461, 7, 21_827]), (2, [126_581, 8, 19_369])];
        assert_eq!(parse(x86), Interrupts::from(expected));
        let aarch64 = "           CPU0       CPU1\n\
             11:       1000       2000     GICv3  27 Level     arch_timer\n\
             14:          3          4     GICv3  23 Level     arm-pmu\n\
             15:        300        400     GICv3  33 Level     uart-pl011\n\
            IPI0:        50         60       Rescheduling interrupts\n\
            Err:          0\n";
        let expected = [(0, [1000, 3, 50]), (1, [2000, 4, 60])];
        assert_eq!(parse(aarch64), Interrupts::from(expected));
        assert!(parse("").is_empty() && parse("nothing\nLOC: 1\n").is_empty());
    }
}
