//! Chapter *export*: a producer makes managed tensors.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::library::{dlro_status, dlro_status_is_exchange_error};
use crate::abi::{DLManagedTensorVersioned, DLTensor, Flags};
use crate::error::{Error, Result, Status};
use crate::memory::Mutability;
use crate::tensor::export;
use core::ffi::{c_char, c_int, c_void};

/// What may happen to memory; one of the `DLRO_MUTABILITY_...` numbers.
pub type dlro_mutability = u32;

/// The values of `dlro_mutability`, from weak to strong.
#[repr(C)]
pub enum dlro_mutability_values {
    /// Whoever holds a tensor over the memory may write.
    DLRO_MUTABILITY_WRITABLE = 0,
    /// Who holds this tensor must not write; somebody else may. A NumPy view with `writeable=False`.
    DLRO_MUTABILITY_READ_ONLY = 1,
    /// Nobody writes while this tensor lives. A JAX array, sealed memory, a copy that nobody else has.
    DLRO_MUTABILITY_IMMUTABLE = 2,
}

pub(super) fn mutability(number: dlro_mutability) -> Result<Mutability> {
    match number {
        0 => Ok(Mutability::Writable),
        1 => Ok(Mutability::ReadOnly),
        2 => Ok(Mutability::Immutable),
        _ => Err(Error::UnknownValue { what: "mutability", found: number.into() }),
    }
}

/// Makes a managed tensor over memory that the caller owns: a producer's whole `__dlpack__` in one call.
///
/// `layout` describes the elements. Its numbers are copied, so it and its arrays may go away afterwards.
/// `layout->strides` (in elements) may be NULL for row-major; the result always has strides. `byte_offset` is
/// in bytes and is passed on. A tensor without elements gets NULL data, as DLPack wants it.
/// `flags`: 0, or `DLPACK_FLAG_BITMASK_IS_COPIED` if the elements are a copy made for this one consumer, or
/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`, or both. READ_ONLY is not given here; `mutability` decides it.
/// `mutability`: what the caller promises of the memory. READ_ONLY and IMMUTABLE set DLPack's READ_ONLY flag.
/// `release(owner)` is called once when the last tensor over the memory is released, on whatever thread that
/// happens. `release` may be NULL.
///
/// Ownership: on success `*out` belongs to the caller and `owner` to the tensor. On failure nothing was taken
/// over, `release` is not called, and `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL` (layout, out, shape with ndim > 0, or data with elements is NULL),
/// `DLRO_ERR_ARGUMENT` (unknown mutability or flag), `DLRO_ERR_BOUNDS` (ndim, a dimension, the size or the
/// extent is out of range), `DLRO_ERR_DTYPE` (DLPack has no such type), `DLRO_ERR_DEVICE` (a host device with
/// an id other than 0), `DLRO_ERR_LAYOUT` (writable, and elements share memory), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any. Rule: DLPack 1.3, `DLManagedTensorVersioned`; strides are never NULL since 1.2.
///
/// # Safety
/// `layout` and its arrays are readable; the memory is there until `release` is called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_export(
    layout: *const DLTensor,
    flags: u64,
    mutability: dlro_mutability,
    owner: *mut c_void,
    release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let layout = non_null(layout, "layout")?;
        let mutability = self::mutability(mutability)?;
        let flags = producer_flags(flags)?;
        // SAFETY: promised by the caller.
        let tensor = unsafe { export::export(layout.as_ref(), flags, mutability, (owner, release)) }?;
        *out = tensor.into_raw().as_ptr();
        Ok(())
    })
}

fn producer_flags(bits: u64) -> Result<Flags> {
    let allowed = Flags::IS_COPIED | Flags::IS_SUBBYTE_TYPE_PADDED;
    if bits & !allowed.bits() != 0 {
        return Err(Error::UnknownValue { what: "flags", found: bits });
    }
    Ok(Flags::from_bits_retain(bits))
}

/// Makes a managed tensor over new host memory: zeroed, row-major, writable, its data aligned to 256 bytes.
///
/// Of `prototype` only device, ndim, dtype and shape are read. The device must be kDLCPU, id 0.
///
/// Ownership: on success `*out` belongs to the caller. On failure `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_DTYPE`, `DLRO_ERR_DEVICE`, `DLRO_ERR_NO_MEMORY`; each
/// as in `dlro_tensor_export`.
///
/// Threads: any. Rule: DLPack 1.3, `DLTensor::data` ("aligned to 256 bytes").
///
/// # Safety
/// `prototype` and its shape are readable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_new(
    prototype: *const DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let prototype = non_null(prototype, "prototype")?;
        // SAFETY: promised by the caller.
        *out = unsafe { export::new(prototype.as_ref()) }?.into_raw().as_ptr();
        Ok(())
    })
}

/// `dlro_tensor_new` with the signature of DLPack's `DLPackManagedTensorAllocator`, for the exchange table
/// of a framework that keeps its tensors on the host.
///
/// Returns 0, or -1 after `SetError(error_ctx, kind, message)` was called exactly once; `kind` is the name of
/// a Python exception ("MemoryError", "BufferError", "ValueError" or "RuntimeError"), `message` the sentence.
/// Both are valid during that call only. `SetError` may be NULL.
///
/// Ownership: on success `*out` belongs to the caller. On failure `*out` is NULL.
///
/// Threads: any. Rule: DLPack 1.3, `DLPackManagedTensorAllocator`.
///
/// # Safety
/// As for `dlro_tensor_new`; `SetError` does not unwind.
#[unsafe(no_mangle)]
#[allow(non_snake_case)] // DLPack's name
pub unsafe extern "C" fn dlro_managed_tensor_allocator(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    SetError: Option<unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char)>,
) -> c_int {
    // SAFETY: promised by the caller.
    let status = unsafe { dlro_tensor_new(prototype, out) };
    const OK: dlro_status = Status::DLRO_OK as dlro_status;
    const NO_MEMORY: dlro_status = Status::DLRO_ERR_NO_MEMORY as dlro_status;
    const INTERNAL: dlro_status = Status::DLRO_ERR_INTERNAL as dlro_status;
    let kind = match status {
        OK => return 0,
        NO_MEMORY => c"MemoryError",
        INTERNAL => c"RuntimeError",
        _ if dlro_status_is_exchange_error(status) => c"BufferError",
        _ => c"ValueError",
    };
    if let Some(set_error) = SetError {
        // SAFETY: the caller's function, called with what DLPack says it takes.
        unsafe { set_error(error_ctx, kind.as_ptr(), boundary::last_error()) }
    }
    -1
}
