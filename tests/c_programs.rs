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

/// Programs that put themselves where the tool wants to be.
const OWN_MALLOC: &str = "out_of_memory"; // replaces malloc, as both tools do; it counts leaks on its own
const OWN_SIGNALS: &str = "guard"; // dies of signals in forked children, which valgrind delivers differently

fn programs_but(left_out: &[&str]) -> Vec<std::path::PathBuf> {
    let stays =
        |source: &std::path::PathBuf| !left_out.iter().any(|stem| source.file_stem().is_some_and(|s| s == *stem));
    programs().into_iter().filter(stays).collect()
}

/// Leaks of every kind, and every invalid access, are failures.
#[test]
fn under_valgrind() {
    for source in programs_but(&[OWN_MALLOC, OWN_SIGNALS]) {
        valgrind(&compile(&source, Build::Checked), &[]);
    }
}

#[test]
fn with_sanitizers() {
    for source in programs_but(&[OWN_MALLOC]) {
        let program = compile(&source, Build::Sanitized);
        assert!(support::has_symbol(&program, "__asan_init"), "{} runs without ASan", program.display());
        run(&program, &[]);
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
