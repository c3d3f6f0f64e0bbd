//! The producer's side: a managed tensor from a description, or from fresh memory.

use super::dtype::Dtype;
use super::layout;
use super::managed::{Allocation, Description, Owned, Strides, range};
use super::view::{Checked, check_device_id, plain};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::{Keeper, Mutability, heap};
use core::ffi::c_void;

/// What a producer hands over: an object, and the function that lets go of it.
pub type Owner = (*mut c_void, Option<unsafe extern "C" fn(*mut c_void)>);

/// Makes a managed tensor over a producer's memory. On success `release(owner)` will be called once, when the
/// last tensor over the memory has been released; on failure never.
///
/// # Safety
/// The layout's shape and strides, where not NULL, point to ndim readable numbers.
#[inline(always)]
pub unsafe fn export(layout: &DLTensor, flags: Flags, mutability: Mutability, owner: Owner) -> Result<Owned> {
    // SAFETY: promised by the caller.
    match unsafe { plain(layout) } {
        Some(nbytes) if flags.is_empty() => {
            let ndim = layout.ndim as usize;
            // SAFETY: a plain tensor has both arrays.
            let (shape, strides) = unsafe {
                (core::slice::from_raw_parts(layout.shape, ndim), core::slice::from_raw_parts(layout.strides, ndim))
            };
            let description = Description {
                shape,
                strides: Strides::Given(strides),
                dtype: Dtype::plain(layout.dtype),
                device: layout.device,
                data: layout.data.cast(),
                byte_offset: layout.byte_offset,
                flags,
                at_least_minor: 0,
            };
            let lowest = layout.data.cast::<u8>().wrapping_add(layout.byte_offset as usize);
            let (owner, release) = owner;
            let keeper = Keeper::Owner { owner, release };
            // SAFETY: the owner is handed over with this call, which cannot fail.
            Ok(unsafe { Allocation::new(ndim, true)?.first(&description, mutability, true, (lowest, nbytes), keeper) })
        }
        // SAFETY: promised by the caller.
        _ => unsafe { export_closely(layout, flags, mutability, owner) },
    }
}

/// # Safety
/// As for [`export`].
#[inline(never)]
unsafe fn export_closely(layout: &DLTensor, flags: Flags, mutability: Mutability, owner: Owner) -> Result<Owned> {
    // SAFETY: promised by the caller.
    let layout = unsafe { Checked::new(layout, flags, 0) }?;
    check_device_id(layout.device)?;
    if mutability == Mutability::Writable && layout.overlaps() {
        return Err(Error::Overlap);
    }
    let allocation = Allocation::new(layout.shape.len(), true)?;
    let mut description = Description::of(&layout);
    if layout.measure.count == 0 {
        description.data = core::ptr::null_mut();
        description.byte_offset = 0;
    }
    // A copy that the producer made for this consumer has no other holder.
    let lent = !flags.contains(Flags::IS_COPIED);
    let (owner, release) = owner;
    // SAFETY: the owner is handed over with this call, which cannot fail.
    Ok(unsafe { allocation.first(&description, mutability, lent, range(&layout), Keeper::Owner { owner, release }) })
}

/// New host memory for elements, and a writable tensor over it.
pub struct Fresh<'a> {
    /// Dimensions, checked.
    pub shape: &'a [i64],
    /// `RowMajor` or `ColumnMajor`.
    pub strides: Strides<'a>,
    /// Data type.
    pub dtype: Dtype,
    /// Flags, without READ_ONLY.
    pub flags: Flags,
    /// See [`Description::at_least_minor`].
    pub at_least_minor: u32,
    /// In bytes; at least [`heap::ALIGNMENT`] is used.
    pub alignment: usize,
    /// Whether the bytes start as 0.
    pub zeroed: bool,
}

impl Fresh<'_> {
    /// Allocates.
    pub fn make(&self) -> Result<Owned> {
        let padded = self.flags.contains(Flags::IS_SUBBYTE_TYPE_PADDED);
        let measure = layout::measure(self.shape, None, self.dtype, padded)?;
        let allocation = Allocation::new(self.shape.len(), true)?;
        let (data, keeper) = if measure.count == 0 {
            (core::ptr::null_mut(), Keeper::Owner { owner: core::ptr::null_mut(), release: None })
        } else {
            let elements = heap::allocate_elements(measure.nbytes, self.alignment, self.zeroed)?;
            (elements.first, Keeper::Heap(elements.allocation))
        };
        let description = Description {
            shape: self.shape,
            strides: self.strides,
            dtype: self.dtype,
            device: DLDevice { device_type: kDLCPU, device_id: 0 },
            data,
            byte_offset: 0,
            flags: self.flags,
            at_least_minor: self.at_least_minor,
        };
        // SAFETY: the keeper's allocation is handed over with this call.
        Ok(unsafe { allocation.first(&description, Mutability::Writable, false, (data, measure.nbytes), keeper) })
    }
}

/// A zeroed, writable, row-major tensor of the prototype's shape and dtype. Its data, strides and byte_offset
/// are not looked at.
///
/// # Safety
/// The prototype's shape points to ndim readable numbers.
pub unsafe fn new(prototype: &DLTensor) -> Result<Owned> {
    let cpu = DLDevice { device_type: kDLCPU, device_id: 0 };
    if prototype.device.device_type != kDLCPU {
        return Err(Error::DeviceNotWanted { device: prototype.device, wanted: cpu });
    }
    check_device_id(prototype.device)?;
    let somewhere = core::ptr::NonNull::<c_void>::dangling().as_ptr();
    let bare = DLTensor { data: somewhere, strides: core::ptr::null_mut(), byte_offset: 0, ..*prototype };
    // SAFETY: promised by the caller.
    let checked = match unsafe { Checked::new(&bare, Flags::empty(), 0) } {
        // It wraps around our made-up address: no memory is that large.
        Err(Error::AddressWraps { .. }) => return Err(Error::Overflow { what: "the tensor's size in bytes" }),
        checked => checked?,
    };
    Fresh {
        shape: checked.shape,
        strides: Strides::RowMajor,
        dtype: checked.dtype,
        flags: Flags::empty(),
        at_least_minor: 0,
        alignment: heap::ALIGNMENT,
        zeroed: true,
    }
    .make()
}
