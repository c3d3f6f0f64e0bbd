//! Data types: which (code, bits, lanes) triples exist, how large an element is, and what it is called.
//!
//! The three numbers are one thing: no part of this crate looks at one of them alone.

#![allow(non_upper_case_globals)] // DLPack's names in patterns

use crate::abi::*;
use crate::error::{Error, Result};
use core::fmt;

/// A triple that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype(DLDataType);

impl Dtype {
    /// Checks that DLPack 1.3 defines the triple.
    ///
    /// Integers of 2 and 4 bits count as existing (JAX and TVM exchange them); one-bit integers do not, they
    /// are how bool was smuggled before 0.8. (2,8,1) does not: an fp8 has a code of its own.
    #[inline]
    pub fn new(found: DLDataType) -> Result<Self> {
        let DLDataType { code, bits, lanes } = found;
        let exists = match code {
            kDLInt | kDLUInt => matches!(bits, 2 | 4 | 8 | 16 | 32 | 64),
            kDLFloat => matches!(bits, 16 | 32 | 64 | 128),
            kDLBfloat => bits == 16,
            // Two x87 long doubles have 256 bits, which the field of eight cannot say.
            kDLComplex => matches!(bits, 32 | 64 | 128),
            kDLBool => bits == 8,
            kDLFloat8_e3m4..=kDLFloat8_e8m0fnu => bits == 8,
            kDLFloat6_e2m3fn | kDLFloat6_e3m2fn => bits == 6,
            kDLFloat4_e2m1fn => bits == 4,
            _ => false,
        };
        if exists && lanes != 0 { Ok(Dtype(found)) } else { Err(Self::refuse(found)) }
    }

    #[cold]
    fn refuse(found: DLDataType) -> Error {
        let why = match found {
            DLDataType { bits: 0, .. } => "has no bits",
            DLDataType { lanes: 0, .. } => "has no lanes",
            DLDataType { code: kDLOpaqueHandle, .. } => {
                "is an opaque handle, whose meaning only its maker knows; it cannot be exchanged"
            }
            DLDataType { code: kDLBool, .. } => "is not a bool: DLPack's bool is (code 6, bits 8)",
            DLDataType { code: kDLFloat, bits: 8, .. } => {
                "does not exist: each 8-bit float format has a code of its own"
            }
            DLDataType { code: 7..=14, .. } => "does not exist: float8 codes need 8 bits",
            DLDataType { code: 15 | 16, .. } => "does not exist: float6 codes need 6 bits",
            DLDataType { code: 17, .. } => "does not exist: float4 needs 4 bits",
            DLDataType { code: 18.., .. } => "has a code that DLPack 1.3 does not define",
            _ => "does not exist: its code has no such width",
        };
        Error::Dtype { found, why }
    }

    /// The triple as DLPack writes it.
    pub const fn raw(self) -> DLDataType {
        self.0
    }

    /// Bits of one element, all lanes together.
    #[inline]
    pub const fn element_bits(self) -> u32 {
        self.0.bits as u32 * self.0.lanes as u32
    }

    /// Whether an element, packed, is no whole number of bytes.
    #[inline]
    pub const fn is_subbyte(self) -> bool {
        !self.element_bits().is_multiple_of(8)
    }

    /// Bits from one element to the next. Sub-byte elements are packed unless the tensor says that they
    /// are padded, each to whole bytes.
    #[inline]
    pub const fn pitch_bits(self, padded: bool) -> u32 {
        if padded { self.element_bits().next_multiple_of(8) } else { self.element_bits() }
    }

    /// The DLPack 1.x minor version that introduced the triple.
    #[inline]
    pub const fn minor(self) -> u32 {
        if self.0.code >= kDLFloat8_e3m4 { 1 } else { 0 }
    }
}

/// The NumPy and ml_dtypes name where there is one; lanes behind an `x`.
impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DLDataType { code, bits, lanes } = self.0;
        match code {
            kDLInt => write!(f, "int{bits}")?,
            kDLUInt => write!(f, "uint{bits}")?,
            kDLFloat => write!(f, "float{bits}")?,
            kDLBfloat => f.write_str("bfloat16")?,
            kDLComplex => write!(f, "complex{bits}")?,
            kDLBool => f.write_str("bool")?,
            _ => f.write_str(match code {
                kDLFloat8_e3m4 => "float8_e3m4",
                kDLFloat8_e4m3 => "float8_e4m3",
                kDLFloat8_e4m3b11fnuz => "float8_e4m3b11fnuz",
                kDLFloat8_e4m3fn => "float8_e4m3fn",
                kDLFloat8_e4m3fnuz => "float8_e4m3fnuz",
                kDLFloat8_e5m2 => "float8_e5m2",
                kDLFloat8_e5m2fnuz => "float8_e5m2fnuz",
                kDLFloat8_e8m0fnu => "float8_e8m0fnu",
                kDLFloat6_e2m3fn => "float6_e2m3fn",
                kDLFloat6_e3m2fn => "float6_e3m2fn",
                _ => "float4_e2m1fn",
            })?,
        }
        if lanes != 1 { write!(f, "x{lanes}") } else { Ok(()) }
    }
}
