//! Other users of the machine while root measures: what they try with the servers that
//! jostle launches, and what they see of them.

use crate::common::{Place, beside, jostle, must_be_root, must_have};
use std::io::Read;
use std::process::{Command, Stdio};

/// A process of the service's own user puts a link in the place of the server's log as soon
/// as there is one, before the server is killed and started again.
#[test]
fn a_link_in_the_place_of_a_server_s_log_changes_no_other_file() {
    let _beside = beside();
    must_be_root("launch a server as another user");
    must_have("setpriv", "util-linux");
    must_have("redis-server", "redis-server");
    let place = Place::new();
    let victim = place.file("victim");
    std::fs::write(&victim, "root's own\n").unwrap();
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
    assert!(!linked.is_empty(), "no link was made");
    assert_eq!(place.read("victim"), "root's own\n");
    done.measures().leaves_nothing();
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
        .run()
        .exits(1)
        .says("there is no user redis")
        .says("`apt install redis-server` (Debian) makes that user")
        .leaves_nothing();
}
