//! Linker facts of the shared library: its SONAME, and that it stays loaded. Writes nothing into the tree.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // For the test drivers, which compile C for the machine that they run on.
    println!("cargo:rustc-env=DLRO_HOST={}", var("HOST").expect("cargo sets the host"));
    let part = |name: &str| var(format!("CARGO_PKG_VERSION_{name}")).expect("cargo sets the version");
    // Semver: before 1.0 every minor version may break, so it is part of the name that programs ask for.
    let abi = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_owned(),
    };
    match var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos" | "ios") => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libdlpack_ro.{abi}.dylib");
        }
        Ok("windows") => {}
        _ => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdlpack_ro.so.{abi}");
            // A tensor outlives dlclose: its deleter is code in this library.
            println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        }
    }
}
