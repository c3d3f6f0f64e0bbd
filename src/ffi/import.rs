//! Chapter *import*: a consumer takes a managed tensor and says what it needs.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::library::dlro_status;
use crate::abi::{DLDevice, DLManagedTensorVersioned};
use crate::error::{Error, Result};
use crate::tensor::import::Options;
use crate::tensor::requirements::{Access, Copy, Layout, Request, Wanted};

/// What a consumer will do with the elements; one of the `DLRO_ACCESS_...` numbers.
pub type dlro_access = u32;

/// The values of `dlro_access`.
#[repr(C)]
pub enum dlro_access_values {
    /// Only read; somebody else may write meanwhile. The default.
    DLRO_ACCESS_READ = 0,
    /// Read and write.
    DLRO_ACCESS_WRITE = 1,
    /// Only read, and rely on nobody writing while the tensor lives.
    DLRO_ACCESS_IMMUTABLE = 2,
}

/// Whether a copy may be made; one of the `DLRO_COPY_...` numbers. The array API's `copy=`.
pub type dlro_copy = u32;

/// The values of `dlro_copy`.
#[repr(C)]
pub enum dlro_copy_values {
    /// Only where nothing else meets the requirements (`copy=None`). The default.
    DLRO_COPY_IF_NEEDED = 0,
    /// Never (`copy=False`): what only a copy would meet is an error.
    DLRO_COPY_NEVER = 1,
    /// Always (`copy=True`).
    DLRO_COPY_ALWAYS = 2,
}

/// Which strides a consumer can work with; one of the `DLRO_LAYOUT_...` numbers.
pub type dlro_layout = u32;

/// The values of `dlro_layout`.
#[repr(C)]
pub enum dlro_layout_values {
    /// Any strides: negative, zero, with gaps. The default.
    DLRO_LAYOUT_ANY = 0,
    /// C order without gaps.
    DLRO_LAYOUT_ROW_MAJOR = 1,
    /// Fortran order without gaps.
    DLRO_LAYOUT_COLUMN_MAJOR = 2,
    /// Any strides >= 0.
    DLRO_LAYOUT_NON_NEGATIVE = 3,
}

/// Bits of `dlro_import_options::flags`.
#[repr(C)]
pub enum dlro_import_flags {
    /// The result must be a tensor of this library, which can be shared and frozen, even where the foreign
    /// tensor would do as it is.
    DLRO_IMPORT_ADOPT = 1,
    /// The host must be able to read the memory, whatever device that is.
    DLRO_IMPORT_HOST = 2,
}

/// A consumer's requirements. Start from `DLRO_IMPORT_OPTIONS_INIT`; a NULL pointer means the same.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dlro_import_options {
    /// `sizeof(dlro_import_options)`, set by the _INIT macro. Later versions grow at the end.
    pub struct_size: usize,
    /// A `DLRO_ACCESS_...` number.
    pub access: dlro_access,
    /// A `DLRO_COPY_...` number.
    pub copy: dlro_copy,
    /// A `DLRO_LAYOUT_...` number.
    pub layout: dlro_layout,
    /// `DLRO_IMPORT_...` bits.
    pub flags: u32,
    /// What the address of the first element must be a multiple of, in bytes: a power of two up to 2^30; 0 for
    /// none. It is `data + byte_offset` that counts.
    pub alignment: u32,
    /// The device type that the tensor must be on, a number of DLPack's `DLDeviceType`; 0 for any.
    pub device_type: i32,
    /// The device id that goes with `device_type`. Not read if that is 0.
    pub device_id: i32,
    /// How many threads may work on a copy at most, the caller's included, up to 1024; 0 and 1 mean the caller's
    /// alone. Small copies stay with the caller; none is left running afterwards.
    pub threads: u32,
}

// SAFETY: integers only, the size first.
unsafe impl boundary::Options for dlro_import_options {
    const NAME: &'static str = "options";
    const LEAST: usize = 40;
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<dlro_import_options>() == 40);

pub(super) fn copy(number: dlro_copy) -> Result<Copy> {
    match number {
        0 => Ok(Copy::IfNeeded),
        1 => Ok(Copy::Never),
        2 => Ok(Copy::Always),
        _ => Err(Error::UnknownValue { what: "copy", found: number.into() }),
    }
}

pub(super) fn device(device_type: i32, device_id: i32) -> Wanted {
    if device_type == 0 { Wanted::Anywhere } else { Wanted::Device(DLDevice { device_type, device_id }) }
}

/// More than any machine has use for on one copy.
const MAX_THREADS: u32 = 1024;

/// # Safety
/// As for `boundary::options`.
pub(super) unsafe fn options(pointer: *const dlro_import_options) -> Result<Options> {
    // SAFETY: promised by the caller.
    let raw = unsafe { boundary::options(pointer) }?;
    let access = match raw.access {
        0 => Access::Read,
        1 => Access::Write,
        2 => Access::Immutable,
        number => return Err(Error::UnknownValue { what: "access", found: number.into() }),
    };
    let layout = match raw.layout {
        0 => Layout::Any,
        1 => Layout::RowMajor,
        2 => Layout::ColumnMajor,
        3 => Layout::NonNegative,
        number => return Err(Error::UnknownValue { what: "layout", found: number.into() }),
    };
    if raw.flags & !3 != 0 || raw.threads > MAX_THREADS {
        let (what, found) = if raw.flags & !3 != 0 { ("flags", raw.flags) } else { ("threads", raw.threads) };
        return Err(Error::UnknownValue { what, found: found.into() });
    }
    if raw.alignment != 0 && (!raw.alignment.is_power_of_two() || raw.alignment > 1 << 30) {
        return Err(Error::AlignmentNotPowerOfTwo { found: raw.alignment.into() });
    }
    Ok(Options {
        request: Request {
            access,
            copy: copy(raw.copy)?,
            layout,
            alignment: raw.alignment as usize,
            device: device(raw.device_type, raw.device_id),
            host: raw.flags & 2 != 0,
        },
        adopt: raw.flags & 1 != 0,
        threads: raw.threads as usize,
    })
}

/// Takes a producer's tensor, checks it, and meets the consumer's requirements with the least that does it.
///
/// Where nothing has to be done `*out` is `foreign` itself, untouched. Otherwise it is a tensor of this
/// library: one that owns the foreign one (strides were missing, or `DLRO_IMPORT_ADOPT`), one over a private
/// mapping (below), or one over a copy, after which the foreign tensor has been released.
///
/// What is required is looked at in this order, and the first that cannot be met is the error, with both
/// sides' values in the sentence:
///
/// | requirement | unmet | repaired by | refused with |
/// |---|---|---|---|
/// | version | another major version | nothing | `DLRO_ERR_VERSION` |
/// | device, `DLRO_IMPORT_HOST` | another device | nothing | `DLRO_ERR_DEVICE` |
/// | access WRITE | the tensor is read-only | private mapping, copy | `DLRO_ERR_READ_ONLY` |
/// | access WRITE | elements share memory | copy | `DLRO_ERR_COPY_NEEDED` |
/// | layout, alignment | strides or address differ | copy | `DLRO_ERR_COPY_NEEDED` |
/// | access IMMUTABLE | somebody may write | freezing it, copy | `DLRO_ERR_NOT_IMMUTABLE`, `DLRO_ERR_BUSY` |
///
/// A private mapping shows the same bytes copy-on-write: it costs microseconds whatever the size, a page is copied
/// when it is first written, and the file never changes. There is one for a read-only CPU tensor of 64 KiB or
/// more that this library mapped from a file, and on 64-bit Linux for one of 4 MiB or more from anybody (a NumPy
/// memmap, pyarrow's memory map, shared memory of another process, a memfd) if the process's map table proves
/// that memory and file agree: a shared mapping, or a private one of which no page was written; in several
/// pieces or one, but one run of one file on ext2 to ext4, XFS or tmpfs; the file long enough, and either still
/// to be opened by its name or open in this process. Everything else is copied: other filesystems, huge pages
/// of hugetlbfs, memory of no file. Pages that the consumer has not written show what others write into the file
/// later, and are gone (SIGBUS) if somebody makes the file shorter, as they were for the foreign tensor; the
/// foreign tensor is therefore kept, and released with `*out`. (One that this library mapped is released at
/// once.) Who needs memory that nobody else changes asks for `DLRO_COPY_ALWAYS`. A file descriptor is not kept.
///
/// A copy is dense, writable unless access is IMMUTABLE, aligned to 256 bytes or more, and has IS_COPIED set.
/// Flags that this library does not know stay as they are. Access READ says nothing of others: the tensor
/// may change, and `*out` may be writable.
///
/// Ownership: on success `foreign` is inside `*out` or released, and `*out` belongs to the caller. On failure
/// `foreign` still belongs to the caller, who may release it or try again, and `*out` is NULL. A PyCapsule is
/// therefore renamed after success only.
///
/// Status: those of the table; `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_DTYPE` (the descriptor breaks a
/// rule); `DLRO_ERR_DEVICE` (a copy is needed and the host cannot read the memory); `DLRO_ERR_ARGUMENT` (the
/// options); `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any; nobody else may use `foreign` meanwhile. Rule: DLPack 1.3, Python specification of
/// `from_dlpack`; array API 2025.12, `from_dlpack(copy=, device=)`.
///
/// # Safety
/// The caller owns `foreign`, which is what its version says it is; its memory is there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_import(
    foreign: *mut DLManagedTensorVersioned,
    options: *const dlro_import_options,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let foreign = non_null(foreign, "foreign")?;
        // SAFETY: promised by the caller.
        let options = unsafe { self::options(options) }?;
        // SAFETY: promised by the caller.
        *out = unsafe { crate::tensor::import::import(foreign, &options) }?.into_raw().as_ptr();
        Ok(())
    })
}
