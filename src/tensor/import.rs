//! The consumer's side: a tensor is checked, what it lacks is found, and that is repaired or refused.

use super::copy;
use super::layout;
use super::managed::{Allocation, Description, Ours, Owned, ours, range};
use super::requirements::{self, Access, Certainty, Copy, Facts, Layout, Plan, Request};
use super::view::{Checked, Untrusted};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::{Keeper, Mutability, process_map};
use core::ptr::NonNull;

/// What the consumer asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its requirements.
    pub request: Request,
    /// Whether the result must be a tensor of ours, which can be shared.
    pub adopt: bool,
    /// How many threads may copy at most; see [`copy::Wanted`].
    pub threads: usize,
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
        // SAFETY: the caller owns the foreign tensor and gives it up on success.
        if let Ok(tensor) = unsafe { remap(foreign, &checked, ours, options.request.alignment) } {
            return Ok(tensor);
        }
        plan = Plan::Copy;
    }
    if plan == Plan::Copy {
        let wanted = copy::Wanted {
            column_major: options.request.layout == Layout::ColumnMajor,
            alignment: options.request.alignment,
            threads: options.threads,
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
        remappable: request.access == Access::Write
            && checked.device.device_type == kDLCPU
            && checked.measure.span() >= WORTH_MAPPING,
    }
}

/// Below this many bytes a copy is faster than a mapping of ours and its page faults.
const WORTH_MAPPING: u64 = 64 * 1024;

/// Below this many bytes a copy is faster than to find out which file somebody's memory shows: that takes 40 to 110
/// microseconds, the copy of 4 MiB into memory that malloc has at hand about 110. (Into memory fresh from the
/// kernel, 7 milliseconds; a consumer that writes all of a view pays as much, page by page.)
const WORTH_SEARCHING: u64 = 4 * 1024 * 1024;

/// Makes a writable tensor over a private mapping of the same bytes.
///
/// # Safety
/// The caller owns the foreign tensor and gives it up on success.
unsafe fn remap(
    foreign: NonNull<DLManagedTensorVersioned>,
    checked: &Checked,
    ours: Option<Ours>,
    alignment: usize,
) -> Result<Owned> {
    let none = Error::Unsupported { what: "a private mapping" };
    let lowest = checked.lowest().ok_or(none)?;
    let span = checked.measure.span();
    let allocation = Allocation::new(checked.shape.len(), true)?;
    let again = ours.and_then(|ours| ours.memory().mapping()?.again_copy_on_write(lowest, span).ok());
    let (private, is_ours) = match again {
        Some(private) => (private, true),
        None if span >= WORTH_SEARCHING => (process_map::private_view(lowest, span)?, false),
        None => return Err(none),
    };
    let first = private.first();
    let description = Description {
        data: first.wrapping_offset(-(checked.measure.low as isize)),
        byte_offset: 0,
        // Pages that were not written yet still show the file, so the consumer is no sole owner.
        flags: checked.flags - Flags::IS_COPIED,
        ..Description::of(checked)
    };
    if alignment > 1 && description.data.addr() & (alignment - 1) != 0 {
        return Err(none); // the new address agrees with the old one below the size of a page only
    }
    // Nobody else looks after a file of ours, so the tensor is released.
    let (keeper, done) = if is_ours {
        // SAFETY: the caller gives the foreign tensor up.
        (Keeper::Mapping(private), Some(unsafe { Owned::new(foreign) }))
    } else {
        (Keeper::View(private, foreign), None)
    };
    // SAFETY: the keeper is handed over with this call, which cannot fail. Lent: the file belongs to others.
    let tensor = unsafe { allocation.first(&description, Mutability::Writable, true, (first, span), keeper) };
    drop(done); // the last use of `checked` was above
    Ok(tensor)
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

#[cfg(test)]
mod tests {
    use super::super::file::map_npy;
    use super::super::requirements::{Request, Wanted};
    use super::super::testing::{Foreign, U8, checked, describe, flags, import};
    use super::*;
    use crate::memory::mapped::Mode;
    use std::ffi::CString;
    use std::io::Write;

    /// A private mapping lies where the kernel puts it: congruent to the file's pages and to nothing larger.
    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn a_private_mapping_is_as_aligned_as_was_required() {
        let path = std::env::temp_dir().join(format!("dlpack_ro-alignment-{}.npy", std::process::id()));
        let nbytes = 17usize << 12; // an odd number of pages
        let mut text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({nbytes},), }}");
        text.push_str(&" ".repeat((1 << 12) - 10 - 1 - text.len()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"\x93NUMPY\x01\x00").unwrap();
        file.write_all(&(text.len() as u16 + 1).to_le_bytes()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.write_all(b"\n").unwrap();
        file.write_all(&vec![1; nbytes]).unwrap();
        drop(file);
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        let mut lay_well = 0;
        let mut keep = Vec::new();
        for round in 0..64 {
            for alignment in [1 << 12, 1 << 13] {
                let tensor = map_npy(&path, Mode::ReadOnly).unwrap();
                let request = Request { access: Access::Write, alignment, ..Request::default() };
                lay_well += u32::from(checked(&tensor).first().unwrap().addr() % (1 << 13) == 0);
                let writable = import(tensor.into_raw(), &Options { request, adopt: false, threads: 0 }).unwrap();
                assert_eq!(checked(&writable).first().unwrap().addr() % alignment, 0);
                let mapped_again = !flags(&writable).contains(Flags::IS_COPIED);
                assert!(mapped_again || alignment > 1 << 12, "a page is what every mapping is aligned to");
                // Kept, so that the next ones lie elsewhere: by a page now and then.
                keep.push((writable, crate::memory::mapped::Pages::new(1 + round % 3 * 4096).unwrap()));
            }
        }
        assert!(lay_well > 0);
        std::fs::remove_file(path.to_str().unwrap()).unwrap();
    }

    #[test]
    fn on_failure_the_caller_still_owns_the_tensor_and_on_success_it_ends_once() {
        let (mut bytes, shape, twice) = ([1u8; 4], [2, 2], [0, 1]);
        for access in [Access::Read, Access::Write, Access::Immutable] {
            for copy in [Copy::IfNeeded, Copy::Never, Copy::Always] {
                for layout in [Layout::Any, Layout::RowMajor, Layout::ColumnMajor, Layout::NonNegative] {
                    for device in [Wanted::Anywhere, Wanted::Device(DLDevice { device_type: kDLCUDA, device_id: 0 })] {
                        for (bits, adopt) in [(0, false), (1, false), (2, false), (3, true), (0, true), (1, true)] {
                            let mut foreign =
                                Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, Some(&twice)), bits);
                            let request = Request { access, copy, layout, device, ..Request::default() };
                            let result = import(foreign.as_ptr(), &Options { request, adopt, threads: 0 });
                            let of = format!("{request:?} flags {bits} adopt {adopt}: {result:?}");
                            match result {
                                Err(_) => assert_eq!(foreign.releases(), 0, "{of}"),
                                Ok(tensor) => {
                                    assert_eq!(checked(&tensor).shape, [2, 2], "{of}");
                                    let read_only = flags(&tensor).contains(Flags::READ_ONLY);
                                    assert!(access != Access::Write || !read_only, "{of}");
                                    let copied = foreign.releases() == 1;
                                    assert!(copied || copy != Copy::Always, "{of}");
                                    assert!(copied || bits & 1 == 0 || read_only, "READ_ONLY survives: {of}");
                                    drop(tensor);
                                    assert_eq!(foreign.releases(), 1, "{of}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
