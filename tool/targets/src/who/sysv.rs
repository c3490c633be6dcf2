//! Who has a semaphore of System V. The kernel keeps no owner: it knows who did the last operation,
//! and how many wait.

use super::{Answer, Question, Refusal, Told};
use jostle_model::who::Party;
use jostle_sys::census::Identity;
use jostle_sys::{sysv, waits};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn who(question: &Question<'_>) -> Told {
    let sets = sysv::sets();
    let (set, number) = match question.name.split_once(':') {
        Some((set, number)) => match number.parse::<u16>() {
            Ok(number) => (set, Some(number)),
            Err(_) => {
                let said = format!("`{number}` is no number of a semaphore; write ID:0");
                return Err(Refusal::Usage(said));
            }
        },
        None => (question.name, None),
    };
    let is_wanted = |found: &&sysv::Listed| match set.strip_prefix("0x") {
        _ if set.is_empty() => true,
        Some(key) => {
            i32::from_str_radix(key, 16).is_ok_and(|key| key == found.key)
                || u32::from_str_radix(key, 16).is_ok_and(|key| key as i32 == found.key)
        }
        None => set.parse() == Ok(found.id),
    };
    let wanted: Vec<&sysv::Listed> = sets.iter().filter(is_wanted).collect();
    if wanted.is_empty() && !set.is_empty() {
        return Err(Refusal::Unknown(format!(
            "there is no set of semaphores {set} here (a key as 0x..., else an id); `ipcs -s` lists \
             those of this IPC namespace"
        )));
    }
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for found in wanted {
        if let Some(number) = number.filter(|number| *number >= found.count) {
            return Err(Refusal::Unknown(format!(
                "set {} has {} semaphores, and none of number {number}",
                found.id, found.count
            )));
        }
        for semaphore in 0..found.count {
            if number.is_some_and(|number| number != semaphore) {
                continue;
            }
            let Some(state) = sysv::state(found.id, semaphore) else {
                return Err(Refusal::Unknown(format!(
                    "set {} may not be read",
                    found.id
                )));
            };
            holders.extend(holder(found, semaphore, state));
        }
        waiters.extend(
            waits::for_semaphores(found.id)
                .into_iter()
                .map(|pid| Party {
                    who: Some(format!(
                        "pid {pid} {}",
                        Identity::of(pid).unwrap_or_default().name
                    )),
                    pid: Some(pid),
                    on: Some(format!("set {}", found.id)),
                    ..Party::default()
                }),
        );
    }
    Ok(Answer::new(holders, waiters))
}

/// Of a semaphore that somebody cannot take now.
fn holder(set: &sysv::Listed, semaphore: u16, state: sysv::SemaphoreState) -> Option<Party> {
    if state.value > 0 && state.waiting == 0 {
        return None;
    }
    let last = match (state.last_pid, Identity::of(state.last_pid)) {
        (0, _) => "nobody has operated on it yet".to_owned(),
        (pid, Some(process)) => format!("the last operation was by pid {pid} {}", process.name),
        (pid, None) => format!("the last operation was by pid {pid}, which has ended"),
    };
    let since = UNIX_EPOCH + std::time::Duration::from_secs(set.operated_s);
    let since = SystemTime::now().duration_since(since).ok();
    // Of a set of several the last operation may have been on another one.
    let since = since.filter(|_| set.count == 1 && set.operated_s > 0);
    Some(Party {
        session: Some(set.id.to_string()),
        on: Some(format!("semaphore {semaphore} of set {}", set.id)),
        since_ms: since.map(|since| since.as_millis() as u64),
        note: Some(format!(
            "the kernel keeps no owner; its value is {}; {last}; {} wait",
            state.value, state.waiting
        )),
        ..Party::default()
    })
}
