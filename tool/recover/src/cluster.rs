//! Faults of one server of a launched cluster: which of them is struck, how, and how it is over.

use crate::service::Service;
use jostle_model::plan::Fault;
use jostle_sys::process;
use jostle_sys::switch::Switch;
use jostle_sys::waited::Waited;
use jostle_targets::Spec;
use jostle_targets::program::Leads;
use std::time::Duration;

/// Between two looks for a leader.
const LOOK: Duration = Duration::from_millis(20);
/// Fewer servers do not survive the loss of one.
const LEAST: u64 = 3;

/// A server of a launched cluster that can lead it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its process.
    pub pid: u32,
    /// Where it listens, `HOST:PORT`.
    pub address: String,
    /// Its password, where it asks for one.
    pub secret: String,
    /// How to ask it whether it leads.
    pub leads: Leads,
    /// Its host on the switch.
    pub host: Option<usize>,
}

/// A fault and the server that it strikes.
#[derive(Debug)]
pub struct Blow {
    fault: Fault,
    member: Member,
    processes: Vec<u32>,
}

impl Blow {
    /// Asks all members whether they lead, until exactly one does.
    ///
    /// # Errors
    /// In words for the user: that was not so within `patience`.
    pub fn aim(fault: Fault, members: &[Member], patience: Duration) -> Result<Blow, String> {
        let mut waited = Waited::begin();
        loop {
            let leads = |one: &Member| (one.leads)(&one.address, &one.secret);
            let all = members.iter().cloned();
            let (leaders, others): (Vec<Member>, Vec<Member>) = all.partition(leads);
            let struck = match fault {
                Fault::MemberKill => others.first(),
                _ => leaders.first(),
            };
            match struck.filter(|_| leaders.len() == 1) {
                Some(member) => {
                    let (member, processes) =
                        (member.clone(), process::with_descendants(member.pid));
                    return Ok(Blow {
                        fault,
                        member,
                        processes,
                    });
                }
                None if waited.so_far_by(patience) >= patience => {
                    let (leaders, all, s) = (leaders.len(), members.len(), patience.as_secs_f64());
                    return Err(format!("{leaders} of its {all} servers lead, after {s} s"));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    /// Strikes. A partition leaves this client on the server's side, where its fault says so.
    ///
    /// # Errors
    /// In words for the user: its links cannot be cut.
    pub fn strike(&self, service: &dyn Service, client: Option<usize>) -> Result<(), String> {
        if self.fault.parts_hosts() {
            let switch = service.switch()?;
            let client = client.filter(|_| self.fault == Fault::PartitionMinority);
            let client = client.and_then(|number| switch.of_client(number));
            let hosts: Vec<usize> = self.member.host.into_iter().chain(client).collect();
            let parted = switch.part(&hosts);
            parted.map_err(|error| format!("its links cannot be cut: {error}"))?;
        }
        let act = match self.fault {
            Fault::LeaderStop => process::stop,
            Fault::PartitionMinority | Fault::PartitionMajority => return Ok(()),
            _ => process::kill,
        };
        self.processes.iter().copied().for_each(act);
        Ok(())
    }

    /// Lets it go on, joins the hosts, or starts it again.
    ///
    /// # Errors
    /// In words for the user.
    pub fn mend(&self, service: &dyn Service) -> Result<(), String> {
        if self.fault.parts_hosts() {
            let joined = service.switch()?.join();
            joined.map_err(|error| format!("its links cannot be mended: {error}"))?;
        }
        self.processes.iter().copied().for_each(process::go_on);
        match self.fault {
            Fault::LeaderStop | Fault::PartitionMinority | Fault::PartitionMajority => Ok(()),
            _ => service.start_member(self.member.pid),
        }
    }
}

/// Why a fault of one server cannot strike this service; None: it can, or it is no such fault.
pub fn why_no_member(fault: Fault, spec: &Spec, members: u64) -> Option<String> {
    let name = spec.entry.name;
    match fault.is_of_member() {
        false => None,
        true if !spec.entry.lock.clusters => Some("jostle launches no cluster of it".to_owned()),
        true if spec.argument.is_some() => Some(format!(
            "jostle strikes only servers that it launches (`{name}` without an address)"
        )),
        true if members < LEAST => Some(format!(
            "it is a single server; `--members {LEAST}` launches a cluster"
        )),
        true if fault.parts_hosts() => Switch::may_be_made().err(),
        true => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_them_leads_or_nobody_is_struck() {
        const NO: Leads = |_, _| false;
        const YES: Leads = |address, _| address == "h:1";
        let aim = |fault, leads: [Leads; 3]| {
            // Numbers that no process has.
            let members = [1, 2, 3].map(|number| Member {
                pid: 4_194_304 + number,
                address: "h:1".to_owned(),
                secret: String::new(),
                leads: leads[number as usize - 1],
                host: None,
            });
            let blow = Blow::aim(fault, &members, Duration::ZERO);
            blow.map(|blow| blow.member.pid - 4_194_304)
        };
        assert_eq!(aim(Fault::LeaderKill, [NO, YES, NO]), Ok(2));
        assert_eq!(aim(Fault::MemberKill, [NO, YES, NO]), Ok(1));
        for leads in [[NO, NO, NO], [YES, NO, YES]] {
            let error = aim(Fault::LeaderStop, leads).unwrap_err();
            assert!(error.contains("of its 3 servers lead"), "{error}");
        }
    }
}
