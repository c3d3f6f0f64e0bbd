//! Every program in README.md compiles without a warning and does what it says.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Build, compiler, library, root, succeed, workspace};

/// The code blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("README.md")).expect("README.md is there");
    let blocks: Vec<_> = text
        .split(&format!("```{language}\n"))
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect();
    assert!(!blocks.is_empty(), "README.md shows no {language}");
    blocks
}

fn written(name: &str, text: &str) -> PathBuf {
    let path = workspace().join(name);
    std::fs::write(&path, text).expect("a file is written");
    path
}

fn compiled(language: &str, arguments: &[&str], text: &str) -> String {
    let source = written(&format!("readme.{language}"), text);
    let program = source.with_extension(format!("{language}.out"));
    let library = library(Build::Plain);
    let mut cc = compiler(language == "cpp");
    cc.args(arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(root().join("include"));
    cc.arg(&source).arg("-o").arg(&program).arg("-L").arg(&library).arg("-ldlpack_ro");
    cc.arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(&mut cc);
    succeed(&mut Command::new(program))
}

#[test]
fn c() {
    for block in blocks("c") {
        assert_eq!(compiled("c", &["-std=c11"], &block), "the consumer has 99, the producer still 0\n");
    }
}

#[test]
fn cpp() {
    for block in blocks("cpp") {
        assert!(compiled("cpp", &["-std=c++17"], &block).starts_with("the tensor is read-only"));
    }
}

#[test]
fn python() {
    let packages = support::python_packages();
    for block in blocks("python") {
        let script = written("readme.py", &block);
        let shared = library(Build::Plain).join("libdlpack_ro.so");
        let mut python = Command::new("python3");
        python.current_dir(workspace()).env("PYTHONPATH", &packages).arg(script).arg(shared);
        assert!(succeed(&mut python).starts_with("1 the tensor is read-only"));
    }
}

#[test]
fn links_lead_somewhere() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("README.md is there");
    let prose: String = text.split("```").step_by(2).collect();
    for target in prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(target.starts_with("https://") || Path::new(&root().join(target)).exists(), "{target} leads nowhere");
    }
}
