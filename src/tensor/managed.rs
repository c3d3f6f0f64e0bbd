//! Managed tensors of our own: made in one allocation, ended by one deleter, recognised by it.
//!
//! What DLPack cannot say lies beside the struct in the same allocation:
//!
//! ```text
//! Block { DLManagedTensorVersioned, memory, entered } [Memory] shape[ndim] strides[ndim]
//!                                                        |
//!        only behind the first tensor over a memory; a shared tensor points to the first one's
//! ```

use super::layout;
use super::view::{Checked, lowest_minor};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::{Keeper, Memory, Mutability, heap};
use core::ffi::c_void;
use core::mem::{MaybeUninit, size_of};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// Our part of a managed tensor of ours.
#[derive(Debug)]
#[repr(C)]
pub struct Block {
    /// First, so that the pointer that everybody holds is the allocation's own.
    managed: DLManagedTensorVersioned,
    /// The memory that the tensor is a window on.
    pub memory: NonNull<Memory>,
    /// As what the tensor entered the memory's borrow state.
    entered: Mutability,
}

/// An owned managed tensor, ours or not: released when dropped.
#[derive(Debug)]
pub struct Owned(NonNull<DLManagedTensorVersioned>);

impl Owned {
    /// # Safety
    /// The caller owns the tensor and gives it up.
    pub const unsafe fn new(tensor: NonNull<DLManagedTensorVersioned>) -> Self {
        Owned(tensor)
    }

    /// The tensor, still owned by self.
    #[inline]
    pub const fn as_ptr(&self) -> NonNull<DLManagedTensorVersioned> {
        self.0
    }

    /// The tensor; whoever gets the pointer owns it.
    #[inline]
    pub const fn into_raw(self) -> NonNull<DLManagedTensorVersioned> {
        let tensor = self.0;
        core::mem::forget(self);
        tensor
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: owned, and this is its end.
        unsafe { super::view::Untrusted::new(self.0).release() }
    }
}

/// Which strides a new tensor carries.
#[derive(Clone, Copy, Debug)]
pub enum Strides<'a> {
    /// These, in elements.
    Given(&'a [i64]),
    /// C order without gaps.
    RowMajor,
    /// Fortran order without gaps.
    ColumnMajor,
}

impl<'a> From<Option<&'a [i64]>> for Strides<'a> {
    fn from(strides: Option<&'a [i64]>) -> Self {
        strides.map_or(Strides::RowMajor, Strides::Given)
    }
}

/// Everything that a new tensor says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Dimensions.
    pub shape: &'a [i64],
    /// Strides.
    pub strides: Strides<'a>,
    /// Data type, known to exist.
    pub dtype: super::dtype::Dtype,
    /// Device.
    pub device: DLDevice,
    /// Pointer or handle.
    pub data: *mut u8,
    /// In bytes.
    pub byte_offset: u64,
    /// Everything but READ_ONLY, which the mutability decides.
    pub flags: Flags,
    /// A minor version to claim at least: that of a foreign tensor whose unknown flags are passed on.
    pub at_least_minor: u32,
}

impl<'a> Description<'a> {
    /// As the checked tensor describes itself; only bits that we do not know hold us to its version.
    #[inline]
    pub fn of(checked: &Checked<'a>) -> Self {
        let known = Flags::READ_ONLY.bits() | Flags::IS_COPIED.bits() | Flags::IS_SUBBYTE_TYPE_PADDED.bits();
        Description {
            shape: checked.shape,
            strides: checked.strides.into(),
            dtype: checked.dtype,
            device: checked.device,
            data: checked.data,
            byte_offset: checked.byte_offset,
            flags: checked.flags,
            at_least_minor: if checked.flags.bits() & !known == 0 { 0 } else { checked.minor },
        }
    }
}

/// Room for a block, for the memory that it may bring along, and for its numbers.
#[derive(Debug)]
pub struct Allocation {
    start: NonNull<c_void>,
    ndim: usize,
    with_memory: bool,
}

impl Allocation {
    /// Allocates the block of a tensor of `ndim` dimensions. After this nothing can fail any more, so this is
    /// what comes before anything is consumed.
    #[inline]
    pub fn new(ndim: usize, with_memory: bool) -> Result<Self> {
        let memory = if with_memory { size_of::<Memory>() } else { 0 };
        // ndim was checked to be at most MAX_NDIM.
        let start = heap::allocate(size_of::<Block>() + memory + 2 * ndim * size_of::<i64>())?;
        Ok(Allocation { start, ndim, with_memory })
    }

    /// Makes the first tensor over a memory.
    ///
    /// # Safety
    /// The keeper's object is handed over with this call; `range`, base and size in bytes, is what it keeps.
    #[inline(always)]
    pub unsafe fn first(
        self,
        description: &Description,
        mutability: Mutability,
        lent: bool,
        range: (*mut u8, u64),
        keeper: Keeper,
    ) -> Owned {
        debug_assert!(self.with_memory);
        let lead = size_of::<Block>();
        // SAFETY: the allocation is ours, aligned by malloc, and has room for Memory right behind the block.
        let memory = unsafe { self.start.cast::<u8>().add(lead).cast::<Memory>() };
        // SAFETY: as above.
        unsafe { memory.write(Memory::with_one(lead, mutability, lent, range, keeper)) };
        // SAFETY: there is room for the block at the start.
        unsafe { self.finish(memory, description, mutability) }
    }

    /// Makes one more tensor over a memory. The caller has entered it into the borrow state and retained the
    /// memory.
    ///
    /// # Safety
    /// One reference and one entry of that mutability go over to the tensor.
    pub unsafe fn another(self, memory: NonNull<Memory>, description: &Description, mutability: Mutability) -> Owned {
        debug_assert!(!self.with_memory);
        // SAFETY: the allocation has room for a block.
        unsafe { self.finish(memory, description, mutability) }
    }

    #[inline(always)]
    unsafe fn finish(self, memory: NonNull<Memory>, description: &Description, entered: Mutability) -> Owned {
        let memory_size = if self.with_memory { size_of::<Memory>() } else { 0 };
        let ndim = self.ndim;
        debug_assert_eq!(ndim, description.shape.len());
        let block = self.start.cast::<Block>();
        // SAFETY: `new` allocated Block + memory + 2 * ndim numbers; all have alignment 8, which malloc's result and
        // the sizes in front keep.
        let numbers = unsafe { block.add(1).cast::<u8>().add(memory_size).cast::<i64>().as_ptr() };
        core::mem::forget(self);
        // SAFETY: both arrays lie in the allocation; nobody reads them before they are written whole.
        let (shape, strides) = unsafe {
            let strides = numbers.add(ndim);
            (
                core::slice::from_raw_parts_mut(numbers.cast(), ndim),
                core::slice::from_raw_parts_mut(strides.cast(), ndim),
            )
        };
        fill(shape, description.shape);
        match description.strides {
            Strides::Given(given) => fill(strides, given),
            Strides::RowMajor => layout::write_row_major(description.shape, strides),
            Strides::ColumnMajor => layout::write_column_major(description.shape, strides),
        }
        let mut flags = description.flags;
        flags.set(Flags::READ_ONLY, entered != Mutability::Writable);
        let minor =
            lowest_minor(description.dtype, description.device, description.flags).max(description.at_least_minor);
        let null_if_0d = |numbers: &mut [MaybeUninit<i64>]| {
            if numbers.is_empty() { core::ptr::null_mut() } else { numbers.as_mut_ptr().cast::<i64>() }
        };
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: VERSION.major, minor },
            manager_ctx: block.as_ptr().cast(),
            deleter: Some(delete),
            flags: flags.bits(),
            dl_tensor: DLTensor {
                data: description.data.cast(),
                device: description.device,
                ndim: ndim as i32,
                dtype: description.dtype.raw(),
                shape: null_if_0d(shape),
                strides: null_if_0d(strides),
                byte_offset: description.byte_offset,
            },
        };
        // SAFETY: inside the allocation and aligned; the tensor is ours to give away.
        unsafe {
            block.write(Block { memory, entered, managed });
            Owned::new(NonNull::new_unchecked(&raw mut (*block.as_ptr()).managed))
        }
    }
}

/// Copies numbers into memory that holds none yet. The lengths are the same.
#[inline(always)]
fn fill(target: &mut [MaybeUninit<i64>], numbers: &[i64]) {
    assert_eq!(target.len(), numbers.len());
    // SAFETY: as long as each other, and the target is new memory.
    unsafe { core::ptr::copy_nonoverlapping(numbers.as_ptr(), target.as_mut_ptr().cast(), numbers.len()) }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: never finished, so it is ours alone and empty.
        unsafe { libc::free(self.start.as_ptr()) }
    }
}

/// The deleter of every tensor of ours, and the mark by which we know it again.
///
/// It works from the block that `manager_ctx` names, uses no thread-local storage, takes no lock and cannot
/// panic.
#[inline(never)]
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: DLPack: the deleter is called with a tensor that has it, once. Ours have their block in
    // manager_ctx.
    unsafe {
        let block = (*tensor).manager_ctx.cast::<Block>();
        let Block { memory, entered, .. } = *block;
        // The first tensor's block is part of its memory's allocation and goes with it. That the memory lies right
        // behind a block would prove nothing: an allocator without headers may put another allocation there.
        if Memory::start(memory).cast::<Block>().as_ptr() != block {
            libc::free(block.cast());
        }
        Memory::leave(memory, entered);
    }
}

/// Frees a tensor without ending what it keeps: for a step back after a failure.
///
/// # Safety
/// The tensor is the first one over its memory and the only one.
pub unsafe fn disown(tensor: Owned) {
    // SAFETY: one of ours, so its block is alive; the memory is in the same allocation.
    unsafe {
        let ours = ours(tensor.as_ptr()).map(|ours| (*ours.block.as_ptr()).memory);
        if let Some(memory) = ours {
            libc::free(Memory::start(memory).as_ptr());
        }
    }
    core::mem::forget(tensor);
}

/// Our block beside the tensor, if this copy of the library made it.
///
/// # Safety
/// `tensor` points to a managed tensor of any version, alive during `'a`.
#[inline]
pub unsafe fn ours<'a>(tensor: NonNull<DLManagedTensorVersioned>) -> Option<Ours<'a>> {
    // SAFETY: version, manager_ctx, deleter and flags may be read whatever the version.
    let (deleter, context) =
        unsafe { ((&raw const (*tensor.as_ptr()).deleter).read(), (&raw const (*tensor.as_ptr()).manager_ctx).read()) };
    let mine: unsafe extern "C" fn(*mut DLManagedTensorVersioned) = delete;
    if !deleter.is_some_and(|deleter| core::ptr::fn_addr_eq(deleter, mine)) {
        return None;
    }
    let block = NonNull::new(context.cast::<Block>())?;
    // Somebody who copied the struct elsewhere holds no tensor of ours, whatever its deleter.
    // SAFETY: a tensor with our deleter has its block in manager_ctx.
    let whole = unsafe { &raw const (*block.as_ptr()).managed };
    core::ptr::eq(whole, tensor.as_ptr()).then_some(Ours { block, life: core::marker::PhantomData })
}

/// A tensor that this copy of the library made.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    block: NonNull<Block>,
    life: core::marker::PhantomData<&'a Block>,
}

impl<'a> Ours<'a> {
    /// The memory below.
    #[inline]
    pub fn memory(self) -> &'a Memory {
        // SAFETY: the tensor lives during 'a and holds a reference to its memory.
        unsafe { (*self.block.as_ptr()).memory.as_ref() }
    }

    /// What the holder may do and may rely on.
    #[inline]
    pub fn mutability(self) -> Mutability {
        // SAFETY: the block is alive; `entered` changes only through calls that need the tensor exclusively.
        let entered = unsafe { (*self.block.as_ptr()).entered };
        match (entered, self.memory().borrow.mutability()) {
            // Somebody whose hands it went through set the flag; a right that was given up does not come back.
            (Mutability::Writable, _) if self.is_flagged_read_only() => Mutability::ReadOnly,
            // A read-only view of memory that has been frozen since.
            (Mutability::ReadOnly, Mutability::Immutable) => Mutability::Immutable,
            (entered, _) => entered,
        }
    }

    /// The memory below, for somebody who keeps a reference of his own.
    pub fn memory_ptr(self) -> NonNull<Memory> {
        // SAFETY: the block is alive during 'a.
        unsafe { (*self.block.as_ptr()).memory }
    }

    fn entered(self) -> Mutability {
        // SAFETY: as above.
        unsafe { (*self.block.as_ptr()).entered }
    }

    fn is_flagged_read_only(self) -> bool {
        self.flags().load(Ordering::Relaxed) & Flags::READ_ONLY.bits() != 0
    }

    fn flags(self) -> &'a AtomicU64 {
        // SAFETY: the field is aligned, alive during 'a, and everybody here accesses it atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.block.as_ptr()).managed.flags) }
    }

    /// Turns the tensor into an immutable one, if nobody may write its memory.
    ///
    /// # Safety
    /// The caller holds the tensor exclusively.
    pub unsafe fn become_immutable(self) -> Result<()> {
        let memory = self.memory();
        memory.borrow.become_immutable(self.entered(), memory.lent)?;
        // SAFETY: exclusive, says the caller.
        unsafe { (*self.block.as_ptr()).entered = Mutability::Immutable };
        self.flags().fetch_or(Flags::READ_ONLY.bits(), Ordering::Relaxed);
        Ok(())
    }

    /// Moves byte_offset into `data`, for consumers that ignore it.
    ///
    /// # Safety
    /// The caller holds the tensor exclusively, and `data` is a host address.
    pub unsafe fn fold_byte_offset(self) {
        // SAFETY: exclusive, says the caller; the sum was checked when the tensor was made.
        unsafe {
            let tensor = &mut (*self.block.as_ptr()).managed.dl_tensor;
            if !tensor.data.is_null() {
                tensor.data = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize).cast();
            }
            tensor.byte_offset = 0;
        }
    }

    /// Makes one more tensor over the same memory, of the tensor's own shape (`whole`) or of a window's.
    ///
    /// # Safety
    /// The window's arrays are readable.
    pub unsafe fn share(self, whole: &Checked, window: Option<&DLTensor>, mutability: Mutability) -> Result<Owned> {
        if mutability == Mutability::Writable && self.mutability() != Mutability::Writable {
            return Err(Error::ReadOnly);
        }
        let checked = match window {
            None => *whole,
            // SAFETY: promised by the caller.
            Some(window) => unsafe { within(window, whole.data, whole.device, whole.flags, whole.minor) }?,
        };
        // SAFETY: the tensor keeps its memory alive.
        let tensor = unsafe { over(self.memory_ptr(), &checked, whole.data, mutability) }?;
        // A copy that is shared has no sole owner any more.
        self.flags().fetch_and(!Flags::IS_COPIED.bits(), Ordering::Relaxed);
        Ok(tensor)
    }
}

/// A window as the caller describes it: NULL data stands for `data`, and the device is the memory's.
///
/// # Safety
/// The window's arrays are readable during `'a`.
pub unsafe fn within<'a>(
    window: &DLTensor,
    data: *mut u8,
    device: DLDevice,
    flags: Flags,
    minor: u32,
) -> Result<Checked<'a>> {
    let data = if window.data.is_null() { data.cast() } else { window.data };
    // SAFETY: promised by the caller.
    unsafe { Checked::new(&DLTensor { data, device, ..*window }, flags, minor) }
}

/// Makes one more tensor over a memory whose handle or lowest address is `data`.
///
/// # Safety
/// The memory is alive.
pub unsafe fn over(memory: NonNull<Memory>, window: &Checked, data: *mut u8, mutability: Mutability) -> Result<Owned> {
    // SAFETY: promised by the caller.
    let this = unsafe { memory.as_ref() };
    check_window(this, data, window)?;
    if mutability == Mutability::Writable && window.overlaps() {
        return Err(Error::Overlap);
    }
    let allocation = Allocation::new(window.shape.len(), false)?;
    this.borrow.enter(mutability, this.lent)?;
    this.retain();
    let description = Description::of(window);
    let description = Description { flags: description.flags - Flags::IS_COPIED, ..description };
    // SAFETY: entered and retained just now.
    Ok(unsafe { allocation.another(memory, &description, mutability) })
}

/// Whether every byte of the window lies in the memory.
fn check_window(memory: &Memory, data: *mut u8, window: &Checked) -> Result<()> {
    if window.measure.count == 0 {
        return Ok(());
    }
    let first = if !window.is_handle() {
        (window.data.addr() as u64).wrapping_add(window.byte_offset)
    } else if window.data == data {
        window.byte_offset
    } else {
        return Err(Error::HandlesDiffer);
    };
    let low = first as i128 + window.measure.low as i128 - memory.base.addr() as i128;
    let high = first as i128 + window.measure.high as i128 - memory.base.addr() as i128;
    if low < 0 || high > memory.nbytes as i128 {
        return Err(Error::OutOfMemoryRange { low, high, nbytes: memory.nbytes });
    }
    Ok(())
}

/// The range of bytes that a tensor can see, as `Memory` counts it.
#[inline]
pub fn range(checked: &Checked) -> (*mut u8, u64) {
    if checked.is_handle() {
        let low = checked.byte_offset.wrapping_add_signed(checked.measure.low);
        return (core::ptr::without_provenance_mut(low as usize), checked.measure.span());
    }
    match checked.lowest() {
        Some(lowest) => (lowest, checked.measure.span()),
        None => (checked.data, 0),
    }
}

/// What the holder of a tensor may do and may rely on; of a foreign one, what its flags let us assume.
///
/// # Safety
/// `tensor` points to a live managed tensor of any version.
pub unsafe fn mutability(tensor: NonNull<DLManagedTensorVersioned>) -> Mutability {
    // SAFETY: promised by the caller.
    match unsafe { ours(tensor) } {
        Some(ours) => ours.mutability(),
        // SAFETY: promised by the caller.
        None if unsafe { super::view::Untrusted::new(tensor) }.flags().contains(Flags::READ_ONLY) => {
            Mutability::ReadOnly
        }
        None => Mutability::Writable,
    }
}

#[cfg(test)]
mod tests;
