//! Pages in headless Chromium, from disk or served. One browser looks at many pages: it hears commands
//! of its debugging protocol from a pipe, and is told how wide to be and whether to print.

use super::{Place, must_have};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A browser with one tab.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    asked: u64,
    /// The lines of the browser's console, errors of scripts and of the content policy among them.
    pub console: Vec<String>,
    /// Whether the last page has loaded.
    loaded: bool,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// An empty tab, 1400 pixels wide.
    pub(crate) fn open(place: &Place) -> Browser {
        must_have("chromium", "chromium");
        let profile = tempfile::tempdir_in(place.path()).unwrap();
        // Its pipes are 3 and 4. Its sandbox does not work for root.
        let line = "exec timeout --kill-after=5 900 chromium --headless --no-sandbox --disable-gpu \
                    --remote-debugging-pipe --user-data-dir=\"$HOME\" 3<&0 4>&1 0</dev/null 1>&2";
        let mut child = Command::new("sh")
            .args(["-c", line])
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser {
            commands: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            session: None,
            asked: 0,
            console: Vec::new(),
            loaded: false,
            _profile: profile,
        };
        let tab = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": tab["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser.width(1400);
        browser
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut command = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands
            .write_all(command.to_string().as_bytes())
            .unwrap();
        self.commands.write_all(&[0]).unwrap();
        loop {
            let mut answer = self.hear();
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// The next answer or event; keeps what the console says.
    fn hear(&mut self) -> Value {
        let mut text = Vec::new();
        self.answers.read_until(0, &mut text).unwrap();
        assert_eq!(text.pop(), Some(0), "chromium ended");
        let heard: Value = serde_json::from_slice(&text).unwrap();
        match heard["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.console.push(heard["params"].to_string());
            }
            _ => {}
        }
        heard
    }

    /// Loads a page from disk, with a fragment.
    pub(crate) fn go(&mut self, page: &Path, fragment: &str) {
        self.visit(&format!("file://{}{fragment}", page.display()));
    }

    /// Loads a page.
    pub(crate) fn visit(&mut self, url: &str) {
        // A page that differs by its fragment alone would not load again.
        for url in ["about:blank", url] {
            self.loaded = false;
            self.ask("Page.navigate", json!({ "url": url }));
            while !self.loaded {
                self.hear();
            }
        }
    }

    /// So many pixels for the page.
    pub(crate) fn width(&mut self, pixels: u32) {
        let size =
            json!({ "width": pixels, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// As the page looks on this: `print` or `screen`.
    pub(crate) fn media(&mut self, media: &str) {
        self.ask("Emulation.setEmulatedMedia", json!({ "media": media }));
    }

    /// The document as it is now.
    pub(crate) fn document(&mut self) -> String {
        let found = self.run("found.html = document.documentElement.outerHTML;");
        found["html"].as_str().unwrap().to_owned()
    }

    /// The value that a script leaves in `found`, which does what a reader would.
    pub(crate) fn run(&mut self, script: &str) -> Value {
        let script = format!("(() => {{ const found = {{}};\n{script}\nreturn found; }})()");
        let params = json!({ "expression": script, "returnByValue": true });
        let mut answer = self.ask("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Not by a signal: it ends its own processes.
        let close = json!({ "id": 0, "method": "Browser.close" }).to_string() + "\0";
        if self.commands.write_all(close.as_bytes()).is_ok() {
            while self
                .answers
                .read_until(0, &mut Vec::new())
                .is_ok_and(|bytes| bytes > 0)
            {}
        }
        let _ = self.child.wait();
    }
}

/// The findings of a script in a page, and the console.
pub(crate) fn load_and_do(place: &Place, page: &Path, script: &str) -> (Value, Vec<String>) {
    let mut browser = Browser::open(place);
    browser.go(page, "");
    (browser.run(script), std::mem::take(&mut browser.console))
}
