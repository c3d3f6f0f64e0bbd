//! Nothing crosses the boundary but a number and a sentence.

use super::*;
use crate::abi::*;
use crate::ffi::{access, buffer, copy, export, files, guard, import, legacy, library, sealed, share};
use crate::tensor::testing::{Foreign, U8, describe};
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};

thread_local! {
    static PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Makes the next function of the C API on this thread panic inside.
fn panic_next() {
    PANIC.with(|flag| flag.set(true));
}

pub fn panic_if_asked() {
    if PANIC.with(|flag| flag.replace(false)) {
        panic!("asked to");
    }
}

fn message() -> String {
    // SAFETY: always a C string of this thread's.
    unsafe { CStr::from_ptr(last_error()) }.to_str().expect("UTF-8").to_owned()
}

type Call<'a> = (&'static str, Box<dyn Fn() -> dlro_status + 'a>);

unsafe extern "C" fn count(owner: *mut c_void) {
    // SAFETY: every owner of these tests is a counter that outlives the call.
    unsafe { *owner.cast::<u32>() += 1 }
}

/// Every function that returns a status, called so that nothing but the panic can keep it from consuming what
/// it is given to consume.
#[allow(unused_unsafe)] // few are safe
fn calls<'a>(foreign: &'a mut Foreign, owner: *mut u32, outs: &'a Outs) -> Vec<Call<'a>> {
    let tensor = &raw mut foreign.tensor;
    let legacy_tensor = &raw mut foreign.legacy;
    let layout = &raw mut foreign.tensor.dl_tensor;
    let dtype = foreign.tensor.dl_tensor.dtype;
    let owner = owner.cast::<c_void>();
    // Cells, since all calls write to the same outputs.
    let (managed, buffers) = (outs.managed.as_ptr(), outs.buffer.as_ptr());
    let (number, count_out, flag) = (outs.number.as_ptr(), outs.signed.as_ptr(), outs.flag.as_ptr());
    macro_rules! call {
        ($chapter:ident::$function:ident($($argument:expr),*)) => {
            // SAFETY: every pointer is NULL or what the function's documentation asks for.
            (stringify!($function), Box::new(move || unsafe { $chapter::$function($($argument),*) }) as Box<_>)
        };
    }
    vec![
        call!(export::dlro_tensor_export(layout, 0, 0, owner, Some(count), managed)),
        call!(export::dlro_tensor_new(layout, managed)),
        call!(import::dlro_tensor_import(tensor, null(), managed)),
        call!(access::dlro_tensor_validate(tensor)),
        call!(access::dlro_tensor_data(tensor, outs.data.as_ptr())),
        call!(access::dlro_tensor_data_mut(tensor, outs.data.as_ptr().cast())),
        call!(access::dlro_tensor_element_count(tensor, number)),
        call!(access::dlro_tensor_nbytes(tensor, number)),
        call!(access::dlro_tensor_span(tensor, count_out, number)),
        call!(access::dlro_tensor_is_row_major(tensor, flag)),
        call!(access::dlro_tensor_is_column_major(tensor, flag)),
        call!(access::dlro_tensor_is_overlapping(tensor, flag)),
        call!(access::dlro_tensor_describe(tensor, null_mut(), 0, number.cast())),
        call!(access::dlro_dtype_bits(dtype, number.cast())),
        call!(access::dlro_dtype_describe(dtype, null_mut(), 0, number.cast())),
        call!(share::dlro_tensor_share(tensor, 1, null(), managed)),
        call!(share::dlro_tensor_freeze(tensor)),
        call!(legacy::dlro_legacy_import(legacy_tensor, 0, null(), managed)),
        call!(legacy::dlro_legacy_export(tensor, 1, outs.legacy.as_ptr())),
        call!(legacy::dlro_tensor_export_for(tensor, null(), null(), outs.exported.as_ptr())),
        call!(legacy::dlro_exchange_api_select(null(), outs.table.as_ptr())),
        call!(copy::dlro_tensor_copy(tensor, managed)),
        call!(copy::dlro_tensor_copy_into(tensor, tensor)),
        call!(buffer::dlro_buffer_new(64, buffers)),
        call!(buffer::dlro_buffer_wrap(tensor.cast(), 80, 0, 0, owner, Some(count), buffers)),
        call!(buffer::dlro_buffer_map(c"/".as_ptr(), 0, 0, 0, buffers)),
        call!(buffer::dlro_buffer_import(tensor, buffers)),
        call!(buffer::dlro_buffer_export(null(), layout, 0, managed)),
        call!(buffer::dlro_buffer_freeze(null_mut(), 0)),
        call!(buffer::dlro_buffer_tensor_counts(null(), number, number)),
        call!(files::dlro_npy_map(c"/".as_ptr(), 0, managed)),
        call!(files::dlro_safetensors_map(c"/".as_ptr(), 0, outs.data.as_ptr().cast())),
        call!(files::dlro_archive_name(null(), 0, outs.data.as_ptr().cast())),
        call!(files::dlro_archive_find(null(), c"w".as_ptr(), number.cast())),
        call!(files::dlro_archive_tensor(null(), 0, managed)),
        call!(files::dlro_archive_metadata(null(), 0, outs.data.as_ptr().cast(), null_mut())),
        call!(files::dlro_npy_save(c"/".as_ptr(), tensor)),
        call!(files::dlro_safetensors_save(c"/".as_ptr(), 0, null(), null(), 0, null(), null())),
        call!(sealed::dlro_tensor_seal(tensor, outs.fd.as_ptr())),
        call!(sealed::dlro_sealed_import(-1, managed)),
        call!(guard::dlro_guard_install()),
        call!(guard::dlro_guard_watch(tensor, c"label".as_ptr(), outs.watch.as_ptr())),
    ]
}

/// Somewhere to write answers to.
struct Outs {
    managed: Cell<*mut DLManagedTensorVersioned>,
    legacy: Cell<*mut DLManagedTensor>,
    exported: Cell<legacy::dlro_exported>,
    buffer: Cell<*mut buffer::dlro_buffer>,
    table: Cell<*const DLPackExchangeAPI>,
    data: Cell<*const c_void>,
    number: Cell<u64>,
    signed: Cell<i64>,
    flag: Cell<bool>,
    fd: Cell<c_int>,
    watch: Cell<*mut guard::dlro_watch>,
}

fn outs() -> Outs {
    let nothing = legacy::dlro_exported {
        versioned: null_mut(),
        legacy: null_mut(),
        capsule_name: null(),
        used_capsule_name: null(),
    };
    Outs {
        managed: Cell::new(null_mut()),
        legacy: Cell::new(null_mut()),
        exported: Cell::new(nothing),
        buffer: Cell::new(null_mut()),
        table: Cell::new(null()),
        data: Cell::new(null()),
        number: Cell::new(0),
        signed: Cell::new(0),
        flag: Cell::new(false),
        fd: Cell::new(0),
        watch: Cell::new(null_mut()),
    }
}

#[test]
#[cfg_attr(miri, ignore = "three dozen panics take minutes")]
fn a_panic_in_any_function_is_a_status_and_consumes_nothing() {
    let (mut bytes, shape, strides) = ([0u8; 4], [4], [1]);
    let mut foreign = Foreign::new(describe(bytes.as_mut_ptr(), U8, &shape, Some(&strides)), 0);
    let mut releases = 0;
    let outs = outs();
    for (name, call) in calls(&mut foreign, &raw mut releases, &outs) {
        panic_next();
        assert_eq!(call(), Status::DLRO_ERR_INTERNAL as dlro_status, "{name}");
        let said = message();
        assert!(said.ends_with("a defect in dlpack_ro: it panicked; please report it"), "{name}: {said}");
        assert!(outs.managed.get().is_null() && outs.legacy.get().is_null() && outs.buffer.get().is_null(), "{name}");
    }
    assert_eq!((foreign.releases(), releases), (0, 0));
    // And afterwards everything works as if nothing had been.
    // SAFETY: whole, and its memory is there.
    let status = unsafe { access::dlro_tensor_validate(&raw const foreign.tensor) };
    assert_eq!(status, Status::DLRO_OK as dlro_status);
}

#[test]
fn a_panic_in_the_allocator_is_a_runtime_error_for_python() {
    unsafe extern "C" fn set_error(context: *mut c_void, kind: *const c_char, message: *const c_char) {
        // SAFETY: the context is the test's, both texts are C strings.
        unsafe {
            let (kind, message) = (CStr::from_ptr(kind), CStr::from_ptr(message));
            (*context.cast::<Vec<String>>()).extend([kind, message].map(|text| text.to_str().unwrap().to_owned()));
        }
    }
    let (mut bytes, shape) = ([0u8; 4], [4]);
    let mut layout = describe(bytes.as_mut_ptr(), U8, &shape, None);
    let mut said: Vec<String> = Vec::new();
    let mut out = null_mut();
    panic_next();
    // SAFETY: the layout is whole, the context what `set_error` takes.
    let rc = unsafe {
        export::dlro_managed_tensor_allocator(&mut layout, &mut out, (&raw mut said).cast(), Some(set_error))
    };
    assert_eq!((rc, out.is_null(), said.len()), (-1, true, 2));
    assert_eq!(said[0], "RuntimeError");
}

/// The functions in src/ffi/*.rs that return a status: none is forgotten above.
#[test]
#[cfg_attr(miri, ignore = "reads the sources")]
fn every_function_that_returns_a_status_is_in_the_table() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ffi");
    let mut exported = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for function in source.split("#[unsafe(no_mangle)]").skip(1) {
            let (head, _) = function.split_once('{').expect("a function has a body");
            let (_, name) = head.split_once("fn ").expect("a function has a name");
            let (name, signature) = name.split_once('(').expect("a function has arguments");
            if signature.trim_end().ends_with("-> dlro_status") {
                exported.push(name.to_owned());
            }
        }
    }
    let mut foreign = Foreign::new(describe(null_mut(), U8, &[], None), 0);
    let outs = outs();
    let mut called: Vec<_> = calls(&mut foreign, null_mut(), &outs).iter().map(|call| call.0.to_owned()).collect();
    exported.sort();
    called.sort();
    assert!(exported.len() > 20, "the sources are not read as they are written: {exported:?}");
    assert_eq!(exported, called);
}

#[test]
fn a_long_sentence_is_cut_at_a_character() {
    let mut sentence = Sentence { text: [b'?'; CAPACITY], len: 0 };
    for _ in 0..CAPACITY {
        let _ = sentence.write_str("\u{20ac}"); // three bytes, and 1023 is a multiple of 3
    }
    assert_eq!((sentence.len, sentence.text[CAPACITY - 1]), (CAPACITY - 1, 0));
    for front in ["a", "ab", "abc"] {
        let mut sentence = Sentence { text: [b'?'; CAPACITY], len: 0 };
        let text = front.to_owned() + &"\u{20ac}".repeat(CAPACITY);
        assert!(sentence.write_str(&text).is_err(), "says that it was cut");
        let kept = core::str::from_utf8(&sentence.text[..sentence.len]).expect("no half characters");
        assert!(text.starts_with(kept) && kept.len() > CAPACITY - 4);
        assert_eq!(sentence.text[sentence.len], 0);
    }
}

#[test]
fn a_long_path_is_cut_in_front_at_a_character_and_leaves_room_for_the_sentence() {
    for front in ["", "a", "ab", "abc"] {
        let path = front.to_owned() + &"\u{20ac}".repeat(2000) + ".npy\0";
        let path = CStr::from_bytes_with_nul(path.as_bytes()).unwrap();
        // SAFETY: a C string.
        let status = unsafe { status_at(path.as_ptr(), || Err(Error::NotRegularFile)) };
        assert_eq!(status, Status::DLRO_ERR_FORMAT as dlro_status);
        let said = message(); // is UTF-8
        assert!(said.starts_with("...\u{20ac}"), "{said}");
        assert!(said.ends_with(&format!(".npy: {}", Error::NotRegularFile)), "{said}");
    }
    // A path that is no UTF-8 is quoted as it is.
    let path = c"/\xff\xfe";
    // SAFETY: C strings.
    unsafe {
        let _ = status_at(path.as_ptr(), || Err(Error::NotRegularFile));
        assert!(CStr::from_ptr(last_error()).to_bytes().starts_with(b"/\xff\xfe: "));
        // However long and strange it is, some of it is kept.
        let wild = [&[0x80u8; 3000][..], &[0]].concat();
        let _ = status_at(wild.as_ptr().cast(), || Err(Error::NotRegularFile));
        assert!(CStr::from_ptr(last_error()).to_bytes().len() > 500);
    }
}

#[test]
fn the_sentence_stays_until_the_next_failure_and_success_leaves_it_alone() {
    let _ = status(|| Err(Error::Ndim { found: -1, most: 1024 }));
    assert_eq!(message(), "ndim is -1; it must be from 0 to 1024");
    assert_eq!(status(|| Ok(())), Status::DLRO_OK as dlro_status);
    assert_eq!(message(), "ndim is -1; it must be from 0 to 1024");
    let other = std::thread::spawn(message).join().unwrap();
    assert_eq!(other, "", "another thread has its own");
    let _ = status(|| Err(Error::Null { what: "x" }));
    assert_eq!(message(), "x is NULL", "nothing is left of a longer one");
}

#[test]
fn printing_works_as_snprintf_does() {
    for capacity in 0..8 {
        let mut buffer = [b'?'; 8];
        // SAFETY: the buffer has eight bytes.
        let length = unsafe { print(buffer.as_mut_ptr().cast(), capacity, format_args!("ab{}", "cde")) };
        assert_eq!(length, 5);
        let kept = capacity.saturating_sub(1).min(5);
        assert_eq!(&buffer[..kept], &b"abcde"[..kept]);
        assert!(capacity == 0 || buffer[kept] == 0);
        assert!(buffer[capacity.min(6)..].iter().all(|&byte| byte == b'?'), "nothing behind is touched");
    }
    // SAFETY: capacity 0 needs no buffer.
    assert_eq!(unsafe { print(null_mut(), 0, "abc") }, 3);
    let _ = library::dlro_version();
}

#[test]
fn options_of_older_and_newer_headers_are_read_and_unknown_wishes_refused() {
    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Grown {
        size: usize,
        first: u32,
        second: u32,
        third: u64,
    }
    // SAFETY: integers only, the size first.
    unsafe impl Options for Grown {
        const NAME: &'static str = "grown";
        const LEAST: usize = 16;
    }
    #[repr(C)]
    struct Newer {
        known: Grown,
        more: [u8; 16],
    }
    let mut newer = Newer { known: Grown { size: 0, first: 1, second: 2, third: 3 }, more: [0; 16] };
    let mut read = |size: usize, more: usize| {
        newer.known.size = size;
        newer.more = [0; 16];
        if let Some(byte) = newer.more.get_mut(more) {
            *byte = 7;
        }
        // SAFETY: as long as `size` says, or refused before it is read.
        unsafe { options((&raw const newer).cast::<Grown>()) }
    };
    assert_eq!(read(24, 99), Ok(Grown { size: 24, first: 1, second: 2, third: 3 }));
    assert_eq!(read(16, 99), Ok(Grown { size: 16, first: 1, second: 2, third: 0 }), "an older caller");
    assert_eq!(read(40, 99).map(|read| read.third), Ok(3), "a newer caller who wants nothing new");
    assert_eq!(read(40, 15), Err(Error::UnknownTail { what: "grown", offset: 39 }));
    assert_eq!(read(32, 15).map(|read| read.third), Ok(3), "what lies behind the size is not read");
    for size in [0, 1, 15, 4097, usize::MAX] {
        assert_eq!(read(size, 99), Err(Error::StructSize { what: "grown", found: size, least: 16 }));
    }
    // SAFETY: NULL is the defaults.
    assert_eq!(unsafe { options::<Grown>(null()) }, Ok(Grown { size: 0, first: 0, second: 0, third: 0 }));
}
