//! Drives the programs in tests/python: the library beside NumPy, safetensors and Python's own signal handlers.

mod support;

use std::process::Command;
use support::{Build, library, python_packages, root, succeed, workspace};

fn program(name: &str) -> String {
    let mut python = Command::new("python3");
    python.arg(root().join("tests/python").join(name)).arg(library(Build::Plain).join("libdlpack_ro.so"));
    python.current_dir(workspace()).env("PYTHONPATH", python_packages());
    succeed(&mut python)
}

/// Saved files are those of numpy.save and safetensors, byte for byte; damaged ones are refused as by them.
#[test]
fn files() {
    println!("{}", program("files.py"));
}

/// Sealed memory is a .npy file to a process that knows nothing of this library; Python's faulthandler still reports
/// after the guard has.
#[test]
fn neighbours() {
    println!("{}", program("neighbours.py"));
}
