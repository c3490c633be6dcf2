//! The users file: lines as Redis writes its own, as far as they apply to locks.

use std::collections::HashSet;
use std::fmt;

use super::{Quota, User, hash};
use crate::glob::Pattern;

/// Bytes of a user's name.
const NAME_MAX: usize = 128;

/// Reads lines `user NAME RULE...`; empty lines and those that begin with `#` are ignored.
pub(super) fn users(text: &str) -> Result<Vec<User>, String> {
    let (mut list, mut known) = (Vec::new(), HashSet::new());
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        let wrong = |why: String| format!("line {}: {why}", index + 1);
        match words.next() {
            None => continue,
            Some(word) if word.starts_with('#') => continue,
            Some("user") => {}
            Some(word) => return Err(wrong(format!("`{word}` where `user` should stand"))),
        }
        let name = words.next().unwrap_or_default();
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(wrong(format!("a user's name has 1 to {NAME_MAX} bytes")));
        }
        if !known.insert(name) {
            return Err(wrong(format!("a second user `{name}`")));
        }
        let mut user = User {
            name: name.to_owned(),
            ..User::default()
        };
        for word in words {
            rule(&mut user, word).map_err(wrong)?;
        }
        list.push(user);
    }
    Ok(list)
}

/// Applies one rule. Later ones win over earlier ones, as in Redis.
fn rule(user: &mut User, word: &str) -> Result<(), String> {
    match word {
        "on" => user.on = true,
        "off" => user.on = false,
        "nopass" => (user.nopass, user.hashes) = (true, Vec::new()),
        "resetpass" => (user.nopass, user.hashes) = (false, Vec::new()),
        "allkeys" => user.patterns = vec![Pattern::new(b"*")],
        "resetkeys" => user.patterns.clear(),
        "+@lock" => user.lock = true,
        "-@lock" => user.lock = false,
        "+@admin" => user.admin = true,
        "-@admin" => user.admin = false,
        "+@all" | "allcommands" => (user.lock, user.admin) = (true, true),
        "-@all" | "nocommands" => (user.lock, user.admin) = (false, false),
        _ => return rule_with_value(user, word),
    }
    Ok(())
}

fn rule_with_value(user: &mut User, word: &str) -> Result<(), String> {
    if let Some((key, value)) = word.split_once('=')
        && let Some((_, place)) = bounds(&mut user.quota)
            .into_iter()
            .find(|(name, _)| *name == key)
    {
        let number = value.parse();
        *place = Some(number.map_err(|_| format!("`{word}`: not a number up to 4294967295"))?);
        return Ok(());
    }
    match word.split_at_checked(1) {
        Some(("~", pattern)) if !pattern.is_empty() => {
            user.patterns.push(Pattern::new(pattern.as_bytes()));
        }
        Some((">", password)) if !password.is_empty() => add(user, hash(password.as_bytes())),
        Some(("#", digits)) => {
            let bytes = unhex(digits).ok_or("a hash is `#` and 64 hexadecimal digits (SHA-256)")?;
            add(user, bytes);
        }
        _ => {
            return Err(format!(
                "`{word}` is no rule; there are on, off, nopass, resetpass, >password, #sha256, \
                 ~pattern, allkeys, resetkeys, +@lock, +@admin, +@all and their opposites, \
                 max-locks=N, max-waiters=N, max-sessions=N, max-connections=N, \
                 max-ttl=SECONDS"
            ));
        }
    }
    Ok(())
}

fn bounds(quota: &mut Quota) -> [(&'static str, &mut Option<u32>); 5] {
    [
        ("max-locks", &mut quota.locks),
        ("max-waiters", &mut quota.waiters),
        ("max-sessions", &mut quota.sessions),
        ("max-connections", &mut quota.connections),
        ("max-ttl", &mut quota.ttl_s),
    ]
}

fn add(user: &mut User, hash: [u8; 32]) {
    user.nopass = false;
    if !user.hashes.contains(&hash) {
        user.hashes.push(hash);
    }
}

fn unhex(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The form that ACL LIST shows and that the users file could contain.
impl fmt::Display for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.on { "on" } else { "off" };
        write!(out, "user {} {state}", self.name)?;
        if self.nopass {
            write!(out, " nopass")?;
        }
        for hash in &self.hashes {
            write!(out, " #")?;
            for byte in hash {
                write!(out, "{byte:02x}")?;
            }
        }
        for pattern in &self.patterns {
            write!(out, " ~{}", String::from_utf8_lossy(pattern.text()))?;
        }
        let sign = |may| if may { '+' } else { '-' };
        write!(out, " {}@lock {}@admin", sign(self.lock), sign(self.admin))?;
        for (key, value) in bounds(&mut self.quota.clone()) {
            if let Some(value) = value {
                write!(out, " {key}={value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `secret`, by sha256sum.
    const SECRET: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_user_is_read_as_it_is_shown() {
        for (line, shown) in [
            ("user a", "user a off -@lock -@admin".to_owned()),
            (
                "user a on >secret ~job:* ~x +@lock max-locks=3 max-waiters=2 max-sessions=4 \
                 max-connections=1 max-ttl=9",
                format!(
                    "user a on {SECRET} ~job:* ~x +@lock -@admin max-locks=3 max-waiters=2 \
                     max-sessions=4 max-connections=1 max-ttl=9"
                ),
            ),
            (
                "  user b on nopass allkeys +@all -@lock ",
                "user b on nopass ~* -@lock +@admin".to_owned(),
            ),
            (
                "user c on nopass >secret ~x resetkeys ~y",
                format!("user c on {SECRET} ~y -@lock -@admin"),
            ),
            (
                "user d on >secret resetpass",
                "user d on -@lock -@admin".to_owned(),
            ),
        ] {
            let found = users(&format!("# users\n\n{line}\n")).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].to_string(), shown);
            assert_eq!(users(&shown).unwrap(), found, "{shown}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_line() {
        for (text, why) in [
            ("nonsense", "line 1"),
            ("\nuser", "line 2"),
            ("user a on\nuser a off", "second user"),
            ("user a +get", "is no rule"),
            ("user a ~", "is no rule"),
            ("user a >", "is no rule"),
            ("user a #12", "64 hexadecimal"),
            ("user a max-locks=many", "not a number"),
            ("user a max-lock=1", "is no rule"),
        ] {
            let error = users(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
