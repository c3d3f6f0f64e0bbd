//! Tensors over files: the header says what is there, the mapping is the memory.

use super::dtype::Dtype;
use super::managed::{Allocation, Description, Owned, Strides};
use super::view::Checked;
use super::{copy, layout};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::mapped::{Mode, Opened};
use crate::memory::{Keeper, npy, sealed};
use core::ffi::CStr;
use std::os::fd::OwnedFd;

/// Maps a `.npy` file.
pub fn map_npy(path: &CStr, mode: Mode) -> Result<Owned> {
    over_npy(Opened::open(path)?, mode)
}

/// Maps the `.npy` file behind a descriptor: immutable if the kernel keeps it from changing, else read-only.
pub fn import_sealed(fd: i32) -> Result<Owned> {
    let file = Opened::from_fd(fd)?;
    if sealed::is_sealed(&file) {
        // Measured once more: until it was sealed somebody could still shorten it.
        over_npy(file.measured_again()?, Mode::Sealed)
    } else {
        over_npy(file, Mode::ReadOnly)
    }
}

/// Copies the elements into sealed memory that holds a `.npy` file.
///
/// # Safety
/// The tensor's memory is there and nobody writes it meanwhile.
pub unsafe fn seal(tensor: &Checked) -> Result<OwnedFd> {
    tensor.require_host()?;
    let column_major = !tensor.measure.row_major && layout::is_column_major(tensor.shape, tensor.strides);
    let mut header = [0; npy::MAX_WRITTEN];
    let length = npy::write_header(tensor.dtype.raw(), column_major, tensor.shape, &mut header)?;
    let whole = (length as u64).checked_add(tensor.measure.nbytes);
    sealed::seal(whole.ok_or(Error::Overflow { what: "the file's size" })?, |bytes| {
        let (front, elements) = bytes.split_at_mut(length);
        front.copy_from_slice(&header[..length]);
        // SAFETY: promised by the caller; the target is new memory of just that size.
        unsafe { copy::copy_dense(tensor, column_major, elements) }
    })
}

fn over_npy(file: Opened, mode: Mode) -> Result<Owned> {
    let mut start = [0; npy::MAX_READ];
    let header = npy::parse(file.read_start(&mut start)?, file.size)?;
    let allocation = Allocation::new(header.ndim, true)?;
    let (data, keeper) = if header.nbytes == 0 {
        (core::ptr::null_mut(), Keeper::Owner { owner: core::ptr::null_mut(), release: None })
    } else {
        let mapping = file.map(header.data_offset, header.nbytes, mode)?;
        (mapping.first(), Keeper::Mapping(mapping))
    };
    let description = Description {
        shape: header.shape(),
        strides: if header.column_major { Strides::ColumnMajor } else { Strides::RowMajor },
        dtype: Dtype::new(header.dtype)?,
        device: DLDevice { device_type: kDLCPU, device_id: 0 },
        data,
        byte_offset: 0,
        flags: Flags::empty(),
        at_least_minor: 0,
    };
    // Copy-on-write memory counts as lent: pages that nobody wrote yet still show the file.
    let lent = mode != Mode::Sealed;
    // SAFETY: the keeper's mapping is handed over with this call.
    Ok(unsafe { allocation.first(&description, mode.mutability(), lent, (data, header.nbytes), keeper) })
}
