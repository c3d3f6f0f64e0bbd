//! What the shipped library shows to the linker and the loader, and that source, header and library name the
//! same functions.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use support::{Build, library, root, soname, succeed};

fn shared() -> PathBuf {
    library(Build::Plain).join("libdlpack_ro.so")
}

fn header() -> String {
    std::fs::read_to_string(root().join("include/dlpack_ro.h")).expect("the header is there")
}

/// Names after `mark` in the sources of the C API.
fn exported_in_source() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("src/ffi")).expect("src/ffi is there") {
        let path = entry.expect("src/ffi can be read").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a source is read");
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = part.split_once("extern \"C\" fn ").map(|(_, rest)| rest).unwrap_or_default();
            names.insert(name.split('(').next().unwrap_or_default().to_owned());
        }
    }
    names
}

/// Each function's documentation and declaration in the header.
fn declared() -> Vec<(String, String)> {
    let text = header();
    let mut all = Vec::new();
    for part in text.split("/**").skip(1) {
        let (comment, code) = part.split_once("*/").expect("a comment ends");
        let code = code.trim_start();
        let name = code.split('(').next().unwrap_or_default().rsplit([' ', '*']).next().unwrap_or_default();
        let follows = code.starts_with("DLRO_MUST_USE") || !code.starts_with("typedef");
        if follows && name.starts_with("dlro_") && code.contains(&format!("{name}(")) {
            all.push((name.to_owned(), format!("{comment}*/{}", code.split(';').next().unwrap_or_default())));
        }
    }
    all
}

fn defined_symbols() -> BTreeSet<String> {
    let output = succeed(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(shared()));
    output.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// A function that is missing from the header or the library is missing without a word; this is the word.
#[test]
fn source_header_and_library_name_the_same_functions() {
    let source = exported_in_source();
    let header: BTreeSet<_> = declared().into_iter().map(|(name, _)| name).collect();
    assert!(source.len() > 40, "{source:?}");
    assert_eq!(source, header);
    assert_eq!(source, defined_symbols());
}

#[test]
fn only_our_names_are_visible() {
    for name in defined_symbols() {
        assert!(name.starts_with("dlro_"), "{name} is visible");
    }
}

#[test]
fn the_loader_is_told_the_soname_and_to_keep_it() {
    let dynamic = succeed(Command::new("readelf").args(["-d", "-W"]).arg(shared()));
    assert!(dynamic.contains(&format!("[{}]", soname())), "{dynamic}");
    assert!(dynamic.lines().any(|line| line.contains("FLAGS_1") && line.contains("NODELETE")), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL"), "{dynamic}");
    assert!(!dynamic.contains("RPATH") && !dynamic.contains("RUNPATH"), "{dynamic}");
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let expected = ["[libc.so.6]", "[libgcc_s.so.1]", "[ld-linux-x86-64.so.2]", "[libm.so.6]"];
        assert!(expected.iter().any(|name| line.contains(name)), "{line}");
    }
    let segments = succeed(Command::new("readelf").args(["-l", "-W"]).arg(shared()));
    assert!(!segments.lines().any(|line| line.contains(" RWE ")), "{segments}");
}

#[test]
fn it_is_small() {
    let size = std::fs::metadata(shared()).expect("the library is there").len();
    assert!(size < 600_000, "the stripped library has {size} bytes");
}

/// Who reads only the header learns what every function does to ownership, what it answers, and from which
/// threads it may be called.
#[test]
fn the_header_documents_every_function() {
    for (name, text) in declared() {
        let lower = text.to_lowercase();
        assert!(lower.contains("thread") || lower.contains("any thread"), "{name} says nothing of threads");
        if text.contains("dlro_status dlro_") {
            assert!(text.contains("Status:") || text.contains("Status, each"), "{name} lists no status");
            let queries = name.starts_with("dlro_dtype_");
            assert!(text.contains("Ownership:") || queries, "{name} says nothing of ownership");
        } else {
            let says = lower.contains("never fails") || text.contains("Returns 0");
            assert!(says, "{name} does not say what it answers when it fails");
        }
    }
}

/// One fact, one place: where it must stand twice, it is compared.
#[test]
fn the_headers_version_is_cargos() {
    let text = header();
    for (part, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        assert!(text.contains(&format!("#define DLRO_VERSION_{part} {value}\n")), "DLRO_VERSION_{part} is not {value}");
    }
}

#[test]
fn the_headers_status_numbers_are_the_librarys() {
    let text = header();
    for status in dlpack_ro::error::Status::ALL {
        let name = status.name().to_str().expect("ASCII");
        assert!(text.contains(&format!("  {name} = {},", status as i32)), "{name}");
    }
    assert_eq!(text.matches("  DLRO_ERR_").count() + 1, dlpack_ro::error::Status::ALL.len());
}
