//! Chapter *release, share, freeze*: how tensors end, multiply, and stop changing.

use super::boundary::{self, non_null, output};
use super::export::{dlro_mutability, mutability};
use super::library::dlro_status;
use crate::abi::{DLManagedTensorVersioned, DLTensor};
use crate::error::{Error, Result};
use crate::tensor::managed::{self, Ours};
use crate::tensor::view::Untrusted;
use core::ptr::NonNull;

/// Ends a tensor of whatever maker and version: calls its deleter, if it has one.
///
/// NULL is accepted and nothing happens. A NULL deleter is legal: nothing is called and nothing freed.
/// Never fails, and leaves the last error message alone.
///
/// Ownership: the caller gives the tensor up; neither it nor a pointer into it may be used afterwards.
///
/// Threads: any, at any time, also after `main`; nobody else may use the tensor meanwhile. Other tensors over
/// the same memory stay. Rule: DLPack 1.3, `DLManagedTensorVersioned::deleter`.
///
/// # Safety
/// The caller owns `tensor`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_release(tensor: *mut DLManagedTensorVersioned) {
    if let Some(tensor) = NonNull::new(tensor) {
        // SAFETY: promised by the caller.
        unsafe { Untrusted::new(tensor).release() }
    }
}

/// # Safety
/// `tensor` is a live managed tensor.
unsafe fn ours<'a>(tensor: NonNull<DLManagedTensorVersioned>) -> Result<Ours<'a>> {
    // SAFETY: promised by the caller.
    unsafe { managed::ours(tensor) }.ok_or(Error::NotOurs { what: "the tensor" })
}

/// Makes one more tensor over the same memory, or over a window of it.
///
/// Works on tensors that this library made; `dlro_tensor_import` with `DLRO_IMPORT_ADOPT` turns a foreign one
/// into such a tensor.
///
/// `mutability`: what the new tensor's holder may do. Rights never grow: a writable one is made from a
/// writable one only. While a writable tensor over the memory is alive there can be no immutable one, and the
/// other way round. Memory that its producer lent as writable or read-only is never immutable, since the
/// producer may write it.
/// `window`: NULL for the same shape and strides. Otherwise its dtype, ndim, shape, strides (in elements; NULL
/// for row-major) and byte_offset (in bytes) describe the new tensor; its `data` is NULL, which stands for the
/// tensor's own `data`, or an address; its device is not read. So one may copy `tensor->dl_tensor`, change
/// what shall differ, and pass that. The window must lie within the memory that the tensor came with.
/// IS_COPIED is not passed on, and goes from the tensor too: what is shared has no sole owner.
///
/// Ownership: on success `*out` belongs to the caller, and both tensors keep the memory. On failure `*out` is
/// NULL. The tensor stays the caller's.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mutability, a foreign tensor), `DLRO_ERR_VERSION`,
/// `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` (the window leaves the memory), `DLRO_ERR_READ_ONLY`,
/// `DLRO_ERR_NOT_IMMUTABLE`, `DLRO_ERR_BUSY` (the sentence has the counts), `DLRO_ERR_LAYOUT` (a writable
/// window whose elements share memory), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `window` is NULL or readable with its arrays.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_share(
    tensor: *const DLManagedTensorVersioned,
    mutability: dlro_mutability,
    window: *const DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let tensor = non_null(tensor, "tensor")?;
        let mutability = self::mutability(mutability)?;
        // SAFETY: promised by the caller.
        *out = unsafe {
            let ours = ours(tensor)?;
            let whole = Untrusted::new(tensor).validate()?;
            ours.share(&whole, window.as_ref(), mutability)
        }?
        .into_raw()
        .as_ptr();
        Ok(())
    })
}

/// Turns the sole writable tensor over memory into an immutable one: from now on nobody writes it while the
/// tensor lives.
///
/// On an immutable tensor it does nothing. The READ_ONLY flag is set, so pointers that were taken for writing
/// must not be used any more.
///
/// Ownership: none changes hands. On failure nothing changed.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (a foreign tensor), `DLRO_ERR_BUSY` (other writable tensors
/// over the memory are alive; the sentence has their number), `DLRO_ERR_NOT_IMMUTABLE` (a producer lent the
/// memory and may still write it; export it as IMMUTABLE or copy it).
///
/// Threads: not const, so not while others use the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_freeze(tensor: *mut DLManagedTensorVersioned) -> dlro_status {
    boundary::status(|| {
        let tensor = non_null(tensor, "tensor")?;
        // SAFETY: promised by the caller; not const, so exclusive.
        unsafe { ours(tensor)?.become_immutable() }
    })
}
