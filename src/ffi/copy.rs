//! Chapter *copy*: elements of any layout into new memory, or over those of another tensor.

use super::boundary::{self, non_null, output};
use super::library::dlro_status;
use crate::abi::DLManagedTensorVersioned;
use crate::tensor::copy;
use crate::tensor::view::Untrusted;

/// Copies a tensor of any layout into new memory: row-major, writable, aligned to 256 bytes, IS_COPIED set.
///
/// Sub-byte elements stay packed or padded as they were.
///
/// Ownership: on success `*out` belongs to the caller. On failure `*out` is NULL. The tensor stays the
/// caller's.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in
/// `dlro_tensor_validate`; `DLRO_ERR_DEVICE` (the host cannot read the memory), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any, also while others call const functions on the tensor; nobody may write the elements
/// meanwhile. Rule: DLPack 1.3, `DLPACK_FLAG_BITMASK_IS_COPIED`; array API 2025.12, `copy=True`.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor whose memory is there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_copy(
    tensor: *const DLManagedTensorVersioned,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let tensor = non_null(tensor, "tensor")?;
        // SAFETY: promised by the caller.
        *out = unsafe { copy::copy(&Untrusted::new(tensor).validate()?, copy::Wanted::default()) }?.into_raw().as_ptr();
        Ok(())
    })
}

/// Copies the elements of `source` over those of `target`; each may have any layout, the shapes and dtypes are
/// the same.
///
/// Where the two share memory the result is as if `source` had been copied away first.
///
/// Ownership: none changes hands. On failure no element was written.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS` for either; `DLRO_ERR_READ_ONLY` (the target
/// is), `DLRO_ERR_DTYPE` (they differ, one packs and the other pads, or one does not exist), `DLRO_ERR_LAYOUT`
/// (the shapes differ, or elements of the target share memory), `DLRO_ERR_DEVICE` (the host cannot read one),
/// `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any; nobody may use the target, or write the source's elements, meanwhile.
///
/// # Safety
/// Both are NULL or live managed tensors whose memory is there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_copy_into(
    source: *const DLManagedTensorVersioned,
    target: *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        let (source, target) = (non_null(source, "source")?, non_null(target, "target")?);
        // SAFETY: promised by the caller.
        unsafe { copy::copy_into(&Untrusted::new(source).validate()?, &Untrusted::new(target).validate()?) }
    })
}
