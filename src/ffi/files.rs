//! Chapter *files*: arrays in files become tensors without being read.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::library::dlro_status;
use crate::abi::DLManagedTensorVersioned;
use crate::error::{Error, Result};
use crate::memory::mapped::Mode;
use crate::memory::{heap, safetensors};
use crate::tensor::file::{self, Archive};
use crate::tensor::save;
use crate::tensor::view::Untrusted;
use core::ffi::{CStr, c_char};
use core::ptr::NonNull;

/// How a file is mapped; one of the `DLRO_MAP_...` numbers.
pub type dlro_map_mode = u32;

/// The values of `dlro_map_mode`.
#[repr(C)]
pub enum dlro_map_mode_values {
    /// The tensor is read-only, and the memory too: a write through it is SIGSEGV.
    DLRO_MAP_READ_ONLY = 0,
    /// The tensor is writable; what is written goes to pages of its own and never to the file.
    DLRO_MAP_COPY_ON_WRITE = 1,
}

pub(super) fn mode(number: dlro_map_mode) -> Result<Mode> {
    match number {
        0 => Ok(Mode::ReadOnly),
        1 => Ok(Mode::CopyOnWrite),
        _ => Err(Error::UnknownValue { what: "mode", found: number.into() }),
    }
}

/// Maps a NumPy `.npy` file (format 1.0, 2.0 or 3.0) as a tensor, in C or Fortran order as the file says.
///
/// Nothing is read but the header, so the time does not depend on the size. The data is aligned as the file
/// aligns it: NumPy since 1.14 to 64 bytes, other writers to anything.
/// A read-only tensor is `DLRO_MUTABILITY_READ_ONLY`, not IMMUTABLE: whoever can write the file can change
/// it. Nobody may shorten the file while the tensor lives; reading behind its end is SIGBUS.
///
/// Ownership: on success `*out` belongs to the caller; it keeps the file mapped, and open where it may be mapped once more (read-only). On failure `*out`
/// is NULL and the file closed.
///
/// Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
/// `DLRO_ERR_IO` (open, fstat, read or mmap failed), `DLRO_ERR_FORMAT` (no regular file, not `.npy`, corrupt
/// or truncated; the sentence says what was found at which byte), `DLRO_ERR_DTYPE` (objects, structures,
/// strings, dates, the other byte order: what DLPack cannot say), `DLRO_ERR_BOUNDS` (a negative or overflowing
/// shape), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any. Rule: NumPy enhancement proposal 1, "A simple file format for NumPy arrays".
///
/// # Safety
/// `path` is NULL or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_npy_map(
    path: *const c_char,
    mode: dlro_map_mode,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    // SAFETY: promised by the caller.
    unsafe {
        boundary::status_at(path, || {
            let out = output(out, "out")?;
            let path = CStr::from_ptr(non_null(path, "path")?.as_ptr());
            *out = file::map_npy(path, self::mode(mode)?)?.into_raw().as_ptr();
            Ok(())
        })
    }
}

/// An open safetensors file. Made by `dlro_safetensors_map`, ended by `dlro_archive_release`.
pub struct dlro_archive(Archive);

/// Maps a safetensors file. Its tensors are then had by number or by name without reading more of the file.
///
/// Only the header is read, and all of it is checked, so the time does not depend on the size of the elements.
/// Refused are: a wrong header length, text that is not JSON or has other types than it should, a name twice,
/// `data_offsets` that overlap, leave a hole or do not fit shape and dtype, elements that end in the middle of a
/// byte, and a file that is longer or shorter than the tensors. Header keys that the format does not have yet
/// are skipped. The order of the tensors is that of their elements in the file.
///
/// Ownership: on success `*out` belongs to the caller; it keeps the file mapped, and open where it may be mapped once
/// more (read-only), and so does every tensor that is made from it, on its own. On failure `*out` is NULL and the
/// file closed.
///
/// Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
/// `DLRO_ERR_IO` (open, fstat, read or mmap failed), `DLRO_ERR_FORMAT` (no regular file, not safetensors,
/// corrupt or truncated, a NUL in a name or in metadata, over 1024 dimensions; the sentence says what was found at which byte or for
/// which tensor), `DLRO_ERR_DTYPE` (none of the format), `DLRO_ERR_BOUNDS` (a number of elements, a dimension or a
/// size above 2^63 - 1), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any. Rule: safetensors 0.8, "Format"; where text and crate differ (spaces before the first '{'), the
/// crate.
///
/// # Safety
/// `path` is NULL or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_safetensors_map(
    path: *const c_char,
    mode: dlro_map_mode,
    out: *mut *mut dlro_archive,
) -> dlro_status {
    // SAFETY: promised by the caller.
    unsafe {
        boundary::status_at(path, || {
            let out = output(out, "out")?;
            let path = CStr::from_ptr(non_null(path, "path")?.as_ptr());
            *out = heap::place(dlro_archive(Archive::map(path, self::mode(mode)?)?))?.as_ptr();
            Ok(())
        })
    }
}

/// # Safety
/// `archive` is NULL or a live archive.
unsafe fn archive<'a>(archive: *const dlro_archive) -> Result<&'a Archive> {
    // SAFETY: promised by the caller.
    Ok(unsafe { &non_null(archive, "archive")?.as_ref().0 })
}

/// The number of tensors in the file; 0 for NULL. Never fails. Any thread.
///
/// # Safety
/// `archive` is NULL or a live archive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_count(archive: *const dlro_archive) -> usize {
    // SAFETY: promised by the caller.
    unsafe { self::archive(archive) }.map_or(0, |archive| archive.index.count())
}

/// The name of the tensor number `index`, from 0 on in the order of the elements in the file: UTF-8,
/// NUL-terminated.
///
/// Ownership: `*out` is the archive's and lives as long as it does. On failure it is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS` (no such tensor).
///
/// Threads: any, also while others use the archive.
///
/// # Safety
/// `archive` is NULL or a live archive.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_name(
    archive: *const dlro_archive,
    index: usize,
    out: *mut *const c_char,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = unsafe { self::archive(archive) }?.index.name(index)?.as_ptr();
        Ok(())
    })
}

/// The number of the tensor called `name`, by binary search.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (no tensor is called so; `*index` is 0 then).
///
/// Threads: any, also while others use the archive.
///
/// # Safety
/// `archive` is NULL or a live archive, `name` is NULL or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_find(
    archive: *const dlro_archive,
    name: *const c_char,
    index: *mut usize,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a number may be 0; the rest is promised by the caller.
        unsafe {
            let index = output(index, "index")?;
            let name = CStr::from_ptr(non_null(name, "name")?.as_ptr());
            *index = self::archive(archive)?.index.find(name.to_bytes())?;
        }
        Ok(())
    })
}

/// Makes a tensor over the elements of the tensor number `index`: row-major, on the CPU, read-only or
/// copy-on-write as the archive was mapped.
///
/// All tensors of an archive lie in one mapping. A read-only one is `DLRO_MUTABILITY_READ_ONLY`; imported with
/// `DLRO_ACCESS_WRITE` it gets a copy-on-write mapping of its own pages only. Copy-on-write tensors made twice from
/// one index show the same memory. The data is aligned as the file aligns it, often not even to its
/// own size. F4, F6_E2M3 and F6_E3M2 are packed, as in the file. Nobody may shorten the file while the tensor
/// lives; reading behind its end is SIGBUS.
///
/// Ownership: on success `*out` belongs to the caller. It does not need the archive, which may be released
/// first. On failure `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS` (no such tensor), `DLRO_ERR_DTYPE` (on a big-endian machine: the
/// file's byte order), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any, also while others use the archive. Rule: safetensors 0.8, "Format".
///
/// # Safety
/// `archive` is NULL or a live archive.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_tensor(
    archive: *const dlro_archive,
    index: usize,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        // SAFETY: promised by the caller.
        *out = unsafe { self::archive(archive) }?.tensor(index)?.into_raw().as_ptr();
        Ok(())
    })
}

/// The number of pairs in the file's `__metadata__`; 0 for NULL. Never fails. Any thread.
///
/// # Safety
/// `archive` is NULL or a live archive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_metadata_count(archive: *const dlro_archive) -> usize {
    // SAFETY: promised by the caller.
    unsafe { self::archive(archive) }.map_or(0, |archive| archive.index.metadata_count())
}

/// Pair number `index` of the file's `__metadata__`, from 0 on in the header's order: UTF-8, NUL-terminated.
///
/// Ownership: `*key` and `*value` are the archive's and live as long as it does. On failure they are NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS` (no such pair).
///
/// Threads: any, also while others use the archive.
///
/// # Safety
/// `archive` is NULL or a live archive.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_metadata(
    archive: *const dlro_archive,
    index: usize,
    key: *mut *const c_char,
    value: *mut *const c_char,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let (key, value) = unsafe { (output(key, "key"), output(value, "value")) };
        let (key, value) = (key?, value?);
        // SAFETY: promised by the caller.
        let found = unsafe { self::archive(archive) }?.index.metadata(index)?;
        (*key, *value) = (found.0.as_ptr(), found.1.as_ptr());
        Ok(())
    })
}

/// Closes the file. Tensors that were made from it live on. NULL is accepted. Never fails. Any thread.
///
/// # Safety
/// `archive` is NULL or a live archive, which nobody uses afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_archive_release(archive: *mut dlro_archive) {
    if let Some(archive) = NonNull::new(archive) {
        // SAFETY: it came from heap::place, and the caller gives it up.
        drop(unsafe { heap::take(archive) });
    }
}

/// Saves a tensor of any layout as a NumPy `.npy` file, format 1.0, byte for byte as `numpy.save` saves that array.
///
/// Column-major tensors are saved with `fortran_order` as they lie; other strided ones in C order, through a
/// buffer of 1 MiB at most. Dense ones are written straight from memory.
/// The file appears at once and whole: it is written under a temporary name in the same folder, brought to the
/// disk, and renamed. A reader or a mapping of the old file keeps the old content, so a tensor may be saved over
/// the very file that it is mapped from. A symbolic link is replaced itself, and what is no regular file is not
/// replaced. The mode is 0666 less the umask.
///
/// Ownership: the tensor stays the caller's. On failure the old file is as it was and the temporary one is gone,
/// but for one case: where the sentence says "fsync of the folder", the new file is in place and a
/// crash of the machine may undo that.
///
/// Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS` as
/// in `dlro_tensor_validate`, `DLRO_ERR_BOUNDS` also for more than NumPy's 64 dimensions; `DLRO_ERR_DTYPE` (bfloat16,
/// float8 and below, integers below 8 bits, more than one lane: what NumPy has no name for), `DLRO_ERR_DEVICE`
/// (the host cannot read the memory), `DLRO_ERR_IO` (what the system refused: open, write, no space, fsync, rename;
/// or the path exists and is no regular file), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any; nobody may write the elements meanwhile. Rule: `numpy.lib.format.write_array` of NumPy 2.
///
/// # Safety
/// `path` is NULL or a C string; `tensor` is NULL or a live managed tensor whose memory is there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_npy_save(path: *const c_char, tensor: *const DLManagedTensorVersioned) -> dlro_status {
    // SAFETY: promised by the caller.
    unsafe {
        boundary::status_at(path, || {
            let path = CStr::from_ptr(non_null(path, "path")?.as_ptr());
            let tensor = non_null(tensor, "tensor")?;
            save::npy(path, &Untrusted::new(tensor).validate()?)
        })
    }
}

/// Saves `count` tensors of any layout, each under its name, as a safetensors file.
///
/// The file is, byte for byte, what `safetensors.numpy.save_file` writes: the wider dtypes first, and those of one
/// dtype by name, whatever order they are given in. `metadata_count` pairs `metadata_keys[i]`, `metadata_values[i]`
/// become its `__metadata__`, in that order; with none there is no such key. All text is UTF-8.
/// Each array may be NULL where its count is 0. The elements are saved in C order; see `dlro_npy_save` for how
/// strided ones are written and how the file takes the place of an old one.
///
/// Ownership: everything stays the caller's. On failure as in `dlro_npy_save`.
///
/// Status, each with the path in front of its sentence, and the tensor's name where it is one tensor's fault:
/// `DLRO_ERR_NULL` (also an element of an array), `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS` as in
/// `dlro_tensor_validate`, `DLRO_ERR_BOUNDS` also for a header above 100 MB; `DLRO_ERR_ARGUMENT` (a name or key that
/// is there twice or no UTF-8, a tensor called `__metadata__`), `DLRO_ERR_DTYPE` (the format has no name for it;
/// padded sub-byte elements, or packed ones that end within a byte), `DLRO_ERR_DEVICE`, `DLRO_ERR_IO`,
/// `DLRO_ERR_UNSUPPORTED` (a big-endian machine), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any; nobody may write the elements meanwhile. Rule: safetensors 0.8, "Format" and `serialize`.
///
/// # Safety
/// `path` is NULL or a C string; the arrays hold as many pointers as their counts say, to C strings and to live
/// managed tensors whose memory is there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_safetensors_save(
    path: *const c_char,
    count: usize,
    names: *const *const c_char,
    tensors: *const *const DLManagedTensorVersioned,
    metadata_count: usize,
    metadata_keys: *const *const c_char,
    metadata_values: *const *const c_char,
) -> dlro_status {
    // SAFETY: promised by the caller.
    unsafe {
        boundary::status_at_part(path, |part| {
            let path = CStr::from_ptr(non_null(path, "path")?.as_ptr());
            let names = elements(names, count, "names")?;
            let tensors = elements(tensors, count, "tensors")?;
            let keys = elements(metadata_keys, metadata_count, "metadata_keys")?;
            let values = elements(metadata_values, metadata_count, "metadata_values")?;
            let text = |text: NonNull<c_char>| CStr::from_ptr(text.as_ptr());
            let mut named = safetensors::reserved(count)?;
            named.extend(names.into_iter().map(text));
            let mut metadata = safetensors::reserved(metadata_count)?;
            metadata.extend(keys.into_iter().zip(values).map(|(key, value)| (text(key), text(value))));
            save::safetensors(path, &named, &tensors, &metadata).map_err(|misfit| {
                part.set(misfit.tensor.map(|number| named[number]));
                misfit.error
            })
        })
    }
}

/// The pointers in an array, none of them NULL.
///
/// # Safety
/// `array` is NULL or points to `count` pointers.
unsafe fn elements<T>(array: *const *const T, count: usize, what: &'static str) -> Result<Vec<NonNull<T>>> {
    let mut all = safetensors::reserved(count)?;
    if count > 0 {
        let array = non_null(array, what)?;
        for index in 0..count {
            // SAFETY: promised by the caller.
            let element = NonNull::new(unsafe { array.add(index).read() }.cast_mut());
            all.push(element.ok_or(Error::NullElement { what, index })?);
        }
    }
    Ok(all)
}
