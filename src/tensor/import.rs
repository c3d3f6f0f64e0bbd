//! The consumer's side: a tensor is checked, what it lacks is found, and that is repaired or refused.

use super::copy;
use super::layout;
use super::managed::{Allocation, Description, Ours, Owned, ours, range};
use super::requirements::{self, Access, Certainty, Copy, Facts, Layout, Plan, Request};
use super::view::{Checked, Untrusted};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::{Keeper, Mutability};
use core::ptr::NonNull;

/// What the consumer asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its requirements.
    pub request: Request,
    /// Whether the result must be a tensor of ours, which can be shared.
    pub adopt: bool,
}

/// Meets the requirements with the least that does it. On success the foreign tensor is owned by the result,
/// or has been released already; on failure the caller still owns it.
///
/// # Safety
/// The caller owns the foreign tensor; it is what its version says it is, and its memory is there.
#[inline]
pub unsafe fn import(foreign: NonNull<DLManagedTensorVersioned>, options: &Options) -> Result<Owned> {
    // SAFETY: promised by the caller.
    let untrusted = unsafe { Untrusted::new(foreign) };
    if *options == Options::default() && untrusted.is_plain() {
        // A reader of a tensor that has what it should have, which is nearly every import: nothing to plan.
        // SAFETY: given up by the caller on success.
        return Ok(unsafe { Owned::new(foreign) });
    }
    // SAFETY: promised by the caller.
    unsafe { import_closely(foreign, untrusted.validate()?, options) }
}

/// # Safety
/// As for [`import`].
unsafe fn import_closely(
    foreign: NonNull<DLManagedTensorVersioned>,
    checked: Checked,
    options: &Options,
) -> Result<Owned> {
    // SAFETY: alive as long as the caller owns it.
    let ours = unsafe { ours(foreign) };
    let facts = facts(&checked, ours, &options.request);
    let mut plan = requirements::plan(&facts, &options.request)?;
    if plan == Plan::MakeImmutable {
        // SAFETY: the caller owns the foreign tensor, so it holds it exclusively.
        match unsafe { make_immutable(foreign, &checked, ours) } {
            Ok(tensor) => return Ok(tensor),
            Err(error) if options.request.copy == Copy::Never || !facts.host => return Err(error),
            Err(error @ Error::NoMemory { .. }) => return Err(error), // a copy would need more of it
            Err(_) => plan = Plan::Copy,
        }
    }
    if plan == Plan::Remap {
        if let Some(tensor) = ours.and_then(|ours| remap(&checked, ours).ok()) {
            // SAFETY: the caller gives the foreign tensor up now that everything has succeeded.
            drop(unsafe { Owned::new(foreign) });
            return Ok(tensor);
        }
        plan = Plan::Copy;
    }
    if plan == Plan::Copy {
        let wanted = copy::Wanted {
            column_major: options.request.layout == Layout::ColumnMajor,
            alignment: options.request.alignment,
        };
        // SAFETY: host memory that the producer vouches for.
        let tensor = unsafe { copy::copy(&checked, wanted) }?;
        if options.request.access == Access::Immutable {
            // SAFETY: nobody else has the new tensor.
            unsafe { self::ours_of(&tensor).become_immutable() }?;
        }
        // SAFETY: as above.
        drop(unsafe { Owned::new(foreign) });
        return Ok(tensor);
    }
    if ours.is_none() && (options.adopt || checked.lacks_strides()) {
        // SAFETY: the caller owns the foreign tensor and gives it up on success.
        return unsafe { adopt(&checked, mutability_of(&checked), Keeper::Foreign(foreign)) };
    }
    // SAFETY: given up by the caller on success.
    Ok(unsafe { Owned::new(foreign) })
}

fn ours_of(tensor: &Owned) -> Ours<'_> {
    // SAFETY: alive while borrowed.
    unsafe { ours(tensor.as_ptr()) }.expect("made by this library a moment ago")
}

/// What the flags of a foreign tensor let us assume: the weaker thing.
pub fn mutability_of(checked: &Checked) -> Mutability {
    if checked.flags.contains(Flags::READ_ONLY) { Mutability::ReadOnly } else { Mutability::Writable }
}

#[inline]
fn facts(checked: &Checked, ours: Option<Ours>, request: &Request) -> Facts {
    let immutable = match ours {
        _ if request.access != Access::Immutable => Certainty::No, // not asked
        // Nothing is there that could change.
        _ if checked.measure.count == 0 => Certainty::Yes,
        Some(ours) if ours.mutability() == Mutability::Immutable => Certainty::Yes,
        Some(ours) if !ours.memory().lent => Certainty::Obtainable,
        // DLPack: a copy made by the producer is solely owned by the consumer.
        None if checked.flags.contains(Flags::IS_COPIED) => Certainty::Obtainable,
        _ => Certainty::No,
    };
    Facts {
        writable: !checked.flags.contains(Flags::READ_ONLY),
        immutable,
        overlaps: request.access == Access::Write && checked.overlaps(),
        row_major: checked.measure.row_major,
        column_major: request.layout == Layout::ColumnMajor && layout::is_column_major(checked.shape, checked.strides),
        negative_stride: request.layout == Layout::NonNegative
            && layout::first_negative_stride(checked.shape, checked.strides).is_some(),
        address: checked.first().map(|first| first.addr()),
        device: checked.device,
        host: checked.is_host(),
        remappable: ours.is_some_and(|ours| ours.memory().mapping().is_some()),
    }
}

/// Below this many bytes a copy is faster than a mapping and its page faults.
const WORTH_MAPPING: u64 = 64 * 1024;

fn remap(checked: &Checked, ours: Ours) -> Result<Owned> {
    let none = Error::Unsupported { what: "a private mapping" };
    let mapping = ours.memory().mapping().ok_or(none)?;
    let lowest = checked.lowest().ok_or(none)?;
    if checked.measure.span() < WORTH_MAPPING {
        return Err(none);
    }
    let allocation = Allocation::new(checked.shape.len(), true)?;
    let private = mapping.again_copy_on_write(lowest, checked.measure.span())?;
    let description = Description {
        data: private.first().wrapping_offset(-(checked.measure.low as isize)),
        byte_offset: 0,
        // Pages that were not written yet still show the file, so the consumer is no sole owner.
        flags: checked.flags - Flags::IS_COPIED,
        ..Description::of(checked)
    };
    let range = (private.first(), checked.measure.span());
    // SAFETY: the keeper's mapping is handed over with this call. Lent: the file belongs to others.
    Ok(unsafe { allocation.first(&description, Mutability::Writable, true, range, Keeper::Mapping(private)) })
}

/// # Safety
/// The caller owns the foreign tensor and gives it up on success.
unsafe fn make_immutable(
    foreign: NonNull<DLManagedTensorVersioned>,
    checked: &Checked,
    ours: Option<Ours>,
) -> Result<Owned> {
    match ours {
        Some(ours) => {
            // SAFETY: owned by the caller, so exclusive.
            unsafe { ours.become_immutable() }?;
            // SAFETY: given up by the caller.
            Ok(unsafe { Owned::new(foreign) })
        }
        None if checked.flags.contains(Flags::IS_COPIED) => {
            // SAFETY: promised by the caller.
            unsafe { adopt(checked, Mutability::Immutable, Keeper::Foreign(foreign)) }
        }
        None => Err(Error::NotImmutable { why: "another library made the tensor, and DLPack cannot say so of it" }),
    }
}

/// Makes a tensor of ours that owns a foreign one.
///
/// # Safety
/// The keeper's object is what `checked` was read from, and the caller gives it up on success.
pub unsafe fn adopt(checked: &Checked, mutability: Mutability, keeper: Keeper) -> Result<Owned> {
    let allocation = Allocation::new(checked.shape.len(), true)?;
    let lent = mutability != Mutability::Immutable && !checked.flags.contains(Flags::IS_COPIED);
    // SAFETY: handed over now that nothing can fail any more.
    Ok(unsafe { allocation.first(&Description::of(checked), mutability, lent, range(checked), keeper) })
}
