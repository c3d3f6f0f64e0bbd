//! The shipped library as the linker sees it, and what must stand in two places: names, versions, numbers.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Build, header, library, root, soname, succeed, workspace};

type Names = BTreeSet<String>;

fn shared() -> PathBuf {
    library(Build::Plain).join("libdlpack_ro.so")
}

fn readelf(flags: &[&str]) -> String {
    succeed(Command::new("readelf").env("LC_ALL", "C").arg("--wide").args(flags).arg(shared()))
}

/// The value in brackets of each dynamic entry of one kind.
fn dynamic(kind: &str) -> Vec<String> {
    let text = readelf(&["--dynamic"]);
    assert!(text.contains("(NEEDED)"), "readelf was not understood:\n{text}");
    let lines = text.lines().filter(|line| line.contains(&format!("({kind})")));
    lines.map(|line| line.split(['[', ']']).nth(1).unwrap_or(line).to_owned()).collect()
}

/// The names that a program can link to.
fn exported() -> Names {
    let text = succeed(Command::new("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(shared()));
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn declared() -> Names {
    header::read().functions.into_iter().map(|function| function.name).collect()
}

/// The names that src/ffi wants to export.
fn written() -> Names {
    let mut names = Names::new();
    for entry in std::fs::read_dir(root().join("src/ffi")).expect("src/ffi is there") {
        let path = entry.expect("src/ffi can be read").path();
        if path.is_dir() {
            continue; // tests
        }
        let text = std::fs::read_to_string(path).expect("a source is text");
        let mut parts = text.split("no_mangle");
        parts.next();
        for part in parts {
            let (_, name) = part.split_once("fn ").expect("a function follows no_mangle");
            names.insert(name.split('(').next().expect("split gives one").to_owned());
        }
    }
    names
}

/// A function that a macro makes is missing from the header without a word; so all three sets are compared.
#[test]
fn source_header_and_library_have_the_same_names() {
    let declared = declared();
    assert!(declared.iter().all(|name| name.starts_with("dlro_")), "a prototype is not ours: {declared:?}");
    assert_eq!(written(), declared, "src/ffi and the header differ");
    assert_eq!(exported(), declared, "the library's dynamic symbols and the header differ");
}

/// Case I6.
#[test]
fn shared_library_has_its_linker_facts() {
    assert_eq!(dynamic("SONAME"), [soname()]);
    let flags = dynamic("FLAGS_1").concat() + &dynamic("FLAGS").concat();
    assert!(flags.contains("NODELETE"), "deleters do not outlive dlclose: flags are {flags:?}");
    for needed in dynamic("NEEDED") {
        let known = ["libc.so.", "libgcc_s.so.", "ld-linux"].iter().any(|known| needed.starts_with(known));
        assert!(known, "the library needs {needed}");
    }
    assert!(dynamic("RPATH").is_empty() && dynamic("RUNPATH").is_empty(), "the library has a search path of its own");
    assert!(dynamic("TEXTREL").is_empty() && !flags.contains("TEXTREL"), "code is patched while loading");
}

#[test]
fn no_memory_is_both_written_and_run() {
    let text = readelf(&["--program-headers"]);
    let segments: Vec<_> = text.lines().map(str::trim).filter(|line| line.contains(" 0x")).collect();
    assert!(segments.iter().any(|line| line.contains(" R E ")), "readelf was not understood:\n{text}");
    assert!(segments.iter().all(|line| !line.contains("RWE")), "a segment is writable and executable:\n{text}");
    assert!(segments.iter().any(|line| line.starts_with("GNU_STACK")), "the stack may be executable:\n{text}");
}

#[test]
fn shipped_library_is_small() {
    let bytes = std::fs::metadata(shared()).expect("the library is there").len();
    println!("libdlpack_ro.so: {bytes} bytes");
    assert!(bytes < 600_000, "libdlpack_ro.so has {bytes} bytes");
    let text = readelf(&["--sections"]);
    assert!(!text.contains(".symtab") && !text.contains(".debug_"), "libdlpack_ro.so is not stripped");
}

/// The header is the manual: what a caller must know stands above each function.
#[test]
fn every_function_is_documented() {
    let mut missing = vec![];
    for function in header::read().functions {
        let (answer, text) = (function.answer(), &function.documentation);
        let mut need = |condition: bool, what: &str| {
            if !condition {
                missing.push(format!("{} does not say {what}", function.name));
            }
        };
        need(text.trim_start_matches(['*', ' ', '\n']).contains('.'), "what it does");
        if answer == "dlro_status" {
            need(text.contains("Status: ") || text.contains("Status, "), "which statuses it answers");
            need(text.contains("Threads: "), "which threads may call it (\"Threads:\")");
            need(function.prototype.starts_with("DLRO_MUST_USE "), "that its status must be looked at");
        } else {
            need(text.contains("hread"), "which threads may call it");
        }
        // Pointers to pointers and structs of pointers are how something is handed out.
        if function.parameters().contains("**") || function.parameters().contains("dlro_exported") {
            need(text.contains("Ownership: "), "who owns what it hands out (\"Ownership:\")");
        }
        if function.parameters().contains("struct DLManagedTensorVersioned *tensor")
            && !function.parameters().contains("const struct DLManagedTensorVersioned *tensor")
        {
            need(text.contains("Ownership: "), "who owns what it was given (\"Ownership:\")");
        }
        if answer.ends_with('*') {
            need(text.contains("own") || text.contains("the library's"), "whose its answer is");
            need(text.contains("lives") || text.contains("stays"), "how long its answer is good");
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// One fact that stands in Cargo.toml and in the header.
#[test]
fn header_has_cargos_version() {
    let text = header::read().text;
    for (part, expected) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let define = format!("#define DLRO_VERSION_{part} ");
        let found: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&define)).collect();
        assert_eq!(found, [expected], "DLRO_VERSION_{part} in cbindgen.toml");
    }
}

#[test]
fn header_has_every_status() {
    use dlpack_ro::error::Status;
    let ours = |(name, _): &(String, i64)| name == "DLRO_OK" || name.starts_with("DLRO_ERR_");
    let found: Vec<_> = header::read().constants.into_iter().filter(ours).collect();
    let expected =
        Status::ALL.map(|status| (status.name().to_str().expect("a name is text").to_owned(), status as i64));
    assert_eq!(found, expected);
}

/// No two constants of one type share a number or a name.
#[test]
fn numbers_are_unique() {
    let constants = header::read().constants;
    let names: Names = constants.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), constants.len(), "a name stands twice");
    let type_of = |name: &str| name.split('_').take(2).collect::<Vec<_>>().join("_");
    let numbers: BTreeSet<_> = constants.iter().map(|(name, number)| (type_of(name), number)).collect();
    assert_eq!(numbers.len(), constants.len(), "a number stands twice in one type");
}

/// Case I8: the static library links with what rustc says it needs, and nothing in it gets in the way.
#[test]
fn static_library_links() {
    let target = workspace().join("library");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).env("CARGO_TERM_COLOR", "never").args(["rustc", "--lib", "--release"]);
    cargo.args(["--crate-type", "staticlib", "--target-dir"]).arg(&target);
    let said = succeed(cargo.args(["--", "--print", "native-static-libs"]));
    let (_, needed) = said.rsplit_once("native-static-libs: ").unwrap_or_else(|| panic!("rustc said nothing:\n{said}"));
    let needed: Vec<_> = needed.lines().next().expect("split gives one").split_whitespace().collect();
    println!("native libraries: {needed:?}");
    assert!(needed.contains(&"-lc"), "rustc was not understood: {needed:?}");

    let archive = target.join("release/libdlpack_ro.a");
    let run_static = |name: &str, cpp: bool, libraries: &[&str]| {
        let program = workspace().join(format!("static-{name}-{cpp}"));
        let mut command = support::compiler(cpp);
        command
            .args(if cpp { ["-x", "c++"] } else { ["-x", "c"] })
            .arg("-pthread")
            .arg("-I")
            .arg(root().join("include"));
        command.arg("-I").arg(root().join("c-tests")).arg(root().join(format!("c-tests/{name}.c")));
        command.args(["-x", "none"]).arg(&archive).args(libraries).args(["-Wl,-z,defs", "-o"]).arg(&program);
        succeed(&mut command);
        support::run(&program, &[]);
        program
    };
    for cpp in [false, true] {
        let program = run_static("library", cpp, &needed);
        let needed = succeed(Command::new("readelf").env("LC_ALL", "C").args(["--wide", "--dynamic"]).arg(&program));
        assert!(!needed.contains("libdlpack_ro"), "the program took the shared library:\n{needed}");
    }
    run_static("layout", false, &needed);
    assert_eq!(global_names(&archive), declared(), "the static library's names that begin with dlro_ and the header");
}

/// What of ours the archive defines for everybody.
fn global_names(archive: &Path) -> Names {
    let text = succeed(Command::new("nm").args(["--extern-only", "--defined-only", "--format=posix"]).arg(archive));
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with("dlro_")).map(str::to_owned).collect()
}
