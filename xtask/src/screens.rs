//! `cargo xtask screens`: the pictures of `tool/docs/screens/`, made again from the results of
//! `record/`: the page on a screen and on a phone, light and dark.
//!
//! They are shots of Chromium, which cwebp makes small.

use anyhow::{Context, ensure};
use jostle_testbed::{packages, shell};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Name and record of what is shown.
const SHOWN: [(&str, &str); 2] = [
    ("contend", "lockscale.jsonl"),
    ("connect", "connect-20k.jsonl"),
];

/// A view of a page: its name, its width and height in pixels, and the width of the picture.
const VIEWS: [(&str, [u32; 2], u32); 2] =
    [("screen", [1300, 1240], 910), ("phone", [400, 1800], 300)];

/// Bytes of a picture, about.
const BYTES: &str = "45000";

/// Writes all of them.
pub(crate) fn screens() -> anyhow::Result<()> {
    packages::ensure(&["chromium", "webp"])?;
    let out = shell::root().join("tool/docs/screens");
    shell::run(&mut shell::cargo(&["build", "--package", "jostle"]))?;
    let jostle = shell::target_directory().join("debug/jostle");
    let work = tempfile::tempdir()?;
    for (name, record) in SHOWN {
        let record = shell::root().join("lab/record").join(record);
        let page = work.path().join("page.html");
        let mut report = Command::new(&jostle);
        report.arg("report").arg(&record).arg("--html").arg(&page);
        shell::output(&mut report)?;
        for (view, size, width) in VIEWS {
            for (shade, scheme) in [("light", 1), ("dark", 0)] {
                let shot = shot(work.path(), &page, size, scheme)?;
                let picture = out.join(format!("{name}-{view}-{shade}.webp"));
                let mut small = Command::new("cwebp");
                small.args(["-quiet", "-size", BYTES, "-pass", "6", "-crop", "0", "0"]);
                small.args(size.map(|pixels| pixels.to_string()));
                small.args(["-resize", &width.to_string(), "0", "-o"]);
                shell::run(small.arg(&picture).arg(shot))?;
                println!("{}", picture.display());
            }
        }
    }
    Ok(())
}

/// A page in a frame of this size, since a window of Chromium's is never as narrow as a
/// phone, as PNG.
fn shot(
    work: &Path,
    page: &Path,
    [width, height]: [u32; 2],
    scheme: u8,
) -> anyhow::Result<std::path::PathBuf> {
    let frame = work.join("frame.html");
    let text = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0\"><iframe src=\"file://{}\" \
         style=\"border:0;width:{width}px;height:{height}px\"></iframe>",
        page.display()
    );
    fs::write(&frame, text)?;
    let shot = work.join("shot.png");
    let mut command = Command::new("timeout");
    command.args("--kill-after=5 90 chromium --headless --no-sandbox --disable-gpu".split(' '));
    command.args("--hide-scrollbars --allow-file-access-from-files".split(' '));
    command.arg("--virtual-time-budget=8000").env("HOME", work);
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command.arg(format!("--window-size={},{height}", width.max(500)));
    command.arg(format!("--screenshot={}", shot.display()));
    command.arg(format!("file://{}", frame.display()));
    // What Chromium complains of on a machine without a desktop is of no interest while it
    // succeeds.
    let done = command.output().context("cannot run chromium")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "chromium failed: {said}");
    Ok(shot)
}
