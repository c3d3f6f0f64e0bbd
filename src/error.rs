//! One error enum: each value is a status number for the program and a sentence with the offending values
//! for the person who reads it.
//!
//! Errors are plain `Copy` values: to make, move or print one never allocates.

use crate::abi::{DLDataType, DLDevice, DLPackVersion, VERSION};
use core::fmt;

/// The values of `dlro_status`. Numbers are explicit and never reused.
///
/// 1 to 99: "this array cannot be exchanged in this way", the family for which the array API prescribes
/// `BufferError` (`dlro_status_is_exchange_error`). 100 to 199: the caller or the descriptor is wrong.
/// 200 to 299: the machine, a file or this library failed.
#[repr(C)]
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    DLRO_OK = 0,
    /// Somebody who must not write asked for the right to write.
    DLRO_ERR_READ_ONLY = 1,
    /// Memory that nobody changes was asked for, but somebody may still change this memory.
    DLRO_ERR_NOT_IMMUTABLE = 2,
    /// Writable and immutable tensors over one memory exclude each other, and one of the other kind is alive.
    DLRO_ERR_BUSY = 3,
    /// Only a copy meets the requirements, and the copy policy is `DLRO_COPY_NEVER`.
    DLRO_ERR_COPY_NEEDED = 4,
    /// The tensor's major DLPack version is not the one this library knows.
    DLRO_ERR_VERSION = 5,
    /// DLPack has no such data type, or it does not match, or it has the wrong byte order.
    DLRO_ERR_DTYPE = 6,
    /// The memory lives where the host cannot read it, or the device is not the wanted one.
    DLRO_ERR_DEVICE = 7,
    /// Strides that cannot be exchanged in this way: elements overlap, or they differ where they must not.
    DLRO_ERR_LAYOUT = 8,
    /// A pointer is NULL that must not be.
    DLRO_ERR_NULL = 100,
    /// An argument has a value that does not exist.
    DLRO_ERR_ARGUMENT = 101,
    /// A number of dimensions, a dimension, a size or an address is out of range, or a window leaves its memory.
    DLRO_ERR_BOUNDS = 102,
    /// An allocation failed. Nothing was consumed, nothing leaked.
    DLRO_ERR_NO_MEMORY = 200,
    /// The operating system refused; the sentence has its reason.
    DLRO_ERR_IO = 201,
    /// The file is not what its name or its header claims.
    DLRO_ERR_FORMAT = 202,
    /// This system or this build cannot do that.
    DLRO_ERR_UNSUPPORTED = 203,
    /// A defect in this library. Nothing crossed the boundary but this number; please report it.
    DLRO_ERR_INTERNAL = 204,
}

impl Status {
    /// Every status, for tables and tests.
    pub const ALL: [Status; 17] = {
        use Status::*;
        [
            DLRO_OK,
            DLRO_ERR_READ_ONLY,
            DLRO_ERR_NOT_IMMUTABLE,
            DLRO_ERR_BUSY,
            DLRO_ERR_COPY_NEEDED,
            DLRO_ERR_VERSION,
            DLRO_ERR_DTYPE,
            DLRO_ERR_DEVICE,
            DLRO_ERR_LAYOUT,
            DLRO_ERR_NULL,
            DLRO_ERR_ARGUMENT,
            DLRO_ERR_BOUNDS,
            DLRO_ERR_NO_MEMORY,
            DLRO_ERR_IO,
            DLRO_ERR_FORMAT,
            DLRO_ERR_UNSUPPORTED,
            DLRO_ERR_INTERNAL,
        ]
    };

    /// The constant's name in C.
    pub const fn name(self) -> &'static core::ffi::CStr {
        use Status::*;
        match self {
            DLRO_OK => c"DLRO_OK",
            DLRO_ERR_READ_ONLY => c"DLRO_ERR_READ_ONLY",
            DLRO_ERR_NOT_IMMUTABLE => c"DLRO_ERR_NOT_IMMUTABLE",
            DLRO_ERR_BUSY => c"DLRO_ERR_BUSY",
            DLRO_ERR_COPY_NEEDED => c"DLRO_ERR_COPY_NEEDED",
            DLRO_ERR_VERSION => c"DLRO_ERR_VERSION",
            DLRO_ERR_DTYPE => c"DLRO_ERR_DTYPE",
            DLRO_ERR_DEVICE => c"DLRO_ERR_DEVICE",
            DLRO_ERR_LAYOUT => c"DLRO_ERR_LAYOUT",
            DLRO_ERR_NULL => c"DLRO_ERR_NULL",
            DLRO_ERR_ARGUMENT => c"DLRO_ERR_ARGUMENT",
            DLRO_ERR_BOUNDS => c"DLRO_ERR_BOUNDS",
            DLRO_ERR_NO_MEMORY => c"DLRO_ERR_NO_MEMORY",
            DLRO_ERR_IO => c"DLRO_ERR_IO",
            DLRO_ERR_FORMAT => c"DLRO_ERR_FORMAT",
            DLRO_ERR_UNSUPPORTED => c"DLRO_ERR_UNSUPPORTED",
            DLRO_ERR_INTERNAL => c"DLRO_ERR_INTERNAL",
        }
    }

    /// Whether the array cannot be exchanged in this way (array API: `BufferError`), as opposed to a wrong
    /// call or a machine that failed.
    pub const fn is_exchange_error(self) -> bool {
        matches!(self as i32, 1..=99)
    }
}

/// What fails, with the values that the sentence needs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // each variant's sentence, below, is its documentation
pub enum Error {
    // access
    ReadOnly,
    WriteToReadOnly { flags: u64 },
    NotImmutable { why: &'static str },
    WritersAlive { writable: u64 },
    ImmutablesAlive { immutable: u64 },
    TooManyTensors { most: u64 },
    MustCopy { wanted: Unmet },
    ExportReadOnlyAsLegacy,
    // version, dtype, device, layout
    Version { found: DLPackVersion },
    ExchangeVersion { found: DLPackVersion },
    Dtype { found: DLDataType, why: &'static str },
    DtypesDiffer { source: DLDataType, target: DLDataType },
    PaddingDiffers,
    FileDtype { descr: Excerpt, why: &'static str },
    HostCannotRead { device: DLDevice },
    DeviceNotWanted { device: DLDevice, wanted: DLDevice },
    DeviceId { device: DLDevice },
    Overlap,
    NullStrides { minor: u32 },
    ShapesDiffer { axis: usize, source: i64, target: i64 },
    RanksDiffer { source: usize, target: usize },
    // the caller or the descriptor
    Null { what: &'static str },
    NullShape { ndim: i32 },
    NullData { nbytes: u64 },
    UnknownValue { what: &'static str, found: u64 },
    StructSize { what: &'static str, found: usize, least: usize },
    UnknownTail { what: &'static str, offset: usize },
    AlignmentNotPowerOfTwo { found: u64 },
    NotOurs { what: &'static str },
    NotUtf8 { what: &'static str },
    ExchangeSlotNull { slot: &'static str },
    NullElement { what: &'static str, index: usize },
    Name { name: Excerpt, why: &'static str },
    NoSuchIndex { what: &'static str, index: usize, count: usize },
    Ndim { found: i32, most: usize },
    NegativeDimension { axis: usize, value: i64 },
    Overflow { what: &'static str },
    AddressWraps { data: usize, byte_offset: u64 },
    HandlesDiffer,
    OutOfMemoryRange { low: i128, high: i128, nbytes: u64 },
    // the machine
    NoMemory { nbytes: usize },
    Io { call: &'static str, errno: i32 },
    NotRegularFile,
    Format { offset: u64, expected: &'static str, found: Excerpt },
    FileTooShort { expected: u64, found: u64 },
    FileTooLong { expected: u64, found: u64 },
    TensorPlace { name: Excerpt, begin: u64, expected: u64 },
    TensorExtent { name: Excerpt, found: u64, expected: u64 },
    TensorPartByte { name: Excerpt, bits: u64 },
    HeaderTooLong { most: u64 },
    NotReplaceable,
    Unsupported { what: &'static str },
    Panicked,
}

/// The requirement that only a copy would meet, with both sides' values.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Unmet {
    Writable,
    NoOverlap,
    RowMajor,
    ColumnMajor,
    NonNegativeStride { dim: usize, stride: i64 },
    Alignment { wanted: usize, address: usize },
    Always,
}

/// A few bytes quoted from a file: owned, so that an error never borrows and never allocates.
#[derive(Clone, Copy, PartialEq)]
pub struct Excerpt {
    bytes: [u8; Excerpt::MAX],
    len: u8,
    cut: bool,
}

impl Excerpt {
    /// How many bytes are quoted at most.
    pub const MAX: usize = 38;

    /// Quotes the beginning of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().min(Self::MAX);
        let mut excerpt = Excerpt { bytes: [0; Self::MAX], len: len as u8, cut: bytes.len() > len };
        excerpt.bytes[..len].copy_from_slice(&bytes[..len]);
        excerpt
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.bytes[..self.len as usize].escape_ascii())?;
        if self.cut { f.write_str("...") } else { Ok(()) }
    }
}

impl Error {
    /// The status number of this error.
    pub const fn status(&self) -> Status {
        use Status::*;
        match self {
            Error::ReadOnly | Error::WriteToReadOnly { .. } | Error::ExportReadOnlyAsLegacy => DLRO_ERR_READ_ONLY,
            Error::NotImmutable { .. } => DLRO_ERR_NOT_IMMUTABLE,
            Error::WritersAlive { .. } | Error::ImmutablesAlive { .. } => DLRO_ERR_BUSY,
            Error::MustCopy { wanted: Unmet::Writable } => DLRO_ERR_READ_ONLY,
            Error::MustCopy { .. } => DLRO_ERR_COPY_NEEDED,
            Error::Version { .. } | Error::ExchangeVersion { .. } => DLRO_ERR_VERSION,
            Error::Dtype { .. } | Error::DtypesDiffer { .. } | Error::PaddingDiffers | Error::FileDtype { .. } => {
                DLRO_ERR_DTYPE
            }
            Error::HostCannotRead { .. } | Error::DeviceNotWanted { .. } | Error::DeviceId { .. } => DLRO_ERR_DEVICE,
            Error::Overlap | Error::NullStrides { .. } | Error::ShapesDiffer { .. } | Error::RanksDiffer { .. } => {
                DLRO_ERR_LAYOUT
            }
            Error::Null { .. } | Error::NullElement { .. } | Error::NullShape { .. } | Error::NullData { .. } => {
                DLRO_ERR_NULL
            }
            Error::UnknownValue { .. }
            | Error::StructSize { .. }
            | Error::UnknownTail { .. }
            | Error::AlignmentNotPowerOfTwo { .. }
            | Error::NotOurs { .. }
            | Error::Name { .. }
            | Error::NotUtf8 { .. }
            | Error::ExchangeSlotNull { .. } => DLRO_ERR_ARGUMENT,
            Error::NoSuchIndex { .. }
            | Error::HeaderTooLong { .. }
            | Error::Ndim { .. }
            | Error::NegativeDimension { .. }
            | Error::Overflow { .. }
            | Error::AddressWraps { .. }
            | Error::HandlesDiffer
            | Error::TooManyTensors { .. }
            | Error::OutOfMemoryRange { .. } => DLRO_ERR_BOUNDS,
            Error::NoMemory { .. } => DLRO_ERR_NO_MEMORY,
            Error::Io { .. } | Error::NotReplaceable => DLRO_ERR_IO,
            Error::NotRegularFile
            | Error::Format { .. }
            | Error::FileTooShort { .. }
            | Error::FileTooLong { .. }
            | Error::TensorPlace { .. }
            | Error::TensorExtent { .. }
            | Error::TensorPartByte { .. } => DLRO_ERR_FORMAT,
            Error::Unsupported { .. } => DLRO_ERR_UNSUPPORTED,
            Error::Panicked => DLRO_ERR_INTERNAL,
        }
    }
}

struct Dtype(DLDataType);

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(code {}, bits {}, lanes {})", self.0.code, self.0.bits, self.0.lanes)
    }
}

struct Device(DLDevice);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(type {}, id {})", self.0.device_type, self.0.device_id)
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Unmet::Writable => f.write_str("write access is required, and the tensor is read-only"),
            Unmet::NoOverlap => {
                f.write_str("write access is required, and elements of the tensor share memory with each other")
            }
            Unmet::RowMajor => f.write_str("row-major contiguous layout is required, and the strides differ from it"),
            Unmet::ColumnMajor => {
                f.write_str("column-major contiguous layout is required, and the strides differ from it")
            }
            Unmet::NonNegativeStride { dim, stride } => {
                write!(f, "strides >= 0 are required, and strides[{dim}] is {stride}")
            }
            Unmet::Alignment { wanted, address } => {
                write!(
                    f,
                    "an alignment of {wanted} bytes is required, and the first element is at address {address:#x}"
                )
            }
            Unmet::Always => f.write_str("a copy was required"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::ReadOnly => f.write_str("the tensor is read-only: whoever holds it must not write, so a writable one cannot be made from it"),
            Error::WriteToReadOnly { flags } => write!(
                f,
                "the tensor is read-only (flags {flags:#x}); import it with DLRO_ACCESS_WRITE to get a writable one"
            ),
            Error::NotImmutable { why } => write!(f, "the memory is not immutable: {why}"),
            Error::WritersAlive { writable } => write!(
                f,
                "the memory cannot be immutable while writable tensors over it are alive; {writable} are"
            ),
            Error::ImmutablesAlive { immutable } => write!(
                f,
                "the memory cannot be written while immutable tensors over it are alive; {immutable} are"
            ),
            Error::TooManyTensors { most } => {
                write!(f, "{most} tensors of this mutability are alive over the memory, and no more can be counted")
            }
            Error::MustCopy { wanted } => write!(f, "{wanted}; only a copy would do, and the copy policy is NEVER"),
            Error::ExportReadOnlyAsLegacy => f.write_str(
                "the tensor is read-only, and the legacy struct (DLPack before 1.0) cannot say so; ask for version 1.0, or vouch that the consumer never writes",
            ),
            Error::ExchangeVersion { found } => write!(
                f,
                "the exchange API has no table of major version {}; the last table looked at has version {}.{}",
                VERSION.major, found.major, found.minor
            ),
            Error::Version { found } => write!(
                f,
                "the tensor has DLPack version {}.{}; this library knows major version {} and may only release it",
                found.major, found.minor, VERSION.major
            ),
            Error::Dtype { found, why } => write!(f, "dtype {} {why}", Dtype(found)),
            Error::DtypesDiffer { source, target } => {
                write!(f, "the source has dtype {} and the target {}", Dtype(source), Dtype(target))
            }
            Error::PaddingDiffers => f.write_str("one tensor packs its sub-byte elements and the other pads them"),
            Error::FileDtype { descr, why } => write!(f, "dtype {descr:?} {why}"),
            Error::HostCannotRead { device } => write!(
                f,
                "device {} holds memory that the host cannot read; it can read only CPU (1), CUDAHost (3) and ROCMHost (11)",
                Device(device)
            ),
            Error::DeviceNotWanted { device, wanted } => {
                write!(f, "the tensor is on device {}, and {} is wanted", Device(device), Device(wanted))
            }
            Error::DeviceId { device } => {
                write!(f, "device {} has an id, and host memory has none: it must be 0", Device(device))
            }
            Error::Overlap => f.write_str(
                "elements of the tensor share memory with each other (a stride of 0 or windows that cross), so it cannot be writable",
            ),
            Error::NullStrides { minor } => {
                write!(f, "strides are NULL, which DLPack forbids since 1.2; the tensor says version 1.{minor}")
            }
            Error::ShapesDiffer { axis, source, target } => {
                write!(f, "shape[{axis}] is {source} in the source and {target} in the target")
            }
            Error::RanksDiffer { source, target } => {
                write!(f, "the source has {source} dimensions and the target {target}")
            }
            Error::Null { what } => write!(f, "{what} is NULL"),
            Error::NullShape { ndim } => write!(f, "shape is NULL with ndim {ndim}; only ndim 0 needs no shape"),
            Error::NullData { nbytes } => {
                write!(f, "data is NULL, and the elements take {nbytes} bytes; only an empty tensor has no data")
            }
            Error::UnknownValue { what, found } => write!(f, "{what} is {found}, which is none of its values"),
            Error::StructSize { what, found, least } => write!(
                f,
                "{what}.struct_size is {found}, and the smallest version has {least} bytes; start from its _INIT macro"
            ),
            Error::UnknownTail { what, offset } => write!(
                f,
                "{what} has a byte at offset {offset} that is not 0, in a part that this version of the library does not know"
            ),
            Error::AlignmentNotPowerOfTwo { found } => {
                write!(f, "alignment is {found} bytes; it must be 0 or a power of two up to 2^30")
            }
            Error::NotOurs { what } => write!(f, "{what} was not made by this library; import it with DLRO_IMPORT_ADOPT first"),
            Error::NotUtf8 { what } => write!(f, "{what} is not UTF-8"),
            Error::ExchangeSlotNull { slot } => write!(f, "the exchange API's {slot} is NULL, which DLPack allows of dltensor_from_py_object_no_sync only"),
            Error::NullElement { what, index } => write!(f, "{what}[{index}] is NULL"),
            Error::Name { name, why } => write!(f, "the name {name:?} {why}"),
            Error::NoSuchIndex { what, index, count } => write!(f, "index is {index}, and there are {count} {what}"),
            Error::Ndim { found, most } => write!(f, "ndim is {found}; it must be from 0 to {most}"),
            Error::NegativeDimension { axis, value } => write!(f, "shape[{axis}] is {value}; dimensions must be >= 0"),
            Error::Overflow { what } => write!(f, "{what} does not fit in 63 bits"),
            Error::AddressWraps { data, byte_offset } => write!(
                f,
                "data {data:#x} + byte_offset {byte_offset} + the tensor's extent leaves the address space"
            ),
            Error::HandlesDiffer => f.write_str(
                "the window's data is another handle than the tensor's; on this device data is no address",
            ),
            Error::OutOfMemoryRange { low, high, nbytes } => write!(
                f,
                "the window reaches from byte {low} to byte {high} of a memory of {nbytes} bytes"
            ),
            Error::NoMemory { nbytes } => write!(f, "an allocation of {nbytes} bytes failed"),
            Error::Io { call, errno } => write!(f, "{call} failed: {}", Errno(errno)),
            Error::NotRegularFile => f.write_str("it is not a regular file, and only those can be mapped"),
            Error::Format { offset, expected, found } => {
                write!(f, "at byte {offset}: expected {expected}, found {found:?}")
            }
            Error::FileTooShort { expected, found } => {
                write!(f, "the file must have {expected} bytes for what is asked of it, and has {found}")
            }
            Error::FileTooLong { expected, found } => {
                write!(f, "the file's tensors end at byte {expected}, and it has {found}: the rest belongs to no tensor")
            }
            Error::TensorPlace { name, begin, expected } => write!(
                f,
                "tensor {name:?}: its data_offsets begin at {begin}, and the tensors before it end at {expected}: {}",
                if begin < expected { "they overlap" } else { "a hole" }
            ),
            Error::TensorExtent { name, found, expected } => write!(
                f,
                "tensor {name:?}: its data_offsets hold {found} bytes, and its shape and dtype need {expected}"
            ),
            Error::TensorPartByte { name, bits } => {
                write!(f, "tensor {name:?}: its elements take {bits} bits, which is no whole number of bytes")
            }
            Error::HeaderTooLong { most } => {
                write!(f, "names, shapes and metadata need a header of more than {most} bytes, the format's maximum")
            }
            Error::NotReplaceable => f.write_str("it exists and is not a regular file, and only those are replaced"),
            Error::Unsupported { what } => write!(f, "{what} is not supported on this system"),
            Error::Panicked => f.write_str("a defect in dlpack_ro: it panicked; please report it"),
        }
    }
}

/// As much of a text as fits into `most` bytes without cutting a character.
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// More dimensions than any producer has (NumPy stops at 64, PyTorch at none but memory); a wild number in
/// `ndim` must not send a reader through gigabytes of somebody else's memory.
pub const MAX_NDIM: usize = 1024;

struct Errno(i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // strerror_r and not std: std's text is a String, and an error must not allocate.
        let mut text = [0 as core::ffi::c_char; 128];
        // SAFETY: the buffer is ours and its true length is passed; XSI strerror_r writes a C string into it.
        let rc = unsafe { libc::strerror_r(self.0, text.as_mut_ptr(), text.len()) };
        if rc == 0 {
            // SAFETY: strerror_r returned 0, so the buffer holds a NUL-terminated string.
            let text = unsafe { core::ffi::CStr::from_ptr(text.as_ptr()) };
            if let Ok(text) = text.to_str() {
                return write!(f, "{text} (errno {})", self.0);
            }
        }
        write!(f, "errno {}", self.0)
    }
}

/// The result of everything below the boundary.
pub type Result<T> = core::result::Result<T, Error>;

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
