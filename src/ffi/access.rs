//! Chapter *access*: what a tensor is, and the pointer to its elements for those who may have it.

use super::boundary::{self, non_null, output};
use super::export::dlro_mutability;
use super::library::dlro_status;
use crate::abi::{DLDataType, DLManagedTensorVersioned};
use crate::error::{Error, Result};
use crate::memory::Mutability;
use crate::tensor::dtype::Dtype;
use crate::tensor::view::{Checked, Untrusted};
use crate::tensor::{describe, import, layout, managed};
use core::ffi::{c_char, c_void};

/// # Safety
/// `tensor` is NULL or a live managed tensor.
unsafe fn checked<'a>(tensor: *const DLManagedTensorVersioned) -> Result<Checked<'a>> {
    let tensor = non_null(tensor, "tensor")?;
    // SAFETY: promised by the caller.
    unsafe { Untrusted::new(tensor) }.validate()
}

/// Checks everything in a tensor that can be checked without knowing who made it, as strictly as DLPack
/// writes it.
///
/// Stricter than `dlro_tensor_import` in two things that real producers get wrong and consumers can work
/// with: NULL strides from a tensor that claims version 1.2 or later, and a host device with an id.
///
/// Ownership: none changes hands.
///
/// Status: `DLRO_ERR_NULL` (tensor, or its shape with ndim > 0, or its data with elements),
/// `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_LAYOUT` (NULL strides),
/// `DLRO_ERR_DEVICE` (id).
///
/// Threads: any, also while others call const functions on the tensor. Memory is not touched.
/// Rule: DLPack 1.3, `DLTensor`.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_validate(tensor: *const DLManagedTensorVersioned) -> dlro_status {
    // SAFETY: promised by the caller.
    boundary::status(|| unsafe { checked(tensor) }?.validate_strictly())
}

/// Gives the address of the first element, `data + byte_offset`, for reading.
///
/// With negative strides that is not the lowest address. A tensor without elements gives NULL.
///
/// Ownership: the address is good while the tensor lives.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in
/// `dlro_tensor_validate`; `DLRO_ERR_DEVICE` where `data` is a handle and no address (OpenCL, Vulkan, Metal,
/// WebGPU). On other devices the address is the device's: the host may follow it only where
/// `dlro_device_is_host` says so.
///
/// Threads: any, also while others call const functions on the tensor. Rule: DLPack 1.3,
/// `DLTensor::byte_offset`.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_data(
    tensor: *const DLManagedTensorVersioned,
    out: *mut *const c_void,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = address(&unsafe { checked(tensor) }?)?.cast_const();
        Ok(())
    })
}

fn address(checked: &Checked) -> Result<*mut c_void> {
    if checked.is_handle() {
        return Err(Error::HostCannotRead { device: checked.device });
    }
    Ok(checked.first().map_or(core::ptr::null_mut(), <*mut u8>::cast))
}

/// Gives the address of the first element, `data + byte_offset`, for writing.
///
/// There is no other way in this library to a pointer that one may write through.
///
/// Ownership: the address is good while the tensor lives.
///
/// Status: as `dlro_tensor_data`; `DLRO_ERR_READ_ONLY` (the tensor is read-only); `DLRO_ERR_LAYOUT` (elements
/// share memory, so that writing one changes another, whatever the flag says).
///
/// Threads: not const, so not while others use the tensor. Rule: DLPack 1.3,
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_data_mut(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        let checked = unsafe { checked(tensor) }?;
        if import::mutability_of(&checked) != Mutability::Writable {
            return Err(Error::WriteToReadOnly { flags: checked.flags.bits() });
        }
        if checked.overlaps() {
            return Err(Error::Overlap);
        }
        *out = address(&checked)?;
        Ok(())
    })
}

/// Says what may happen to the tensor's memory; of a tensor that another library made, only what its READ_ONLY
/// flag lets one assume.
///
/// Reads nothing but version-independent fields, so it works for every major version. NULL is
/// `DLRO_MUTABILITY_READ_ONLY`. Never fails.
///
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_mutability(tensor: *const DLManagedTensorVersioned) -> dlro_mutability {
    let Ok(tensor) = non_null(tensor, "tensor") else { return Mutability::ReadOnly as dlro_mutability };
    // SAFETY: promised by the caller.
    unsafe { managed::mutability(tensor) as dlro_mutability }
}

/// Counts the elements.
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_element_count(
    tensor: *const DLManagedTensorVersioned,
    out: *mut u64,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = unsafe { checked(tensor) }?.measure.count;
        Ok(())
    })
}

/// Gives the size of the elements in bytes: what a dense copy of them takes.
///
/// Packed sub-byte elements are rounded up to bytes once, over the whole tensor (the sizing snippet in
/// `dlpack.h` rounds for each element, which is right only for padded ones).
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_nbytes(tensor: *const DLManagedTensorVersioned, out: *mut u64) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = unsafe { checked(tensor) }?.measure.nbytes;
        Ok(())
    })
}

/// Gives the range of memory that the elements lie in: `*nbytes` bytes, the lowest of them `*lowest` bytes
/// from the first element.
///
/// `*lowest` is 0, or below 0 where strides are negative. The size differs from `dlro_tensor_nbytes` where
/// the tensor has gaps (larger) or repeats elements (smaller).
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `lowest` and `nbytes` are writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_span(
    tensor: *const DLManagedTensorVersioned,
    lowest: *mut i64,
    nbytes: *mut u64,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let (lowest, nbytes) = unsafe { (output(lowest, "lowest")?, output(nbytes, "nbytes")?) };
        // SAFETY: promised by the caller.
        let measure = unsafe { checked(tensor) }?.measure;
        (*lowest, *nbytes) = (measure.low, measure.span());
        Ok(())
    })
}

/// Says whether the elements lie in C order without gaps.
///
/// Dimensions of size 1 do not matter; a tensor without elements is both row-major and column-major.
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_is_row_major(
    tensor: *const DLManagedTensorVersioned,
    out: *mut bool,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: false is all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = unsafe { checked(tensor) }?.measure.row_major;
        Ok(())
    })
}

/// Says whether the elements lie in Fortran order without gaps.
///
/// Dimensions of size 1 do not matter; a tensor without elements is both row-major and column-major.
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_is_column_major(
    tensor: *const DLManagedTensorVersioned,
    out: *mut bool,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: false is all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        let checked = unsafe { checked(tensor) }?;
        *out = layout::is_column_major(checked.shape, checked.strides);
        Ok(())
    })
}

/// Says whether two different indices lead to the same memory: a stride of 0, or windows that cross.
///
/// Such a tensor is fine to read and never writable. The answer is exact except for rare strides for which
/// finding it would take too long; there it is true.
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_is_overlapping(
    tensor: *const DLManagedTensorVersioned,
    out: *mut bool,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: false is all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = unsafe { checked(tensor) }?.overlaps();
        Ok(())
    })
}

/// Describes a tensor in one line: dtype, shape, strides in elements, device, mutability, version, address,
/// size in bytes.
///
/// Works as snprintf does: at most `capacity` bytes go to `dst`, the last of them NUL; `*length` is the length
/// of the whole line in bytes, without the NUL. `dst` may be NULL if `capacity` is 0. The text is for people
/// and may change between versions.
///
/// Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
/// Threads: any, also while others call const functions on the tensor.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor; `dst` is writable for `capacity` bytes, `length` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_describe(
    tensor: *const DLManagedTensorVersioned,
    dst: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let length = unsafe { output(length, "length") }?;
        if capacity > 0 {
            non_null(dst, "dst")?;
        }
        // SAFETY: promised by the caller.
        let (checked, mutability) = unsafe { (checked(tensor)?, managed::mutability(non_null(tensor, "tensor")?)) };
        let description = describe::Line { checked, mutability };
        // SAFETY: promised by the caller.
        *length = unsafe { boundary::print(dst, capacity, description) };
        Ok(())
    })
}

/// Gives the size of one element in bits, all its lanes together, and so checks that DLPack has the type.
///
/// Bits and not bytes: float4 has 4, float6 has 6. A padded element is rounded up to whole bytes.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_DTYPE`. Threads: any. Rule: DLPack 1.3, `DLDataType`.
///
/// # Safety
/// `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_dtype_bits(dtype: DLDataType, out: *mut u32) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let out = unsafe { output(out, "out") }?;
        *out = Dtype::new(dtype)?.element_bits();
        Ok(())
    })
}

/// Writes the name of a data type, "float32" or "float8_e4m3fn" for example; lanes follow behind an x.
///
/// Works as snprintf does; see `dlro_tensor_describe`. The names are NumPy's and ml_dtypes'.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_DTYPE`. Threads: any.
///
/// # Safety
/// `dst` is writable for `capacity` bytes, `length` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_dtype_describe(
    dtype: DLDataType,
    dst: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let length = unsafe { output(length, "length") }?;
        if capacity > 0 {
            non_null(dst, "dst")?;
        }
        // SAFETY: promised by the caller.
        *length = unsafe { boundary::print(dst, capacity, Dtype::new(dtype)?) };
        Ok(())
    })
}

/// Says whether the host can read memory of this device type by following `data`: kDLCPU, kDLCUDAHost and
/// kDLROCMHost.
///
/// kDLCUDAManaged is not among them: the host may read it only while no kernel uses it, which only CUDA
/// knows. Device types are an open set; unknown numbers are not host-readable. Never fails. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn dlro_device_is_host(device_type: i32) -> bool {
    crate::tensor::view::is_host_device(device_type)
}
