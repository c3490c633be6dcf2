//! Other users of the machine while root measures: what they try with the servers that
//! jostle launches, and what they see of them.

use crate::common::{Place, Signal, beside, in_some_try, jostle, must_be_root, must_have};
use jostle_model::record::{Look, Sign, sign};
use jostle_testbed::lock_servers as servers;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// A process of the service's own user puts a link in the place of the server's log as soon
/// as there is one, before the server is killed and started again.
#[test]
fn a_link_in_the_place_of_a_server_s_log_changes_no_other_file() {
    let _beside = beside();
    must_be_root("launch a server as another user");
    must_have("setpriv", "util-linux");
    must_have("redis-server", "redis-server");
    // Who gets no CPU while there is a log makes no link.
    in_some_try("a link", || a_link_was_made().then_some(()));
}

/// Looks whether it changes a file of root's, and says whether a link was made.
fn a_link_was_made() -> bool {
    let place = Place::new();
    let victim = place.file("victim");
    fs::write(&victim, "root's own\n").unwrap();
    let links = "while :; do for log in tmp/server-of-jostle-*/server.log; do \
                 [ -L \"$log\" ] || { rm -f \"$log\"; ln -s \"$0\" \"$log\" && echo; } \
                 2>/dev/null; done; done";
    let mut other = Command::new("setpriv")
        .args(["--reuid=redis", "--regid=redis", "--clear-groups"])
        .args(["--pdeathsig=KILL", "sh", "-c", links])
        .arg(&victim)
        .current_dir(place.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = "recover redis --fault server-kill --waiters 2 --runs 2 --within 60s --quiet";
    let done = place.jostle(line).run();
    other.kill().unwrap();
    let mut linked = String::new();
    let mut output = other.stdout.take().unwrap();
    output.read_to_string(&mut linked).unwrap();
    other.wait().unwrap();
    assert_eq!(place.read("victim"), "root's own\n");
    done.measures().leaves_nothing();
    !linked.is_empty()
}

#[test]
fn a_service_without_its_user_is_refused_with_the_package_that_makes_it() {
    let _beside = beside();
    must_be_root("launch a server as another user");
    must_have("unshare", "util-linux");
    must_have("redis-server", "redis-server");
    jostle("contend redis -w 2 -t 0.1 --runs 1")
        .after("grep -v ^redis: /etc/passwd >users && mount --bind users /etc/passwd")
        .under("unshare --mount")
        .exits(1)
        .says("there is no user redis")
        .says("`apt install redis-server` (Debian) makes that user")
        .leaves_nothing();
}

/// A connection to the port of the loopback address at which a process listens.
fn connected(pid: u32) -> TcpStream {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let own: Vec<String> = links.map(|link| link.display().to_string()).collect();
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    // proc_net_tcp(5): the second field is the address in hexadecimal, 0A is LISTEN.
    let mut ports = sockets.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_own = own.contains(&format!("socket:[{}]", fields.get(9)?));
        let (_, port) = fields[1].split_once(':')?;
        (is_own && fields[3] == "0A").then(|| u16::from_str_radix(port, 16).unwrap())
    });
    TcpStream::connect(("127.0.0.1", ports.next().unwrap())).unwrap()
}

#[test]
fn servers_that_are_launched_refuse_other_users_and_show_them_no_password() {
    let _beside = beside();
    must_be_root("become another user");
    must_have("setpriv", "util-linux");
    must_have("memcached", "memcached");
    let place = Place::new();
    for (target, program, request, refusal) in [
        (
            "lockd",
            "exe",
            "*2\r\n$11\r\nFORCEUNLOCK\r\n$1\r\nx\r\n",
            "-NOAUTH",
        ),
        (
            "memcached",
            "memcached",
            "flush_all\r\n",
            "CLIENT_ERROR unauthenticated",
        ),
    ] {
        let line = format!("contend {target} -w 2 -b 1ms -t 10m --runs 1 -o {target}");
        let mut run = place.jostle(&line).in_background();
        // What is measured before it has a server of its own.
        run.until("the first run", |run| {
            (!run.place.read(target).is_empty()).then_some(())
        });
        let server = run.server(program);
        let mut stream = connected(server);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = vec![0; refusal.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), refusal, "{target}");
        let secret = match target {
            "lockd" => {
                let environ = fs::read_to_string(format!("/proc/{server}/environ")).unwrap();
                let mut each = environ.split('\0');
                let secret = each.find_map(|one| one.strip_prefix("JOSTLED_PASSWORD="));
                secret.unwrap().to_owned()
            }
            _ => {
                let users = fs::read_to_string(format!("/proc/{server}/cwd/users")).unwrap();
                users.trim().strip_prefix("jostle:").unwrap().to_owned()
            }
        };
        assert_eq!(secret.len(), 32, "{secret}");
        for file in ["environ", "cwd/users"] {
            let other = Command::new("setpriv")
                .args(["--reuid=65534", "--clear-groups", "cat"])
                .arg(format!("/proc/{server}/{file}"))
                .output();
            assert!(!other.unwrap().status.success(), "{target}: {file}");
        }
        let processes = fs::read_dir("/proc").unwrap().flatten();
        for process in processes {
            let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            assert!(!words.contains(&secret), "{words}");
        }
        run.signal(Signal::INT);
        let done = run.end().leaves_nothing();
        for text in [&done.stdout, &done.stderr, &place.read(target)] {
            assert!(!text.contains(&secret), "{text}");
        }
    }
}

#[test]
fn a_client_that_is_connected_when_a_lock_was_lost_is_named() {
    let _beside = beside();
    let place = servers::argument("redis").unwrap();
    let mut other = TcpStream::connect(place.trim_start_matches('/')).unwrap();
    let address = other.local_addr().unwrap();
    let line = format!("contend redis:{place} -w 2 -b 5ms -t 120 --runs 1 --format json");
    let mut run = jostle(&line).in_background();
    run.until_workers(2);
    // For as long as the server lives. It counts no deletion, as it does a flush, so that who is
    // connected is all that can be said.
    std::thread::spawn(move || {
        let script = "for _, key in ipairs(redis.call('keys', '*')) do redis.call('del', key) end";
        let line = format!("EVAL \"{script}\" 0\r\n");
        while other.write_all(line.as_bytes()).is_ok()
            && other.read(&mut [0; 64]).is_ok_and(|count| count > 0)
        {}
    });
    // Nobody works on without a lock.
    let done = run.end();
    let run = done.exits(3).leaves_nothing().only_run();
    let named = format!("{address} (last command: eval)");
    let listed =
        |look: &Look| look.signs.get(sign::CLIENTS) == Some(&Sign::Texts(vec![named.clone()]));
    assert!(
        run.around.looks.iter().any(listed),
        "{:?}",
        run.around.looks
    );
    // Its deletions took a key away that jostle had put beside its locks.
    let said = "another client removed keys of ours";
    let mut reasons = run.verdict.reasons.iter();
    assert!(
        reasons.any(|reason| reason.text.contains(said)),
        "{:?}",
        run.verdict
    );
}
