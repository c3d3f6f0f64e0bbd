//! What the header makes an error of the compiler, so that no program can do it.

mod support;

use std::process::Output;
use support::{compiler, root, workspace};

/// Checks a program's types, with warnings as errors.
fn check(cpp: bool, name: &str, body: &str) -> Output {
    let source = workspace().join(format!("{name}.{}", if cpp { "cpp" } else { "c" }));
    std::fs::write(&source, format!("#include <dlpack_ro.h>\n{body}\n")).expect("a file is written");
    let mut cc = compiler(cpp);
    cc.args([
        if cpp { "-std=c++11" } else { "-std=c11" },
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-c",
        "-o",
        "/dev/null",
    ]);
    cc.env("LC_ALL", "C").arg("-I").arg(root().join("include")).arg(source).output().expect("the compiler runs")
}

const ARGUMENTS: &str = "struct DLManagedTensorVersioned *tensor, const struct DLManagedTensorVersioned *constant, \
                         DLManagedTensor *legacy, const void **read, void **write, \
                         struct DLManagedTensorVersioned **out, dlro_buffer *buffer";

/// A right call, and the wrong one beside it.
const CALLS: [(&str, &str, &str); 6] = [
    ("struct_of_another_kind", "dlro_legacy_import(legacy, 1, NULL, out)", "dlro_legacy_import(tensor, 1, NULL, out)"),
    ("legacy_as_versioned", "dlro_tensor_import(tensor, NULL, out)", "dlro_tensor_import(legacy, NULL, out)"),
    ("writable_pointer", "dlro_tensor_data(constant, read)", "dlro_tensor_data(constant, write)"),
    ("constant_tensor", "dlro_tensor_data_mut(tensor, write)", "dlro_tensor_data_mut(constant, write)"),
    ("constant_pointer", "dlro_tensor_data_mut(tensor, write)", "dlro_tensor_data_mut(tensor, read)"),
    ("buffer_as_tensor", "dlro_tensor_freeze(tensor)", "dlro_tensor_freeze(buffer)"),
];

/// Cases A14, C1, J4: the wrong struct, a pointer to write from the reading function, a constant tensor to write to.
#[test]
fn wrong_programs_do_not_compile() {
    let all = "(void)tensor, (void)constant, (void)legacy, (void)read, (void)write, (void)out, (void)buffer;";
    for cpp in [false, true] {
        for (name, right, wrong) in CALLS {
            let program =
                |call: &str| format!("int f({ARGUMENTS});\nint f({ARGUMENTS}) {{ {all} return (int){call}; }}");
            let output = check(cpp, name, &program(right));
            assert!(output.status.success(), "{right}: {}", String::from_utf8_lossy(&output.stderr));
            let output = check(cpp, name, &program(wrong));
            assert!(!output.status.success(), "{wrong} compiles");
        }
        let ignored = "void f(struct DLManagedTensorVersioned *tensor);\n\
                       void f(struct DLManagedTensorVersioned *tensor) { dlro_tensor_freeze(tensor); }";
        assert!(!check(cpp, "ignored_status", ignored).status.success(), "a status may be ignored");
    }
}

/// Case I11: what the library passes as 32 bits has 32 bits in both languages.
#[test]
fn numbers_have_their_width_in_c_and_cpp() {
    for cpp in [false, true] {
        let asserted = if cpp { "static_assert" } else { "_Static_assert" };
        let mut body = String::new();
        for number in ["status", "mutability", "access", "copy", "layout", "legacy_policy", "map_mode"] {
            body += &format!("{asserted}(sizeof(dlro_{number}) == 4, \"{number}\");\n");
        }
        let output = check(cpp, "widths", &body);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
