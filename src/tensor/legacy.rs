//! The bridge between the legacy struct, which has no flags, and the versioned one: no right is lost on it,
//! and none is gained.

use super::import::{self, Options};
use super::layout;
use super::managed::{self, Owned};
use super::negotiate;
use super::view::{Checked, Untrusted};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::{Keeper, Mutability, heap};
use core::ptr::NonNull;

/// A legacy tensor of ours, with the managed tensor that it stands for.
#[repr(C)]
struct LegacyBlock {
    legacy: DLManagedTensor,
    tensor: NonNull<DLManagedTensorVersioned>,
}

/// What the caller knows of a consumer that reads the legacy struct only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Nothing: it may write, so it gets nothing read-only.
    #[default]
    RefuseReadOnly,
    /// That it never writes, as JAX and TensorFlow do not.
    ConsumerNeverWrites,
}

/// Puts a managed tensor into a legacy struct, with `byte_offset` added to `data` if asked for. On success the
/// legacy tensor owns it.
///
/// # Safety
/// The caller owns the tensor and gives it up on success.
pub unsafe fn export(
    tensor: NonNull<DLManagedTensorVersioned>,
    policy: Policy,
    fold_byte_offset: bool,
) -> Result<NonNull<DLManagedTensor>> {
    // SAFETY: promised by the caller.
    let checked = unsafe { Untrusted::new(tensor).validate() }?;
    check_policy(&checked, policy)?;
    if fold_byte_offset {
        negotiate::require_address(&checked)?;
    }
    // NULL strides are accepted and never sent: where they are missing they lie behind the block.
    let missing = if checked.lacks_strides() { checked.shape.len() } else { 0 };
    let nbytes = core::mem::size_of::<LegacyBlock>() + missing * core::mem::size_of::<i64>();
    let block = heap::allocate(nbytes)?.cast::<LegacyBlock>();
    // SAFETY: validated, so the tensor is of our major version and whole.
    let mut dl_tensor = unsafe { (*tensor.as_ptr()).dl_tensor };
    if missing > 0 {
        // SAFETY: `missing` numbers were allocated behind the block, whose size is a multiple of theirs.
        unsafe {
            dl_tensor.strides = block.add(1).cast::<i64>().as_ptr();
            dl_tensor.strides.write_bytes(0, missing);
            layout::write_row_major(checked.shape, core::slice::from_raw_parts_mut(dl_tensor.strides.cast(), missing));
        }
    }
    if fold_byte_offset {
        dl_tensor.data = checked.first().unwrap_or(core::ptr::null_mut()).cast();
        dl_tensor.byte_offset = 0;
    }
    let legacy = DLManagedTensor { dl_tensor, manager_ctx: block.as_ptr().cast(), deleter: Some(delete) };
    // SAFETY: freshly allocated for exactly this.
    unsafe { block.write(LegacyBlock { legacy, tensor }) };
    Ok(block.cast()) // the legacy tensor is the first field
}

/// Whether the legacy struct may carry the tensor to such a consumer.
pub fn check_policy(checked: &Checked, policy: Policy) -> Result<()> {
    if checked.flags.contains(Flags::READ_ONLY) && policy == Policy::RefuseReadOnly {
        return Err(Error::ExportReadOnlyAsLegacy);
    }
    // A consumer of the legacy struct takes sub-byte elements for packed ones.
    if checked.is_padded() && checked.dtype.is_subbyte() {
        return Err(Error::Dtype {
            found: checked.dtype.raw(),
            why: "is padded to whole bytes, and the legacy struct cannot say so",
        });
    }
    Ok(())
}

#[inline(never)]
unsafe extern "C" fn delete(legacy: *mut DLManagedTensor) {
    // SAFETY: DLPack: called once with a tensor that has this deleter; ours have their block in manager_ctx.
    unsafe {
        let block = (*legacy).manager_ctx.cast::<LegacyBlock>();
        let tensor = (*block).tensor;
        libc::free(block.cast());
        Untrusted::new(tensor).release();
    }
}

/// The managed tensor inside, if this copy of the library made the legacy one.
unsafe fn inside(legacy: NonNull<DLManagedTensor>) -> Option<NonNull<DLManagedTensorVersioned>> {
    let mine: unsafe extern "C" fn(*mut DLManagedTensor) = delete;
    // SAFETY: the caller owns a whole legacy tensor.
    let (deleter, context) = unsafe { (legacy.as_ref().deleter, legacy.as_ref().manager_ctx) };
    // Ours is the first field of its block; a copy of the struct elsewhere is no tensor of ours.
    let same = deleter.is_some_and(|deleter| core::ptr::fn_addr_eq(deleter, mine))
        && core::ptr::eq(context.cast(), legacy.as_ptr());
    // SAFETY: made by `export`, so a block is there.
    same.then(|| unsafe { (*context.cast::<LegacyBlock>()).tensor })
}

/// Imports a legacy tensor. What it cannot say, the caller vouches for; of one that came from [`export`] the
/// rights are known, and they count instead of the caller's word.
///
/// # Safety
/// The caller owns the legacy tensor, its memory is there, and what `vouched` says of it is true.
pub unsafe fn import(legacy: NonNull<DLManagedTensor>, vouched: Mutability, options: &Options) -> Result<Owned> {
    // SAFETY: owned by the caller.
    if let Some(tensor) = unsafe { inside(legacy) } {
        // Adopted, since what comes out of here is always a tensor of ours.
        // SAFETY: the legacy tensor owns it, and the caller the legacy tensor.
        let imported = unsafe { import::import(tensor, &Options { adopt: true, ..*options }) }?;
        // SAFETY: only the shell is left; what was inside belongs to `imported` now.
        unsafe { libc::free(legacy.as_ptr().cast()) };
        return Ok(imported);
    }
    let flags = if vouched == Mutability::Writable { Flags::empty() } else { Flags::READ_ONLY };
    // SAFETY: the caller owns a whole legacy tensor; DLPack: shape and strides hold ndim numbers.
    let checked = unsafe { Checked::new(&legacy.as_ref().dl_tensor, flags, 0) }?;
    // Adopted first and imported then, so that one place decides what has to be done.
    // SAFETY: the caller gives the legacy tensor up on success; on failure it is disowned below.
    let adopted = unsafe { import::adopt(&checked, vouched, Keeper::ForeignLegacy(legacy)) }?;
    // SAFETY: owned by us.
    match unsafe { import::import(adopted.as_ptr(), options) } {
        Ok(imported) => {
            core::mem::forget(adopted); // it is `imported`, or has been released
            Ok(imported)
        }
        Err(error) => {
            // SAFETY: made above, so it is ours and nobody else has it.
            unsafe { managed::disown(adopted) };
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::requirements::{Access, Copy, Request};
    use super::super::testing::{Foreign, U8, adopt, describe, flags, raw};
    use super::*;

    const MUTABILITIES: [Mutability; 3] = [Mutability::Writable, Mutability::ReadOnly, Mutability::Immutable];

    /// READ_ONLY survives any number of hops, and what the caller vouches for cannot bring a right back.
    #[test]
    fn rights_come_back_from_the_legacy_struct_as_they_went_in() {
        let (mut bytes, shape) = ([0u8; 4], [4]);
        for bits in [0, 1] {
            for vouched in MUTABILITIES {
                let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), bits);
                let mut tensor = adopt(&mut foreign);
                for _ in 0..3 {
                    // SAFETY: owned by the test all the way.
                    unsafe {
                        let legacy = export(tensor.into_raw(), Policy::ConsumerNeverWrites, false).unwrap();
                        tensor = import(legacy, vouched, &Options::default()).unwrap();
                    }
                    assert_eq!(raw(&tensor).flags, bits, "vouched {vouched:?}");
                }
                drop(tensor);
                assert_eq!(foreign.releases(), 1);
            }
        }
    }

    #[test]
    fn on_failure_the_caller_still_owns_the_legacy_tensor() {
        let (mut bytes, shape) = ([0u8; 4], [4]);
        for vouched in MUTABILITIES {
            let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), 0);
            let legacy = NonNull::from(&mut foreign.legacy);
            for access in [Access::Read, Access::Write, Access::Immutable] {
                let request = Request { access, copy: Copy::Never, alignment: 1 << 30, ..Request::default() };
                let options = Options { request, adopt: false, threads: 0 };
                // SAFETY: owned by the test, and still so after the failure.
                assert!(unsafe { import(legacy, vouched, &options) }.is_err());
            }
            // SAFETY: the last time.
            let tensor = unsafe { import(legacy, vouched, &Options::default()) }.unwrap();
            assert_eq!(foreign.releases(), 0);
            assert_eq!(flags(&tensor).contains(Flags::READ_ONLY), vouched != Mutability::Writable);
            drop(tensor);
            assert_eq!(foreign.releases(), 1);
        }
    }

    #[test]
    fn a_copied_legacy_struct_is_not_ours_and_ends_the_tensor_once() {
        let (mut bytes, shape) = ([0u8; 4], [4]);
        let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), 0);
        // SAFETY: owned by the test; the original is not used after it has been copied.
        unsafe {
            let legacy = export(adopt(&mut foreign).into_raw(), Policy::default(), false).unwrap();
            assert!(inside(legacy).is_some());
            let mut copy = legacy.read();
            let copied = NonNull::from(&mut copy);
            assert!(inside(copied).is_none());
            let tensor = import(copied, Mutability::ReadOnly, &Options::default()).unwrap();
            assert_eq!(foreign.releases(), 0);
            drop(tensor);
        }
        assert_eq!(foreign.releases(), 1);
    }

    #[test]
    fn what_the_legacy_struct_cannot_say_is_refused() {
        let (mut bytes, shape, nibble) = ([0u8; 4], [4], DLDataType { code: kDLInt, bits: 4, lanes: 1 });
        for (dtype, bits, policy, status) in [
            (U8, 1, Policy::RefuseReadOnly, Some(crate::error::Status::DLRO_ERR_READ_ONLY)),
            (U8, 1, Policy::ConsumerNeverWrites, None),
            (nibble, 4, Policy::RefuseReadOnly, Some(crate::error::Status::DLRO_ERR_DTYPE)),
            (nibble, 0, Policy::RefuseReadOnly, None),
            (U8, 4, Policy::RefuseReadOnly, None),
        ] {
            let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), dtype, &shape, None), bits);
            // SAFETY: owned by the test until it is exported.
            let result = unsafe { export(foreign.as_ptr(), policy, false) };
            assert_eq!(result.map_err(|error| error.status()).err(), status);
            assert_eq!(foreign.releases(), 0);
            if let Ok(legacy) = result {
                // SAFETY: owned by the test.
                unsafe {
                    assert!(!legacy.as_ref().dl_tensor.strides.is_null(), "NULL strides are never sent");
                    legacy.as_ref().deleter.unwrap()(legacy.as_ptr());
                }
                assert_eq!(foreign.releases(), 1);
            }
        }
    }
}
