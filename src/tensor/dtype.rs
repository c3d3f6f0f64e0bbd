//! Data types: which (code, bits, lanes) triples exist, how large an element is, and what it is called.
//!
//! The three numbers are one thing: no part of this crate looks at one of them alone.

#![allow(non_upper_case_globals)] // DLPack's names in patterns

use crate::abi::*;
use crate::error::{Error, Result};
use core::fmt;

/// The widths that each code has: bit k stands for 2^k bits. Two x87 long doubles have 256 bits, which the field
/// of eight cannot say.
const WIDTHS: [u8; 18] = {
    let mut widths = [1 << 3; 18]; // bool and the float8 formats
    widths[kDLInt as usize] = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6;
    widths[kDLUInt as usize] = widths[kDLInt as usize];
    widths[kDLFloat as usize] = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;
    widths[kDLOpaqueHandle as usize] = 0;
    widths[kDLBfloat as usize] = 1 << 4;
    widths[kDLComplex as usize] = 1 << 5 | 1 << 6 | 1 << 7;
    widths[kDLFloat6_e2m3fn as usize] = SIX;
    widths[kDLFloat6_e3m2fn as usize] = SIX;
    widths[kDLFloat4_e2m1fn as usize] = 1 << 2;
    widths
};

/// Stands for 6 bits, the one width that is no power of two.
const SIX: u8 = 1 << 0;

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
        Self::known(found).ok_or_else(|| Self::refuse(found))
    }

    /// The triple, if it exists.
    #[inline(always)]
    pub fn known(found: DLDataType) -> Option<Self> {
        let DLDataType { code, bits, lanes } = found;
        let widths = *WIDTHS.get(code as usize)?;
        let exists = if bits.is_power_of_two() {
            widths != SIX && widths >> bits.trailing_zeros() & 1 == 1
        } else {
            widths == SIX && bits == 6
        };
        (exists && lanes != 0).then_some(Dtype(found))
    }

    /// A triple that is known to exist already.
    #[inline(always)]
    pub fn plain(known: DLDataType) -> Self {
        debug_assert!(Self::known(known).is_some());
        Dtype(known)
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
        !self.is_whole_bytes()
    }

    /// Whether an element is a whole number of bytes, so that packed and padded are the same.
    #[inline]
    pub const fn is_whole_bytes(self) -> bool {
        self.element_bits() & 7 == 0
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

#[cfg(test)]
mod tests {
    use super::*;

    fn every_triple() -> impl Iterator<Item = DLDataType> {
        let lanes = [0, 1, 2, 4, 65535];
        (0..=255).flat_map(move |code| {
            (0..=255).flat_map(move |bits| lanes.into_iter().map(move |lanes| DLDataType { code, bits, lanes }))
        })
    }

    /// Written from `dlpack.h` 1.3, in its order; independent of the match in `new`.
    #[rustfmt::skip]
    const EXIST: [(u8, u8, &str); 32] = [
        (0, 2, "int2"), (0, 4, "int4"), (0, 8, "int8"), (0, 16, "int16"), (0, 32, "int32"), (0, 64, "int64"),
        (1, 2, "uint2"), (1, 4, "uint4"), (1, 8, "uint8"), (1, 16, "uint16"), (1, 32, "uint32"), (1, 64, "uint64"),
        (2, 16, "float16"), (2, 32, "float32"), (2, 64, "float64"), (2, 128, "float128"),
        (4, 16, "bfloat16"),
        (5, 32, "complex32"), (5, 64, "complex64"), (5, 128, "complex128"),
        (6, 8, "bool"),
        (7, 8, "float8_e3m4"), (8, 8, "float8_e4m3"), (9, 8, "float8_e4m3b11fnuz"), (10, 8, "float8_e4m3fn"),
        (11, 8, "float8_e4m3fnuz"), (12, 8, "float8_e5m2"), (13, 8, "float8_e5m2fnuz"), (14, 8, "float8_e8m0fnu"),
        (15, 6, "float6_e2m3fn"), (16, 6, "float6_e3m2fn"),
        (17, 4, "float4_e2m1fn"),
    ];

    fn name(code: u8, bits: u8) -> Option<&'static str> {
        EXIST.iter().find(|known| (known.0, known.1) == (code, bits)).map(|known| known.2)
    }

    #[test]
    fn exactly_dlpacks_triples_exist() {
        for found in every_triple() {
            let exists = name(found.code, found.bits).is_some() && found.lanes != 0;
            assert_eq!(Dtype::new(found).is_ok(), exists, "{found:?}");
        }
    }

    #[test]
    fn names_are_numpys_and_lanes_follow_behind_an_x() {
        for found in every_triple() {
            let Ok(dtype) = Dtype::new(found) else { continue };
            let name = name(found.code, found.bits).unwrap();
            let lanes = if found.lanes == 1 { String::new() } else { format!("x{}", found.lanes) };
            assert_eq!(dtype.to_string(), format!("{name}{lanes}"));
            assert_eq!(dtype.raw(), found);
        }
    }

    #[test]
    fn lanes_multiply_and_only_padded_elements_are_rounded_to_bytes() {
        for found in every_triple() {
            let Ok(dtype) = Dtype::new(found) else { continue };
            let bits = u32::from(found.bits) * u32::from(found.lanes);
            assert_eq!((dtype.element_bits(), dtype.pitch_bits(false)), (bits, bits));
            assert_eq!(dtype.pitch_bits(true), bits.div_ceil(8) * 8);
            assert_eq!(dtype.is_subbyte(), bits % 8 != 0, "{dtype}");
        }
    }

    #[test]
    fn minor_is_the_version_that_introduced_the_code() {
        for found in every_triple() {
            let Ok(dtype) = Dtype::new(found) else { continue };
            assert_eq!(dtype.minor(), u32::from(found.code >= 7), "{dtype}");
        }
    }

    #[test]
    fn refusals_say_what_is_wrong_with_the_triple() {
        let sentence = |code, bits, lanes| Dtype::new(DLDataType { code, bits, lanes }).unwrap_err().to_string();
        assert_eq!(sentence(2, 0, 1), "dtype (code 2, bits 0, lanes 1) has no bits");
        assert_eq!(sentence(2, 32, 0), "dtype (code 2, bits 32, lanes 0) has no lanes");
        assert_eq!(
            sentence(3, 64, 1),
            "dtype (code 3, bits 64, lanes 1) is an opaque handle, whose meaning only its maker knows; it cannot be exchanged"
        );
        for ((code, bits), end) in [
            ((6, 1), "is not a bool: DLPack's bool is (code 6, bits 8)"),
            ((1, 1), "does not exist: its code has no such width"),
            ((0, 128), "does not exist: its code has no such width"),
            ((2, 8), "does not exist: each 8-bit float format has a code of its own"),
            ((4, 32), "does not exist: its code has no such width"),
            ((5, 16), "does not exist: its code has no such width"),
            ((7, 16), "does not exist: float8 codes need 8 bits"),
            ((14, 4), "does not exist: float8 codes need 8 bits"),
            ((15, 8), "does not exist: float6 codes need 6 bits"),
            ((16, 4), "does not exist: float6 codes need 6 bits"),
            ((17, 8), "does not exist: float4 needs 4 bits"),
            ((18, 8), "has a code that DLPack 1.3 does not define"),
            ((255, 255), "has a code that DLPack 1.3 does not define"),
        ] {
            assert_eq!(sentence(code, bits, 1), format!("dtype (code {code}, bits {bits}, lanes 1) {end}"));
        }
        for found in every_triple() {
            if let Err(error) = Dtype::new(found) {
                assert_eq!(error.status(), crate::error::Status::DLRO_ERR_DTYPE);
            }
        }
    }
}
