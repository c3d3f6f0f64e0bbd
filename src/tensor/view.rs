//! The only door to somebody else's descriptor: an untrusted pointer goes in, a checked view comes out.

#![allow(non_upper_case_globals)] // DLPack's names in patterns

use super::dtype::Dtype;
use super::layout::{self, Measure};
use super::managed;
use crate::abi::*;
use crate::error::{Error, MAX_NDIM, Result};
use crate::memory::Mutability;
use core::ptr::NonNull;

/// A managed tensor of which nothing is known yet.
///
/// Only what DLPack keeps stable across major versions can be asked of it: version, flags, and to be
/// released.
#[derive(Clone, Copy)]
pub struct Untrusted(NonNull<DLManagedTensorVersioned>);

impl Untrusted {
    /// # Safety
    /// `tensor` points to a managed tensor of any version: readable up to and including its flags, and
    /// whole if its major version is ours. It stays so for as long as anything made from this value is used.
    pub const unsafe fn new(tensor: NonNull<DLManagedTensorVersioned>) -> Self {
        Untrusted(tensor)
    }

    /// The version it claims.
    #[inline]
    pub fn version(self) -> DLPackVersion {
        // SAFETY: `new` was promised that these fields can be read. No reference to the whole struct is
        // made: of another major version the rest may not even be mapped.
        unsafe { (&raw const (*self.0.as_ptr()).version).read() }
    }

    /// Its flags, unknown bits included.
    #[inline]
    pub fn flags(self) -> Flags {
        // SAFETY: as in `version`. Our own `share` may clear a bit meanwhile, hence the atomic read.
        let bits = unsafe { core::sync::atomic::AtomicU64::from_ptr(&raw mut (*self.0.as_ptr()).flags) };
        Flags::from_bits_retain(bits.load(core::sync::atomic::Ordering::Relaxed))
    }

    /// Ends the tensor: calls its deleter, if it has one. Without one there is nothing to call and nothing
    /// to free: whose memory the struct is, only its maker knows.
    ///
    /// # Safety
    /// The caller owns the tensor, and nobody uses it or anything made from it afterwards.
    #[inline]
    pub unsafe fn release(self) {
        // SAFETY: the field can be read, whatever the version.
        let deleter = unsafe { (&raw const (*self.0.as_ptr()).deleter).read() };
        if let Some(deleter) = deleter {
            // SAFETY: the caller owns the tensor; DLPack: the deleter may then be called once, on any thread.
            unsafe { deleter(self.0.as_ptr()) }
        }
    }

    /// Whether it is a tensor of our major version with which nothing is wrong and nothing special; see [`plain`].
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        // SAFETY: `new` was promised that a tensor of our major version is whole; DLPack: shape and strides of
        // a managed tensor hold ndim numbers.
        self.version().major == VERSION.major && unsafe { plain(&(*self.0.as_ptr()).dl_tensor) }.is_some()
    }

    /// Checks everything in the tensor that can be checked without knowing who made it.
    #[inline]
    pub fn validate<'a>(self) -> Result<Checked<'a>> {
        let version = self.version();
        if version.major != VERSION.major {
            return Err(Error::Version { found: version });
        }
        // SAFETY: `new` was promised that a tensor of our major version is whole.
        let tensor = unsafe { &(*self.0.as_ptr()).dl_tensor };
        let mut flags = self.flags();
        // SAFETY: alive, as promised to `new`.
        let ours = unsafe { managed::ours(self.0) };
        // Of our own tensors we know it, whatever hands the flag went through.
        flags.set(
            Flags::READ_ONLY,
            flags.contains(Flags::READ_ONLY) || ours.is_some_and(|ours| ours.mutability() != Mutability::Writable),
        );
        // SAFETY: DLPack: shape and strides of a managed tensor hold ndim numbers while the tensor lives.
        unsafe { Checked::new(tensor, flags, version.minor) }
    }
}

/// A descriptor that obeys the rules. What it says of memory is plausible, not proven: only the producer
/// knows whether the bytes are there.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    /// ndim dimensions; empty for 0-d, whatever pointer the producer sent.
    pub shape: &'a [i64],
    /// In elements; `None` means row-major (NULL, or 0-d).
    pub strides: Option<&'a [i64]>,
    /// The data type.
    pub dtype: Dtype,
    /// The device, an open set.
    pub device: DLDevice,
    /// The flags, unknown bits included. A legacy tensor's are what the caller vouches for.
    pub flags: Flags,
    /// The DLPack 1.x minor version that the tensor claims.
    pub minor: u32,
    /// The pointer or handle as sent.
    pub data: *mut u8,
    /// In bytes, as sent.
    pub byte_offset: u64,
    /// What the shape and the strides come to.
    pub measure: Measure,
}

impl<'a> Checked<'a> {
    /// Checks a bare descriptor together with what accompanies it.
    ///
    /// # Safety
    /// If ndim is from 1 to `MAX_NDIM`, `shape` and `strides`, where not NULL, point to ndim readable
    /// numbers that do not change during `'a`.
    #[inline]
    pub unsafe fn new(tensor: &DLTensor, flags: Flags, minor: u32) -> Result<Self> {
        if tensor.ndim < 0 || tensor.ndim as usize > MAX_NDIM {
            return Err(Error::Ndim { found: tensor.ndim, most: MAX_NDIM });
        }
        let ndim = tensor.ndim as usize;
        let dtype = Dtype::new(tensor.dtype)?;
        let (shape, strides): (&[i64], Option<&[i64]>) = if ndim == 0 {
            (&[], None) // both pointers may be garbage
        } else if tensor.shape.is_null() {
            return Err(Error::NullShape { ndim: tensor.ndim });
        } else {
            // SAFETY: not NULL, and this function was promised ndim readable numbers behind both.
            unsafe {
                let slice = |numbers: *mut i64| core::slice::from_raw_parts(numbers.cast_const(), ndim);
                (slice(tensor.shape), (!tensor.strides.is_null()).then(|| slice(tensor.strides)))
            }
        };
        let measure = layout::measure(shape, strides, dtype, flags.contains(Flags::IS_SUBBYTE_TYPE_PADDED))?;
        let checked = Checked {
            shape,
            strides,
            dtype,
            device: tensor.device,
            flags,
            minor,
            data: tensor.data.cast(),
            byte_offset: tensor.byte_offset,
            measure,
        };
        if measure.count > 0 {
            checked.check_address()?;
        }
        Ok(checked)
    }

    #[inline]
    fn check_address(&self) -> Result<()> {
        if self.data.is_null() {
            return Err(Error::NullData { nbytes: self.measure.nbytes });
        }
        let wraps = Error::AddressWraps { data: self.data as usize, byte_offset: self.byte_offset };
        // The address of a handle is no place; only the offset can go wrong.
        let base = if self.is_handle() { 0 } else { self.data as usize as u64 };
        let first = base.checked_add(self.byte_offset).ok_or(wraps)?;
        first.checked_add_signed(self.measure.low).ok_or(wraps)?;
        let end = first.checked_add_signed(self.measure.high).ok_or(wraps)?;
        if usize::try_from(end).is_ok() { Ok(()) } else { Err(wraps) }
    }

    /// Whether `data` is a handle on this device and no address, so that no arithmetic may be done on it.
    #[inline]
    pub const fn is_handle(&self) -> bool {
        matches!(self.device.device_type, kDLOpenCL | kDLVulkan | kDLMetal | kDLWebGPU)
    }

    /// Whether the host can read the bytes by following `data`.
    #[inline]
    pub const fn is_host(&self) -> bool {
        is_host_device(self.device.device_type)
    }

    /// Refuses devices whose memory the host cannot read.
    pub fn require_host(&self) -> Result<()> {
        if self.is_host() { Ok(()) } else { Err(Error::HostCannotRead { device: self.device }) }
    }

    /// Address of the first element; `None` if empty or if `data` is a handle.
    #[inline]
    pub fn first(&self) -> Option<*mut u8> {
        (self.measure.count > 0 && !self.is_handle()).then(|| self.data.wrapping_add(self.byte_offset as usize))
    }

    /// Address of the lowest byte; `None` if empty or if `data` is a handle.
    #[inline]
    pub fn lowest(&self) -> Option<*mut u8> {
        self.first().map(|first| first.wrapping_offset(self.measure.low as isize))
    }

    /// Whether a sub-byte type is padded to whole bytes.
    #[inline]
    pub const fn is_padded(&self) -> bool {
        self.flags.contains(Flags::IS_SUBBYTE_TYPE_PADDED)
    }

    /// Whether elements share memory with each other.
    #[inline]
    pub fn overlaps(&self) -> bool {
        !self.measure.row_major && layout::overlaps(self.shape, self.strides)
    }

    /// Whether the strides are missing that every tensor we pass on must carry.
    #[inline]
    pub fn lacks_strides(&self) -> bool {
        !self.shape.is_empty() && self.strides.is_none()
    }

    /// What DLPack demands of a producer and a forgiving consumer does not: strides since 1.2, and no id on
    /// host devices.
    pub fn validate_strictly(&self) -> Result<()> {
        if self.lacks_strides() && self.minor >= 2 {
            return Err(Error::NullStrides { minor: self.minor });
        }
        check_device_id(self.device)
    }
}

/// Size in bytes of a plain tensor: on the CPU, with strides, with elements of whole bytes in C order without
/// gaps, and nothing wrong with it. `None` means: look closer, it may be wrong or only less plain.
///
/// Nearly every tensor is one, and for those this is all that has to be checked. It says yes to nothing that
/// [`Checked::new`] refuses; a test holds the two together.
///
/// # Safety
/// As for [`Checked::new`].
#[inline(never)] // with registers of its own it is twice as fast
pub unsafe fn plain(tensor: &DLTensor) -> Option<u64> {
    let ndim = tensor.ndim as u32 as usize;
    let cpu = tensor.device == DLDevice { device_type: kDLCPU, device_id: 0 };
    if ndim > MAX_NDIM || tensor.shape.is_null() || tensor.strides.is_null() || !cpu || ndim == 0 {
        return None;
    }
    let dtype = Dtype::known(tensor.dtype).filter(|dtype| dtype.is_whole_bytes())?;
    // SAFETY: not NULL, and the caller promised ndim readable numbers behind both.
    let (shape, strides) = unsafe {
        let slice = |numbers: *mut i64| core::slice::from_raw_parts(numbers.cast_const(), ndim);
        (slice(tensor.shape), slice(tensor.strides))
    };
    let nbytes = layout::dense_count(shape, strides)?.checked_mul(dtype.element_bits() as i64 / 8)? as u64;
    let first = (tensor.data.addr() as u64).checked_add(tensor.byte_offset)?;
    (!tensor.data.is_null() && usize::try_from(first.checked_add(nbytes)?).is_ok()).then_some(nbytes)
}

/// Whether the host can read this device's memory. CUDA managed memory (13) is left out: it can be read
/// only while no kernel uses it, and that only CUDA knows.
#[inline]
pub const fn is_host_device(device_type: DLDeviceType) -> bool {
    matches!(device_type, kDLCPU | kDLCUDAHost | kDLROCMHost)
}

/// DLPack: "for vanilla CPU memory, pinned memory, or managed memory, this is set to 0".
#[inline]
pub fn check_device_id(device: DLDevice) -> Result<()> {
    let without_id = is_host_device(device.device_type) || device.device_type == kDLCUDAManaged;
    if without_id && device.device_id != 0 { Err(Error::DeviceId { device }) } else { Ok(()) }
}

/// The lowest DLPack 1.x minor version that defines what a tensor uses.
#[inline]
pub fn lowest_minor(dtype: Dtype, device: DLDevice, flags: Flags) -> u32 {
    let device = if device.device_type == kDLTrn { 2 } else { 0 };
    let flags = if flags.contains(Flags::IS_SUBBYTE_TYPE_PADDED) { 1 } else { 0 };
    dtype.minor().max(device).max(flags)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, U8, describe};
    use super::*;
    use crate::error::Status;
    use core::ptr::{null_mut, without_provenance_mut};

    /// `plain` is a short way past `Checked::new`: it may say yes only to what that accepts, with the same size.
    #[test]
    fn what_is_plain_is_accepted_with_the_same_size_and_nothing_special_about_it() {
        let mut random = Random(0xfeed_beef_cafe_0001);
        let numbers = [-1, 0, 1, 1, 2, 2, 3, 4, 6, 1 << 31, 1 << 32, i64::MAX, i64::MIN, i64::MAX / 2];
        let (mut plains, mut refused) = (0, 0);
        for _ in 0..if cfg!(miri) { 500 } else { 300_000 } {
            let ndim = random.below(4) as usize;
            let shape: Vec<i64> = (0..ndim).map(|_| numbers[random.below(14) as usize]).collect();
            let mut strides: Vec<i64> = (0..ndim).map(|_| numbers[random.below(14) as usize]).collect();
            if random.below(2) == 0 {
                let mut step = 1i64;
                for axis in (0..ndim).rev() {
                    strides[axis] = step;
                    step = step.wrapping_mul(shape[axis]);
                }
            }
            let addresses = [0, 1, 0x1000, usize::MAX, usize::MAX - 64];
            let data = without_provenance_mut(addresses[random.below(5) as usize]);
            let mut tensor = describe(data, U8, &shape, Some(&strides));
            tensor.dtype = DLDataType {
                code: random.below(19) as u8,
                bits: [8, 8, 16, 32, 64, 128, 4, 6, 0][random.below(9) as usize],
                lanes: [1, 1, 1, 2, 3, 0, 65535][random.below(7) as usize],
            };
            tensor.byte_offset = [0, 0, 8, u64::MAX, 1 << 63][random.below(5) as usize];
            tensor.device.device_type = [1, 1, 1, 1, 2, 8, 3][random.below(7) as usize];
            tensor.device.device_id = [0, 0, 0, 1][random.below(4) as usize];
            match random.below(12) {
                0 => tensor.strides = null_mut(),
                1 => tensor.shape = null_mut(),
                2 => tensor.ndim = [-1, i32::MIN, i32::MAX, 1025][random.below(4) as usize],
                _ => {}
            }
            // SAFETY: ndim numbers are behind both pointers, where ndim is in range.
            let (nbytes, checked) = unsafe { (plain(&tensor), Checked::new(&tensor, Flags::empty(), 0)) };
            refused += u32::from(checked.is_err());
            let Some(nbytes) = nbytes else { continue };
            plains += 1;
            let checked = checked.unwrap_or_else(|error| panic!("{error}: {tensor:?} {shape:?} {strides:?}"));
            let measure = checked.measure;
            assert!(measure.row_major && measure.count > 0 && measure.nbytes == nbytes, "{tensor:?} {shape:?}");
            assert_eq!((measure.low, measure.high as u64), (0, nbytes));
            assert!(checked.validate_strictly().is_ok() && checked.is_host() && !checked.overlaps());
        }
        assert!(cfg!(miri) || plains > 1_000 && refused > 1_000, "{plains} plain and {refused} refused test little");
    }

    #[test]
    fn each_broken_rule_has_its_own_sentence() {
        let (mut bytes, shape, strides) = ([0u8; 8], [2, 4], [4, 1]);
        let good = describe(bytes.as_mut_ptr(), U8, &shape, Some(&strides));
        let top = without_provenance_mut(usize::MAX - 3);
        let (mut negative, mut huge) = ([2, -4], [i64::MAX, 3]);
        for (tensor, status, sentence) in [
            (DLTensor { ndim: -1, ..good }, Status::DLRO_ERR_BOUNDS, "ndim is -1; it must be from 0 to 1024"),
            (DLTensor { ndim: 1025, ..good }, Status::DLRO_ERR_BOUNDS, "ndim is 1025; it must be from 0 to 1024"),
            (
                DLTensor { shape: null_mut(), ..good },
                Status::DLRO_ERR_NULL,
                "shape is NULL with ndim 2; only ndim 0 needs no shape",
            ),
            (
                DLTensor { shape: negative.as_mut_ptr(), ..good },
                Status::DLRO_ERR_BOUNDS,
                "shape[1] is -4; dimensions must be >= 0",
            ),
            (
                DLTensor { shape: huge.as_mut_ptr(), ..good },
                Status::DLRO_ERR_BOUNDS,
                "the tensor's element count or extent does not fit in 63 bits",
            ),
            (
                DLTensor { data: null_mut(), ..good },
                Status::DLRO_ERR_NULL,
                "data is NULL, and the elements take 8 bytes; only an empty tensor has no data",
            ),
            (
                DLTensor { data: top, ..good },
                Status::DLRO_ERR_BOUNDS,
                "data 0xfffffffffffffffc + byte_offset 0 + the tensor's extent leaves the address space",
            ),
            (
                DLTensor { data: without_provenance_mut(16), byte_offset: u64::MAX, ..good },
                Status::DLRO_ERR_BOUNDS,
                "data 0x10 + byte_offset 18446744073709551615 + the tensor's extent leaves the address space",
            ),
        ] {
            // SAFETY: ndim numbers are behind both pointers, where ndim is in range.
            let error = unsafe { Checked::new(&tensor, Flags::empty(), 0) }.unwrap_err();
            assert_eq!((error.status(), error.to_string()), (status, sentence.to_owned()));
        }
        // Without elements or dimensions the pointers mean nothing.
        let mut empty = [0, 4];
        let nothing = DLTensor { shape: empty.as_mut_ptr(), data: null_mut(), byte_offset: u64::MAX, ..good };
        let wild = without_provenance_mut(1);
        let scalar = DLTensor { ndim: 0, shape: wild, strides: wild, ..good };
        // SAFETY: as above; with ndim 0 neither is read.
        unsafe {
            assert_eq!(Checked::new(&nothing, Flags::empty(), 0).unwrap().first(), None);
            assert_eq!(Checked::new(&scalar, Flags::empty(), 0).unwrap().measure.count, 1);
        }
    }
}
