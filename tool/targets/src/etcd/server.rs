//! Queries to a server before the first lock: whether it can be used, and the lease that it
//! grants.

use super::rpc::{self, Channel, PATIENCE};
use super::{GRANT, REVOKE};
use crate::address::Address;
use crate::login::{self, Credentials};
use crate::{Result, SetupError};
use jostle_etcd::Failure;
use jostle_etcd::messages::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, Empty, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRequest, STATUS, StatusResponse,
};

/// The first version that looks for the greatest create revision below a given one: an
/// older one leaves that bound out, so that a waiter would watch its own key.
const OLDEST: f64 = 3.001;

/// The server's status. An error if its version is too old, or its cluster has no leader.
///
/// # Errors
/// In words for the user.
pub(super) fn status(address: &Address, own: &Credentials) -> Result<StatusResponse> {
    let status = admitted(address, own)?.call::<StatusResponse>(STATUS, &Empty {}, false);
    let status = status.map_err(|failure| unusable(address, &failure))?;
    if login::version(&status.version).is_some_and(|version| version < OLDEST) {
        return Err(SetupError(format!(
            "etcd at {address}: its version is {}, and the lock of etcd's library needs 3.1 or later",
            status.version
        )));
    }
    match status.leader {
        0 => Err(SetupError(format!(
            "etcd at {address}: its cluster has no leader; more than half of its members have to run"
        ))),
        _ => Ok(status),
    }
}

/// The possible causes where a server does not even answer the first call.
fn unusable(address: &Address, failure: &Failure) -> SetupError {
    let SetupError(said) = told(address, failure);
    SetupError(match failure {
        Failure::Ended(_) => said + &rpc::hint(address),
        Failure::Late => format!(
            "{said}: it accepts connections and does not answer within {} s; is it stopped, or \
             its disk stuck?",
            PATIENCE.as_secs()
        ),
        _ => said,
    })
}

/// The time to live, in seconds, that a server grants if `asked_s` is asked for: it grants
/// no lease that an election could outlast.
pub(super) fn granted(address: &Address, own: &Credentials, asked_s: i64) -> Result<i64> {
    let channel = admitted(address, own)?;
    let request = LeaseGrantRequest { ttl_s: asked_s };
    let granted: Result<LeaseGrantResponse, Failure> = channel.call(GRANT, &request, false);
    let granted = granted.map_err(|failure| told(address, &failure))?;
    let request = LeaseRequest { id: granted.id };
    let revoked: Result<Empty, Failure> = channel.call(REVOKE, &request, false);
    revoked.map_err(|failure| told(address, &failure))?;
    Ok(granted.ttl_s)
}

/// A connection, authenticated if the credentials have a user.
pub(super) fn admitted(address: &Address, own: &Credentials) -> Result<Channel> {
    let mut channel = Channel::open(address)?;
    let Some(name) = own.user.clone() else {
        return Ok(channel);
    };
    let password = own.password.clone().unwrap_or_default();
    let request = AuthenticateRequest { name, password };
    let let_in = channel.call::<AuthenticateResponse>(AUTHENTICATE, &request, false);
    let let_in = let_in.map_err(|failure| unusable(address, &failure))?;
    channel.show(let_in.token);
    Ok(channel)
}

/// A failure, with the server and what to do about it.
pub(super) fn told(address: &Address, failure: &Failure) -> SetupError {
    let text = format!("etcd at {address}: {failure}");
    SetupError(match text.contains("database space exceeded") {
        true => format!(
            "{text}; its quota (--quota-backend-bytes) is used up: `etcdctl compact`, \
             `etcdctl defrag`, then `etcdctl alarm disarm`"
        ),
        false => text,
    })
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use jostle_etcd::fake::{self, Says};
    use prost::Message;

    fn refusal(address: &str) -> String {
        let address = Address::Tcp(address.to_owned());
        status(&address, &Credentials::default()).unwrap_err().0
    }

    /// One that leads itself.
    fn of_version(version: &str) -> Says {
        let status = StatusResponse {
            version: version.to_owned(),
            leader: 7,
            ..StatusResponse::default()
        };
        Says::Message(status.encode_to_vec())
    }

    #[test]
    fn every_version_with_the_calls_of_the_recipe_is_taken() {
        for version in [
            "3.1.0",
            "3.4.23",
            "3.5.21",
            "3.6.5",
            "3.7.0-alpha.0",
            "main",
        ] {
            let address = Address::Tcp(fake::speaks_http2(of_version(version)));
            let status = status(&address, &Credentials::default());
            assert_eq!(status.unwrap().version, version);
        }
    }

    #[test]
    fn an_etcd_before_the_recipe_s_calls_is_told_with_its_version() {
        let said = refusal(&fake::speaks_http2(of_version("3.0.17")));
        assert!(said.contains("its version is 3.0.17"), "{said}");
        assert!(said.contains("needs 3.1 or later"), "{said}");
    }

    #[test]
    fn what_speaks_http_2_and_is_no_etcd_is_told_by_its_answer() {
        let unknown = "unknown service etcdserverpb.Maintenance";
        for (says, what) in [
            (Says::Status(12, unknown), unknown),
            (Says::Http(404), "HTTP status 404"),
            (Says::Http(200), "its answer is of the type text/html"),
        ] {
            let said = refusal(&fake::speaks_http2(says));
            assert!(said.contains(what), "{said}");
            assert!(
                said.contains("it does not speak version 3 of etcd's API"),
                "{said}"
            );
        }
        // A call that an etcd refuses, and a proxy whose etcd is down, are none of these.
        for (says, what) in [
            (
                Says::Status(14, "etcdserver: no leader"),
                "no leader (gRPC status 14)",
            ),
            (Says::Http(503), "HTTP status 503"),
        ] {
            let said = refusal(&fake::speaks_http2(says));
            assert!(
                said.contains(what) && !said.contains("does not speak"),
                "{said}"
            );
        }
    }

    /// The version 2 of the API was HTTP/1.1.
    #[test]
    fn an_etcd_of_version_2_and_what_is_no_etcd_are_told_by_their_first_bytes() {
        let of_version_2 = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
        for (answer, what) in [
            (of_version_2, "it answers in HTTP/1;"),
            ("-ERR unknown command\r\n", "its answer is not HTTP/2;"),
        ] {
            let said = refusal(&fake::answers(answer.as_bytes()));
            assert!(
                said.contains("it does not speak version 3 of etcd's API"),
                "{said}"
            );
            assert!(said.contains(what), "{said}");
            assert!(said.contains("is this the client port"), "{said}");
        }
        let alert = b"\x15\x03\x01\x00\x02\x02\x46";
        let said = refusal(&fake::answers(alert));
        assert!(
            said.contains("one that wants TLS is etcd:https://127.0.0.1:"),
            "{said}"
        );
    }

    #[test]
    fn a_server_that_is_stopped_is_told_from_one_that_is_not_there() {
        let stopped = fake::accepts_only();
        let said = refusal(&stopped.local_addr().unwrap().to_string());
        assert!(
            said.contains("it accepts connections and does not answer"),
            "{said}"
        );
        assert!(said.contains("is it stopped"), "{said}");
        let nobody = stopped.local_addr().unwrap().to_string();
        drop(stopped);
        let said = refusal(&nobody);
        assert!(said.contains("is the server running there?"), "{said}");
    }
}
