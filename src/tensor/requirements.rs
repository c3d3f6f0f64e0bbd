//! What has to be done so that a tensor meets a consumer's requirements: a pure function.

use crate::abi::DLDevice;
use crate::error::{Error, Result, Unmet};

/// What the consumer will do with the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Access {
    /// Only read; somebody else may write meanwhile.
    #[default]
    Read,
    /// Read and write.
    Write,
    /// Only read, and rely on nobody writing.
    Immutable,
}

/// The array API's `copy=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Copy {
    /// `None`: only where nothing else meets the requirements.
    #[default]
    IfNeeded,
    /// `False`
    Never,
    /// `True`
    Always,
}

/// Which strides the consumer can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Any.
    #[default]
    Any,
    /// C order without gaps.
    RowMajor,
    /// Fortran order without gaps.
    ColumnMajor,
    /// Any, but no stride below zero.
    NonNegative,
}

/// Which device the elements must be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wanted {
    /// Wherever they are.
    #[default]
    Anywhere,
    /// On this very device.
    Device(DLDevice),
}

/// All requirements of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// What it will do.
    pub access: Access,
    /// Whether a copy is allowed.
    pub copy: Copy,
    /// Strides.
    pub layout: Layout,
    /// Of the first element's address, in bytes; a power of two, or 0 for none.
    pub alignment: usize,
    /// Device.
    pub device: Wanted,
    /// Whether the host must be able to read the memory, on whatever device.
    pub host: bool,
}

/// What is known of the tensor, as far as requirements ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// No flag forbids to write.
    pub writable: bool,
    /// Whether nobody can change the memory while the tensor lives.
    pub immutable: Certainty,
    /// Elements share memory with each other.
    pub overlaps: bool,
    /// C order without gaps.
    pub row_major: bool,
    /// Fortran order without gaps.
    pub column_major: bool,
    /// Some stride is below zero.
    pub negative_stride: bool,
    /// Address of the first element; `None` if the tensor is empty or data is a handle.
    pub address: Option<usize>,
    /// Device.
    pub device: DLDevice,
    /// The host can read the bytes.
    pub host: bool,
    /// A private mapping of the same bytes can be tried.
    pub remappable: bool,
}

/// How sure we are that memory is immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is.
    Yes,
    /// It can be made so, if nobody else is in the way by then.
    Obtainable,
    /// It is not.
    No,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The tensor will do as it is.
    Alias,
    /// The tensor will do once it has been made immutable.
    MakeImmutable,
    /// The same bytes, mapped copy-on-write; a copy where that turns out impossible.
    Remap,
    /// New memory.
    Copy,
}

/// Decides. The first requirement that is not met and cannot be repaired is the error.
pub fn plan(facts: &Facts, request: &Request) -> Result<Plan> {
    match request.device {
        Wanted::Device(wanted) if wanted != facts.device => {
            return Err(Error::DeviceNotWanted { device: facts.device, wanted });
        }
        _ if request.host && !facts.host => return Err(Error::HostCannotRead { device: facts.device }),
        _ => {}
    }
    // In the order of the table in the header: what is unmet first names the error.
    let needs_copy = if request.copy == Copy::Always {
        Some(Unmet::Always)
    } else if request.access == Access::Write && facts.overlaps {
        Some(Unmet::NoOverlap)
    } else {
        unmet_shape(facts, request)
    };
    let needs_rights = request.access == Access::Write && !facts.writable;
    if request.copy == Copy::Never {
        if needs_rights {
            return Err(Error::MustCopy { wanted: Unmet::Writable });
        }
        if let Some(wanted) = needs_copy {
            return Err(Error::MustCopy { wanted });
        }
        if request.access == Access::Immutable && facts.immutable == Certainty::No {
            // MakeImmutable says exactly why not.
            return Ok(Plan::MakeImmutable);
        }
    }
    let copy = || if facts.host { Ok(Plan::Copy) } else { Err(Error::HostCannotRead { device: facts.device }) };
    if needs_copy.is_some() {
        return copy();
    }
    match (request.access, facts.immutable) {
        (Access::Write, _) if needs_rights && facts.remappable => Ok(Plan::Remap),
        (Access::Write, _) if needs_rights => copy(),
        (Access::Immutable, Certainty::Obtainable) => Ok(Plan::MakeImmutable),
        (Access::Immutable, Certainty::No) => copy(),
        _ => Ok(Plan::Alias),
    }
}

fn unmet_shape(facts: &Facts, request: &Request) -> Option<Unmet> {
    match request.layout {
        Layout::RowMajor if !facts.row_major => return Some(Unmet::RowMajor),
        Layout::ColumnMajor if !facts.column_major => return Some(Unmet::ColumnMajor),
        Layout::NonNegative if facts.negative_stride => return Some(Unmet::NonNegativeStrides),
        _ => {}
    }
    match facts.address {
        Some(address) if request.alignment > 1 && address & (request.alignment - 1) != 0 => {
            Some(Unmet::Alignment { wanted: request.alignment, address })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
