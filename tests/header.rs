//! include/dlpack_ro.h is what cbindgen makes of src/ffi today.

use std::path::Path;

#[test]
fn header_is_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    cbindgen::generate(root).expect("cbindgen reads src/ffi").write(&mut made);
    let path = root.join("include/dlpack_ro.h");
    if std::env::var_os("DLRO_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("include/dlpack_ro.h is written");
    }
    let checked_in = std::fs::read(&path).unwrap_or_default();
    assert!(checked_in == made, "include/dlpack_ro.h is not what src/ffi says; run `make header`");
}
