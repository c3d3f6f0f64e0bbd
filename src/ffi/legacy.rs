//! Chapter *legacy and negotiation*: consumers and producers that know no flags, and what a `__dlpack__`
//! method must decide.
#![allow(non_camel_case_types)]

use super::boundary::{self, non_null, output};
use super::export::{dlro_mutability, mutability};
use super::import::{self, dlro_copy, dlro_import_options};
use super::library::dlro_status;
use crate::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion,
};
use crate::error::{Error, Result};
use crate::tensor::legacy::{self, Policy};
use crate::tensor::negotiate::{self, Exported, Options};
use core::ffi::c_char;

/// What is known of a consumer that reads the legacy struct only; one of the `DLRO_LEGACY_...` numbers.
pub type dlro_legacy_policy = u32;

/// The values of `dlro_legacy_policy`.
#[repr(C)]
pub enum dlro_legacy_policy_values {
    /// Nothing is known: it may write, so it gets nothing read-only. The default.
    DLRO_LEGACY_REFUSE_READ_ONLY = 0,
    /// The caller vouches that it never writes, as JAX and TensorFlow do not.
    DLRO_LEGACY_CONSUMER_NEVER_WRITES = 1,
}

fn policy(number: dlro_legacy_policy) -> Result<Policy> {
    match number {
        0 => Ok(Policy::RefuseReadOnly),
        1 => Ok(Policy::ConsumerNeverWrites),
        _ => Err(Error::UnknownValue { what: "policy", found: number.into() }),
    }
}

/// Takes a legacy tensor (`DLManagedTensor`, DLPack before 1.0), checks it, and meets the consumer's
/// requirements as `dlro_tensor_import` does.
///
/// The legacy struct has no flags, so the caller says what it knows of the memory: `vouched` is
/// `DLRO_MUTABILITY_READ_ONLY` unless the producer's documentation promises more. A legacy tensor that
/// `dlro_legacy_export` made comes back with the rights that it went in with, whatever the caller vouches.
/// `*out` is always a tensor of this library.
///
/// Ownership: on success `foreign` is inside `*out` or released, and `*out` belongs to the caller. On failure
/// `foreign` still belongs to the caller, and `*out` is NULL.
///
/// Status: those of `dlro_tensor_import`, but for `DLRO_ERR_VERSION`; `DLRO_ERR_ARGUMENT` also for an unknown
/// `vouched`.
///
/// Threads: any; nobody else may use `foreign` meanwhile. Rule: DLPack 1.3, `DLManagedTensor`; array API
/// 2025.12, `__dlpack__` (a consumer falls back to the legacy struct).
///
/// # Safety
/// The caller owns `foreign`; its memory is there and is what `vouched` says.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_legacy_import(
    foreign: *mut DLManagedTensor,
    vouched: dlro_mutability,
    options: *const dlro_import_options,
    out: *mut *mut DLManagedTensorVersioned,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let foreign = non_null(foreign, "foreign")?;
        let vouched = mutability(vouched)?;
        // SAFETY: promised by the caller.
        *out = unsafe { legacy::import(foreign, vouched, &import::options(options)?) }?.into_raw().as_ptr();
        Ok(())
    })
}

/// Puts a tensor into the legacy struct, for a consumer that knows no other.
///
/// `policy` says what is known of that consumer. By default a read-only tensor is refused, because the struct
/// cannot say that it is.
///
/// Ownership: on success `tensor` is inside `*out`, which belongs to the caller. On failure `tensor` still
/// belongs to the caller, and `*out` is NULL.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown policy), `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS`,
/// `DLRO_ERR_READ_ONLY`, `DLRO_ERR_DTYPE` (also a padded sub-byte type, which the struct cannot say),
/// `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any; nobody else may use `tensor` meanwhile. Rule: array API 2025.12, `__dlpack__` with
/// `max_version=None`.
///
/// # Safety
/// The caller owns `tensor`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_legacy_export(
    tensor: *mut DLManagedTensorVersioned,
    policy: dlro_legacy_policy,
    out: *mut *mut DLManagedTensor,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let tensor = non_null(tensor, "tensor")?;
        let policy = self::policy(policy)?;
        // SAFETY: promised by the caller.
        *out = unsafe { legacy::export(tensor, policy, false) }?.as_ptr();
        Ok(())
    })
}

/// Bits of `dlro_export_options::flags`.
#[repr(C)]
pub enum dlro_export_flags {
    /// Add byte_offset to `data` and send 0, for consumers that ignore byte_offset. Refused where `data` is a
    /// handle.
    DLRO_EXPORT_FOLD_BYTE_OFFSET = 1,
}

/// What a consumer asked `__dlpack__` for. Start from `DLRO_EXPORT_OPTIONS_INIT`; a NULL pointer means the same.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dlro_export_options {
    /// `sizeof(dlro_export_options)`, set by the _INIT macro. Later versions grow at the end.
    pub struct_size: usize,
    /// A `DLRO_COPY_...` number: `copy=`.
    pub copy: dlro_copy,
    /// A `DLRO_LEGACY_...` number.
    pub policy: dlro_legacy_policy,
    /// `DLRO_EXPORT_...` bits.
    pub flags: u32,
    /// The device type of `dl_device=`, a number of DLPack's `DLDeviceType`; 0 if it was not given.
    pub device_type: i32,
    /// The device id that goes with `device_type`. Not read if that is 0.
    pub device_id: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers only, the size first.
unsafe impl boundary::Options for dlro_export_options {
    const NAME: &'static str = "options";
    const LEAST: usize = 32;
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<dlro_export_options>() == 32);

/// What a consumer gets: one of the two pointers, and the names for its PyCapsule. Exactly one pointer is not
/// NULL.
#[repr(C)]
pub struct dlro_exported {
    /// For a consumer of DLPack 1.0 or later.
    pub versioned: *mut DLManagedTensorVersioned,
    /// For a consumer of an earlier DLPack.
    pub legacy: *mut DLManagedTensor,
    /// "dltensor_versioned" or "dltensor". The library's own, so its address may serve as the capsule's name.
    pub capsule_name: *const c_char,
    /// "used_dltensor_versioned" or "used_dltensor": what the consumer renames the capsule to.
    pub used_capsule_name: *const c_char,
}

/// Answers a consumer's `__dlpack__(max_version=..., dl_device=..., copy=...)`: decides which struct it can
/// take, and refuses what that struct cannot say.
///
/// `max_version` is what the consumer gave, or NULL if it gave nothing: then, and for a major version below 1,
/// it gets the legacy struct, otherwise the versioned one, whatever minor version it knows (DLPack: a consumer
/// must check). A read-only tensor goes into the legacy struct only under
/// `DLRO_LEGACY_CONSUMER_NEVER_WRITES`. With `DLRO_COPY_ALWAYS` it is a copy that is handed out, writable and
/// marked IS_COPIED, and `tensor` is released.
///
/// Ownership: on success `tensor` is inside the answer or released, and the answer's pointer belongs to the
/// caller. On failure `tensor` still belongs to the caller, and `*out` is zeroed. To keep the tensor, share
/// it first and hand out the share.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (the options), `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS`,
/// `DLRO_ERR_DTYPE`, `DLRO_ERR_READ_ONLY` (legacy consumer), `DLRO_ERR_DEVICE` (`dl_device` is another device;
/// a copy of memory that the host cannot read; folding a handle), `DLRO_ERR_NO_MEMORY`.
///
/// Threads: any; nobody else may use `tensor` meanwhile. Rule: array API 2025.12, `__dlpack__`; DLPack 1.3,
/// Python specification.
///
/// # Safety
/// The caller owns `tensor`, and its memory is there; `max_version` is NULL or readable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_tensor_export_for(
    tensor: *mut DLManagedTensorVersioned,
    max_version: *const DLPackVersion,
    options: *const dlro_export_options,
    out: *mut dlro_exported,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: pointers may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let tensor = non_null(tensor, "tensor")?;
        // SAFETY: promised by the caller.
        let raw = unsafe { boundary::options(options) }?;
        if raw.flags & !1 != 0 || raw.reserved != 0 {
            let (what, found) = if raw.reserved != 0 { ("reserved", raw.reserved) } else { ("flags", raw.flags) };
            return Err(Error::UnknownValue { what, found: found.into() });
        }
        let options = Options {
            copy: import::copy(raw.copy)?,
            device: import::device(raw.device_type, raw.device_id),
            policy: policy(raw.policy)?,
            fold_byte_offset: raw.flags & 1 != 0,
        };
        // SAFETY: NULL or readable, promised by the caller.
        let max_version = unsafe { max_version.as_ref() }.copied();
        // SAFETY: promised by the caller.
        match unsafe { negotiate::export_for(tensor, max_version, &options) }? {
            Exported::Versioned(tensor) => {
                out.versioned = tensor.into_raw().as_ptr();
                out.capsule_name = c"dltensor_versioned".as_ptr();
                out.used_capsule_name = c"used_dltensor_versioned".as_ptr();
            }
            Exported::Legacy(tensor) => {
                out.legacy = tensor.as_ptr();
                out.capsule_name = c"dltensor".as_ptr();
                out.used_capsule_name = c"used_dltensor".as_ptr();
            }
        }
        Ok(())
    })
}

/// Finds the table of this library's major version in a producer's `__dlpack_c_exchange_api__`, and checks
/// that its functions are there.
///
/// `newest` is the pointer in the capsule "dlpack_exchange_api": a producer of a later DLPack chains tables of
/// earlier versions to it. At most 64 tables are looked at.
///
/// Ownership: tables belong to their producer and live as long as the process; `*out` is one of them.
///
/// Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION` (no table of major version 1), `DLRO_ERR_ARGUMENT` (a function
/// is NULL that must not be; only `dltensor_from_py_object_no_sync` may).
///
/// Threads: any. Rule: DLPack 1.3, `DLPackExchangeAPIHeader::prev_api`, `DLPackExchangeAPI`.
///
/// # Safety
/// `newest` is NULL or a table whose header says what it is.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlro_exchange_api_select(
    newest: *const DLPackExchangeAPIHeader,
    out: *mut *const DLPackExchangeAPI,
) -> dlro_status {
    boundary::status(|| {
        // SAFETY: a pointer may be all zeros.
        let out = unsafe { output(out, "out") }?;
        let newest = non_null(newest, "newest")?;
        // SAFETY: promised by the caller.
        *out = unsafe { negotiate::select_exchange_api(newest) }?.as_ptr();
        Ok(())
    })
}
