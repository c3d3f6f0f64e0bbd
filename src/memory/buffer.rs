//! Reference-counted memory: a range of bytes, its borrow state, and what must be done when nobody uses it.

use super::borrow::Borrow;
use super::mapped::Mapping;
use super::{Mutability, heap};
use crate::abi::{DLManagedTensor, DLManagedTensorVersioned};
use crate::error::Result;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

/// What keeps the bytes, and ends with them.
#[derive(Debug)]
pub enum Keeper {
    /// A producer's object and the function that lets go of it.
    Owner { owner: *mut c_void, release: Option<unsafe extern "C" fn(*mut c_void)> },
    /// Somebody else's managed tensor.
    Foreign(NonNull<DLManagedTensorVersioned>),
    /// Somebody else's legacy tensor.
    ForeignLegacy(NonNull<DLManagedTensor>),
    /// An allocation of ours.
    Heap(NonNull<c_void>),
    /// A file mapping of ours.
    Mapping(Mapping),
}

impl Keeper {
    /// Gives back what was kept. Calls foreign code: no lock is held anywhere here.
    ///
    /// # Safety
    /// Nothing uses the bytes any more, and this is called once.
    unsafe fn end(self) {
        match self {
            // SAFETY: the producer handed over owner and release for exactly this one call.
            Keeper::Owner { owner, release: Some(release) } => unsafe { release(owner) },
            Keeper::Owner { release: None, .. } => {}
            Keeper::Foreign(tensor) => {
                // SAFETY: we own the foreign tensor; its deleter is read, not its content.
                let deleter = unsafe { (&raw const (*tensor.as_ptr()).deleter).read() };
                if let Some(deleter) = deleter {
                    // SAFETY: owned by us, ended once.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
            Keeper::ForeignLegacy(tensor) => {
                // SAFETY: as above.
                let deleter = unsafe { (&raw const (*tensor.as_ptr()).deleter).read() };
                if let Some(deleter) = deleter {
                    // SAFETY: as above.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
            // SAFETY: the pointer came from malloc or calloc, and nothing uses the bytes any more.
            Keeper::Heap(bytes) => unsafe { libc::free(bytes.as_ptr()) },
            Keeper::Mapping(mapping) => drop(mapping),
        }
    }
}

/// A range of bytes with everything that the library knows of it. Lives at the start of a malloc'ed block,
/// which `leave` frees with it.
#[derive(Debug)]
pub struct Memory {
    references: AtomicUsize,
    /// Who may write, and who is promised that nobody does.
    pub borrow: Borrow,
    /// Whether somebody outside of this library holds the bytes too, and may write them if they are writable.
    pub lent: bool,
    /// The lowest byte. For devices whose `data` is a handle: the offset of the lowest byte, as a number.
    pub base: *mut u8,
    /// How many bytes from there belong to this memory.
    pub nbytes: u64,
    keeper: Keeper,
}

impl Memory {
    /// Memory with one reference and one tensor over it.
    #[inline]
    pub const fn with_one(mutability: Mutability, lent: bool, base: *mut u8, nbytes: u64, keeper: Keeper) -> Self {
        Memory { references: AtomicUsize::new(1), borrow: Borrow::with_one(mutability), lent, base, nbytes, keeper }
    }

    /// Memory with one user and no tensor over it; [`Memory::end_use`] is that user's end.
    pub fn alone(
        mutability: Mutability,
        lent: bool,
        base: *mut u8,
        nbytes: u64,
        keeper: Keeper,
    ) -> Result<NonNull<Memory>> {
        let borrow = Borrow::new(mutability);
        let this = Memory { references: AtomicUsize::new(1), borrow, lent, base, nbytes, keeper };
        // One byte more: a tensor's block right behind the memory is part of its allocation (see
        // tensor/managed.rs), so no other allocation may begin there.
        let place = heap::allocate(size_of::<Memory>() + 1)?.cast::<Memory>();
        // SAFETY: new, large enough, and malloc aligns for every C type.
        unsafe { place.write(this) };
        Ok(place)
    }

    /// Ends the use of somebody who is no tensor.
    ///
    /// # Safety
    /// As for [`Memory::leave`].
    pub unsafe fn end_use(memory: NonNull<Memory>) {
        // SAFETY: promised by the caller. Read-only tensors are not counted, and neither is this user.
        unsafe { Memory::leave(memory, Mutability::ReadOnly) }
    }

    /// The mapping behind the bytes, if that is what keeps them.
    pub const fn mapping(&self) -> Option<&Mapping> {
        match &self.keeper {
            Keeper::Mapping(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// One more user.
    pub fn retain(&self) {
        // Relaxed: whoever retains holds a reference already.
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// One user less: takes its tensor of mutability `entered` out of the borrow state, and when it was the
    /// last user gives the bytes back and frees the block.
    ///
    /// # Safety
    /// `memory` is at the start of a block from malloc; the caller gives up one reference and one tensor of
    /// that mutability, and uses neither afterwards.
    #[inline]
    pub unsafe fn leave(memory: NonNull<Memory>, entered: Mutability) {
        {
            // SAFETY: the caller's reference keeps it alive until it is given up below.
            let this = unsafe { memory.as_ref() };
            // A sole user has nobody to tell: no other thread can gain a reference without holding one.
            if this.references.load(Ordering::Acquire) != 1 {
                this.borrow.leave(entered);
                if this.references.fetch_sub(1, Ordering::Release) != 1 {
                    return;
                }
                fence(Ordering::Acquire); // every other user's last access happened before this
            }
        }
        // SAFETY: the last reference is gone; the keeper is moved out once and the block freed once. The
        // keeper goes last to foreign code, when nothing of the block is needed any more.
        unsafe {
            let keeper = (&raw const (*memory.as_ptr()).keeper).read();
            libc::free(memory.as_ptr().cast());
            keeper.end();
        }
    }
}
