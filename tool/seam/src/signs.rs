//! Signs of a server about itself before a run and after it. The table of causes (crate `stats`)
//! judges it; the names of the signs are in `jostle_model::record::sign`.

use crate::address::Address;
use crate::remote::Client;
use crate::wire::{Reply, wrong_kind};
use crate::{Result, SetupError};
pub use jostle_model::record::{Process, Sign, Signs, sign};
use jostle_resp::value::{Value, ValueLimits};
use jostle_sys::clock::monotonic;
use std::time::{Duration, Instant};

/// Within which time a server answers who holds its locks, while a run is on.
pub const DEADLINE: Duration = Duration::from_millis(200);

/// Why there are no signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSigns {
    /// There is nobody to be asked.
    NotAsked,
    /// The server is there, and does not tell: in its words.
    Refused(String),
    /// Nobody answers: in the system's words.
    Silent(String),
}

/// A server's answer to a question about itself.
pub type Told = Result<Signs, NoSigns>;

/// Asks the server at an address. Whoever takes connections and answers with an error refuses;
/// anybody else is silent.
///
/// # Errors
/// Which of the two.
pub fn asked<T>(address: &Address, ask: impl FnOnce() -> Result<T>) -> Result<T, NoSigns> {
    ask().map_err(
        |SetupError(said)| match !is_late(&said) && address.accepts() {
            true => NoSigns::Refused(said),
            false => NoSigns::Silent(said),
        },
    )
}

/// Whether this is what we say ourselves of a server that is silent for too long. The time that
/// has passed does not tell: this process may have stood still.
fn is_late(said: &str) -> bool {
    said.contains("no answer") || said.contains("no handshake")
}

/// Asks over a connection that is kept open, or over a new one if there is none or it has ended.
/// No answer within [`DEADLINE`] is silence, after which the connection is closed: its next answer
/// would be to this question.
///
/// # Errors
/// Whether the server refused or was silent.
pub fn asked_in_time(
    address: &Address,
    connection: &mut Option<Client>,
    open: impl Fn() -> Result<Client>,
    ask: impl Fn(&mut Client) -> Result<Signs>,
) -> Told {
    loop {
        let kept = connection.take();
        let was_kept = kept.is_some();
        let mut client = match kept {
            Some(client) => client,
            None => {
                let begun = Instant::now();
                let client = asked(address, &open)?;
                if begun.elapsed() > 2 * DEADLINE {
                    *connection = Some(client);
                    return Err(late());
                }
                client
            }
        };
        client.patience = DEADLINE;
        match ask(&mut client) {
            Ok(signs) => {
                *connection = Some(client);
                return Ok(signs);
            }
            Err(SetupError(said)) if is_late(&said) => return Err(late()),
            Err(_) if was_kept => {}
            Err(SetupError(said)) => {
                return Err(match address.accepts() {
                    true => NoSigns::Refused(said),
                    false => NoSigns::Silent(said),
                });
            }
        }
    }
}

impl Client {
    /// The whole answer to a command, when no run is on.
    ///
    /// # Errors
    /// In words for the user.
    pub fn value(&mut self, words: &[&[u8]]) -> Result<Value> {
        let word = String::from_utf8_lossy(words[0]);
        let told = |said: &str| SetupError(format!("the server's answer to {word}: {said}"));
        let decode = |input: &[u8]| Value::decode(input, ValueLimits::default());
        jostle_resp::request::encode(&mut self.request, words);
        let answer = self.asked("ask", |input, call| {
            let whole = decode(input).map_err(|_| wrong_kind(call))?;
            Ok(whole.map(|(_, length)| (Reply::Text(&input[..length]), length)))
        });
        match decode(&answer.map_err(|said| told(&said))?.unwrap_or_default()) {
            Ok(Some((Value::Error(said), _))) => Err(told(&said)),
            Ok(Some((value, _))) => Ok(value),
            _ => Err(told("it is none")),
        }
    }
}

/// Silence of a server that did not answer within [`DEADLINE`].
pub fn late() -> NoSigns {
    NoSigns::Silent(format!("no answer within {} ms", DEADLINE.as_millis()))
}

/// A foreign name for a sentence: in brief, and without control characters.
pub fn in_brief(name: &str) -> String {
    const LONGEST: usize = 40;
    let visible = |c: char| if c.is_control() { '?' } else { c };
    let mut text: String = name.chars().take(LONGEST).map(visible).collect();
    if name.chars().count() > LONGEST {
        text.push_str("...");
    }
    text
}

/// The value of [`sign::WALL_CLOCK_MS`] for what a server's clock showed at some time since
/// `asked_ns`, which is of this machine's monotonic clock.
pub fn ahead(asked_ns: u64, wall_ms: u64) -> Sign {
    let ahead = |own_ns: u64| wall_ms as i64 - (own_ns / 1_000_000) as i64;
    Sign::Range([ahead(monotonic()), ahead(asked_ns)])
}

/// The signs of which there is a value.
pub fn known<const N: usize>(signs: [(&str, Option<Sign>); N]) -> Signs {
    let signs = signs.into_iter();
    signs
        .filter_map(|(sign, value)| Some((sign.to_owned(), value?)))
        .collect()
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::net::TcpListener;

    /// A NOPERM once was "did not answer when the run had ended".
    #[test]
    fn a_refusal_is_an_answer_and_silence_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let refuse = || Err::<(), _>(SetupError("NOPERM".to_owned()));
        let refused = Err(NoSigns::Refused("NOPERM".to_owned()));
        assert_eq!(asked(&address, refuse), refused);
        let late = || Err::<(), _>(SetupError("it gave no answer within 10 s".to_owned()));
        assert!(matches!(asked(&address, late), Err(NoSigns::Silent(_))));
        drop(listener);
        let is_silent = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            asked(&address, refuse) == Err(NoSigns::Silent("NOPERM".to_owned()))
        };
        assert!((0..12_000).any(is_silent));
    }
}
