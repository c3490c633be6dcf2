//! Commands to use in place of those that only Redis has.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::table::{Spec, find};

/// Our commands, and those of Redis that lock recipes use for the same.
const REDIS: &str = "\
LOCK TRYLOCK: SET SETNX SETEX PSETEX GETSET HSET HSETNX HINCRBY INCR INCRBY DECR ZADD SADD
LOCK: BLPOP BRPOP BLMOVE LPUSH RPUSH SUBSCRIBE PSUBSCRIBE PUBLISH WAIT
LOCKALL: MSET MSETNX WATCH UNWATCH
UNLOCK FORCEUNLOCK: DEL UNLINK GETDEL DELEX DELIFEQ HDEL ZREM SREM
RENEW: EXPIRE PEXPIRE EXPIREAT PEXPIREAT GETEX PERSIST
LOCK UNLOCK RENEW: EVAL EVALSHA EVAL_RO EVALSHA_RO SCRIPT FCALL FUNCTION
HOLDER: GET MGET TTL PTTL EXISTS TYPE STRLEN HGET HEXISTS HGETALL EXPIRETIME PEXPIRETIME
HOLDERS: KEYS SCAN DBSIZE ZCARD ZRANGE";

/// How a command is called.
pub(super) fn usage(spec: &Spec) -> String {
    format!("{} {}", spec.name, spec.arguments)
}

/// By unknown command, what to use instead. Made once: unknown commands come in floods, too.
static INSTEAD: LazyLock<HashMap<&[u8], String>> = LazyLock::new(|| {
    let rows = REDIS.lines().filter_map(|row| row.split_once(": "));
    let hints = rows.flat_map(|(ours, theirs)| {
        let ours = ours.split(' ').filter_map(|word| find(word.as_bytes()));
        let usages: Vec<String> = ours.map(usage).collect();
        let hint = format!("there are locks, no keys; use {}", usages.join(", or "));
        theirs
            .split(' ')
            .map(move |word| (word.as_bytes(), hint.clone()))
    });
    hints.collect()
});

/// A suggestion of what to use instead of an unknown command.
pub(super) fn instead_of(name: &[u8]) -> &'static str {
    let name = name[..name.len().min(32)].to_ascii_uppercase();
    INSTEAD
        .get(&name[..])
        .map_or("COMMAND LIST names all", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_commands_that_exist_for_those_that_do_not() {
        for (ours, theirs) in REDIS.lines().map(|row| row.split_once(": ").unwrap()) {
            let exists = |word: &str| find(word.as_bytes()).is_some();
            assert!(
                ours.split(' ').all(exists) && !theirs.split(' ').any(exists),
                "{ours}"
            );
        }
    }
}
