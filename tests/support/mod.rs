//! What the drivers share: the library built once per kind, C programs compiled and run.
#![allow(dead_code)] // each driver uses its part

pub mod tools;
pub mod header;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the tests put what they make.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned()
}

/// A way to build a C program and the library below it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Build {
    /// The shipped library.
    Plain,
    /// The same code with assertions, overflow checks and line numbers.
    Checked,
    /// As `Checked`, and the C program with ASan and UBSan.
    Sanitized,
}

/// Builds the library and answers the folder with the shared and the static one.
pub fn library(build: Build) -> PathBuf {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    static CHECKED: OnceLock<PathBuf> = OnceLock::new();
    let (cell, profile) = match build {
        Build::Plain => (&RELEASE, "release"),
        Build::Checked | Build::Sanitized => (&CHECKED, "release-checked"),
    };
    cell.get_or_init(|| {
        let target = workspace().join("library");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(root())
            .args(["build", "--lib", "--quiet", "--profile", profile, "--target-dir"])
            .arg(&target);
        succeed(&mut cargo);
        let folder = target.join(profile);
        // Programs ask for the SONAME.
        let link = folder.join(soname());
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink("libdlpack_ro.so", link).expect("a link is made");
        folder
    })
    .clone()
}

/// The name that programs ask the loader for.
pub fn soname() -> String {
    match (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR")) {
        ("0", minor) => format!("libdlpack_ro.so.0.{minor}"),
        (major, _) => format!("libdlpack_ro.so.{major}"),
    }
}

/// The programs in c-tests, in a stable order.
pub fn programs() -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(root().join("c-tests"))
        .expect("c-tests is there")
        .map(|entry| entry.expect("c-tests can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    all.sort();
    assert!(!all.is_empty(), "c-tests has no programs");
    all
}

/// The C or C++ compiler that the `cc` crate finds here.
pub fn compiler(cpp: bool) -> Command {
    let host = env!("DLRO_HOST");
    cc::Build::new()
        .cpp(cpp)
        .target(host)
        .host(host)
        .opt_level(1)
        .debug(true)
        .cargo_metadata(false)
        .get_compiler()
        .to_command()
}

/// Compiles a program through the header only and links it to the shared library.
pub fn compile(source: &Path, build: Build) -> PathBuf {
    let folder = workspace().join(format!("{build:?}"));
    std::fs::create_dir_all(&folder).expect("a folder is made");
    let program = folder.join(source.file_stem().expect("a file has a stem"));
    let library = library(build);
    let mut cc = compiler(false);
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
    if build == Build::Sanitized {
        cc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    }
    cc.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("c-tests"));
    cc.arg(source).arg("-o").arg(&program).arg("-L").arg(&library).args(["-ldlpack_ro", "-ldl"]);
    cc.arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(&mut cc);
    program
}

/// What a program did.
pub struct Outcome {
    /// It exited with 0.
    pub success: bool,
    /// Both of its streams.
    pub output: String,
}

/// Runs a command to its end.
pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let text = [output.stdout, output.stderr].concat();
    Outcome { success: output.status.success(), output: String::from_utf8_lossy(&text).into_owned() }
}

/// Runs a command that must succeed; prints what it printed.
pub fn succeed(command: &mut Command) -> String {
    let outcome = outcome(command);
    assert!(outcome.success, "{command:?} failed:\n{}", outcome.output);
    outcome.output
}

fn prepared(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    // Nothing of cargo's: a user's program has no library path either.
    command.args(arguments).env_remove("LD_LIBRARY_PATH").env("ASAN_OPTIONS", "detect_leaks=1:exitcode=99");
    command.current_dir(workspace());
    command
}

/// Runs a program.
pub fn command(program: &Path, arguments: &[&str]) -> Outcome {
    outcome(&mut prepared(program, arguments))
}

/// Runs a program that must succeed.
pub fn run(program: &Path, arguments: &[&str]) -> String {
    let output = succeed(&mut prepared(program, arguments));
    println!("{}:\n{output}", program.display());
    output
}

/// Runs a program under valgrind.
pub fn valgrind_command(program: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("valgrind");
    command
        .args([
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite,indirect,possible",
        ])
        .args(["--show-leak-kinds=definite,indirect,possible", "--fair-sched=yes"])
        .arg(program)
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .current_dir(workspace());
    outcome(&mut command)
}

/// Runs a program that must succeed under valgrind.
pub fn valgrind(program: &Path, arguments: &[&str]) {
    let outcome = valgrind_command(program, arguments);
    assert!(outcome.success, "{} {arguments:?} under valgrind:\n{}", program.display(), outcome.output);
}

/// Whether a binary mentions a symbol.
pub fn has_symbol(binary: &Path, symbol: &str) -> bool {
    succeed(Command::new("nm").arg(binary)).contains(symbol)
}

/// NumPy and what else the tests import, installed into target/ without root: the demo's own rule.
pub fn python_packages() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        succeed(Command::new("make").current_dir(root()).args(["--no-print-directory", "target/python"]));
        root().join("target/python")
    })
    .clone()
}
