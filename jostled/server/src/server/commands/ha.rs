//! HA: the group of jostleds that this one serves.

use super::call::Call;
use crate::server::Server;

const ALONE: &str = "ERR this jostled belongs to no group (--ha-name)";

#[cfg(not(feature = "ha"))]
pub(super) fn ha(_: &mut Server, mut call: Call<'_>) {
    call.error(ALONE);
}

#[cfg(feature = "ha")]
pub(super) fn ha(server: &mut Server, mut call: Call<'_>) {
    let Some(status) = server.group_status() else {
        return call.error(ALONE);
    };
    match &call.arg(1).to_ascii_uppercase()[..] {
        b"STATUS" => {
            call.reply().map(status.len());
            for (name, value) in status {
                call.reply().bulk(name.as_bytes());
                call.reply().bulk(value.as_bytes());
            }
        }
        b"FAILOVER" if server.has_standby() == Some(true) => {
            server.audit(call.conn, "failover", &[]);
            server.end_soon();
            call.reply().simple("OK");
        }
        b"FAILOVER" => call.error("ERR no other member of the group runs: nobody would serve it"),
        _ => call.error(&call.wrong_subcommand()),
    }
}
