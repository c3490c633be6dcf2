//! Settings of kernel and hardware that move what locks and wake-ups cost, and that
//! differ between machines of one kind: how the kernel preempts, what an idle CPU does,
//! what guards against speculation, whether there is a hypervisor.
//!
//! A setting that this kernel does not have, or that this user may not read, is absent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Settings whose value is the text of a file, and the file, as the kernel's admin-guide and
/// Documentation/ABI describe it.
const WHOLE: &str = "\
base slice ns: sys/kernel/debug/sched/base_slice_ns
sched_ext: sys/kernel/sched_ext/state
sched_ext scheduler: sys/kernel/sched_ext/root/ops
guest halt poll ns: sys/module/haltpoll/parameters/guest_halt_poll_ns
host halt poll ns: sys/module/kvm/parameters/halt_poll_ns
idle driver: sys/devices/system/cpu/cpuidle/current_driver
idle governor: sys/devices/system/cpu/cpuidle/current_governor_ro
SMT: sys/devices/system/cpu/smt/control
frequency driver: sys/devices/system/cpu/cpu0/cpufreq/scaling_driver
boost: sys/devices/system/cpu/cpufreq/boost
no turbo: sys/devices/system/cpu/intel_pstate/no_turbo
hypervisor type: sys/hypervisor/type
machine's vendor: sys/class/dmi/id/sys_vendor
machine's product: sys/class/dmi/id/product_name";

/// Settings whose file lists all values, the chosen one in brackets or in parentheses.
const CHOSEN: &str = "\
preemption: sys/kernel/debug/sched/preempt
huge pages: sys/kernel/mm/transparent_hugepage/enabled
huge pages of shared memory: sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The guards against each flaw of speculation, one file each.
const MITIGATIONS: &str = "sys/devices/system/cpu/vulnerabilities";

/// prctl(2): slots of the futex hash of this process alone (Linux 6.16).
const PR_FUTEX_HASH: libc::c_int = 78;
const PR_FUTEX_HASH_GET_SLOTS: libc::c_ulong = 2;

/// prctl(2): whether a thread may ask for a longer slice (Linux 7.0).
const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
const PR_RSEQ_SLICE_EXTENSION_GET: libc::c_ulong = 1;

/// All of them, by name. `version` is what `uname -v` prints, `hypervisor` whether
/// one announces itself to the processor's users.
pub fn read(version: &str, hypervisor: bool) -> BTreeMap<String, String> {
    let mut found = of_files(Path::new("/"));
    // Without debugfs: what the kernel was built with.
    if let (None, Some(built)) = (found.get("preemption"), preemption(version)) {
        found.insert("preemption".to_owned(), built.to_owned());
    }
    let yes_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    found.insert("virtual machine".to_owned(), yes_no(hypervisor));
    let private_hash = asks(PR_FUTEX_HASH, PR_FUTEX_HASH_GET_SLOTS);
    found.insert("futex private hash".to_owned(), yes_no(private_hash));
    let slice = asks(PR_RSEQ_SLICE_EXTENSION, PR_RSEQ_SLICE_EXTENSION_GET);
    found.insert("rseq slice extension".to_owned(), yes_no(slice));
    found
}

fn of_files(root: &Path) -> BTreeMap<String, String> {
    let read = |line: &'static str| {
        let (name, path) = line.split_once(": ")?;
        Some((name.to_owned(), super::slurp(root.join(path))?))
    };
    let mut found: BTreeMap<String, String> = WHOLE.lines().filter_map(read).collect();
    let chosen = CHOSEN.lines().filter_map(read);
    found.extend(chosen.filter_map(|(name, text)| Some((name, bracketed(&text)?.to_owned()))));
    for path in entries(&root.join(MITIGATIONS)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let state = super::slurp(&path).filter(|state| state != "Not affected");
        found.extend(state.map(|state| (format!("mitigation {name}"), state)));
    }
    found
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// `always [madvise] never`, `none voluntary (full) lazy`.
fn bracketed(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    let word = words.find(|word| word.starts_with(['[', '(']))?;
    Some(word.trim_matches(['[', ']', '(', ')']))
}

/// By the words of `uname -v`.
fn preemption(version: &str) -> Option<&'static str> {
    let built = ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT_LAZY", "PREEMPT"];
    let mut words = version.split_whitespace();
    words.find_map(|word| built.into_iter().find(|known| word == *known))
}

/// Whether the kernel knows the question.
fn asks(option: libc::c_int, question: libc::c_ulong) -> bool {
    // SAFETY: both options read a property of the calling thread into the return
    // value and take no pointer; a kernel that does not know them answers EINVAL.
    unsafe { libc::prctl(option, question, 0, 0, 0) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_stands_in_brackets() {
        assert_eq!(bracketed("always [madvise] never"), Some("madvise"));
        assert_eq!(bracketed("none voluntary (full) lazy"), Some("full"));
        assert_eq!(bracketed("never"), None);
    }

    #[test]
    fn a_kernel_names_its_preemption() {
        let version = "#1 SMP PREEMPT_DYNAMIC Tue Nov 1";
        assert_eq!(preemption(version), Some("PREEMPT_DYNAMIC"));
        assert_eq!(preemption("#1 SMP PREEMPT Tue"), Some("PREEMPT"));
        assert_eq!(preemption("#1 SMP Debian 6.1.99-1"), None);
    }

    #[test]
    fn files_that_are_there_are_read_and_flaws_without_effect_left_out() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        );
        put("sys/devices/system/cpu/smt/control", "off\n");
        put(&format!("{MITIGATIONS}/meltdown"), "Not affected\n");
        put(
            &format!("{MITIGATIONS}/spectre_v1"),
            "Mitigation: usercopy\n",
        );
        let expected = [
            ("SMT", "off"),
            ("huge pages", "madvise"),
            ("mitigation spectre_v1", "Mitigation: usercopy"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(of_files(root.path()), BTreeMap::from(expected));
    }

    #[test]
    fn this_machine_says_whether_it_is_virtual() {
        let found = read("#1 SMP PREEMPT", true);
        assert_eq!(found["virtual machine"], "yes");
        assert!(["yes", "no"].contains(&found["futex private hash"].as_str()));
        assert!(found.contains_key("preemption"));
    }
}
