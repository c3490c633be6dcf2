//! Texts from outside (targets as typed, answers of servers), made safe for writing and
//! printing: without passwords, and without control characters for the terminal.

use std::borrow::Cow;

/// Stands where a password stood.
pub(crate) const REDACTED: &str = "***";

/// The text with the password of each URL in it (`http://user:secret@host/`) replaced
/// by `REDACTED`. A user's name without a password stays.
///
/// A password is found by RFC 3986's userinfo: between `://` and the last `@` before the first `/`,
/// `?`, `#`, quote, backslash or space, behind its first colon. The text may be a line of JSON,
/// which stays one.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        let end = tail.find(ends_authority).unwrap_or(tail.len());
        let secret = password(&tail[..end]);
        out.push_str(head);
        rest = match secret {
            None => tail,
            Some((from, to)) => {
                out.push_str(&tail[..from]);
                out.push_str(REDACTED);
                &tail[to..]
            }
        };
    }
    match out.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(out + rest),
    }
}

/// Whether a password was taken out of this text, so that it is no longer whole.
pub fn is_redacted(text: &str) -> bool {
    text.contains(&format!(":{REDACTED}@"))
}

fn ends_authority(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "/?#\"\\<>`".contains(c)
}

/// From where to where in the authority of a URL.
fn password(authority: &str) -> Option<(usize, usize)> {
    let at = authority.rfind('@')?;
    let colon = authority[..at].find(':')?;
    (colon + 1 < at).then_some((colon + 1, at))
}

/// The text with every control character except line breaks and tabs written like `\u001b`,
/// so that it cannot control a terminal; marks that change the direction of writing too. A
/// JSON text keeps its meaning.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c != '\n' && c != '\t' && is_steering(c);
    escaped(text, steers)
}

/// Like [`printable`], with line breaks and tabs written as `\u000a` too, for a text that
/// must not imitate our own lines.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_steering)
}

/// Control characters (C0, DEL and C1), and the marks of Unicode that embed or override
/// a direction of writing (UAX 9).
fn is_steering(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, steers: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match steers(c) {
            true => out += &format!("\\u{:04x}", u32::from(c)),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The word quoted for a shell; unchanged if it has no special characters.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Whether two messages tell the same but for their numbers, such as how long a call took.
pub fn alike(one: &str, other: &str) -> bool {
    let words = |text: &'_ str| -> String {
        text.chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect()
    };
    words(one) == words(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_alike_whatever_their_numbers() {
        assert!(alike(
            "an error after 0.1 ms: no",
            "an error after 12.0 ms: no"
        ));
        assert!(!alike(
            "an error after 0.1 ms: no",
            "an error after 0.1 ms: yes"
        ));
    }

    #[test]
    fn the_password_of_a_url_goes_and_nothing_else() {
        let table = [
            ("http://user:secret@host/", "http://user:***@host/"),
            (
                "http://user:secret@host:80/a:b@c",
                "http://user:***@host:80/a:b@c",
            ),
            ("http://user:p@ss:word@host", "http://user:***@host"),
            ("redis://:secret@host:6379", "redis://:***@host:6379"),
            (
                "exec:curl -s https://a:b@c/ http://d:e@f",
                "exec:curl -s https://a:***@c/ http://d:***@f",
            ),
            // A line of JSON stays one.
            (
                r#"{"t":"http://u:p@h/","m":"x@y"}"#,
                r#"{"t":"http://u:***@h/","m":"x@y"}"#,
            ),
            (
                r#"{"t":"tcp://h:80","m":"x@y"}"#,
                r#"{"t":"tcp://h:80","m":"x@y"}"#,
            ),
            // No password in these.
            ("ssh://git@host/", "ssh://git@host/"),
            ("http://user:@host/", "http://user:@host/"),
            (
                "ldap://host:389/dc=a?(mail=x@y)",
                "ldap://host:389/dc=a?(mail=x@y)",
            ),
            (
                "tcp://127.0.0.1:80 failed: root:x@y",
                "tcp://127.0.0.1:80 failed: root:x@y",
            ),
            ("", ""),
            ("://", "://"),
        ];
        for (text, expected) in table {
            assert_eq!(redacted(text), expected);
            // Nothing is left to be taken out.
            assert_eq!(redacted(expected), expected);
        }
        assert!(is_redacted("http://user:***@host/") && !is_redacted("http://user:@host/"));
    }

    #[test]
    fn nothing_steers_a_terminal() {
        let table = [
            ("plain, ± 3 %\n\tnext", "plain, ± 3 %\n\tnext"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u001b[31mred\\u001b[0m"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("over\rwritten", "over\\u000dwritten"),
            ("C1 \u{9b}31m, DEL \u{7f}", "C1 \\u009b31m, DEL \\u007f"),
            ("\u{202e}desrever", "\\u202edesrever"),
        ];
        for (text, expected) in table {
            assert_eq!(printable(text), expected);
        }
        assert_eq!(one_line("a\nVALID\tb"), "a\\u000aVALID\\u0009b");
        assert_eq!(one_line("a b"), "a b");
    }

    #[test]
    fn what_is_printable_within_json_is_the_same_text() {
        let text = "\u{9b}31m \u{1b} \u{7f} \"quoted\" \u{202e}";
        let line = serde_json::to_string(text).unwrap();
        let read: String = serde_json::from_str(&printable(&line)).unwrap();
        assert_eq!(read, text);
    }
}
