//! The header beside other headers: every language standard, both compilers, every real dlpack.h, and parsers
//! that only run the preprocessor.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use support::header::{self, Header};
use support::{Build, Outcome, library, outcome, root, succeed, workspace};

const COMPILERS: [&str; 2] = ["gcc", "clang"];
const C: [&str; 4] = ["c99", "c11", "c17", "c2x"];
const CPP: [&str; 5] = ["c++11", "c++14", "c++17", "c++20", "c++2b"];
/// Real dlpack.h headers, and the number that c-tests/headers/unit.c expects of each.
const DLPACK: [(&str, u32); 6] = [("0.6", 60), ("0.7", 70), ("1.0", 100), ("1.1", 110), ("1.2", 120), ("1.3", 130)];
/// 0.8 is to be had in 90 MB only.
const DLPACK_LARGE: [(&str, u32); 1] = [("0.8", 80)];

/// A folder with a real dlpack.h per version, and a Python with cffi.
fn fetched(large: bool) -> PathBuf {
    static FETCHED: OnceLock<Mutex<[bool; 2]>> = OnceLock::new();
    let folder = workspace().join("headers");
    // A test that failed here has said why; the others say it too.
    let mut done = FETCHED.get_or_init(Mutex::default).lock().unwrap_or_else(|poison| poison.into_inner());
    if !done[usize::from(large)] {
        let mut fetch = Command::new("python3");
        fetch.arg(root().join("c-tests/headers/fetch")).arg(&folder).args(large.then_some("--large"));
        succeed(fetch.env("CARGO", env!("CARGO")));
        done[usize::from(large)] = true;
    }
    folder
}

fn compiler(name: &str) -> Command {
    static PRESENT: OnceLock<()> = OnceLock::new();
    PRESENT.get_or_init(|| {
        for name in COMPILERS {
            let works = Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
            assert!(works, "{name} cannot be started, and the header is for both: on Debian, apt-get install {name}");
        }
    });
    let mut command = Command::new(name);
    command.env("LC_ALL", "C").arg("-I").arg(root().join("include"));
    command
}

fn language(standard: &str) -> &'static str {
    if standard.starts_with("c++") { "c++" } else { "c" }
}

fn standards() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMPILERS.into_iter().flat_map(|compiler| C.into_iter().chain(CPP).map(move |standard| (compiler, standard)))
}

/// Runs all commands, as many at a time as there are cores; answers how many, and what `judge` has against them.
fn all(mut commands: Vec<Command>, judge: impl Fn(&Outcome) -> Result<(), String> + Sync) -> (usize, Vec<String>) {
    let (next, complaints, total) = (AtomicUsize::new(0), Mutex::new(vec![]), commands.len());
    let commands: Vec<_> = commands.drain(..).map(Mutex::new).collect();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(command) = commands.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut command = command.lock().expect("nobody else has this command");
                    if let Err(complaint) = judge(&outcome(&mut command)) {
                        complaints.lock().expect("a complaint is written").push(format!("{command:?}:\n{complaint}"));
                    }
                }
            });
        }
    });
    (total, complaints.into_inner().expect("the threads are gone"))
}

fn assert_none((total, complaints): (usize, Vec<String>), what: &str) {
    println!("{total} compilations: {what}");
    assert!(total > 0, "{what}: nothing was compiled");
    let shown = complaints.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(complaints.is_empty(), "{what}: {} of {total} went wrong, such as\n{shown}", complaints.len());
}

fn silent(outcome: &Outcome) -> Result<(), String> {
    if outcome.success && outcome.output.is_empty() { Ok(()) } else { Err(outcome.output.clone()) }
}

/// The names of today's header, for unit.c: none can be forgotten there.
fn write_names(header: &Header) -> PathBuf {
    let folder = workspace().join("names");
    let mut text = String::new();
    let version = header.macros.iter().filter(|name| name.starts_with("DLRO_VERSION"));
    for name in header.constants.iter().map(|(name, _)| name).chain(version) {
        text += &format!("NUMBER({name})\n");
    }
    for name in &header.types {
        text += &format!("TYPE({name})\n");
    }
    for function in &header.functions {
        text += &format!("FUNCTION({})\n", function.name);
    }
    std::fs::create_dir_all(&folder).expect("a folder is made");
    std::fs::write(folder.join("names.h"), text).expect("names.h is written");
    folder
}

fn compile_units(versions: &[(&str, u32)], headers: &Path, alone: bool) -> Vec<Command> {
    static NAMES: OnceLock<PathBuf> = OnceLock::new();
    let names = NAMES.get_or_init(|| write_names(&header::read()));
    let mut cases: Vec<(Vec<String>, Option<&str>)> = vec![];
    if alone {
        cases.extend(
            [vec![], vec!["-DTWICE".to_owned()], vec!["-DINSIDE_EXTERN_C".to_owned()]].map(|case| (case, None)),
        );
    }
    for (version, number) in versions {
        let expected = format!("-DEXPECTED_DLPACK={number}");
        cases.push((vec!["-DDLPACK_FIRST".to_owned(), expected], Some(version)));
        cases.push((vec!["-DDLPACK_LAST".to_owned(), "-DTWICE".to_owned()], Some(version)));
    }
    let mut commands = vec![];
    for (name, standard) in standards() {
        // In C once more for those who compile C with an eye on C++.
        let extras: &[&[&str]] = if language(standard) == "c" { &[&[], &["-Wc++-compat"]] } else { &[&[]] };
        for (case, version) in &cases {
            for extra in extras {
                let mut command = compiler(name);
                command.arg(format!("-std={standard}")).args(["-x", language(standard), "-fsyntax-only"]);
                command.args(["-Wall", "-Wextra", "-Wpedantic", "-Wundef", "-Werror"]).args(*extra).args(case);
                if let Some(version) = version {
                    command.arg("-isystem").arg(headers.join(version)); // its own warnings are not ours
                }
                command.arg("-I").arg(names).arg(root().join("c-tests/headers/unit.c"));
                commands.push(command);
            }
        }
    }
    commands
}

/// Cases I1, I2, I12, I13.
#[test]
fn compiles_in_every_standard_beside_every_dlpack_h() {
    let commands = compile_units(&DLPACK, &fetched(false), true);
    assert_none(all(commands, silent), "alone, twice, inside extern \"C\", before and after each dlpack.h");
}

#[test]
#[ignore = "fetches 90 MB for one header; make test-frameworks"]
fn compiles_beside_dlpack_0_8() {
    let headers = fetched(true);
    assert_none(all(compile_units(&DLPACK_LARGE, &headers, false), silent), "before and after dlpack.h 0.8");
    run_layout(&DLPACK_LARGE, &headers);
}

/// What unit.c does not use by name is looked at here: a new macro must be put into one of the two.
#[test]
fn every_macro_is_used() {
    let unit = std::fs::read_to_string(root().join("c-tests/headers/unit.c")).expect("unit.c is there");
    for name in header::read().macros {
        let for_the_compiler =
            ["DLRO_MUST_USE", "DLRO_LAYOUT", "DLPACK_RO_H_", "DLPACK_DLPACK_H_", "DLPACK_EXTERN_C", "DLPACK_DLL"];
        let used =
            unit.contains(&name) || name.starts_with("DLRO_VERSION") || for_the_compiler.contains(&name.as_str());
        assert!(used, "c-tests/headers/unit.c does not use {name}");
    }
}

/// Compiles a file of includes and nothing else.
fn compile_includes(names: &[&str], flags: &[&str], folder: &Path) -> Vec<Command> {
    let file = workspace().join(format!("{}.c", names.concat().replace(['/', '.'], "_")));
    let text: String = names.iter().map(|name| format!("#include <{name}>\n")).collect();
    std::fs::write(&file, text + "extern int unit;\n").expect("a file is written");
    standards()
        .map(|(name, standard)| {
            let mut command = compiler(name);
            command.arg(format!("-std={standard}")).args(["-x", language(standard), "-fsyntax-only"]).args(flags);
            command.arg("-isystem").arg(folder).arg(&file);
            command
        })
        .collect()
}

/// One error, and that one.
fn only_error(sentence: &str) -> impl Fn(&Outcome) -> Result<(), String> + Sync {
    move |outcome| {
        let errors: Vec<_> = outcome.output.lines().filter(|line| line.contains("error: ")).collect();
        match errors[..] {
            [one] if one.contains(sentence) && !outcome.success => Ok(()),
            _ => Err(format!("expected the one error {sentence:?}, found:\n{}", outcome.output)),
        }
    }
}

/// Case I1: it works, or it stops with our own sentence and only that.
#[test]
fn unsupported_dlpack_h_is_one_sentence() {
    for (version, sentence) in
        [("0.4", "dlpack_ro.h needs DLPack 0.6 or newer"), ("2.0", "dlpack_ro.h speaks DLPack 1")]
    {
        let folder = root().join(format!("c-tests/headers/version_{version}"));
        let names = ["dlpack/dlpack.h", "dlpack_ro.h"];
        assert_none(
            all(compile_includes(&names, &[], &folder), only_error(sentence)),
            &format!("dlpack.h {version} first"),
        );
        // Before the other one it works.
        let names = ["dlpack_ro.h", "dlpack/dlpack.h"];
        assert_none(all(compile_includes(&names, &["-Werror"], &folder), silent), &format!("dlpack.h {version} last"));
    }
}

/// A switch that breaks the ABI is an error, and one that does not is none.
#[test]
fn layout_switches_are_noticed() {
    let headers = fetched(false);
    for (version, names) in ["0.6", "1.0", "1.3"]
        .into_iter()
        .flat_map(|version| [(version, &["dlpack_ro.h"][..]), (version, &["dlpack/dlpack.h", "dlpack_ro.h"])])
    {
        let what = format!("{names:?}, dlpack.h {version}");
        let compile = |flag: &str| compile_includes(names, &[flag], &headers.join(version));
        // C99 has no messages: there the name of what is wrong is in that of an array.
        assert_none(all(compile("-fpack-struct=1"), only_error("alignment")), &format!("{what}, packed"));
        let (cpp, c) =
            compile("-fshort-enums").into_iter().partition(|command| command.get_args().any(|word| word == "c++"));
        assert_none(all(c, only_error("DLDeviceType")), &format!("{what}, short enums in C"));
        // In C++ the enum says how wide it is, but for DLPack 0.6's.
        if version == "0.6" && names.len() == 2 {
            assert_none(all(cpp, only_error("DLDeviceType")), &format!("{what}, short enums in C++"));
        } else {
            assert_none(all(cpp, silent), &format!("{what}, short enums in C++, which are harmless"));
        }
    }
}

/// The layout checks hold where pointers or alignments are others.
#[test]
fn compiles_for_other_machines() {
    let mut commands = vec![];
    let machines =
        ["i386-linux-gnu", "armv7-linux-gnueabihf", "aarch64-linux-gnu", "riscv64-linux-gnu", "s390x-linux-gnu"];
    for machine in machines.into_iter().chain(["wasm32", "x86_64-pc-windows-gnu", "arm64-apple-macos"]) {
        for standard in ["c99", "c11", "c++17"] {
            let mut command = compiler("clang");
            command.arg(format!("--target={machine}")).arg(format!("-std={standard}")).args(["-x", language(standard)]);
            command.args((standard == "c++17").then_some("-nostdinc++"));
            command.args(["-ffreestanding", "-fsyntax-only", "-Werror"]).arg(root().join("include/dlpack_ro.h"));
            commands.push(command);
        }
    }
    assert_none(all(commands, silent), "other machines");
}

/// Our copy of DLPack's names is DLPack's.
#[test]
fn names_are_those_of_dlpack_1_3() {
    let numbers = |text: &str| {
        let mut found: Vec<String> = vec![];
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("kDL")) {
            let value = line.split(['/', ',']).next().expect("split gives one").trim().trim_end_matches('U');
            found.push(value.to_owned());
        }
        found.sort();
        found
    };
    let real = std::fs::read_to_string(fetched(false).join("1.3/dlpack/dlpack.h")).expect("1.3 is there");
    let (ours, theirs) = (numbers(&header::read().text), numbers(&real));
    assert!(theirs.len() > 30, "dlpack.h 1.3 was not understood: {theirs:?}");
    assert_eq!(ours, theirs);
}

fn run_layout(versions: &[(&str, u32)], headers: &Path) {
    let (libraries, folder) = (library(Build::Plain), workspace().join("layout"));
    std::fs::create_dir_all(&folder).expect("a folder is made");
    for (version, _) in versions {
        for (standard, name) in [("c11", "gcc"), ("c++17", "g++")] {
            let program = folder.join(format!("layout-{version}-{}", language(standard)));
            let mut command = compiler(name);
            command.arg(format!("-std={standard}")).args([
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-DDLPACK_FIRST",
            ]);
            command.arg("-isystem").arg(headers.join(version)).arg("-I").arg(root().join("c-tests"));
            command.args(["-x", language(standard)]).arg(root().join("c-tests/layout.c")).args(["-x", "none", "-o"]);
            command.arg(&program).arg("-L").arg(&libraries).arg("-ldlpack_ro");
            succeed(command.arg(format!("-Wl,-rpath,{}", libraries.display())));
            let outcome = support::command(&program, &[]);
            println!("{}:\n{}", program.display(), outcome.output);
            assert!(
                outcome.success && outcome.output.contains(&format!("as DLPack {version} declares them")),
                "{}",
                outcome.output
            );
        }
    }
}

/// c-tests/layout.c against the structs of each real dlpack.h, in C and in C++, with the library behind it.
#[test]
fn layout_is_that_of_every_dlpack_h() {
    run_layout(&DLPACK, &fetched(false));
}

/// Case I13: what the preprocessor leaves is what Python's cffi reads, and enough to call the library.
#[test]
fn cffi_reads_the_preprocessed_header() {
    let python = fetched(false).join("python/bin/python3");
    let shared = library(Build::Plain).join(support::soname());
    for (name, standard) in standards().filter(|(_, standard)| language(standard) == "c") {
        let text = workspace().join(format!("ffi-{name}-{standard}.h"));
        let mut command = compiler(name);
        command.arg(format!("-std={standard}")).args(["-E", "-P", "-DDLRO_FFI", "-x", "c"]);
        succeed(command.arg(root().join("include/dlpack_ro.h")).arg("-o").arg(&text));
        let mut command = Command::new(&python);
        command.arg(root().join("c-tests/headers/cffi_reads.py")).arg(&text).arg(&shared);
        let functions = header::read().functions.into_iter().map(|function| function.name);
        println!("{name} {standard}: {}", succeed(command.args(functions).env_remove("LD_LIBRARY_PATH")));
    }
}
