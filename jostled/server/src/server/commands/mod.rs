//! Dispatch of requests to the commands in [`table`], which the modules beside it implement.

mod acl;
mod admin;
mod call;
mod clients;
mod ha;
mod handover;
mod hints;
mod identity;
mod locks;
mod pages;
mod rights;
mod sessions;
mod shutdown;
pub(super) mod table;
mod tools;
mod transaction;

pub(super) use call::Call;
use rights::{may_plainly, permit};
use table::{Spec, find, run};

use crate::server::Server;

/// Executes a request that is not empty.
#[inline]
pub(crate) fn execute(server: &mut Server, mut call: Call<'_>) {
    server.stats.commands += 1;
    call.conn.profile.commands += 1;
    let Some(spec) = find(call.arg(0)) else {
        return unknown(server, call);
    };
    server.stats.per_command[spec.verb as usize] += 1;
    if call.args.len() < spec.arity.0 || call.args.len() > spec.arity.1 {
        return wrong_arity(call, spec);
    }
    if call.conn.guarded && !may_plainly(&call, spec) {
        if let Err(text) = permit(server, &call, spec) {
            transaction::abort(call.conn);
            return call.error(&text);
        }
        if call.conn.transaction.is_some() {
            return transaction::execute_within(server, call, spec);
        }
    }
    run(server, call, spec.verb);
}

#[cold]
fn wrong_arity(mut call: Call<'_>, spec: &Spec) {
    transaction::abort(call.conn);
    let name = spec.name.to_ascii_lowercase();
    call.error(&format!(
        "ERR wrong number of arguments for '{name}' command: {}",
        hints::usage(spec)
    ));
}

#[cold]
fn unknown(server: &mut Server, mut call: Call<'_>) {
    if is_http(&call) {
        // A web page can make a browser send anything behind such a line: the body of a
        // POST would be executed. The connection closes without a reply.
        server.stats.closed_http += 1;
        call.conn.intake.closing = true;
        return;
    }
    transaction::abort(call.conn);
    if !call.conn.authenticated {
        return call.error("NOAUTH Authentication required.");
    }
    let name = call.arg(0);
    let shown = name[..name.len().min(64)].escape_ascii();
    let hint = hints::instead_of(name);
    call.error(&format!("ERR unknown command '{shown}': {hint}"));
}

/// Whether a request is a line of HTTP. `POST` and `Host:` count in any form, as in
/// Redis. Other methods count only in an inline request that ends with an HTTP version.
fn is_http(call: &Call<'_>) -> bool {
    let name = call.arg(0);
    let last = call.arg(call.args.len() - 1);
    let inline = call.request.first() != Some(&b'*');
    name.eq_ignore_ascii_case(b"POST")
        || name.eq_ignore_ascii_case(b"Host:")
        || (inline && last.starts_with(b"HTTP/"))
}
