//! Drives the programs in c-tests: each one plain, under valgrind, and with ASan and UBSan.
//!
//! A tool that is missing is a failure, not a skip.

mod support;

use std::path::Path;
use support::{Build, compile, programs, run, valgrind};

/// Only one can: the program, or valgrind and ASan. Such a program counts leaks on its own.
fn replaces_malloc(source: &Path) -> bool {
    source.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with("out_of_memory"))
}

/// The shipped library, as a user runs it.
#[test]
fn plain() {
    for source in programs() {
        run(&compile(&source, Build::Plain), &[]);
    }
}

/// Leaks of every kind, and every invalid access, are failures.
#[test]
fn under_valgrind() {
    for source in programs() {
        if !replaces_malloc(&source) {
            valgrind(&compile(&source, Build::Checked), &[]);
        }
    }
}

#[test]
fn with_sanitizers() {
    for source in programs() {
        if !replaces_malloc(&source) {
            let program = compile(&source, Build::Sanitized);
            assert!(support::has_symbol(&program, "__asan_init"), "{} runs without ASan", program.display());
            run(&program, &[]);
        }
    }
}

/// The tools see what they are there for: a program with a leak, an overflow, an undefined shift fails.
#[test]
fn tools_are_awake() {
    let canary = Path::new(env!("CARGO_MANIFEST_DIR")).join("c-tests/tools/canary.c");
    let checked = compile(&canary, Build::Checked);
    let sanitized = compile(&canary, Build::Sanitized);
    valgrind(&checked, &["fine"]);
    run(&sanitized, &["fine"]);
    for fault in ["leak", "overflow", "use-after-release"] {
        assert!(!support::valgrind_command(&checked, &[fault]).success, "valgrind slept through {fault}");
    }
    for fault in ["leak", "overflow", "use-after-release", "shift"] {
        assert!(!support::command(&sanitized, &[fault]).success, "the sanitizers slept through {fault}");
    }
}
