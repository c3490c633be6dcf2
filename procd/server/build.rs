//! Tells procd which commit it was built from, as that of jostle does: jostle measures only
//! the procd of its own build. And links the thin client without the C library's start-up (see
//! `jostle_sys::bare`), and the program that does nothing, against which its
//! cost is measured, in the same way.

use std::process::Command;

fn main() {
    commit();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=bare.ld");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let script = format!("-Wl,-T,{}/bare.ld", variable("CARGO_MANIFEST_DIR"));
    let mut arguments = vec!["-nostartfiles", "-static", "-no-pie"];
    // Code that is not optimised checks for cases that cannot happen. Reporting them
    // needs `std`, for which the linker script has no place.
    if variable("OPT_LEVEL") != "0" {
        // Nothing unwinds, so its routine is not needed. Text for debuggers would be most
        // of the file.
        arguments.extend(["-Wl,--defsym=rust_eh_personality=0", "-Wl,--strip-debug"]);
        arguments.push(&script);
    }
    for argument in arguments {
        println!("cargo:rustc-link-arg-bin=jostle-call={argument}");
        println!("cargo:rustc-link-arg-bin=jostle-nothing={argument}");
    }
}

fn commit() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
    };
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo:rustc-env=JOSTLE_COMMIT={commit}");
    }
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}
