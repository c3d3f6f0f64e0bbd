//! The C API: one file per chapter of the header, in the header's order. Each function converts its
//! arguments, calls down, and converts the answer back; nothing is decided here.
//!
//! A function made by a macro would be missing from the header without a word, so they are written out, and
//! a test compares the names in the source, the header and the library.

mod boundary;

pub mod library;
pub mod export;
pub mod import;
pub mod access;
pub mod share;
pub mod legacy;
pub mod copy;
pub mod buffer;
pub mod files;
pub mod sealed;
pub mod guard;
