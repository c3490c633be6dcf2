//! The network between hosts: a bridge, and a cable from each host to it, which
//! can be slow (tbf) or cut. Both ends of a cable: `eth0` on the host, and an
//! interface of the host's name on the switch.

use super::state::{Member, State};
use super::{Hosts, SWITCH};
use crate::shell::quiet;
use anyhow::{Context, bail};
use std::io::Write;
use std::process::{Command, Stdio};

const BRIDGE: &str = "bridge";

/// How long a packet may wait in front of a slow link before the next are dropped.
const QUEUE: &str = "100ms";
/// The time's worth of packets that pass at once after a rest: as little as timers allow.
const BURST_S: f64 = 0.001;
/// The bytes that a packet takes on an Ethernet beside itself: check sum, preamble and gap, and
/// never less than 64 bytes (IEEE 802.3). Small requests are mostly that.
const FRAME: &str = "mpu 84 overhead 24";
/// A full packet, less than which would not pass at all.
const LEAST_BURST_BYTES: f64 = 1600.0;

/// Lays the cables.
pub(super) fn connect(state: &State) -> anyhow::Result<()> {
    let mut text = format!("link add name {BRIDGE} type bridge\nlink set dev {BRIDGE} up\n");
    for host in state.members.iter().filter(|member| member.name != SWITCH) {
        let (name, pid) = (&host.name, host.pid);
        text += &format!(
            "link add name {name} type veth peer name eth0 netns {pid}\n\
             link set dev {name} master {BRIDGE}\n\
             link set dev {name} up\n"
        );
    }
    let mut ip = in_network(switch(state)?, "ip");
    let mut child = ip
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run nsenter")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("cannot lay the cables: {}", said.trim());
    }
    Ok(())
}

fn switch(state: &State) -> anyhow::Result<&Member> {
    let found = state.members.iter().find(|member| member.name == SWITCH);
    found.context("there is no switch")
}

/// A command in a member's network, and otherwise here.
fn in_network(member: &Member, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &member.pid.to_string(), "--net", program]);
    command
}

impl Hosts {
    /// Limits a host's link in both directions, as in `10mbit`; None lifts it.
    ///
    /// # Errors
    /// For a rate that is none.
    pub fn slow(&self, host: &str, rate: Option<&str>) -> anyhow::Result<()> {
        let bits_per_s = rate.map(bits_per_s).transpose()?;
        let host = self.member(host)?;
        let ends = [(switch(&self.state)?, &*host.name), (host, "eth0")];
        for (place, interface) in ends {
            // There may be none to remove.
            let _ = quiet(in_network(place, "tc").args(["qdisc", "del", "dev", interface, "root"]));
            if let Some(bits) = bits_per_s {
                let burst = (bits / 8.0 * BURST_S).max(LEAST_BURST_BYTES).round();
                let words = format!(
                    "qdisc add dev {interface} root tbf rate {bits}bit burst {burst} {FRAME} latency {QUEUE}"
                );
                quiet(in_network(place, "tc").args(words.split(' ')))?;
            }
        }
        Ok(())
    }

    /// From here on nothing passes to and from a host, and nobody is told.
    ///
    /// # Errors
    /// For a host that is not there.
    pub fn cut(&self, host: &str) -> anyhow::Result<()> {
        self.plug(host, &["nomaster"])
    }

    /// Undoes [`Hosts::cut`]; a slow link stays slow.
    ///
    /// # Errors
    /// For a host that is not there.
    pub fn mend(&self, host: &str) -> anyhow::Result<()> {
        self.plug(host, &["master", BRIDGE])
    }

    /// Out of the bridge or into it: the link itself stays up, so that neither end
    /// learns of the cut from its interface.
    fn plug(&self, host: &str, how: &[&str]) -> anyhow::Result<()> {
        let name = &self.member(host)?.name;
        let mut ip = in_network(switch(&self.state)?, "ip");
        quiet(ip.args(["link", "set", "dev", name]).args(how))
    }
}

/// `10mbit`, as tc(8) has it, in bits per second.
fn bits_per_s(rate: &str) -> anyhow::Result<f64> {
    let (number, factor) = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)]
        .iter()
        .find_map(|(unit, factor)| Some((rate.strip_suffix(unit)?, factor)))
        .with_context(|| format!("{rate} is no rate as 10mbit is, with kbit, mbit or gbit"))?;
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number * factor).round()),
        _ => bail!("{rate} is no rate as 10mbit is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_unit() {
        let table = [
            ("10mbit", 1e7),
            ("1.5mbit", 1.5e6),
            ("100kbit", 1e5),
            ("1gbit", 1e9),
        ];
        for (text, expected) in table {
            assert_eq!(bits_per_s(text).unwrap(), expected);
        }
        for nonsense in ["10", "mbit", "-1mbit", "0kbit", "infmbit", "10 mbit/s"] {
            assert!(bits_per_s(nonsense).is_err(), "{nonsense}");
        }
    }
}
