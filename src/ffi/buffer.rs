//! Chapter *buffer*: reference-counted memory with a mutability, and the borrow rule over it.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::export::{dlro_mutability, mutability};
use super::files::{dlro_map_mode, mode};
use super::library::dlro_status;
use crate::abi::{DLManagedTensorVersioned, DLTensor};
use crate::error::Error;
use crate::memory::Memory;
use crate::tensor::window;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;

/// Memory that tensors are windows on. Used through pointers only.
pub struct dlro_buffer(#[expect(dead_code)] Memory); // without repr(C), so that the header shows no field

fn to_c(memory: NonNull<Memory>) -> *mut dlro_buffer {
    memory.as_ptr().cast()
}

fn from_c<'a>(buffer: *const dlro_buffer) -> crate::error::Result<&'a Memory> {
    let memory = non_null(buffer, "buffer")?.cast::<Memory>();
    // SAFETY: every function here demands a live buffer, which is a Memory.
    Ok(unsafe { memory.as_ref() })
}

/// Bits for `dlro_buffer_wrap`.
#[repr(C)]
pub enum dlro_wrap_flags {
    /// Nobody writes the memory but through tensors of this buffer, so that it can become immutable.
    DLRO_WRAP_SOLE = 1,
}

/// Bits for `dlro_buffer_freeze`.
#[repr(C)]
pub enum dlro_freeze_flags {
    /// Also write-protect the pages: a write through any pointer is SIGSEGV from now on.
    DLRO_FREEZE_ENFORCE = 1,
}

/// Makes a buffer of `nbytes` zeroed bytes on pages of its own, writable.
///
/// Ownership: on success `*out` is one reference, which the caller gives back with `dlro_buffer_release`. On
/// failure `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_NO_MEMORY`. Threads: any.
///
/// # Safety
/// `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_new(nbytes: usize, out: *mut *mut dlro_buffer) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        *out = to_c(Memory::pages(nbytes)?);
        Ok(())
    })
}

/// Makes a buffer over host memory that the caller owns.
///
/// `mutability` is what the caller promises of the memory, as in `dlro_tensor_export`. `flags`: 0 or
/// `DLRO_WRAP_SOLE`; without that bit writable memory can never become immutable, since the caller may still
/// write it. `release(owner)` is called once, when neither the buffer nor a tensor over it is left, on
/// whatever thread that happens; it may be NULL.
///
/// Ownership: on success `*out` is one reference, and `owner` belongs to the buffer. On failure nothing was
/// taken over, `release` is not called, and `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL` (out, or data with `nbytes` > 0), `DLRO_ERR_ARGUMENT` (unknown mutability or flag),
/// `DLRO_ERR_BOUNDS` (`data + nbytes` leaves the address space), `DLRO_ERR_NO_MEMORY`. Threads: any.
///
/// # Safety
/// `data` is readable for `nbytes` bytes, and writable if `mutability` says so, until `release` is called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_wrap(
    data: *mut c_void,
    nbytes: usize,
    mutability: dlro_mutability,
    flags: u32,
    owner: *mut c_void,
    release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    out: *mut *mut dlro_buffer,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let mutability = self::mutability(mutability)?;
        if flags & !1 != 0 {
            return Err(Error::UnknownValue { what: "flags", found: flags.into() });
        }
        *out = to_c(Memory::wrap(data.cast(), nbytes, mutability, flags & 1 != 0, owner, release)?);
        Ok(())
    })
}

/// Makes a buffer over `nbytes` bytes of a file from `offset` on, mapped read-only or copy-on-write; 0 bytes
/// stand for all up to the end of the file.
///
/// `offset` may be any number of bytes. A read-only buffer is `DLRO_MUTABILITY_READ_ONLY`, and a copy-on-write
/// one can never become immutable: whoever can write the file can change what was not written here.
///
/// Ownership: on success `*out` is one reference; it keeps the file mapped, and open where it may be mapped once more (read-only). On failure `*out` is NULL
/// and the file closed.
///
/// Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
/// `DLRO_ERR_IO`, `DLRO_ERR_FORMAT` (no regular file, or shorter than `offset + nbytes`), `DLRO_ERR_BOUNDS`,
/// `DLRO_ERR_NO_MEMORY`. Threads: any.
///
/// # Safety
/// `path` is NULL or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_map(
    path: *const c_char,
    offset: u64,
    nbytes: u64,
    mode: dlro_map_mode,
    out: *mut *mut dlro_buffer,
) -> dlro_status {
    // SAFETY: promised by the caller.
    unsafe {
        boundary::status_at(path, || {
            let out = output(out, "out")?;
            let path = CStr::from_ptr(non_null(path, "path")?.as_ptr());
            *out = to_c(Memory::map(path, offset, nbytes, self::mode(mode)?)?);
            Ok(())
        })
    }
}

/// Turns a tensor into a buffer over the memory that it came with.
///
/// Other tensors over that memory stay and count in its borrow rule; the tensor itself no longer does. A tensor
/// whose holder may do less than the memory below allows (a read-only one over writable memory) gives a buffer
/// with the tensor's mutability over the tensor's own bytes: rights do not grow on the way.
///
/// Ownership: on success `tensor` has been released or is inside the buffer, and `*out` is one reference. On
/// failure `tensor` still belongs to the caller, and `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in
/// `dlro_tensor_import`; `DLRO_ERR_DEVICE` (the host cannot read the memory), `DLRO_ERR_NO_MEMORY`.
/// Threads: any; nobody else may use `tensor` meanwhile.
///
/// # Safety
/// The caller owns `tensor`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_import(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut dlro_buffer,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let tensor = non_null(tensor, "tensor")?;
        // SAFETY: promised by the caller.
        *out = to_c(unsafe { window::into_memory(tensor) }?);
        Ok(())
    })
}

/// Takes one more reference to a buffer and answers the same pointer. NULL stays NULL. Never fails.
///
/// Ownership: the answer is a reference of the caller's own; the buffer lives until it is given back.
///
/// Threads: any, also while others use the buffer.
///
/// # Safety
/// `buffer` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_retain(buffer: *mut dlro_buffer) -> *mut dlro_buffer {
    if let Ok(memory) = from_c(buffer) {
        memory.retain();
    }
    buffer
}

/// Gives one reference back. The memory goes with the last reference and the last tensor over it.
///
/// NULL is accepted and nothing happens. Never fails, and leaves the last error message alone.
///
/// Threads: any, at any time, also after `main`.
///
/// # Safety
/// The caller owns a reference, which is used up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_release(buffer: *mut dlro_buffer) {
    if let Some(memory) = NonNull::new(buffer.cast::<Memory>()) {
        // SAFETY: promised by the caller; a reference is no tensor, which is what ReadOnly stands for.
        unsafe { Memory::leave(memory, crate::memory::Mutability::ReadOnly) }
    }
}

/// Makes a tensor over a window of a buffer.
///
/// `window` gives dtype, ndim, shape, strides (in elements; NULL for row-major) and byte_offset (in bytes). Its
/// `data` is NULL, which stands for the buffer's first byte, or an address in the buffer; its device is not
/// read, the tensor is on the CPU. Every element must lie within the buffer, with negative strides too.
/// `mutability`: what the tensor's holder may do. Any number of writable tensors or any number of immutable
/// ones may be alive over a buffer, never both; read-only ones stand in nobody's way.
///
/// Ownership: on success `*out` belongs to the caller and keeps the memory alive by itself. On failure `*out`
/// is NULL. No reference to the buffer is used up.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mutability), `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` (the
/// window leaves the buffer), `DLRO_ERR_READ_ONLY` (a writable tensor over memory that is not),
/// `DLRO_ERR_NOT_IMMUTABLE` (an immutable tensor over memory that somebody outside may write),
/// `DLRO_ERR_BUSY` (tensors of the other kind are alive; the sentence has their number), `DLRO_ERR_LAYOUT` (a
/// writable window whose elements share memory), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any, also while others use the buffer.
///
/// # Safety
/// `buffer` is NULL or alive; `window` and its arrays are readable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_export(
    buffer: *const dlro_buffer,
    window: *const DLTensor,
    mutability: dlro_mutability,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let memory = non_null(buffer, "buffer")?.cast::<Memory>();
        let window = non_null(window, "window")?;
        let mutability = self::mutability(mutability)?;
        // SAFETY: promised by the caller.
        *out = unsafe { window::export(memory, window.as_ref(), mutability) }?.into_raw().as_ptr();
        Ok(())
    })
}

/// Turns a buffer's memory from writable into immutable for good, once no writable tensor over it is alive.
///
/// `flags`: 0 or `DLRO_FREEZE_ENFORCE`, which also write-protects the pages. That works for memory on pages of
/// its own (`dlro_buffer_new`); neighbours are never touched. On an immutable buffer it does nothing, or adds
/// the protection.
///
/// Ownership: none changes hands. On failure nothing changed.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown flag), `DLRO_ERR_BUSY` (writable tensors are alive;
/// the sentence has their number), `DLRO_ERR_NOT_IMMUTABLE` (somebody outside may write the memory),
/// `DLRO_ERR_UNSUPPORTED` (protection of pages that may hold other data too), `DLRO_ERR_IO` (mprotect failed).
///
/// Threads: any, also while others use the buffer.
///
/// # Safety
/// `buffer` is NULL or alive.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_freeze(buffer: *mut dlro_buffer, flags: u32) -> dlro_status {
    boundary::status(|| {
        let memory = from_c(buffer)?;
        if flags & !1 != 0 {
            return Err(Error::UnknownValue { what: "flags", found: flags.into() });
        }
        memory.freeze(flags & 1 != 0)
    })
}

/// Gives the size of a buffer in bytes; 0 for NULL. Never fails. Any thread.
///
/// # Safety
/// `buffer` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_nbytes(buffer: *const dlro_buffer) -> u64 {
    from_c(buffer).map_or(0, |memory| memory.nbytes)
}

/// Says what may happen to a buffer's memory; `DLRO_MUTABILITY_READ_ONLY` for NULL. Never fails. Any thread.
///
/// # Safety
/// `buffer` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_mutability(buffer: *const dlro_buffer) -> dlro_mutability {
    from_c(buffer).map_or(crate::memory::Mutability::ReadOnly, |memory| memory.borrow.mutability()) as dlro_mutability
}

/// Counts the writable and the immutable tensors that are alive over a buffer now.
///
/// Ownership: none changes hands. Status: `DLRO_ERR_NULL`. Threads: any; the answer may be old by the time that
/// it arrives.
///
/// # Safety
/// `buffer` is NULL or alive; the outputs are writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_buffer_tensor_counts(
    buffer: *const dlro_buffer,
    writable: *mut u64,
    immutable: *mut u64,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let (writable, immutable) = unsafe { (output(writable, "writable")?, output(immutable, "immutable")?) };
        (*writable, *immutable) = from_c(buffer)?.borrow.counts();
        Ok(())
    })
}
