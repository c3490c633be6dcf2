//! Servers of the user's that want to know who asks: the password comes from a file, a wrong
//! one is told before the start, and neither stands in a message.

use jostle_sys::ledger::Ledger;
use jostle_targets::{
    Lock, Mode, Outcome, Setup, SetupError, Target, Wait, etcd, memcached, nats, zookeeper,
};
use jostle_testbed::etcd::current_passes;
use jostle_testbed::lock_servers as servers;
use jostle_testbed::ports::free_port;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PASSWORD: &str = "open-sesame";

/// A lock is taken and given up with the credentials of this file.
fn tries<T: Target>(argument: &str, file: Option<&Path>) -> Result<(), SetupError> {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let setup = Setup {
        argument: Some(argument),
        credentials: file,
        ..servers::setup(&ledger, 2)
    };
    (T::ENTRY.reach)(argument, file)?;
    let target = T::prepare(&setup)?;
    let mut lock = target.join(0)?;
    let said = |error: jostle_targets::CallError| SetupError(error.to_string());
    let granted = lock.acquire(0, Mode::Exclusive, Wait::Try).map_err(said)?;
    assert_eq!(granted, Outcome::Granted);
    lock.release(0, Mode::Exclusive).map_err(said)?;
    lock.part().map_err(said)?;
    target.remove_leftovers()?;
    ledger.sweep().unwrap();
    Ok(())
}

/// With the right password, with a wrong one and with none.
fn check<T: Target>(argument: &str, user: &str, refusals: [&str; 2]) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("{user}\n{PASSWORD}\n")).unwrap();
    assert_eq!(tries::<T>(argument, Some(&file)), Ok(()));
    std::fs::write(&file, format!("{user}\nwrong-word\n")).unwrap();
    for (file, says) in [(Some(&file), refusals[0]), (None, refusals[1])] {
        let said = tries::<T>(argument, file.map(|file| file.as_path()))
            .unwrap_err()
            .0;
        assert!(said.contains(says), "{said}");
        assert!(!said.contains("wrong-word"), "{said}");
    }
}

/// POSTs to the JSON side of an etcd.
fn post(address: &str, path: &str, body: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn etcd_lets_a_user_in_whose_name_and_password_stand_in_a_file() {
    let alone = etcd::Launch::members(1).unwrap().remove(0);
    let address = servers::followed(&alone).unwrap().address;
    let root = format!(r#"{{"name":"root","password":"{PASSWORD}"}}"#);
    post(&address, "user/add", &root);
    post(&address, "role/add", r#"{"name":"root"}"#);
    post(&address, "user/grant", r#"{"user":"root","role":"root"}"#);
    post(&address, "enable", "{}");
    let refusals = ["authentication failed", "user name is empty"];
    check::<etcd::Etcd>(&format!("//{address}"), "root", refusals);
}

#[test]
#[ignore = "cargo xtask long"]
fn a_current_etcd_passes_the_same() {
    current_passes(&["credentials::etcd_lets_a_user_in_whose_name_and_password_stand_in_a_file"]);
}

/// A frame of ZooKeeper's protocol, which it answers.
fn asks(stream: &mut TcpStream, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = (body.len() as u32).to_be_bytes();
    stream.write_all(&[&length[..], &body].concat()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    answer
}

fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn int(number: i32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Gives `/` to whoever has this name and password.
fn close_root(address: &str, user: &str) {
    const ADD_AUTH: [i32; 2] = [-4, 100];
    const SET_ACL: [i32; 2] = [1, 7];
    const ALL: i32 = 31;
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    let greeting = [
        &int(0)[..],
        &[0; 8],
        &int(10_000),
        &[0; 8],
        &int(16),
        &[0; 16],
    ];
    asks(&mut stream, &greeting);
    let [xid, op] = ADD_AUTH.map(int);
    let own = sized(&format!("{user}:{PASSWORD}"));
    let answer = asks(&mut stream, &[&xid, &op, &int(0), &sized("digest"), &own]);
    assert!(answer.ends_with(&int(0)), "{answer:?}");
    let [xid, op] = SET_ACL.map(int);
    let rights = [&int(1)[..], &int(ALL), &sized("auth"), &sized("")].concat();
    let answer = asks(&mut stream, &[&xid, &op, &sized("/"), &rights, &int(-1)]);
    assert_eq!(&answer[12..16], int(0), "{answer:?}");
}

#[test]
fn zookeeper_lets_whoever_owns_the_root_create_nodes() {
    let alone = zookeeper::Launch::members(1, Duration::from_secs(4));
    let launched = servers::followed(&alone.unwrap().remove(0)).unwrap();
    close_root(&launched.address, "ann");
    let refused = "create no node below /; set $ZOOKEEPER_USER";
    let argument = format!("//{}", launched.address);
    check::<zookeeper::Zookeeper>(&argument, "ann", [refused; 2]);
}

/// Ended when it is dropped.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn await_port(port: u16) {
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn memcached_with_a_file_of_passwords_lets_a_user_in() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("users");
    std::fs::write(&file, format!("ann:{PASSWORD}\n")).unwrap();
    let port = free_port().unwrap();
    let server = Command::new("memcached")
        .args([
            "-u",
            "root",
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-p",
            &port.to_string(),
        ])
        .arg("-Y")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn();
    let _server = Own(server.expect("is the Debian package memcached installed?"));
    await_port(port);
    let refusals = ["CLIENT_ERROR authentication failure", "set $MEMCACHED_USER"];
    let argument = format!("//127.0.0.1:{port}");
    check::<memcached::Memcached>(&argument, "ann", refusals);
}

#[test]
fn nats_lets_a_user_in_or_whoever_has_the_token() {
    let by_name = ["--user", "ann", "--pass", PASSWORD];
    let by_token = ["--auth", PASSWORD];
    for (user, options) in [("ann", &by_name[..]), ("", &by_token)] {
        let place = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let server = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
            .arg(place.path())
            .args(options)
            .stderr(Stdio::null())
            .spawn();
        let _server = Own(server.expect("is the Debian package nats-server installed?"));
        await_port(port);
        let refusals = ["Authorization Violation; set $NATS_USER"; 2];
        check::<nats::Nats>(&format!("//127.0.0.1:{port}"), user, refusals);
    }
}
