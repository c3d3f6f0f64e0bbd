//! Tensors over files: the header says what is there, the mapping is the memory.

use super::dtype::Dtype;
use super::managed::{Allocation, Description, Owned, Strides};
use crate::abi::*;
use crate::error::Result;
use crate::memory::mapped::{Mode, Opened};
use crate::memory::{Keeper, Mutability, npy};
use core::ffi::CStr;

/// Maps a `.npy` file.
///
/// Read-only memory is `ReadOnly` and not `Immutable`, since whoever can write the file can change it. For
/// the same reason copy-on-write memory counts as lent: pages that nobody wrote yet still show the file.
pub fn map_npy(path: &CStr, mode: Mode) -> Result<Owned> {
    let file = Opened::open(path)?;
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
    let mutability = match mode {
        Mode::ReadOnly => Mutability::ReadOnly,
        Mode::CopyOnWrite => Mutability::Writable,
    };
    // SAFETY: the keeper's mapping is handed over with this call.
    Ok(unsafe { allocation.first(&description, mutability, true, (data, header.nbytes), keeper) })
}
