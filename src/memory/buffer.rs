//! Reference-counted memory: a range of bytes, its borrow state, and what must be done when nobody uses it.

use super::Mutability;
use super::borrow::Borrow;
use super::heap;
use super::mapped::{Mapping, Mode, Opened, Pages};
use super::sync::{AtomicUsize, Ordering, fence};
use crate::abi::{DLManagedTensor, DLManagedTensorVersioned};
use crate::error::{Error, Result};
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

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
    /// Anonymous pages of ours, shared with nobody.
    Pages(Pages),
    /// A copy-on-write mapping of ours of the file that somebody's tensor shows. The tensor is kept too: its
    /// producer must not put something else into the file while pages that nobody wrote still show it.
    View(Mapping, NonNull<DLManagedTensorVersioned>),
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
            Keeper::Pages(pages) => drop(pages),
            Keeper::View(mapping, tensor) => {
                drop(mapping);
                // SAFETY: as for the tensor alone.
                unsafe { Keeper::Foreign(tensor).end() }
            }
        }
    }
}

/// A range of bytes with everything that the library knows of it. Lives in a malloc'ed block, which `leave`
/// frees with it.
#[derive(Debug)]
pub struct Memory {
    references: AtomicUsize,
    /// How many bytes of the block lie in front.
    lead: usize,
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
    /// Memory with one reference and one tensor over it, `lead` bytes behind the start of its block.
    #[inline]
    pub fn with_one(
        lead: usize,
        mutability: Mutability,
        lent: bool,
        (base, nbytes): (*mut u8, u64),
        keeper: Keeper,
    ) -> Self {
        let borrow = Borrow::with_one(mutability);
        Memory { references: AtomicUsize::new(1), lead, borrow, lent, base, nbytes, keeper }
    }

    /// Memory with one reference and no tensor over it, in a block of its own. The keeper's object is taken
    /// over on success only.
    pub fn allocate(
        mutability: Mutability,
        lent: bool,
        base: *mut u8,
        nbytes: u64,
        keeper: impl FnOnce() -> Keeper,
    ) -> Result<NonNull<Memory>> {
        let memory = heap::allocate(size_of::<Memory>())?.cast::<Memory>();
        let borrow = Borrow::new(mutability);
        // SAFETY: allocated for exactly this.
        unsafe {
            memory.write(Memory {
                references: AtomicUsize::new(1),
                lead: 0,
                borrow,
                lent,
                base,
                nbytes,
                keeper: keeper(),
            })
        };
        Ok(memory)
    }

    /// Zeroed pages of its own.
    pub fn pages(nbytes: usize) -> Result<NonNull<Memory>> {
        let pages = Pages::new(nbytes)?;
        let (base, _) = pages.range();
        Memory::allocate(Mutability::Writable, false, base, nbytes as u64, || Keeper::Pages(pages))
    }

    /// Somebody's host memory. `sole`: nobody writes it but through our tensors.
    pub fn wrap(
        data: *mut u8,
        nbytes: usize,
        mutability: Mutability,
        sole: bool,
        owner: *mut c_void,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> Result<NonNull<Memory>> {
        if data.is_null() && nbytes > 0 {
            return Err(Error::NullData { nbytes: nbytes as u64 });
        }
        if data.addr().checked_add(nbytes).is_none() {
            return Err(Error::AddressWraps { data: data.addr(), byte_offset: 0 });
        }
        let lent = !sole && mutability != Mutability::Immutable;
        Memory::allocate(mutability, lent, data, nbytes as u64, || Keeper::Owner { owner, release })
    }

    /// A part of a file; `nbytes` of 0 stands for all from `offset` on.
    pub fn map(path: &CStr, offset: u64, nbytes: u64, mode: Mode) -> Result<NonNull<Memory>> {
        let file = Opened::open(path)?;
        let end = offset.checked_add(nbytes).ok_or(Error::Overflow { what: "offset + nbytes" })?;
        if end > file.size {
            return Err(Error::FileTooShort { expected: end, found: file.size });
        }
        let nbytes = if nbytes == 0 { file.size - offset } else { nbytes };
        let mutability = mode.mutability();
        if nbytes == 0 {
            let nobody = || Keeper::Owner { owner: core::ptr::null_mut(), release: None };
            return Memory::allocate(mutability, true, core::ptr::null_mut(), 0, nobody);
        }
        let mapping = file.map(offset, nbytes, mode)?;
        let base = mapping.first();
        // Lent: whoever can write the file can change what was not written here.
        Memory::allocate(mutability, true, base, nbytes, || Keeper::Mapping(mapping))
    }

    /// Makes the memory immutable for good; with `enforce` a later write through any pointer is SIGSEGV.
    pub fn freeze(&self, enforce: bool) -> Result<()> {
        let pages = match (&self.keeper, enforce) {
            (_, false) => None,
            (Keeper::Pages(pages), true) => Some(pages.range()),
            (Keeper::Mapping(mapping), true) => Some(mapping.range()),
            _ => {
                return Err(Error::Unsupported {
                    what: "write protection of memory that may share its pages with other data",
                });
            }
        };
        let before = self.borrow.mutability();
        self.borrow.freeze(self.lent)?;
        let Some((start, length)) = pages else { return Ok(()) };
        // SAFETY: whole pages of a mapping of ours; no writable tensor is alive, and none can be made.
        if unsafe { libc::mprotect(start.cast(), length, libc::PROT_READ) } != 0 {
            let error = super::mapped::last("mprotect");
            self.borrow.thaw(before);
            return Err(error);
        }
        Ok(())
    }

    /// The mapping behind the bytes, if that is what keeps them.
    pub const fn mapping(&self) -> Option<&Mapping> {
        match &self.keeper {
            Keeper::Mapping(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// The block that the memory lies in.
    ///
    /// # Safety
    /// The memory is alive, and the pointer may be used for its whole block (one from a reference may not).
    pub unsafe fn start(memory: NonNull<Memory>) -> NonNull<c_void> {
        // SAFETY: promised by the caller; `lead` bytes of the same allocation lie in front.
        unsafe { memory.cast::<u8>().sub((*memory.as_ptr()).lead).cast() }
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
    /// `memory` lies in a block from malloc, `lead` bytes behind its start; the caller gives up one reference and one tensor of
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
            libc::free(Memory::start(memory).as_ptr());
            keeper.end();
        }
    }
}
