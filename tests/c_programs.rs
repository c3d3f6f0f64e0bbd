//! Drives the programs in c-tests: each one plain, under valgrind, and with ASan and UBSan.
//!
//! A tool that is missing is a failure, not a skip.

mod support;

use std::path::Path;
use support::{Build, compile, programs, run, valgrind};

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
        // It replaces malloc itself, which only one of the two can do; it counts leaks on its own.
        if source.file_stem().is_some_and(|stem| stem != "out_of_memory") {
            valgrind(&compile(&source, Build::Checked), &[]);
        }
    }
}

#[test]
fn with_sanitizers() {
    for source in programs() {
        if source.file_stem().is_some_and(|stem| stem != "out_of_memory") {
            let program = compile(&source, Build::Sanitized);
            assert!(support::has_symbol(&program, "__asan_init"), "{} runs without ASan", program.display());
            run(&program, &[]);
        }
    }
}

/// The examples that need no argument do what they say.
#[test]
fn examples() {
    let sealed = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sealed/sealed.c");
    assert_eq!(run(&compile(&sealed, Build::Plain), &[]).matches("refuses").count(), 4);
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
