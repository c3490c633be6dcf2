//! SHUTDOWN: the daemon's end, at once or when nobody holds a lock any more. LEASES: the end
//! of the wait after a crash.

use jostle_resp::parse_u64;

use super::call::Call;
use crate::log::Value;
use crate::server::Server;

/// The longest drain: a day.
const DRAIN_MAX_MS: u64 = 86_400_000;

pub(super) fn shutdown(server: &mut Server, mut call: Call<'_>) {
    let word = call.arg(1).to_ascii_uppercase();
    match (&word[..], call.args.len()) {
        (b"" | b"NOW", 1 | 2) => {
            server.audit(call.conn, "shutdown", &[]);
            server.end_soon();
            call.reply().simple("OK");
        }
        (b"ABORT", 2) => {
            if server.abort_drain() {
                call.conn.draining = false;
                call.conn.update_guard();
                server.audit(call.conn, "shutdown aborted", &[]);
                call.reply().simple("OK");
            } else {
                call.error("ERR no shutdown in progress");
            }
        }
        (b"DRAIN", 3) => match duration_ms(call.arg(2)) {
            None => call.error("ERR DRAIN takes a time such as 30s, 500ms or 5m, at most a day"),
            Some(ms) => {
                let time = ("drain_ms", Value::Shown(&ms));
                server.audit(call.conn, "shutdown", &[time]);
                server.begin_drain(ms, call.now);
                call.conn.draining = true;
                call.conn.update_guard();
                call.reply().simple("OK");
            }
        },
        _ => call.error(&call.wrong_subcommand()),
    }
}

pub(super) fn leases(server: &mut Server, mut call: Call<'_>) {
    if !call.arg(1).eq_ignore_ascii_case(b"FORGET") {
        return call.error(&call.wrong_subcommand());
    }
    let Some(ms) = server.loading_ms(call.now) else {
        return call.error("ERR no earlier lease is waited for: locks are granted");
    };
    let time = ("loading_ms", Value::Shown(&ms));
    server.audit(call.conn, "leases forgotten", &[time]);
    server.forget_leases();
    call.reply().simple("OK");
}

/// `30s`, `500ms`, `5m`, or seconds.
fn duration_ms(text: &[u8]) -> Option<u64> {
    let units: [(&[u8], u64); 4] = [(b"ms", 1), (b"s", 1000), (b"m", 60_000), (b"", 1000)];
    let (digits, unit) = units
        .into_iter()
        .find_map(|(unit, ms)| Some((text.strip_suffix(unit)?, ms)))?;
    let ms = parse_u64(digits)?.checked_mul(unit)?;
    (ms <= DRAIN_MAX_MS).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::duration_ms;

    #[test]
    fn times_have_units() {
        for (text, ms) in [
            ("30s", Some(30_000)),
            ("500ms", Some(500)),
            ("5m", Some(300_000)),
            ("7", Some(7000)),
            ("0s", Some(0)),
            ("1440m", Some(86_400_000)),
            ("1441m", None),
            ("s", None),
            ("-1s", None),
            ("1h", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(duration_ms(text.as_bytes()), ms, "{text}");
        }
    }
}
