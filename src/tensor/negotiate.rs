//! What a producer's `__dlpack__` method must decide: which struct the consumer can take, and whether the
//! tensor can be given to it in that struct.

use super::copy;
use super::import;
use super::legacy::{self, Policy};
use super::managed::{Allocation, Description, Owned, ours, range};
use super::requirements::{Copy, Wanted};
use super::view::{Checked, Untrusted};
use crate::abi::*;
use crate::error::{Error, Result};
use crate::memory::Keeper;
use core::ptr::NonNull;

/// What the consumer asked `__dlpack__` for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `copy=`
    pub copy: Copy,
    /// `dl_device=`
    pub device: Wanted,
    /// What is known of a consumer that takes the legacy struct only.
    pub policy: Policy,
    /// Whether to hand out `data` with byte_offset added to it, for consumers that ignore byte_offset.
    pub fold_byte_offset: bool,
}

/// The struct that the consumer can take, owned by whoever gets this.
#[derive(Debug)]
pub enum Exported {
    /// DLPack 1.0 and later.
    Versioned(Owned),
    /// Before 1.0.
    Legacy(NonNull<DLManagedTensor>),
}

/// Whether a consumer that says `max_version` takes the versioned struct. One that says nothing does not.
pub fn takes_versioned(max_version: Option<DLPackVersion>) -> bool {
    max_version.is_some_and(|version| version.major >= VERSION.major)
}

/// Hands a tensor to a consumer. On success the answer owns it.
///
/// # Safety
/// The caller owns the tensor and gives it up on success; its memory is there.
pub unsafe fn export_for(
    tensor: NonNull<DLManagedTensorVersioned>,
    max_version: Option<DLPackVersion>,
    options: &Options,
) -> Result<Exported> {
    // SAFETY: promised by the caller.
    let checked = unsafe { Untrusted::new(tensor).validate() }?;
    match options.device {
        Wanted::Device(wanted) if wanted != checked.device => {
            return Err(Error::DeviceNotWanted { device: checked.device, wanted });
        }
        _ => {}
    }
    if options.copy == Copy::Always {
        // A copy is writable, so the legacy struct can carry it whatever the source was.
        // SAFETY: promised by the caller.
        let fresh = unsafe { copy::copy(&checked, copy::Wanted::default()) }?;
        // SAFETY: made a moment ago, owned by us.
        let exported = unsafe { wrap(fresh.as_ptr(), max_version, options) }?;
        core::mem::forget(fresh); // it is inside `exported`
        // SAFETY: given up by the caller now that everything has succeeded.
        drop(unsafe { Owned::new(tensor) });
        return Ok(exported);
    }
    // SAFETY: promised by the caller.
    unsafe { wrap(tensor, max_version, options) }
}

/// # Safety
/// As for [`export_for`].
unsafe fn wrap(
    tensor: NonNull<DLManagedTensorVersioned>,
    max_version: Option<DLPackVersion>,
    options: &Options,
) -> Result<Exported> {
    if !takes_versioned(max_version) {
        // SAFETY: promised by the caller.
        return unsafe { legacy::export(tensor, options.policy, options.fold_byte_offset) }.map(Exported::Legacy);
    }
    // SAFETY: promised by the caller.
    let checked = unsafe { Untrusted::new(tensor).validate() }?;
    if options.fold_byte_offset {
        require_address(&checked)?;
    }
    // SAFETY: alive.
    if let Some(ours) = unsafe { ours(tensor) } {
        if options.fold_byte_offset {
            // SAFETY: the caller owns the tensor, so it holds it exclusively.
            unsafe { ours.fold_byte_offset() };
        }
    } else if options.fold_byte_offset || checked.lacks_strides() {
        let allocation = Allocation::new(checked.shape.len(), true)?;
        let mut description = Description::of(&checked);
        if options.fold_byte_offset {
            description.data = checked.first().unwrap_or(core::ptr::null_mut());
            description.byte_offset = 0;
        }
        let lent = !checked.flags.contains(Flags::IS_COPIED);
        let keeper = Keeper::Foreign(tensor);
        let mutability = import::mutability_of(&checked);
        // SAFETY: handed over now that nothing can fail any more.
        let adopted = unsafe { allocation.first(&description, mutability, lent, range(&checked), keeper) };
        return Ok(Exported::Versioned(adopted));
    }
    // SAFETY: given up by the caller.
    Ok(Exported::Versioned(unsafe { Owned::new(tensor) }))
}

/// Refuses to add to a `data` that is a handle.
pub fn require_address(checked: &Checked) -> Result<()> {
    if checked.is_handle() { Err(Error::HostCannotRead { device: checked.device }) } else { Ok(()) }
}

/// Enough for every version that will ever be; a table that points to itself must not hold us.
const MAX_TABLES: usize = 64;

/// Finds the exchange table of our major version in a chain of tables, newest first, and checks that its
/// functions are there.
///
/// # Safety
/// Each table is readable as far as its version's layout goes; ours to its end.
pub unsafe fn select_exchange_api(newest: NonNull<DLPackExchangeAPIHeader>) -> Result<NonNull<DLPackExchangeAPI>> {
    let mut table = newest.as_ptr();
    let mut found = VERSION;
    for _ in 0..MAX_TABLES {
        // SAFETY: not NULL; the header is the part that every version has.
        let header = unsafe { &*table };
        found = header.version;
        if found.major == VERSION.major {
            let api = table.cast::<DLPackExchangeAPI>();
            // SAFETY: of our major version, so it is whole.
            let slots = unsafe { &*api };
            for (slot, name) in [
                (slots.managed_tensor_allocator, "managed_tensor_allocator"),
                (slots.managed_tensor_from_py_object_no_sync, "managed_tensor_from_py_object_no_sync"),
                (slots.managed_tensor_to_py_object_no_sync, "managed_tensor_to_py_object_no_sync"),
                (slots.current_work_stream, "current_work_stream"),
            ] {
                if slot.is_null() {
                    return Err(Error::ExchangeSlotNull { slot: name });
                }
            }
            // SAFETY: not NULL.
            return Ok(unsafe { NonNull::new_unchecked(api) });
        }
        table = header.prev_api;
        if table.is_null() {
            break;
        }
    }
    Err(Error::ExchangeVersion { found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null_mut;

    #[test]
    fn a_consumer_of_major_version_1_or_later_takes_the_versioned_struct() {
        let says = |major, minor| takes_versioned(Some(DLPackVersion { major, minor }));
        assert!(!takes_versioned(None) && !says(0, 0) && !says(0, 8) && !says(0, u32::MAX));
        assert!(says(1, 0) && says(1, 3) && says(1, u32::MAX) && says(2, 0) && says(u32::MAX, 0));
    }

    fn table(major: u32) -> DLPackExchangeAPI {
        let function = core::ptr::without_provenance_mut(1);
        DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader { version: DLPackVersion { major, minor: 7 }, prev_api: null_mut() },
            managed_tensor_allocator: function,
            managed_tensor_from_py_object_no_sync: function,
            managed_tensor_to_py_object_no_sync: function,
            dltensor_from_py_object_no_sync: null_mut(),
            current_work_stream: function,
        }
    }

    fn select(newest: &mut DLPackExchangeAPI) -> Result<NonNull<DLPackExchangeAPI>> {
        // SAFETY: whole tables in a chain that ends, or that we look at 64 times.
        unsafe { select_exchange_api(NonNull::from(newest).cast()) }
    }

    #[test]
    fn our_table_is_found_behind_newer_ones_and_a_circle_holds_nobody() {
        let mut tables: [DLPackExchangeAPI; 4] = core::array::from_fn(|index| table(4 - index as u32));
        let all = tables.as_mut_ptr();
        let at = |index: usize| all.wrapping_add(index).cast::<DLPackExchangeAPIHeader>();
        let chain = |from: usize, to: *mut DLPackExchangeAPIHeader| {
            // SAFETY: one of four.
            unsafe { (*all.add(from)).header.prev_api = to };
        };
        (0..3).for_each(|index| chain(index, at(index + 1)));
        // SAFETY: `all` is the only way to the tables from here on.
        let select = |from: usize| unsafe { select_exchange_api(NonNull::new(at(from)).unwrap()) };
        assert_eq!(select(0), Ok(NonNull::new(at(3).cast()).unwrap()));
        assert_eq!(select(3), Ok(NonNull::new(at(3).cast()).unwrap()));
        for end in [null_mut(), at(0), at(2)] {
            chain(2, end);
            assert!(matches!(select(0), Err(Error::ExchangeVersion { found }) if found.major > 1));
        }
    }

    #[test]
    fn every_function_but_one_must_be_in_the_table() {
        type Slot = (&'static str, fn(&mut DLPackExchangeAPI) -> &mut *mut core::ffi::c_void);
        let slots: [Slot; 4] = [
            ("managed_tensor_allocator", |table| &mut table.managed_tensor_allocator),
            ("managed_tensor_from_py_object_no_sync", |table| &mut table.managed_tensor_from_py_object_no_sync),
            ("managed_tensor_to_py_object_no_sync", |table| &mut table.managed_tensor_to_py_object_no_sync),
            ("current_work_stream", |table| &mut table.current_work_stream),
        ];
        assert!(select(&mut table(1)).is_ok(), "dltensor_from_py_object_no_sync may be NULL");
        for (slot, of) in slots {
            let mut table = table(1);
            *of(&mut table) = null_mut();
            assert_eq!(select(&mut table).unwrap_err(), Error::ExchangeSlotNull { slot });
        }
    }
}
