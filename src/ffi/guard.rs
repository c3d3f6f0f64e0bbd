//! Chapter *guard*: who wrote to memory that must not be written.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::library::dlro_status;
use crate::abi::DLManagedTensorVersioned;
use crate::error::Error;
use crate::memory::guard;
use crate::tensor::managed;
use crate::tensor::view::Untrusted;
use crate::tensor::watch::{self, Watch};
use core::ffi::{CStr, c_char};
use core::ptr::NonNull;

/// A tensor that the guard watches. Used through pointers only.
pub struct dlro_watch(#[expect(dead_code)] Watch); // without repr(C), so that the header shows no field

/// Installs the guard: from now on a write to the protected memory of a watched tensor is reported on standard
/// error before the process goes on as it would have.
///
/// The report names the tensor's label, the address, the byte offset, the dtype and the index that was written,
/// the address of the code that wrote, and the thread. Then the handler that was installed before runs (that of
/// Python's faulthandler, of a JVM or of Go, for example), or the process ends as without the guard. Calling it
/// again does nothing. Without it nothing is installed and nothing costs anything.
///
/// Ownership: none changes hands; the handlers of SIGSEGV and SIGBUS change for the process and stay changed.
///
/// Status: `DLRO_ERR_IO` (sigaction failed), `DLRO_ERR_UNSUPPORTED` (not Linux). Threads: any.
/// Rule: sigaction(2), signal-safety(7).
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn dlro_guard_install() -> dlro_status {
    boundary::status(guard::install)
}

/// Puts a tensor on the guard's list, under a label of up to 64 bytes of UTF-8.
///
/// It takes a tensor of this library that is not writable. A write is noticed only where the pages are
/// protected: memory that `dlro_buffer_freeze` froze with `DLRO_FREEZE_ENFORCE`, that a file was mapped into
/// read-only, or that is sealed. At most 256 tensors are watched at a time.
///
/// Ownership: on success `*out` belongs to the caller, who ends it with `dlro_watch_release`; until then it keeps
/// the memory, but not the tensor. On failure `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (a foreign tensor, a label that is not UTF-8),
/// `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_UNSUPPORTED` (not Linux; a writable or empty
/// tensor; too many), `DLRO_ERR_NO_MEMORY`. Threads: any.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `label` is NULL or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_guard_watch(
    tensor: *const DLManagedTensorVersioned,
    label: *const c_char,
    out: *mut *mut dlro_watch,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let tensor = non_null(tensor, "tensor")?;
        let label = non_null(label, "label")?;
        // SAFETY: promised by the caller.
        let label = unsafe { CStr::from_ptr(label.as_ptr()) }.to_str();
        let label = label.map_err(|_| Error::NotUtf8 { what: "label" })?;
        // SAFETY: promised by the caller.
        let (checked, ours) = unsafe {
            (Untrusted::new(tensor).validate()?, managed::ours(tensor).ok_or(Error::NotOurs { what: "the tensor" })?)
        };
        *out = watch::watch(&checked, ours, label)?.as_ptr().cast();
        Ok(())
    })
}

/// Takes a tensor off the guard's list and lets its memory go. NULL is accepted and nothing happens. Never fails.
///
/// Threads: any.
///
/// # Safety
/// The caller owns `watch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_watch_release(watch: *mut dlro_watch) {
    if let Some(watch) = NonNull::new(watch.cast::<Watch>()) {
        // SAFETY: promised by the caller.
        unsafe { watch::end(watch) }
    }
}
