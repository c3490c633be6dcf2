//! Commands that tools and libraries for Redis send before they do anything.

use jostle_resp::Writer;

use super::call::Call;
use super::pages::PATTERN_MAX;
use super::table::{COMMANDS, Spec, find};
use crate::glob::Pattern;
use crate::server::Server;
use crate::server::info;

/// Whether the arguments from the third on are too many bytes for one call; then it is
/// answered.
fn is_too_long(call: &mut Call<'_>) -> bool {
    // Each argument costs something, however short it is.
    let bytes: usize = call.rest(2).map(|argument| argument.len() + 1).sum();
    let too_long = bytes > PATTERN_MAX;
    if too_long {
        call.error("ERR names and patterns together have at most 1024 bytes");
    }
    too_long
}

pub(super) fn command(_: &mut Server, mut call: Call<'_>) {
    if is_too_long(&mut call) {
        return;
    }
    let subcommand = call.arg(1).to_ascii_uppercase();
    let named: Vec<Option<&Spec>> = if call.args.len() > 2 {
        call.rest(2).map(find).collect()
    } else {
        COMMANDS.iter().map(Some).collect()
    };
    let mut reply = call.reply();
    match &subcommand[..] {
        b"COUNT" => reply.integer(COMMANDS.len() as i64),
        b"LIST" => {
            reply.array(COMMANDS.len());
            COMMANDS
                .iter()
                .for_each(|spec| reply.bulk(spec.name.to_lowercase().as_bytes()));
        }
        b"DOCS" => {
            let known: Vec<&Spec> = named.into_iter().flatten().collect();
            reply.map(known.len());
            for spec in known {
                call.reply().bulk(spec.name.to_lowercase().as_bytes());
                call.reply().map(3);
                let summary = spec.summary.as_bytes();
                call.texts(&[
                    ("summary", summary),
                    ("since", b"0.1.0"),
                    ("group", b"locks"),
                ]);
            }
        }
        b"" | b"INFO" => {
            reply.array(named.len());
            for spec in named {
                match spec {
                    Some(spec) => write_spec(&mut reply, spec),
                    None => reply.nil(),
                }
            }
        }
        _ => reply.error("ERR unknown subcommand for 'command'"),
    }
}

/// Name, arity, flags, and where the keys stand: the six fields that every
/// version of the protocol has.
fn write_spec(reply: &mut Writer<'_>, spec: &Spec) {
    let exact = spec.arity.0 == spec.arity.1;
    let arity = spec.arity.0 as i64;
    let key = i64::from(spec.arguments.starts_with("name"));
    reply.array(6);
    reply.bulk(spec.name.to_lowercase().as_bytes());
    reply.integer(if exact { arity } else { -arity });
    reply.set(1);
    reply.simple(if spec.kind.is_open() {
        "no_auth"
    } else {
        "fast"
    });
    for number in [key, key, key] {
        reply.integer(number);
    }
}

pub(super) fn config(server: &mut Server, mut call: Call<'_>) {
    if !call.arg(1).eq_ignore_ascii_case(b"GET") || call.args.len() < 3 {
        return call.error("ERR only CONFIG GET is supported; settings are flags and a file");
    }
    if is_too_long(&mut call) {
        return;
    }
    let values = info::settings(&server.config);
    let patterns = call
        .rest(2)
        .map(|text| Pattern::new(&text.to_ascii_lowercase()));
    let patterns: Vec<Pattern> = patterns.collect();
    let wanted = |key: &[u8]| patterns.iter().any(|pattern| pattern.matches(key));
    let found = values.iter().filter(|(key, _)| wanted(key.as_bytes()));
    let found: Vec<_> = found.collect();
    call.reply().map(found.len());
    for (key, value) in found {
        call.texts(&[(key, value.as_bytes())]);
    }
}
