//! Pages in headless Chromium, from disk.

use super::{Place, must_have};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What the browser made of a page.
pub(crate) struct Loaded {
    /// The document after all scripts have run.
    pub dom: String,
    /// What the browser's console says, errors of scripts and of the content
    /// policy among it.
    pub console: Vec<String>,
}

/// Opens a page from disk, with a fragment.
pub(crate) fn load(place: &Place, page: &Path, fragment: &str) -> Loaded {
    must_have("chromium", "chromium");
    let profile = tempfile::tempdir_in(place.path()).unwrap();
    let url = format!("file://{}{fragment}", page.display());
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60", "chromium", "--headless"])
        // Its sandbox does not work for root.
        .args(["--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--window-size=1400,1000", "--virtual-time-budget=3000"])
        .args(["--dump-dom", &url])
        .env("HOME", profile.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "chromium: {stderr}");
    let console = stderr.lines().filter(|line| line.contains("CONSOLE"));
    Loaded {
        dom: String::from_utf8(output.stdout).unwrap(),
        console: console.map(str::to_owned).collect(),
    }
}

/// The page, and after it a script that does what a reader would and leaves
/// what it found in the document.
pub(crate) fn load_and_do(place: &Place, page: &Path, script: &str) -> (Value, Vec<String>) {
    load_at_and_do(place, page, "", script)
}

/// The same of the page at a fragment, such as `#y=log`.
pub(crate) fn load_at_and_do(
    place: &Place,
    page: &Path,
    fragment: &str,
    script: &str,
) -> (Value, Vec<String>) {
    let text = fs::read_to_string(page).unwrap();
    let acted = place.file("acted.html");
    let script = format!(
        "<script>{{ const found = {{}};\n{script}\n\
         const out = document.createElement('pre'); out.id = 'found';\n\
         out.textContent = JSON.stringify(found); document.body.append(out); }}</script></body>"
    );
    fs::write(&acted, text.replace("</body>", &script)).unwrap();
    found(load(place, &acted, fragment))
}

/// The same with a script that ends by itself, with `done()`, such as when all frames of
/// the page have loaded.
pub(crate) fn load_and_wait(place: &Place, page: &Path, script: &str) -> (Value, Vec<String>) {
    let text = fs::read_to_string(page).unwrap();
    let acted = place.file("acted.html");
    let script = format!(
        "<script>{{ const found = {{}};\n\
         const done = () => {{ const out = document.createElement('pre'); out.id = 'found';\n\
         out.textContent = JSON.stringify(found); document.body.append(out); }};\n\
         {script} }}</script></body>"
    );
    let at = text.rfind("</body>").unwrap();
    fs::write(
        &acted,
        format!("{}{script}{}", &text[..at], &text[at + 7..]),
    )
    .unwrap();
    found(load(place, &acted, ""))
}

/// What the script left in the document.
fn found(loaded: Loaded) -> (Value, Vec<String>) {
    let found = loaded.dom.split("<pre id=\"found\">").nth(1);
    let found = found.unwrap_or_else(|| panic!("the script did not end: {:?}", loaded.console));
    let found = found.split("</pre>").next().unwrap();
    let found = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    (serde_json::from_str(&found).unwrap(), loaded.console)
}
