//! Chapter *sealed*: memory that is immutable for every process, by the kernel.

use super::boundary::{self, non_null, output};
use super::library::dlro_status;
use crate::abi::DLManagedTensorVersioned;
use crate::tensor::file;
use crate::tensor::view::Untrusted;
use core::ffi::c_int;
use std::os::fd::IntoRawFd;

/// Copies a tensor into memory that the kernel seals: from then on no process can write, shrink or grow it.
///
/// The content is a valid `.npy` file, so that a process without this library can map it too, as
/// `/proc/self/fd/N`. The descriptor can be passed to another process over a Unix socket.
///
/// Ownership: on success `*fd_out` is an open descriptor (close-on-exec), which the caller closes. On failure it
/// is -1. The tensor stays the caller's.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS`; `DLRO_ERR_DTYPE` (also one that `.npy` cannot
/// say, such as bfloat16); `DLRO_ERR_DEVICE`; `DLRO_ERR_NO_MEMORY`; `DLRO_ERR_IO`; `DLRO_ERR_UNSUPPORTED` (not
/// Linux).
///
/// Threads: any, also while others call const functions on the tensor; nobody may write the elements meanwhile.
/// Rule: memfd_create(2), fcntl(2) F_ADD_SEALS.
///
/// # Safety
/// `tensor` is NULL or a live managed tensor whose memory is there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_seal(tensor: *const DLManagedTensorVersioned, fd_out: *mut c_int) -> dlro_status {
    boundary::status(|| {
        // SAFETY: integers may be all zeros.
        let fd_out = unsafe { output(fd_out, "fd_out") }?;
        *fd_out = -1; // 0 is somebody's descriptor
        let tensor = non_null(tensor, "tensor")?;
        // SAFETY: promised by the caller.
        *fd_out = unsafe { file::seal(&Untrusted::new(tensor).validate()?) }?.into_raw_fd();
        Ok(())
    })
}

/// Makes a tensor over the `.npy` file behind a descriptor: IMMUTABLE if the kernel says that it is sealed
/// against writing, shrinking and growing, otherwise READ_ONLY.
///
/// Nothing is read but the header.
///
/// Ownership: on success `*out` belongs to the caller; it keeps a descriptor of its own. On failure `*out` is
/// NULL. `fd` stays the caller's either way.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_IO` (no open descriptor, or it cannot be read or mapped),
/// `DLRO_ERR_FORMAT`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in `dlro_npy_map`; `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any. Rule: fcntl(2) F_GET_SEALS.
///
/// # Safety
/// Nobody shortens an unsealed file while the tensor lives; `out` is writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_sealed_import(fd: c_int, out: *mut *mut DLManagedTensorVersioned) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        *out = file::import_sealed(fd)?.into_raw().as_ptr();
        Ok(())
    })
}
