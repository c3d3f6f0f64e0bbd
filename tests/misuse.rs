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

/// The names that the header defines, of constants.
fn constants() -> Vec<String> {
    let header = std::fs::read_to_string(root().join("include/dlpack_ro.h")).expect("the header is there");
    let values = header.lines().filter_map(|line| {
        let line = line.trim();
        let name = line.split(" = ").next()?;
        let named = name.starts_with("DLRO_") && line.ends_with(',') && !name.contains(['(', ' ']);
        let version = line.strip_prefix("#define ").filter(|rest| rest.starts_with("DLRO_VERSION"));
        if named { Some(name) } else { version.and_then(|rest| rest.split(' ').next()) }
    });
    values.map(str::to_owned).collect()
}

/// Cases I11, I12: every constant and flag macro in a constant expression, every number of the width that it has in
/// the library, every callback written out, and NULL for a deleter.
#[test]
fn constants_are_constant_expressions() {
    let constants = constants();
    for some in ["DLRO_OK", "DLRO_ERR_INTERNAL", "DLRO_FREEZE_ENFORCE", "DLRO_MAP_COPY_ON_WRITE", "DLRO_VERSION"] {
        assert!(constants.iter().any(|name| name == some), "{some} was not found in the header");
    }
    for cpp in [false, true] {
        let asserted = if cpp { "static_assert" } else { "_Static_assert" };
        let mut body = String::new();
        for name in constants.iter().map(String::as_str).chain([
            "DLPACK_FLAG_BITMASK_READ_ONLY",
            "DLPACK_FLAG_BITMASK_IS_COPIED",
            "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED",
        ]) {
            body += &format!("{asserted}({name} >= 0, \"{name}\");\n");
        }
        for number in ["status", "mutability", "access", "copy", "layout", "legacy_policy", "map_mode"] {
            body += &format!("{asserted}(sizeof(dlro_{number}) == 4, \"{number}\");\n");
        }
        body += &format!("{asserted}(sizeof(dlro_import_options) == 40, \"options\");\n");
        body += "static void release(void *owner) { (void)owner; }\n\
                 static void set_error(void *context, const char *kind, const char *message) {\n\
                   (void)context, (void)kind, (void)message;\n\
                 }\n\
                 void (*const releases[])(void *) = {release, NULL};\n\
                 void (*const errors[])(void *, const char *, const char *) = {set_error, NULL};\n\
                 struct DLManagedTensorVersioned ownerless;\n\
                 void f(void);\n\
                 void f(void) { ownerless.deleter = NULL; }\n";
        let output = check(cpp, "constants", &body);
        assert!(output.status.success(), "{}\n{body}", String::from_utf8_lossy(&output.stderr));
    }
}
