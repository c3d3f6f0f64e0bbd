//! Chapter *files*: arrays in files become tensors without being read.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::library::dlro_status;
use crate::abi::DLManagedTensorVersioned;
use crate::error::{Error, Result};
use crate::memory::mapped::Mode;
use crate::tensor::file;
use core::ffi::{CStr, c_char};

/// How a file is mapped; one of the `DLRO_MAP_...` numbers.
pub type dlro_map_mode = u32;

/// The values of `dlro_map_mode`.
#[repr(C)]
pub enum dlro_map_mode_values {
    /// The tensor is read-only, and the memory too: a write through it is SIGSEGV.
    DLRO_MAP_READ_ONLY = 0,
    /// The tensor is writable; what is written goes to pages of its own and never to the file.
    DLRO_MAP_COPY_ON_WRITE = 1,
}

pub(super) fn mode(number: dlro_map_mode) -> Result<Mode> {
    match number {
        0 => Ok(Mode::ReadOnly),
        1 => Ok(Mode::CopyOnWrite),
        _ => Err(Error::UnknownValue { what: "mode", found: number.into() }),
    }
}

/// Maps a NumPy `.npy` file (format 1.0, 2.0 or 3.0) as a tensor, in C or Fortran order as the file says.
///
/// Nothing is read but the header, so the time does not depend on the size. The data is aligned as the file
/// aligns it: NumPy since 1.14 to 64 bytes, other writers to anything.
/// A read-only tensor is `DLRO_MUTABILITY_READ_ONLY`, not IMMUTABLE: whoever can write the file can change
/// it. Nobody may shorten the file while the tensor lives; reading behind its end is SIGBUS.
///
/// Ownership: on success `*out` belongs to the caller; it keeps the file mapped, and open where it may be mapped once more (read-only). On failure `*out`
/// is NULL and the file closed.
///
/// Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
/// `DLRO_ERR_IO` (open, fstat, read or mmap failed), `DLRO_ERR_FORMAT` (no regular file, not `.npy`, corrupt
/// or truncated; the sentence says what was found at which byte), `DLRO_ERR_DTYPE` (objects, structures,
/// strings, dates, the other byte order: what DLPack cannot say), `DLRO_ERR_BOUNDS` (a negative or overflowing
/// shape), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any. Rule: NumPy enhancement proposal 1, "A simple file format for NumPy arrays".
///
/// # Safety
/// `path` is NULL or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_npy_map(
    path: *const c_char,
    mode: dlro_map_mode,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    // SAFETY: promised by the caller.
    unsafe {
        boundary::status_at(path, || {
            let out = output(out, "out")?;
            let path = CStr::from_ptr(non_null(path, "path")?.as_ptr());
            *out = file::map_npy(path, self::mode(mode)?)?.into_raw().as_ptr();
            Ok(())
        })
    }
}
