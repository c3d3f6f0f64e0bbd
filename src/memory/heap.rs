//! Allocations: every one may fail, and says so instead of aborting.

use crate::error::{Error, Result};
use core::ffi::c_void;
use core::ptr::NonNull;

/// What we promise of memory that we allocate for elements; DLPack's `data` promises the same.
pub const ALIGNMENT: usize = 256;

/// `nbytes` from malloc.
#[inline]
pub fn allocate(nbytes: usize) -> Result<NonNull<c_void>> {
    // SAFETY: malloc takes any size.
    NonNull::new(unsafe { libc::malloc(nbytes.max(1)) }).ok_or(Error::NoMemory { nbytes })
}

/// Moves a value into memory from malloc: a `Box` that can fail.
pub fn place<T>(value: T) -> Result<NonNull<T>> {
    const { assert!(align_of::<T>() <= align_of::<libc::max_align_t>()) };
    let place = allocate(size_of::<T>())?.cast::<T>();
    // SAFETY: new, large enough, and malloc aligns for every C type.
    unsafe { place.write(value) };
    Ok(place)
}

/// Moves a value out of memory from malloc, and frees that.
///
/// # Safety
/// `place` came from [`place`], and nobody uses it afterwards.
pub unsafe fn take<T>(place: NonNull<T>) -> T {
    // SAFETY: holds a value, and is given up by the caller.
    unsafe {
        let value = place.read();
        libc::free(place.as_ptr().cast());
        value
    }
}

/// An allocation for elements: what to free, and where the elements begin, aligned.
#[derive(Debug)]
pub struct Elements {
    /// For `free`.
    pub allocation: NonNull<c_void>,
    /// Where `nbytes` usable bytes begin.
    pub first: *mut u8,
}

/// Allocates `nbytes` at a multiple of `alignment` (a power of two, at least `ALIGNMENT` is used), zeroed or
/// not.
pub fn allocate_elements(nbytes: u64, alignment: usize, zeroed: bool) -> Result<Elements> {
    let alignment = alignment.max(ALIGNMENT);
    let nbytes = usize::try_from(nbytes).map_err(|_| Error::NoMemory { nbytes: usize::MAX })?;
    let whole = nbytes.checked_add(alignment - 1).ok_or(Error::NoMemory { nbytes })?;
    // Padding by hand and not posix_memalign: calloc gets large zeroed memory from the kernel untouched.
    let allocation = if zeroed {
        // SAFETY: calloc takes any size.
        NonNull::new(unsafe { libc::calloc(whole, 1) }).ok_or(Error::NoMemory { nbytes })?
    } else {
        allocate(whole).map_err(|_| Error::NoMemory { nbytes })?
    };
    let start = allocation.as_ptr().cast::<u8>();
    Ok(Elements { allocation, first: start.wrapping_add(start.addr().next_multiple_of(alignment) - start.addr()) })
}
