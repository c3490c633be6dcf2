//! Python's web server (`tests/server.py`), which logs the connection and the path of
//! each request.

use super::{Done, Place, first_line, must_have};
use jostle_model::record::Run;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Python's web server, in a place of its own.
pub(crate) struct Server {
    pub place: Place,
    pub port: u16,
    pub child: Child,
    /// It ends when this closes.
    stop: Option<ChildStdin>,
}

impl Server {
    fn start(arguments: &[String], place: Place) -> Server {
        must_have("python3", "python3");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server.py");
        let mut child = Command::new("python3")
            .arg(script)
            .arg(place.file("log"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Server {
            place,
            port: first_line(&mut child).parse().unwrap(),
            stop: child.stdin.take(),
            child,
        }
    }

    pub(crate) fn plain() -> Server {
        Server::start(&[], Place::new())
    }

    /// With a certificate that nobody else has signed.
    pub(crate) fn with_tls() -> Server {
        must_have("openssl", "openssl");
        let place = Place::new();
        let (certificate, key) = (place.file("cert.pem"), place.file("key.pem"));
        let made = Command::new("openssl")
            .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1".split(' '))
            .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext"])
            .arg("basicConstraints=critical,CA:FALSE")
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let names = [&certificate, &key].map(|path| path.display().to_string());
        Server::start(&names, place)
    }

    /// One run of requests for this path; `options` come first.
    pub(crate) fn ask(&self, scheme: &str, path: &str, options: &str) -> Done {
        let line = format!(
            "stream {scheme}://127.0.0.1:{}{path} --runs 1 --quiet --format json {options}",
            self.port
        );
        self.place.jostle(&line).run_cleanly()
    }

    pub(crate) fn measured(&self, path: &str, options: &str) -> Run {
        self.ask("http", path, options).measures().only_run()
    }

    /// Connection and path of the latest requests.
    pub(crate) fn latest(&self, count: usize) -> Vec<(u32, String)> {
        let log = self.place.read("log");
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len() - count..]
            .iter()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(connection, path)| (connection.parse().unwrap(), path.to_owned()))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.child.wait();
    }
}
