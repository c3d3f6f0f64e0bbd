//! dlpack_ro: hand arrays from one framework to another through DLPack without anybody writing what must
//! not be written.
//!
//! ```text
//! floor 2   ffi                extern "C", one file per chapter of the header; converts, calls down, converts back
//! floor 1   tensor   memory    pure Rust: what a tensor is and needs | where its bytes live
//! floor 0   abi      error     DLPack's structs and numbers | one error enum: status and sentence
//! ```
//!
//! Arrows point down only. The C header `include/dlpack_ro.h` is generated from `ffi` and is the manual.

pub mod abi;
pub mod error;

pub mod ffi;
mod memory;
mod tensor;
