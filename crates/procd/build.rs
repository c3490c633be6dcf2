//! Links the thin client without the C library's start-up (see
//! `jostle_sys::bare`), and the program that does nothing, against which its
//! cost is measured, in the same way.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=bare.ld");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let script = format!("-Wl,-T,{}/bare.ld", variable("CARGO_MANIFEST_DIR"));
    let mut arguments = vec!["-nostartfiles", "-static", "-no-pie"];
    // Code that is not optimised checks what cannot happen, and what would tell
    // of it brings `std` along, which the script has no place for.
    if variable("OPT_LEVEL") != "0" {
        // Nothing unwinds; its routine would bring `std` along too, and text for
        // debuggers would be most of the file.
        arguments.extend(["-Wl,--defsym=rust_eh_personality=0", "-Wl,--strip-debug"]);
        arguments.push(&script);
    }
    for argument in arguments {
        println!("cargo:rustc-link-arg-bin=jostle-call={argument}");
        println!("cargo:rustc-link-arg-bin=jostle-nothing={argument}");
    }
}
