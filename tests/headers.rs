//! The header beside other headers: every language standard, two compilers, every dlpack.h from 0.6 on,
//! whichever comes first; and what plain FFI parsers make of it.

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Build, library, outcome, root, run, soname, succeed, workspace};

const C: [&str; 4] = ["c99", "c11", "c17", "c2x"];
const CPP: [&str; 5] = ["c++11", "c++14", "c++17", "c++20", "c++2b"];
const VERSIONS: [&str; 6] = ["0.6", "0.7", "1.0", "1.1", "1.2", "1.3"];
const COMPILERS: [(&str, &str); 2] = [("gcc", "g++"), ("clang", "clang++")];

/// Real dlpack.h headers, and a Python with cffi, as c-tests/headers/fetch puts them there.
fn dlpack() -> PathBuf {
    static FETCHED: OnceLock<PathBuf> = OnceLock::new();
    FETCHED
        .get_or_init(|| {
            let folder = workspace().join("dlpack");
            succeed(Command::new("python3").arg(root().join("c-tests/headers/fetch")).arg(&folder));
            folder
        })
        .clone()
}

fn header() -> String {
    std::fs::read_to_string(root().join("include/dlpack_ro.h")).expect("the header is there")
}

/// The header without its comments.
fn code() -> String {
    let text = header();
    let mut code = String::new();
    for (index, part) in text.split("/*").enumerate() {
        code.push_str(if index == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) });
    }
    code
}

fn words() -> Vec<String> {
    let code = code();
    let mut words: Vec<_> = code
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("dlro_") || word.starts_with("DLRO_"))
        .map(str::to_owned)
        .collect();
    words.sort();
    words.dedup();
    words
}

/// Every function that the header declares.
pub fn functions() -> Vec<String> {
    let code = code();
    let is_called = |word: &String| code.contains(&format!(" {word}(")) || code.contains(&format!("*{word}("));
    words().into_iter().filter(|word| word.starts_with("dlro_") && is_called(word)).collect()
}

/// A unit that uses all there is: every function's address, every constant and macro, every type.
fn unit() -> String {
    let mut unit = String::from("#include <dlpack_ro.h>\n#include <dlpack_ro.h>\n");
    let code = code();
    for word in words() {
        if code.contains(&format!("  {word} = ")) {
            unit.push_str(&format!("enum {{ use_{word} = (int){word} + 1 }};\n"));
        } else if code.contains(&format!(" {word};\n")) && word.starts_with("dlro_") {
            unit.push_str(&format!("extern {word} *use_{word}; {word} *use_{word};\n"));
        }
    }
    unit.push_str(
        "enum { use_version = DLRO_VERSION, use_flags = (int)(DLPACK_FLAG_BITMASK_READ_ONLY |\n\
         DLPACK_FLAG_BITMASK_IS_COPIED | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) };\n\
         static void use_release(void *owner) { (void)owner; }\n\
         static void use_set_error(void *context, const char *kind, const char *message) {\n\
           (void)context; (void)kind; (void)message;\n\
         }\n\
         int use(struct DLManagedTensorVersioned *tensor, DLManagedTensor *legacy);\n\
         int use(struct DLManagedTensorVersioned *tensor, DLManagedTensor *legacy) {\n\
           dlro_import_options import_options = DLRO_IMPORT_OPTIONS_INIT;\n\
           dlro_export_options export_options = DLRO_EXPORT_OPTIONS_INIT;\n\
           int used = import_options.access + export_options.copy == 0;\n\
           used += tensor->deleter == NULL && legacy->deleter == NULL;\n\
           used += dlro_tensor_export(&tensor->dl_tensor, 0, 0, NULL, use_release, &tensor) == DLRO_OK;\n\
           used += dlro_managed_tensor_allocator(&tensor->dl_tensor, &tensor, NULL, use_set_error);\n",
    );
    for function in functions() {
        unit.push_str(&format!("  used += &{function} != NULL;\n"));
    }
    unit.push_str("  return used;\n}\n");
    unit
}

struct Job {
    what: String,
    command: Command,
}

/// Runs all jobs on as many threads as there are cores; the failures.
fn run_all(jobs: Vec<Job>) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let jobs: Vec<_> = jobs.into_iter().map(std::sync::Mutex::new).collect();
    let failures = std::sync::Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut job = job.lock().expect("taken once");
                    let outcome = outcome(&mut job.command);
                    if !outcome.success {
                        failures.lock().expect("not poisoned").push(format!("{}:\n{}", job.what, outcome.output));
                    }
                }
            });
        }
    });
    failures.into_inner().expect("not poisoned")
}

fn written(name: &str, text: &str) -> PathBuf {
    let folder = workspace().join("headers");
    std::fs::create_dir_all(&folder).expect("a folder is made");
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file is written");
    path
}

fn compile(compiler: &str, standard: &str, extra: &[&str], source: &PathBuf) -> Command {
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
    // The address of a function is never NULL, which is the point of asking.
    command.args(["-Wno-address", "-Wno-tautological-pointer-compare"]);
    command.args(extra).arg("-I").arg(root().join("include"));
    command.arg(source);
    command
}

/// {C99 ... C++23} x {gcc, clang} x {alone, twice, in extern "C", before and after each real dlpack.h}.
#[test]
fn every_standard_compiler_and_neighbour() {
    let unit = unit();
    let mut units = vec![("alone".to_owned(), None, unit.clone())];
    for version in VERSIONS {
        let real = "#include <dlpack/dlpack.h>\n";
        units.push((format!("after {version}"), Some(version), format!("{real}{unit}")));
        units.push((format!("before {version}"), Some(version), format!("{unit}{real}")));
    }
    let dlpack = dlpack();
    let mut jobs = Vec::new();
    for (index, (name, version, text)) in units.iter().enumerate() {
        let c = written(&format!("{index}.c"), text);
        let cpp = written(&format!("{index}.cpp"), text);
        let inside = written(&format!("{index}_inside.cpp"), &format!("extern \"C\" {{\n{text}}}\n"));
        for (cc, cxx) in COMPILERS {
            let mut push = |standard: &str, compiler: &str, extra: &[&str], source: &PathBuf| {
                let mut command = compile(compiler, standard, extra, source);
                if let Some(version) = version {
                    // -isystem: their own warnings are not ours.
                    command.arg("-isystem").arg(dlpack.join(version));
                }
                jobs.push(Job { what: format!("{name}, {compiler} -std={standard} {extra:?}"), command });
            };
            for standard in C {
                push(standard, cc, &[], &c);
            }
            push("c11", cc, &["-Wc++-compat"], &c);
            for standard in CPP {
                push(standard, cxx, &[], &cpp);
            }
            push("c++17", cxx, &[], &inside);
        }
    }
    let count = jobs.len();
    let failures = run_all(jobs);
    assert!(failures.is_empty(), "{} of {count} combinations failed; the first:\n{}", failures.len(), failures[0]);
    println!("{count} combinations, {} functions", functions().len());
}

fn refused(extra: &[&str], before: &str, sentence: &str) {
    let source = written("refused.c", &format!("{before}\n#include <dlpack_ro.h>\n"));
    for (cc, _) in COMPILERS {
        for standard in C {
            let outcome = outcome(&mut compile(cc, standard, extra, &source));
            assert!(!outcome.success, "{cc} {standard} {extra:?} accepted {before}");
            let first = outcome.output.lines().find(|line| line.contains("error:")).unwrap_or_default();
            assert!(first.contains(sentence), "{cc} {standard} {extra:?}: {first}");
        }
    }
}

/// Where no header can help, one sentence says what to do.
#[test]
fn what_cannot_work_stops_with_our_sentence() {
    let guard = "#define DLPACK_DLPACK_H_";
    refused(&[], &format!("{guard}\n#define DLPACK_VERSION 40"), "dlpack_ro.h needs DLPack 0.6 or newer");
    refused(&[], guard, "dlpack_ro.h needs DLPack 0.6 or newer");
    let major = format!("{guard}\n#define DLPACK_MAJOR_VERSION 2\n#define DLPACK_MINOR_VERSION 0");
    refused(&[], &major, "dlpack_ro.h speaks DLPack 1");
}

/// An option that changes the layout of DLPack's structs is noticed by the compiler, not by a crash.
#[test]
fn short_enums_stop_at_the_layout_checks() {
    let source = written("short.c", "#include <dlpack_ro.h>\n");
    for (cc, _) in COMPILERS {
        for standard in C {
            let outcome = outcome(&mut compile(cc, standard, &["-fshort-enums"], &source));
            assert!(!outcome.success, "{cc} {standard} -fshort-enums went unnoticed");
            assert!(outcome.output.contains("DLDevice"), "{}", outcome.output);
        }
    }
}

/// `layout.c` holds against every real dlpack.h, linked with the library.
#[test]
fn layouts_and_numbers_are_dlpacks() {
    let library = library(Build::Plain);
    for version in VERSIONS {
        let program = workspace().join(format!("layout-{version}"));
        let mut cc = Command::new("gcc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-DBEFORE", "-I"]).arg(root().join("include"));
        cc.arg("-I").arg(root().join("c-tests")).arg("-isystem").arg(dlpack().join(version));
        cc.arg(root().join("c-tests/layout.c")).arg("-o").arg(&program).arg("-L").arg(&library).arg("-ldlpack_ro");
        cc.arg(format!("-Wl,-rpath,{}", library.display()));
        succeed(&mut cc);
        run(&program, &[]);
    }
}

/// What the preprocessor leaves under DLRO_FFI is plain enough for cffi, constants included.
#[test]
fn cffi_reads_the_header_and_calls_the_library() {
    let mut cpp = Command::new("gcc");
    cpp.args(["-E", "-P", "-DDLRO_FFI"]).arg(root().join("include/dlpack_ro.h"));
    let text = written("ffi.h", &succeed(&mut cpp));
    let script = written(
        "ffi.py",
        r#"
import sys, cffi
ffi = cffi.FFI()
ffi.cdef(open(sys.argv[1]).read())
dlro = ffi.dlopen(sys.argv[2])
assert ffi.sizeof("struct DLManagedTensorVersioned") == 80 and ffi.sizeof("DLTensor") == 48
assert dlro.DLRO_ERR_READ_ONLY == 1 and dlro.DLRO_ACCESS_IMMUTABLE == 2
elements = ffi.new("float[6]", [0, 1, 2, 3, 4, 5])
shape = ffi.new("int64_t[2]", [2, 3])
layout = ffi.new("DLTensor *", {"data": elements, "device": (dlro.kDLCPU, 0), "ndim": 2,
                                "dtype": (dlro.kDLFloat, 32, 1), "shape": shape})
released = []
@ffi.callback("void(void *)")
def release(owner):
    released.append(owner)
out, data = ffi.new("struct DLManagedTensorVersioned **"), ffi.new("void **")
assert dlro.dlro_tensor_export(layout, 0, dlro.DLRO_MUTABILITY_READ_ONLY, ffi.NULL, release, out) == dlro.DLRO_OK
assert dlro.dlro_tensor_data_mut(out[0], data) == dlro.DLRO_ERR_READ_ONLY
print(ffi.string(dlro.dlro_last_error_message()).decode())
dlro.dlro_tensor_release(out[0])
assert len(released) == 1
print(ffi.string(dlro.dlro_version_string()).decode())
"#,
    );
    let python = dlpack().join("python/bin/python3");
    let mut command = Command::new(python);
    command.arg(script).arg(text).arg(library(Build::Plain).join(soname()));
    assert!(succeed(&mut command).contains(env!("CARGO_PKG_VERSION")));
}
