//! Tensors over files: the header says what is there, the mapping is the memory.

use super::dtype::Dtype;
use super::managed::{Allocation, Description, Owned, Strides};
use super::view::Checked;
use super::{copy, layout};
use crate::abi::*;
use crate::error::{Error, MAX_NDIM, Result};
use crate::memory::mapped::{Mode, Opened};
use crate::memory::{Keeper, Memory, Mutability, npy, safetensors, sealed};
use core::ffi::CStr;
use core::ptr::NonNull;
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

/// A safetensors file: its header, and one mapping of all elements, on which the tensors are windows.
#[derive(Debug)]
pub struct Archive {
    /// What is in it.
    pub index: safetensors::Index,
    memory: NonNull<Memory>,
    mode: Mode,
}

impl Archive {
    /// Opens, checks and maps a file.
    pub fn map(path: &CStr, mode: Mode) -> Result<Self> {
        let file = Opened::open(path)?;
        // Read and not looked at through the mapping, which another process may write meanwhile; a short header in
        // one call.
        let mut start = [0; 4096];
        let start = file.read_start(&mut start)?;
        let length = safetensors::length_to_read(start, file.size)?;
        let mut text = safetensors::reserved(length)?;
        text.extend_from_slice(&start[..start.len().min(length)]); // there is room
        if text.len() < length {
            text.resize(length, 0);
            let found = file.read_start(&mut text)?.len() as u64;
            if found < length as u64 {
                return Err(Error::FileTooShort { expected: length as u64, found }); // shortened a moment ago
            }
        }
        let index = safetensors::Index::parse(text, file.size)?;
        let nbytes = index.nbytes();
        let (base, keeper) = if nbytes == 0 {
            (core::ptr::null_mut(), Keeper::Owner { owner: core::ptr::null_mut(), release: None })
        } else {
            let mapping = file.map(index.data_offset(), nbytes, mode)?;
            (mapping.first(), Keeper::Mapping(mapping))
        };
        // Lent, as every file: whoever can write it can change it.
        let memory = Memory::allocate(mode.mutability(), true, base, nbytes, || keeper)?;
        Ok(Archive { index, memory, mode })
    }

    /// Makes a tensor over the elements of one entry.
    pub fn tensor(&self, number: usize) -> Result<Owned> {
        let mut shape = [0; MAX_NDIM];
        let found = self.index.tensor(number, &mut shape)?;
        // SAFETY: we hold a reference.
        let memory = unsafe { self.memory.as_ref() };
        let description = Description {
            shape: &shape[..found.ndim],
            strides: Strides::RowMajor,
            dtype: Dtype::new(found.dtype)?,
            device: DLDevice { device_type: kDLCPU, device_id: 0 },
            data: if found.nbytes == 0 {
                core::ptr::null_mut()
            } else {
                memory.base.wrapping_add(found.begin as usize)
            },
            byte_offset: 0,
            flags: Flags::empty(),
            at_least_minor: 0,
        };
        let allocation = Allocation::new(found.ndim, false)?;
        memory.borrow.enter(self.mode.mutability(), memory.lent)?;
        memory.retain();
        // SAFETY: entered and retained just now.
        Ok(unsafe { allocation.another(self.memory, &description, self.mode.mutability()) })
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        // SAFETY: our reference ends here. Read-only tensors are not counted, and neither were we.
        unsafe { Memory::leave(self.memory, Mutability::ReadOnly) }
    }
}
