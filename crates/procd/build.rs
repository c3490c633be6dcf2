//! Links the thin client without the C library's start-up (see
//! `jostle_sys::bare`), and the program that does nothing, against which its
//! cost is measured, in the same way.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-nostartfiles", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bin=jostle-call={argument}");
        println!("cargo:rustc-link-arg-bin=jostle-nothing={argument}");
    }
}
