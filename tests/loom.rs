//! Runs the models in src/memory/models.rs, which need the library built with `--cfg loom`.

mod support;

use std::process::Command;

#[test]
fn the_memory_model_allows_nothing_that_the_rules_forbid() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(support::root())
        .args(["test", "--lib", "--quiet", "--target-dir"])
        .arg(support::workspace().join("loom"))
        .arg("memory::models")
        .env("RUSTFLAGS", "--cfg loom")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let output = support::succeed(&mut cargo);
    assert!(output.contains("5 passed"), "the models did not run:\n{output}");
}
