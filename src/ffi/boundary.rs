//! Where C ends and Rust begins: the only `catch_unwind`, the last error, NULL checks, zeroing of outputs.

use super::library::dlro_status;
use crate::error::{Error, Result, Status, cut};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longest sentence kept, its NUL included. Longer ones are cut at a character.
const CAPACITY: usize = 1024;

struct Sentence {
    text: [u8; CAPACITY],
    len: usize,
}

impl Write for Sentence {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let fits = cut(s, CAPACITY - 1 - self.len);
        self.push(fits.as_bytes());
        if fits.len() < s.len() { Err(core::fmt::Error) } else { Ok(()) }
    }
}

impl Sentence {
    fn push(&mut self, bytes: &[u8]) {
        let take = bytes.len().min(CAPACITY - 1 - self.len);
        self.text[self.len..self.len + take].copy_from_slice(&bytes[..take]);
        self.len += take;
        self.text[self.len] = 0;
    }
}

thread_local! {
    // No Drop and a constant start: nothing is allocated or registered, and it can be used until the thread is gone.
    static LAST: UnsafeCell<Sentence> = const { UnsafeCell::new(Sentence { text: [0; CAPACITY], len: 0 }) };
}

/// The last failure's sentence on this thread, NUL-terminated; empty before the first failure.
pub fn last_error() -> *const c_char {
    // SAFETY: the cell is this thread's own and no reference into it outlives a function of this file.
    LAST.with(|last| unsafe { (*last.get()).text.as_ptr().cast() })
}

fn record(context: [Option<&CStr>; 2], error: &Error) {
    LAST.with(|last| {
        // SAFETY: the cell is this thread's own; printing an error calls nothing that comes back here.
        let last = unsafe { &mut *last.get() };
        last.len = 0;
        for (part, context) in context.into_iter().enumerate() {
            let Some(context) = context else { continue };
            let bytes = context.to_bytes();
            let mut tail = bytes.len().saturating_sub(CAPACITY / (2 + 2 * part));
            // Not in the middle of a UTF-8 character, which has up to three bytes behind its first.
            let skipped = bytes[tail..].iter().take(3).take_while(|&&byte| tail > 0 && byte & 0xc0 == 0x80).count();
            tail += skipped;
            last.push(if tail > 0 { b"..." } else { b"" });
            last.push(&bytes[tail..]);
            last.push(b": ");
        }
        let _ = write!(last, "{error}"); // Err means that it was cut
    });
}

/// Runs the body of a function of the C API: error and panic alike become a status and a sentence.
#[inline]
pub fn status(body: impl FnOnce() -> Result<()>) -> dlro_status {
    run(|| [None; 2], body)
}

/// The same, with a path in front of the sentence.
///
/// # Safety
/// `path` is NULL or a C string.
pub unsafe fn status_at(path: *const c_char, body: impl FnOnce() -> Result<()>) -> dlro_status {
    // SAFETY: promised by the caller.
    let path = if path.is_null() { None } else { Some(unsafe { CStr::from_ptr(path) }) };
    run(|| [path, None], body)
}

/// The same, and behind the path the part of the call that is to blame, which the body names before it fails.
///
/// # Safety
/// `path` is NULL or a C string.
pub unsafe fn status_at_part<'a>(
    path: *const c_char,
    body: impl FnOnce(&Cell<Option<&'a CStr>>) -> Result<()>,
) -> dlro_status {
    // SAFETY: promised by the caller.
    let path = if path.is_null() { None } else { Some(unsafe { CStr::from_ptr(path) }) };
    let part = Cell::new(None);
    run(|| [path, part.get()], || body(&part))
}

#[inline]
fn run<'a>(context: impl FnOnce() -> [Option<&'a CStr>; 2], body: impl FnOnce() -> Result<()>) -> dlro_status {
    match catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        tests::panic_if_asked();
        body()
    })) {
        Ok(Ok(())) => Status::DLRO_OK as dlro_status,
        Ok(Err(error)) => fail(context(), error),
        Err(payload) => {
            // Its destructor is somebody's code too, and could panic.
            core::mem::forget(payload);
            fail(context(), Error::Panicked)
        }
    }
}

#[cold]
fn fail(context: [Option<&CStr>; 2], error: Error) -> dlro_status {
    record(context, &error);
    error.status() as dlro_status
}

/// An argument that must not be NULL.
#[inline]
pub fn non_null<T>(pointer: *const T, what: &'static str) -> Result<NonNull<T>> {
    NonNull::new(pointer.cast_mut()).ok_or(Error::Null { what })
}

/// An output: checked, and zeroed before anything can fail.
///
/// # Safety
/// `pointer` is NULL or points to a writable T for which all bytes 0 is a value.
#[inline]
pub unsafe fn output<'a, T>(pointer: *mut T, what: &'static str) -> Result<&'a mut T> {
    let mut output = non_null(pointer, what)?;
    // SAFETY: promised by the caller.
    unsafe {
        output.as_ptr().write_bytes(0, 1);
        Ok(output.as_mut())
    }
}

/// A struct of options that begins with its own size and holds nothing but integers.
///
/// # Safety
/// All bytes 0 is a value, any bytes are one, and a `usize` struct_size comes first.
pub unsafe trait Options: Copy {
    /// For sentences.
    const NAME: &'static str;
    /// Size of the first published version.
    const LEAST: usize;
}

/// No version of any options struct will be this large; a wild size must not make us read far.
const MAX_OPTIONS: usize = 4096;

/// Reads options of any version of the header: what an older caller does not have is 0, the default, and
/// what a newer caller has must be 0, since we cannot do it.
///
/// # Safety
/// `pointer` is NULL or points to a size, and to that many readable bytes in all.
pub unsafe fn options<T: Options>(pointer: *const T) -> Result<T> {
    // SAFETY: all bytes 0 is a value of T.
    let mut known: T = unsafe { core::mem::zeroed() };
    if pointer.is_null() {
        return Ok(known);
    }
    let bytes = pointer.cast::<u8>();
    // SAFETY: the size comes first.
    let size = unsafe { bytes.cast::<usize>().read_unaligned() };
    if size < T::LEAST || size > MAX_OPTIONS {
        return Err(Error::StructSize { what: T::NAME, found: size, least: T::LEAST });
    }
    for offset in size_of::<T>()..size {
        // SAFETY: below the size that the caller gave.
        if unsafe { bytes.add(offset).read() } != 0 {
            return Err(Error::UnknownTail { what: T::NAME, offset });
        }
    }
    // SAFETY: both are at least that long, and any bytes are a value of T.
    unsafe { core::ptr::copy_nonoverlapping(bytes, (&raw mut known).cast::<u8>(), size.min(size_of::<T>())) };
    Ok(known)
}

/// Writes a sentence into a caller's buffer as snprintf does: at most `capacity` bytes, always NUL-terminated
/// if there is room for one; the answer is the length that the whole has, without the NUL.
///
/// # Safety
/// `target` is writable for `capacity` bytes; it may be NULL if that is 0.
pub unsafe fn print(target: *mut c_char, capacity: usize, text: impl core::fmt::Display) -> usize {
    struct Printer {
        target: *mut u8,
        room: usize,
        len: usize,
    }
    impl Write for Printer {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            let take = s.len().min(self.room.saturating_sub(self.len));
            if take > 0 {
                // SAFETY: len + take <= room < capacity, which the caller has.
                unsafe { core::ptr::copy_nonoverlapping(s.as_ptr(), self.target.add(self.len), take) };
            }
            self.len += s.len();
            Ok(())
        }
    }
    let mut printer = Printer { target: target.cast(), room: capacity.saturating_sub(1), len: 0 };
    let _ = write!(printer, "{text}"); // our Write cannot fail
    if capacity > 0 {
        // SAFETY: at most capacity - 1.
        unsafe { printer.target.add(printer.len.min(printer.room)).write(0) };
    }
    printer.len
}

#[cfg(test)]
mod tests;
