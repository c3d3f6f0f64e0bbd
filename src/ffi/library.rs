//! Chapter *library*: which version this is, and what the last failure on this thread was.
#![allow(non_camel_case_types)]

use super::boundary;
use crate::abi::{DLPackVersion, VERSION};
use crate::error::Status;
use core::ffi::{CStr, c_char};

/// What every function that can fail returns; one of the `DLRO_OK`, `DLRO_ERR_...` numbers.
pub type dlro_status = i32;

const fn number(text: &str) -> u32 {
    let (mut value, mut i) = (0, 0);
    while i < text.len() {
        value = value * 10 + (text.as_bytes()[i] - b'0') as u32;
        i += 1;
    }
    value
}

/// The version of the library that runs: major * 1000000 + minor * 1000 + patch.
///
/// Compare it with `DLRO_VERSION`, the header's own, which is what the program was compiled with.
/// Never fails. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_version() -> u32 {
    number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
        + number(env!("CARGO_PKG_VERSION_PATCH"))
}

/// The version of the library that runs, as text: "0.1.0".
///
/// The text is the library's own and lives as long as the process. Never fails. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_version_string() -> *const c_char {
    const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };
    TEXT.as_ptr()
}

/// The DLPack version that the library implements: 1.3.
///
/// It reads tensors of every 1.x version whose numbers it knows. What it exports claims the lowest version
/// that defines what the tensor uses, so that older consumers take it: 1.0; 1.1 for float8, float6, float4
/// and padded sub-byte types; 1.2 for the device type kDLTrn. Never fails. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_dlpack_version() -> DLPackVersion {
    VERSION
}

/// The name of a status number, "DLRO_ERR_READ_ONLY" for example; "unknown status" for a number that is none.
///
/// The text is the library's own and lives as long as the process. Never fails. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_status_name(status: i32) -> *const c_char {
    let known = Status::ALL.iter().find(|known| **known as i32 == status);
    known.map_or(c"unknown status", |known| known.name()).as_ptr()
}

/// Whether a status says "this array cannot be exchanged in this way" (numbers 1 to 99), as opposed to a
/// wrong call or a machine that failed.
///
/// The array API prescribes `BufferError` for these. Never fails. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_status_is_exchange_error(status: i32) -> bool {
    Status::ALL.iter().any(|known| *known as i32 == status && known.is_exchange_error())
}

/// What the last failure on this thread was, in one sentence with the offending values; "" before the first.
///
/// The text is the library's and stays until the next failure on this thread: success, queries and deleters
/// leave it alone. It is UTF-8, except where it quotes a path that is not. Never fails, never allocates.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_last_error_message() -> *const c_char {
    boundary::last_error()
}

/// Copies the last failure's sentence into a buffer of `capacity` bytes, for languages whose code may move to
/// another thread between two calls.
///
/// Works as snprintf does: at most `capacity` bytes are written, the last of them NUL; the answer is the
/// length of the whole sentence in bytes, without the NUL. `dst` may be NULL if `capacity` is 0. Never fails.
///
/// # Safety
/// `dst` is writable for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_last_error_copy(dst: *mut c_char, capacity: usize) -> usize {
    let last = boundary::last_error();
    // SAFETY: last_error is always a C string of this thread's.
    let text = unsafe { CStr::from_ptr(last) }.to_bytes();
    let capacity = if dst.is_null() { 0 } else { capacity };
    let take = text.len().min(capacity.saturating_sub(1));
    if capacity > 0 {
        // SAFETY: take + 1 <= capacity, which the caller promised; the caller's buffer is not our sentence.
        unsafe {
            core::ptr::copy(text.as_ptr(), dst.cast(), take);
            dst.add(take).write(0);
        }
    }
    text.len()
}
