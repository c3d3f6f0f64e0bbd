//! What the tests of this floor share: a producer whose tensors are counted when they end.

use super::import::{self, Options};
use super::managed::Owned;
use super::view::{Checked, Untrusted};
use crate::abi::*;
use crate::error::Result;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::rc::Rc;

pub const CPU: DLDevice = DLDevice { device_type: kDLCPU, device_id: 0 };
pub const F32: DLDataType = DLDataType { code: kDLFloat, bits: 32, lanes: 1 };
pub const U8: DLDataType = DLDataType { code: kDLUInt, bits: 8, lanes: 1 };

/// A descriptor over numbers that outlive it.
pub fn describe(data: *mut u8, dtype: DLDataType, shape: &[i64], strides: Option<&[i64]>) -> DLTensor {
    DLTensor {
        data: data.cast(),
        device: CPU,
        ndim: shape.len() as i32,
        dtype,
        shape: shape.as_ptr().cast_mut(), // never written through
        strides: strides.map_or(null_mut(), |strides| strides.as_ptr().cast_mut()),
        byte_offset: 0,
    }
}

/// Somebody else's library: its tensors live here and are not freed, only counted.
pub struct Foreign {
    pub tensor: DLManagedTensorVersioned,
    pub legacy: DLManagedTensor,
    releases: Rc<Cell<u32>>,
}

impl Foreign {
    /// A tensor of version 1.0 over `dl_tensor`, and a legacy one too.
    pub fn new(dl_tensor: DLTensor, flags: u64) -> Box<Foreign> {
        let version = DLPackVersion { major: 1, minor: 0 };
        let releases = Rc::new(Cell::new(0));
        let manager_ctx = Rc::as_ptr(&releases).cast_mut().cast();
        Box::new(Foreign {
            tensor: DLManagedTensorVersioned { version, manager_ctx, deleter: Some(Self::delete), flags, dl_tensor },
            legacy: DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(Self::delete_legacy) },
            releases,
        })
    }

    pub fn as_ptr(&mut self) -> NonNull<DLManagedTensorVersioned> {
        NonNull::from(&mut self.tensor)
    }

    pub fn releases(&self) -> u32 {
        self.releases.get()
    }

    unsafe fn count(context: *mut c_void) {
        // SAFETY: set in `new`, and the test keeps the producer until after its last tensor.
        let releases = unsafe { &*context.cast::<Cell<u32>>() };
        releases.set(releases.get() + 1);
    }

    unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
        // SAFETY: one of `new`'s.
        unsafe { Self::count((*tensor).manager_ctx) }
    }

    unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
        // SAFETY: one of `new`'s.
        unsafe { Self::count((*tensor).manager_ctx) }
    }
}

/// The tensor's struct.
pub fn raw(tensor: &Owned) -> &DLManagedTensorVersioned {
    // SAFETY: alive while borrowed, and whole.
    unsafe { tensor.as_ptr().as_ref() }
}

pub fn flags(tensor: &Owned) -> Flags {
    Flags::from_bits_retain(raw(tensor).flags)
}

pub fn checked(tensor: &Owned) -> Checked<'_> {
    // SAFETY: alive while borrowed, and whole.
    unsafe { Untrusted::new(tensor.as_ptr()) }.validate().unwrap()
}

/// A tensor of ours over foreign memory.
pub fn adopt(foreign: &mut Foreign) -> Owned {
    let options = Options { adopt: true, ..Options::default() };
    import(foreign.as_ptr(), &options).unwrap()
}

pub fn import(tensor: NonNull<DLManagedTensorVersioned>, options: &Options) -> Result<Owned> {
    // SAFETY: every tensor of these tests is whole, and its memory is there.
    unsafe { import::import(tensor, options) }
}

/// Xorshift, so that a failure can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub fn pick(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }
}
