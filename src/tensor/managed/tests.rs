use super::super::dtype::Dtype;
use super::super::import::Options;
use super::super::requirements::{Access, Request};
use super::super::testing::{F32, Foreign, U8, adopt, checked, describe, flags, import, raw};
use super::super::window;
use super::*;
use crate::error::Status;
use Mutability::{Immutable, ReadOnly, Writable};
use core::ptr::null_mut;

fn share(tensor: &Owned, window: Option<&DLTensor>, mutability: Mutability) -> Result<Owned> {
    // SAFETY: alive, and the window's arrays are the test's.
    unsafe {
        ours(tensor.as_ptr()).ok_or(Error::NotOurs { what: "the tensor" })?.share(&checked(tensor), window, mutability)
    }
}

fn mutability_of(tensor: &Owned) -> Mutability {
    // SAFETY: alive.
    unsafe { mutability(tensor.as_ptr()) }
}

#[test]
fn the_lowest_minor_that_defines_what_the_tensor_uses_is_stamped() {
    for (code, bits) in [(0, 8), (1, 64), (2, 16), (4, 16), (5, 64), (6, 8), (7, 8), (14, 8), (15, 6), (17, 4)] {
        let dtype = Dtype::new(DLDataType { code, bits, lanes: 1 }).unwrap();
        for device_type in 1..=18 {
            for bits in 0..8 {
                let (flags, device) = (Flags::from_bits_retain(bits), DLDevice { device_type, device_id: 0 });
                let expected = match () {
                    () if device_type == kDLTrn => 2,
                    () if code >= 7 || flags.contains(Flags::IS_SUBBYTE_TYPE_PADDED) => 1,
                    () => 0,
                };
                assert_eq!(lowest_minor(dtype, device, flags), expected, "{dtype} {device:?} {flags:?}");
            }
        }
    }
}

#[test]
fn a_tensor_with_flags_that_we_do_not_know_keeps_them_and_the_version_that_may_define_them() {
    let (mut bytes, shape) = ([0u8; 4], [4]);
    for (flags, minor, expected) in [(1 << 40, 3, 3), (1 << 40, 0, 0), (0, 3, 0), (1, 3, 0)] {
        let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), flags);
        foreign.tensor.version.minor = minor;
        let ours = adopt(&mut foreign);
        assert_eq!((raw(&ours).flags, raw(&ours).version.minor), (flags, expected));
        let shared = share(&ours, None, ReadOnly).unwrap();
        assert_eq!((raw(&shared).flags, raw(&shared).version.minor), (flags | 1, expected));
    }
}

#[test]
fn a_window_must_lie_within_the_memory_whichever_way_its_strides_point() {
    let (mut bytes, shape) = ([0u8; 64], [6]);
    // Six elements of four bytes from the middle of the producer's memory: of that we know 24 bytes.
    let strides = [-1];
    let mut layout = describe(bytes[32..].as_mut_ptr(), F32, &shape, Some(&strides));
    layout.byte_offset = 4;
    let mut foreign = Foreign::new(layout, 0);
    let tensor = adopt(&mut foreign);
    // The first element is at byte 36 and the last at 16, so bytes 16 to 40 are the memory.
    let data = bytes.as_mut_ptr();
    for count in 1..=7i64 {
        for stride in -3..=3i64 {
            for first in 0..=60u64 {
                let (shape, strides) = ([count], [stride]);
                let mut window = describe(data, F32, &shape, Some(&strides));
                window.byte_offset = first;
                let places = (0..count).map(|index| first as i64 + index * stride * 4);
                let inside = places.clone().min() >= Some(16) && places.max() <= Some(36);
                let shared = share(&tensor, Some(&window), ReadOnly);
                assert_eq!(shared.is_ok(), inside, "{count} elements by {stride} from {first}");
                if let Err(error) = shared {
                    assert_eq!(error.status(), Status::DLRO_ERR_BOUNDS);
                }
            }
        }
    }
    // NULL data is the tensor's own, which byte_offset counts from.
    let mut window = describe(null_mut(), F32, &shape, Some(&strides));
    window.byte_offset = 4;
    assert_eq!(checked(&share(&tensor, Some(&window), Writable).unwrap()).first(), Some(bytes[36..].as_mut_ptr()));
    window.byte_offset = 8;
    let error = share(&tensor, Some(&window), Writable).unwrap_err();
    assert_eq!(error.to_string(), "the window reaches from byte 4 to byte 28 of a memory of 24 bytes");
}

#[test]
fn a_window_on_a_handle_is_counted_from_the_handle_and_must_name_the_same() {
    let (shape, strides) = ([4], [1]);
    let mut layout = describe(core::ptr::without_provenance_mut(0x77), U8, &shape, Some(&strides));
    layout.device.device_type = kDLMetal;
    layout.byte_offset = 100;
    let mut foreign = Foreign::new(layout, 0);
    let tensor = adopt(&mut foreign);
    for (byte_offset, fits) in [(99, false), (100, true), (101, false), (0, false)] {
        let window = DLTensor { byte_offset, ..layout };
        assert_eq!(share(&tensor, Some(&window), ReadOnly).is_ok(), fits, "from {byte_offset}");
    }
    let other = DLTensor { data: core::ptr::without_provenance_mut(0x78), ..layout };
    assert_eq!(share(&tensor, Some(&other), ReadOnly).unwrap_err(), Error::HandlesDiffer);
}

#[test]
fn our_tensors_are_known_by_their_deleter_and_foreign_ones_are_not() {
    let (mut bytes, shape, strides) = ([0u8; 4], [4], [1]);
    let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, Some(&strides)), 0);
    // SAFETY: alive.
    assert!(unsafe { ours(foreign.as_ptr()) }.is_none());
    let tensor = adopt(&mut foreign);
    // SAFETY: alive.
    assert!(unsafe { ours(tensor.as_ptr()) }.is_some());
    assert_eq!(foreign.releases(), 0);
    drop(tensor);
    assert_eq!(foreign.releases(), 1);
    foreign.tensor.deleter = None;
    // SAFETY: a NULL deleter is legal: there is nothing to call.
    unsafe { super::super::view::Untrusted::new(foreign.as_ptr()).release() };
    assert_eq!(foreign.releases(), 1);
}

/// The struct may be copied by somebody who passes it on: the copy's deleter still ends the tensor, but what
/// stands beside the original is not the copy's.
#[test]
fn a_copied_struct_is_not_ours_and_ends_the_tensor_once() {
    let (mut bytes, shape) = ([0u8; 4], [4]);
    let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), 0);
    let original = adopt(&mut foreign);
    // SAFETY: whole and alive; the original is not used any more.
    let mut copy = unsafe { original.as_ptr().read() };
    core::mem::forget(original);
    let copied = NonNull::from(&mut copy);
    // SAFETY: alive.
    assert!(unsafe { ours(copied) }.is_none());
    let again = import(copied, &Options { adopt: true, ..Options::default() }).unwrap();
    assert_ne!(again.as_ptr(), copied);
    assert_eq!(foreign.releases(), 0);
    drop(again);
    assert_eq!(foreign.releases(), 1);
}

#[test]
fn a_share_is_flagged_read_only_unless_it_is_writable_and_is_never_a_copy() {
    let (mut bytes, shape) = ([0u8; 4], [4]);
    let copied = Flags::IS_COPIED.bits();
    let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), copied);
    let tensor = adopt(&mut foreign);
    assert_eq!(flags(&tensor).bits(), copied);
    let writable = share(&tensor, None, Writable).unwrap();
    assert_eq!((flags(&writable).bits(), flags(&tensor).bits()), (0, 0), "a copy that is shared has two holders");
    let read_only = share(&tensor, None, ReadOnly).unwrap();
    assert_eq!(flags(&read_only), Flags::READ_ONLY);
    assert_eq!(share(&read_only, None, Writable).unwrap_err(), Error::ReadOnly);
    assert_eq!(share(&read_only, None, Immutable).unwrap_err(), Error::WritersAlive { writable: 2 });
    drop((tensor, writable));
    assert_eq!(foreign.releases(), 0, "one tensor over the memory is left");
    let immutable = share(&read_only, None, Immutable).unwrap();
    assert_eq!((mutability_of(&immutable), mutability_of(&read_only)), (Immutable, ReadOnly));
    drop((immutable, read_only));
    assert_eq!(foreign.releases(), 1);
}

#[test]
fn a_failed_share_changes_nothing() {
    let (mut bytes, shape) = ([0u8; 4], [4]);
    let copied = Flags::IS_COPIED.bits();
    let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), copied);
    let tensor = adopt(&mut foreign);
    let (far, twice, zero) = ([5], [2, 2], [0, 1]);
    for (window, status) in [
        (describe(null_mut(), U8, &far, None), Status::DLRO_ERR_BOUNDS),
        (describe(null_mut(), U8, &twice, Some(&zero)), Status::DLRO_ERR_LAYOUT),
        (DLTensor { ndim: -1, ..describe(null_mut(), U8, &[1], None) }, Status::DLRO_ERR_BOUNDS),
    ] {
        assert_eq!(share(&tensor, Some(&window), Writable).unwrap_err().status(), status);
        assert_eq!(flags(&tensor).bits(), copied);
    }
    // SAFETY: alive.
    let memory = unsafe { ours(tensor.as_ptr()) }.unwrap().memory();
    assert_eq!(memory.borrow.counts(), (1, 0));
    drop(tensor);
    assert_eq!(foreign.releases(), 1, "no reference was left behind");
}

#[test]
fn disowning_gives_the_keepers_object_back_untouched() {
    let (mut bytes, shape) = ([0u8; 4], [4]);
    let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), 0);
    let tensor = adopt(&mut foreign);
    // SAFETY: the only tensor over its memory.
    unsafe { disown(tensor) };
    assert_eq!(foreign.releases(), 0);
}

/// A buffer hands out tensors of every kind that its memory allows, so it must not give a tensor's holder more
/// than the tensor did.
#[test]
fn rights_never_grow_through_a_buffer() {
    let (mut bytes, shape, strides) = ([0u8; 4], [4], [1]);
    let layout = describe(bytes.as_mut_ptr(), U8, &shape, Some(&strides));
    let exported = |tensor: Owned, wanted: Mutability| {
        // SAFETY: given up here; alive until left.
        unsafe {
            let memory = window::into_memory(tensor.into_raw()).unwrap();
            let exported = window::export(memory, &layout, wanted).map(|tensor| mutability_of(&tensor));
            Memory::leave(memory, ReadOnly);
            exported
        }
    };
    for held in [ReadOnly, Immutable] {
        let mut foreign = Foreign::new(layout, Flags::IS_COPIED.bits());
        let mut tensor = share(&adopt(&mut foreign), None, ReadOnly).unwrap();
        if held == Immutable {
            tensor = share(&tensor, None, Immutable).unwrap();
        }
        assert_eq!(mutability_of(&tensor), held);
        assert!(exported(tensor, Writable).is_err(), "{held:?} became writable");
        assert_eq!(foreign.releases(), 1);
    }
    let mut foreign = Foreign::new(layout, 0);
    assert_eq!(exported(adopt(&mut foreign), Writable), Ok(Writable), "what could be written still can");

    let mut foreign = Foreign::new(layout, 0);
    let mut flagged = adopt(&mut foreign).into_raw();
    // SAFETY: owned by the test; a framework that it went through set the flag.
    let flagged = unsafe {
        flagged.as_mut().flags |= 1;
        Owned::new(flagged)
    };
    assert!(exported(flagged, Writable).is_err(), "a flag that somebody set counts");
}

/// Windows on a buffer are host tensors.
#[test]
fn memory_that_the_host_cannot_read_becomes_no_buffer() {
    let (mut bytes, shape, strides) = ([0u8; 4], [4], [1]);
    for device_type in [kDLCUDA, kDLMetal, kDLCUDAManaged] {
        let mut layout = describe(bytes.as_mut_ptr(), U8, &shape, Some(&strides));
        layout.device.device_type = device_type;
        for ours in [false, true] {
            let mut foreign = Foreign::new(layout, 0);
            let tensor = if ours { adopt(&mut foreign).into_raw() } else { foreign.as_ptr() };
            // SAFETY: owned by the test, and still so after the failure.
            unsafe {
                let error = window::into_memory(tensor).unwrap_err();
                assert_eq!(error.status(), Status::DLRO_ERR_DEVICE);
                drop(Owned::new(tensor));
            }
            assert_eq!(foreign.releases(), 1);
        }
    }
}

#[test]
fn every_access_keeps_read_only_on_foreign_and_own_tensors() {
    let (mut bytes, shape) = ([7u8; 4], [4]);
    for access in [Access::Read, Access::Immutable] {
        for minor in 0..=3 {
            let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, None), 1);
            foreign.tensor.version.minor = minor;
            let request = Request { access, ..Request::default() };
            let once = import(foreign.as_ptr(), &Options { request, adopt: true, threads: 0 }).unwrap();
            let twice = import(once.into_raw(), &Options { request, adopt: true, threads: 0 }).unwrap();
            assert!(flags(&twice).contains(Flags::READ_ONLY), "{access:?}");
            drop(twice);
            assert_eq!(foreign.releases(), 1);
        }
    }
}
