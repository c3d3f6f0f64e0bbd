//! Tensors over files: the header says what is there, the mapping is the memory.

use super::dtype::Dtype;
use super::managed::{Allocation, Description, Owned, Strides};
use crate::abi::*;
use crate::error::{Error, MAX_NDIM, Result};
use crate::memory::mapped::{Mode, Opened};
use crate::memory::{Keeper, Memory, Mutability, npy, safetensors};
use core::ffi::CStr;
use core::ptr::NonNull;

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
    // SAFETY: the keeper's mapping is handed over with this call.
    Ok(unsafe { allocation.first(&description, mutability(mode), true, (data, header.nbytes), keeper) })
}

fn mutability(mode: Mode) -> Mutability {
    match mode {
        Mode::ReadOnly => Mutability::ReadOnly,
        Mode::CopyOnWrite => Mutability::Writable,
    }
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
        let mut start = [0; safetensors::LENGTH];
        let length = safetensors::length_to_read(file.read_start(&mut start)?, file.size)?;
        let mut text = safetensors::reserved(length)?;
        text.resize(length, 0); // there is room
        // Read and not looked at through the mapping, which another process may write meanwhile.
        let found = file.read_start(&mut text)?.len() as u64;
        if found < length as u64 {
            return Err(Error::FileTooShort { expected: length as u64, found }); // shortened a moment ago
        }
        let index = safetensors::Index::parse(text, file.size)?;
        let nbytes = index.nbytes();
        let (base, keeper) = if nbytes == 0 {
            (core::ptr::null_mut(), Keeper::Owner { owner: core::ptr::null_mut(), release: None })
        } else {
            let mapping = file.map(index.data_offset(), nbytes, mode)?;
            (mapping.first(), Keeper::Mapping(mapping))
        };
        let memory = Memory::alone(mutability(mode), true, base, nbytes, keeper)?;
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
        memory.borrow.enter(mutability(self.mode), memory.lent)?;
        memory.retain();
        // SAFETY: entered and retained just now.
        Ok(unsafe { allocation.another(self.memory, &description, mutability(self.mode)) })
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        // SAFETY: our own use, and this is its end.
        unsafe { Memory::end_use(self.memory) }
    }
}
