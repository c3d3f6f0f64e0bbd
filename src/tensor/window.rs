//! Tensors as windows on a buffer, and the way back from a tensor to the buffer below it.

use super::import;
use super::managed::{self, Owned, ours};
use super::view::Untrusted;
use crate::abi::*;
use crate::error::Result;
use crate::memory::{Keeper, Memory, Mutability};
use core::ptr::NonNull;

/// Makes a host tensor over a window of a memory.
///
/// # Safety
/// The memory is alive, and the window's arrays are readable.
pub unsafe fn export(memory: NonNull<Memory>, window: &DLTensor, mutability: Mutability) -> Result<Owned> {
    let cpu = DLDevice { device_type: kDLCPU, device_id: 0 };
    // SAFETY: promised by the caller.
    unsafe {
        let base = memory.as_ref().base;
        let checked = managed::within(window, base, cpu, Flags::empty(), 0)?;
        managed::over(memory, &checked, base, mutability)
    }
}

/// Turns a tensor into a reference to its memory; to one with the tensor's rights and extent where the memory below
/// allows more than the tensor does.
///
/// # Safety
/// The caller owns the tensor and gives it up on success.
pub unsafe fn into_memory(tensor: NonNull<DLManagedTensorVersioned>) -> Result<NonNull<Memory>> {
    // SAFETY: promised by the caller.
    let (checked, mutability) = unsafe { (Untrusted::new(tensor).validate()?, managed::mutability(tensor)) };
    checked.require_host()?; // `export` makes host tensors
    // SAFETY: alive.
    let mine = match unsafe { ours(tensor) } {
        // SAFETY: given up by the caller; nothing fails from here on.
        Some(ours) if ours.memory().borrow.mutability() == mutability => unsafe { Owned::new(tensor) },
        // SAFETY: given up by the caller on success.
        _ => unsafe { import::adopt(&checked, mutability, Keeper::Foreign(tensor)) }?,
    };
    // SAFETY: alive as long as `mine`.
    let memory = unsafe { ours(mine.as_ptr()) }.map(|ours| ours.memory_ptr()).expect("ours by now");
    // SAFETY: the tensor keeps it alive until after it is retained.
    unsafe { memory.as_ref() }.retain();
    drop(mine);
    Ok(memory)
}
