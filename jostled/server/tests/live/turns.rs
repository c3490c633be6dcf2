//! Requests that arrive together. The daemon is stopped (SIGSTOP) meanwhile, so that it
//! finds all of them when it looks.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{Client, Daemon, at_once, short};

#[test]
fn a_lease_for_one_who_left_goes_to_the_one_that_gave_the_lock_back_and_waits_again() {
    let daemon = Daemon::start(&[]);
    let (mut first, mut second) = (daemon.client(), daemon.client());
    assert_eq!(first.say("LOCK x"), "1");
    second.send("LOCK x TTL 60000");
    daemon.await_info("waiters", 1);
    // The lock is granted to the second client, which is found to be gone, and passed
    // on to the first one, all while the first one's commands are executed.
    at_once(&daemon, || {
        let both = b"*2\r\n$6\r\nUNLOCK\r\n$1\r\nx\r\n*2\r\n$4\r\nLOCK\r\n$1\r\nx\r\n";
        first.stream.write_all(both).unwrap();
        drop(second);
    });
    first.set_timeout(Duration::from_secs(120));
    assert_eq!(short(&first.read()), "1");
    assert_eq!(short(&first.read()), "3");
    assert_eq!(daemon.info("grants_passed_on"), 1);
}

#[test]
fn a_grant_to_a_session_whose_waiter_has_left_is_passed_on() {
    let daemon = Daemon::start(&[]);
    let mut a = daemon.client();
    let id = a.say("SESSION OPEN TTL 600000");
    let (mut holder, mut waiter, mut next) = (daemon.client(), daemon.client(), daemon.client());
    holder.token("LOCK x");
    waiter.send(&format!("LOCK x SESSION {id}"));
    daemon.await_info("waiters", 1);
    next.send("LOCK x");
    daemon.await_info("waiters", 2);
    // In one turn: the waiter leaves, and the lock comes to it.
    at_once(&daemon, || {
        holder.send("UNLOCK x");
        drop(waiter);
    });
    assert_eq!(holder.read().as_integer(), Some(1));
    next.set_timeout(Duration::from_secs(120));
    assert_eq!(short(&next.read()), "3");
    assert_eq!(daemon.info("grants_passed_on"), 1);
}

#[test]
fn a_grant_to_a_session_is_not_passed_on_once_the_session_knows_its_token() {
    let daemon = Daemon::start(&[]);
    let mut a = daemon.client();
    let id = a.say("SESSION OPEN TTL 600000");
    let (mut holder, mut first) = (daemon.client(), daemon.client());
    let (mut again, mut next) = (daemon.client(), daemon.client());
    holder.token("LOCK x");
    for (waiters, client) in [(1, &mut first), (2, &mut again)] {
        client.send(&format!("LOCK x SESSION {id}"));
        daemon.await_info("waiters", waiters);
    }
    next.send("LOCK x");
    daemon.await_info("waiters", 3);
    // In one turn: the first leaves, and the lock comes to it. The other one is told
    // the token, and relies on it.
    at_once(&daemon, || {
        holder.send("UNLOCK x");
        drop(first);
    });
    again.set_timeout(Duration::from_secs(120));
    let told = again.read();
    assert_eq!(short(&told), "ALREADYHELD", "{told:?}");
    daemon.await_info("connected_clients", 5);
    assert_eq!(daemon.info("grants_passed_on"), 0);
    assert_eq!(daemon.info("waiters"), 1, "the next one still waits");
    assert_eq!(again.say("UNLOCK x 2"), "1");
    assert_eq!(next.read().as_integer(), Some(3));
}

#[test]
fn all_leases_for_one_who_left_are_passed_on() {
    let daemon = Daemon::start(&[]);
    let (mut first, mut second) = (daemon.client(), daemon.client());
    assert_eq!(first.say("LOCK x"), "1");
    second.send("LOCKALL 3 w x y TTL 60000");
    daemon.await_info("waiters", 3);
    at_once(&daemon, || {
        first.send("UNLOCK x");
        drop(second);
    });
    assert_eq!(short(&first.read()), "1");
    daemon.await_info("connected_clients", 2);
    assert_eq!(daemon.info("holds"), 0);
}

#[test]
fn one_who_left_is_not_served_further_after_a_lease_was_granted_to_it() {
    // With something behind the wait already, and without.
    for behind in [0, 1] {
        let daemon = Daemon::start(&[]);
        let (mut first, mut second) = (daemon.client(), daemon.client());
        assert_eq!(first.say("LOCK x"), "1");
        second.send("LOCK x TTL 60000");
        (0..behind).for_each(|_| second.send("PING"));
        daemon.await_info("waiters", 1);
        at_once(&daemon, || {
            first.send("UNLOCK x");
            second.send("TRYLOCK y TTL 60000");
            drop(second);
        });
        assert_eq!(short(&first.read()), "1");
        daemon.await_info("connected_clients", 2);
        assert_eq!(daemon.info("leases"), 0);
        assert_eq!(daemon.info("grants"), 2);
    }
}

#[test]
fn what_was_sent_before_the_connection_was_closed_is_executed() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let daemon = Daemon::start(&["--unix", socket.to_str().unwrap()]);
    let mut client = daemon.client();
    for name in ["tcp", "unix"] {
        let token = client.token(&format!("LOCK {name} TTL 60000"));
        let unlock = format!("UNLOCK {name} {token}");
        if name == "tcp" {
            at_once(&daemon, || daemon.client().send(&unlock));
        } else {
            let mut other = Client::new(UnixStream::connect(&socket).unwrap());
            at_once(&daemon, || {
                other.send(&unlock);
                drop(other);
            });
        }
    }
    daemon.await_info("leases", 0);
}

#[test]
fn one_who_left_waits_for_nothing_however_much_it_has_sent() {
    let daemon = Daemon::start(&["--max-request", "1K"]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK x"), "1");
    let mut client = daemon.client();
    // More than is read, behind a wait: the end of it all is not read either.
    at_once(&daemon, || {
        client.send("LOCK x");
        for _ in 0..8 {
            client.stream.write_all(&b"PING\r\n".repeat(1000)).unwrap();
        }
        client.stream.shutdown(Shutdown::Write).unwrap();
    });
    daemon.await_info("wait_cancels", 1);
    daemon.await_info("connected_clients", 2);
}

#[test]
fn a_client_that_was_not_read_from_for_a_bound_is_read_from_again() {
    let daemon = Daemon::start(&["--max-request", "1K"]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK x"), "1");
    let mut client = daemon.client();
    client.send("LOCK x");
    for _ in 0..100 {
        client.stream.write_all(&b"PING\r\n".repeat(1000)).unwrap();
    }
    daemon.await_info("waiters", 1);
    assert_eq!(holder.say("UNLOCK x"), "1");
    client.set_timeout(Duration::from_secs(120));
    assert_eq!(short(&client.read()), "2");
    for _ in 0..100_000 {
        assert_eq!(short(&client.read()), "PONG");
    }
}

#[test]
fn replies_behind_a_grant_are_sent_before_they_exceed_a_bound() {
    let daemon = Daemon::start(&["--max-output", "64K", "--max-request", "1M"]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK x"), "1");
    let mut client = daemon.client();
    client.send("LOCK x");
    // Less than the kernel takes, more than is gathered.
    let message = "m".repeat(1000);
    for _ in 0..400 {
        client.send(&format!("ECHO {message}"));
    }
    daemon.await_info("waiters", 1);
    assert_eq!(holder.say("UNLOCK x"), "1");
    assert_eq!(short(&client.read()), "2");
    for _ in 0..400 {
        assert_eq!(short(&client.read()), message);
    }
    assert_eq!(daemon.info("closed_output"), 0);
}

#[test]
fn all_that_are_ready_together_get_their_replies_in_order() {
    let daemon = Daemon::start(&[]);
    let mut clients: Vec<Client<TcpStream>> = (0..100).map(|_| daemon.client()).collect();
    for client in &mut clients {
        client.set_timeout(Duration::from_secs(120));
        assert_eq!(client.say("PING"), "PONG");
    }
    // One name that goes round, one of each alone, and replies of many sizes.
    let sizes = [1, 40_000, 10, 3000];
    at_once(&daemon, || {
        for (n, client) in clients.iter_mut().enumerate() {
            for line in ["LOCK x", "PING", "UNLOCK x"] {
                client.send(line);
            }
            client.send(&format!("LOCK own{n}"));
            client.send(&format!("ECHO {}", "m".repeat(sizes[n % 4])));
        }
    });
    for (n, client) in clients.iter_mut().enumerate() {
        assert!(client.read().as_integer().is_some(), "{n}");
        assert_eq!(short(&client.read()), "PONG");
        assert_eq!(short(&client.read()), "1");
        assert!(client.read().as_integer().is_some());
        assert_eq!(short(&client.read()).len(), sizes[n % 4]);
    }
    assert_eq!(daemon.info("holds"), 100);
}

/// 4,681 unknown commands, as many as one read brings, once were one turn of 12 ms.
#[test]
fn a_flood_of_errors_is_executed_in_small_parts() {
    let daemon = Daemon::start(&[]);
    let (mut hostile, mut honest) = (daemon.client(), daemon.client());
    let before = honest.info("total_commands_processed");
    let flood = "NONSENSE\r\n".repeat(3000);
    let mut executed = 0;
    at_once(&daemon, || {
        hostile.stream.write_all(flood.as_bytes()).unwrap();
        honest.send("INFO");
    });
    let reply = honest.read();
    for line in reply.as_text().unwrap().lines() {
        if let Some(count) = line.strip_prefix("total_commands_processed:") {
            executed = count.parse::<u64>().unwrap() - before;
        }
    }
    assert!(
        (1..1000).contains(&executed),
        "{executed} before the other client"
    );
    (0..3000).for_each(|_| assert_eq!(short(&hostile.read()), "ERR"));
}
