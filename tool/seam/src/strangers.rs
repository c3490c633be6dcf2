//! Who else is connected to a server, by its own list: where a lock was lost, one of them may
//! be the cause.

use crate::Result;
use crate::address::Address;
use crate::program::secret;
use crate::remote::Client;
use crate::signs::{self, NoSigns};
use std::time::Duration;

/// How often a list of clients is asked for until nobody is left in it, and the time between.
const LISTS: usize = 10;
const BETWEEN_LISTS: Duration = Duration::from_millis(50);

/// The other clients in the `CLIENT LIST` of a Redis or a jostled: address, and last command
/// where it is listed.
///
/// # Errors
/// Why the server does not show the list.
pub fn strangers(address: &Address, client: Result<Client>) -> Result<Vec<String>, NoSigns> {
    signs::asked(address, || client.and_then(others))
}

fn others(mut client: Client) -> Result<Vec<String>> {
    let own = format!("jostle-{}", secret()?);
    client.command(&[b"CLIENT", b"SETNAME", own.as_bytes()])?;
    let mut others = Vec::new();
    // The server notices the end of our workers' connections a moment later.
    for _ in 0..LISTS {
        let list = client.ask(&[b"CLIENT", b"LIST"])?;
        others = listed(&String::from_utf8_lossy(&list), &own);
        if others.is_empty() {
            break;
        }
        std::thread::sleep(BETWEEN_LISTS);
    }
    Ok(others)
}

/// The clients in a `CLIENT LIST` that do not have this name.
fn listed(list: &str, own: &str) -> Vec<String> {
    let field = |line: &str, name: &str| {
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        fields.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
    };
    let others = list
        .lines()
        .filter(|line| field(line, "name").as_deref() != Some(own));
    let each = others.filter_map(|line| {
        let address = field(line, "addr")?;
        Some(match field(line, "cmd") {
            Some(command) => format!("{address} (last command: {command})"),
            None => address,
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_one_who_asks_is_no_stranger() {
        let redis = "id=3 addr=127.0.0.1:1 laddr=127.0.0.1:9 name= age=7 cmd=flushall user=default";
        let jostled = "id=4 addr=127.0.0.1:2 name= age=7 flags=N user=ann";
        let own = "id=5 addr=127.0.0.1:3 name=jostle-7 cmd=client|list";
        assert_eq!(
            super::listed(&[redis, jostled, own].join("\n"), "jostle-7"),
            ["127.0.0.1:1 (last command: flushall)", "127.0.0.1:2"]
        );
    }
}
