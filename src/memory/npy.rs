//! The header of NumPy's `.npy` files (versions 1.0, 2.0, 3.0): what it says about the elements, and the
//! header that `numpy.save` would write.
//!
//! Written here because crates such as npyz allocate infallibly, and Rust's abort on a failed allocation is
//! not acceptable in somebody else's process: nothing here allocates at all. Whatever NumPy refuses
//! in a header is refused; so are a few things that Python allows and no writer writes (escapes, comments, `0x10`).

use crate::abi::{DLDataType, kDLBool, kDLComplex, kDLFloat, kDLInt, kDLUInt};
use crate::error::{Error, Excerpt, Result};
use core::fmt::{self, Write};

/// NumPy's maximum.
pub const MAX_NDIM: usize = 64;

/// NumPy reads no longer headers unless it is told to trust the file.
const MAX_TEXT: usize = 10_000;

/// No header that [`parse`] accepts is longer. A caller reads this much into a buffer of its own, so that
/// no `&[u8]` lies over a mapping that another process may write or truncate.
pub const MAX_READ: usize = 12 + MAX_TEXT;

/// No header that [`write_header`] writes is longer, and it is a multiple of [`ALIGN`].
pub const MAX_WRITTEN: usize = 1536;

/// `numpy.save` starts the elements at a multiple of this; files by others may start them anywhere.
pub const ALIGN: usize = 64;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
const NATIVE: u8 = if cfg!(target_endian = "little") { b'<' } else { b'>' };
const FOREIGN: u8 = if cfg!(target_endian = "little") { b'>' } else { b'<' };

/// Every dtype that both NumPy and DLPack can name. `f16` is NumPy's name for the C compiler's long double
/// where that takes 16 bytes: the file does not say whether it was x87's or IEEE's.
const DTYPES: [(&str, u8, u8); 15] = [
    ("b1", kDLBool, 8),
    ("i1", kDLInt, 8),
    ("i2", kDLInt, 16),
    ("i4", kDLInt, 32),
    ("i8", kDLInt, 64),
    ("u1", kDLUInt, 8),
    ("u2", kDLUInt, 16),
    ("u4", kDLUInt, 32),
    ("u8", kDLUInt, 64),
    ("f2", kDLFloat, 16),
    ("f4", kDLFloat, 32),
    ("f8", kDLFloat, 64),
    ("f16", kDLFloat, 128),
    ("c8", kDLComplex, 64),
    ("c16", kDLComplex, 128),
];

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// In this machine's byte order.
    pub dtype: DLDataType,
    /// NumPy's `fortran_order`. It may be true where the order makes no difference (one dimension).
    pub column_major: bool,
    /// Up to [`MAX_NDIM`].
    pub ndim: usize,
    /// The first `ndim` count; the others are 0.
    pub shape: [i64; MAX_NDIM],
    /// Where in the file the elements begin. Any number: only newer NumPys align it to [`ALIGN`].
    pub data_offset: u64,
    /// How many bytes the elements take.
    pub nbytes: u64,
}

impl Header {
    /// The dimensions that count.
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.ndim]
    }
}

/// Reads the header of a file of `file_len` bytes, and checks that all elements are in it.
///
/// `start` is the beginning of the file: [`MAX_READ`] bytes, or the whole of a shorter one.
pub fn parse(start: &[u8], file_len: u64) -> Result<Header> {
    let start = &start[..start.len().min(usize::try_from(file_len).unwrap_or(usize::MAX))];
    let too_short = |expected: usize| Error::FileTooShort { expected: expected as u64, found: start.len() as u64 };

    let known = start.len().min(MAGIC.len());
    if start[..known] != MAGIC[..known] {
        let found = Excerpt::new(&start[..known]);
        return Err(Error::Format { offset: 0, expected: "an .npy file, which begins with '\\x93NUMPY'", found });
    }
    let (&[major, minor], rest) = start[known..].split_first_chunk().ok_or(too_short(10))?;
    let (length, text_at, python2) = match (major, minor, rest) {
        (1, 0, &[a, b, ..]) => (u16::from_le_bytes([a, b]) as usize, 10, true),
        (1, 0, _) => return Err(too_short(10)),
        (2 | 3, 0, &[a, b, c, d, ..]) => (u32::from_le_bytes([a, b, c, d]) as usize, 12, major == 2),
        (2 | 3, 0, _) => return Err(too_short(12)),
        _ => {
            let found = Excerpt::new(&[major, minor]);
            return Err(Error::Format { offset: 6, expected: "version 1.0, 2.0 or 3.0 of the format", found });
        }
    };
    if length > MAX_TEXT {
        let found = Excerpt::new(&start[8..text_at]);
        return Err(Error::Format { offset: 8, expected: "a header length of at most 10000 bytes", found });
    }
    let end = text_at + length;
    let mut text = Text { file: start.get(..end).ok_or(too_short(end))?, at: text_at };
    let (dtype, column_major, shape, ndim) = text.dict(python2)?;

    let nbytes = nbytes(&shape[..ndim], dtype)?;
    let (data_offset, expected) = (end as u64, end as u64 + nbytes);
    if expected > file_len {
        return Err(Error::FileTooShort { expected, found: file_len });
    }
    Ok(Header { dtype, column_major, ndim, shape, data_offset, nbytes })
}

/// Writes the bytes that `numpy.save` writes before the elements of the same array, and returns how many.
///
/// `column_major` is the order of the elements that follow. As in NumPy, the header does not claim it where it
/// makes no difference.
pub fn write_header(
    dtype: DLDataType,
    column_major: bool,
    shape: &[i64],
    out: &mut [u8; MAX_WRITTEN],
) -> Result<usize> {
    let &(name, ..) =
        DTYPES.iter().find(|&&(_, code, bits)| dtype == DLDataType { code, bits, lanes: 1 }).ok_or(Error::Dtype {
            found: dtype,
            why: "has no name in an .npy file, which has bool, int, uint, float and complex of NumPy's sizes",
        })?;
    if shape.len() > MAX_NDIM {
        return Err(Error::Ndim { found: shape.len().try_into().unwrap_or(i32::MAX), most: MAX_NDIM });
    }
    nbytes(shape, dtype)?;
    let claim = column_major && !shape.contains(&0) && shape.iter().filter(|&&dimension| dimension != 1).count() > 1;

    let mut text = Out { bytes: out, len: 10 };
    let order = if dtype.bits == 8 { '|' } else { NATIVE as char };
    let python = if claim { "True" } else { "False" };
    let mut write = || -> fmt::Result {
        write!(text, "{{'descr': '{order}{name}', 'fortran_order': {python}, 'shape': (")?;
        for (axis, dimension) in shape.iter().enumerate() {
            write!(text, "{}{dimension}", if axis == 0 { "" } else { ", " })?;
        }
        text.write_str(if shape.len() == 1 { ",), }" } else { "), }" })?;
        // NumPy leaves room for the one dimension that grows when elements are appended: 21 digits in all.
        if let Some(&growing) = if claim { shape.last() } else { shape.first() } {
            let digits = growing.checked_ilog10().unwrap_or(0) as usize + 1;
            write!(text, "{:1$}", "", 21 - digits)?;
        }
        // A whole ALIGN of spaces where none would be needed: so does NumPy.
        let unaligned = (text.len + 1) % ALIGN;
        writeln!(text, "{:1$}", "", ALIGN - unaligned)
    };
    write().map_err(|_| Error::Overflow { what: "the .npy header" })?;

    let len = text.len;
    out[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    out[8..10].copy_from_slice(&((len - 10) as u16).to_le_bytes());
    Ok(len)
}

/// The bytes that the elements take. A dimension of 0 makes them 0 whatever the others are.
fn nbytes(shape: &[i64], dtype: DLDataType) -> Result<u64> {
    if let Some(axis) = shape.iter().position(|&dimension| dimension < 0) {
        return Err(Error::NegativeDimension { axis, value: shape[axis] });
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let count = shape.iter().try_fold(1i64, |count, &dimension| count.checked_mul(dimension));
    let count = count.ok_or(Error::Overflow { what: "the number of elements" })?;
    let nbytes = count.checked_mul(i64::from(dtype.bits / 8));
    Ok(nbytes.ok_or(Error::Overflow { what: "the size of the elements in bytes" })? as u64)
}

/// The Python literal in the header. `file` ends where it ends, so that `at` is an offset in the file.
struct Text<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.file[self.at..]
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T> {
        Err(Error::Format { offset: self.at as u64, expected, found: Excerpt::new(self.rest()) })
    }

    fn skip(&mut self, spaces: &[u8]) {
        self.at += self.rest().iter().take_while(|byte| spaces.contains(byte)).count();
    }

    /// Skips what Python skips inside brackets.
    fn skip_space(&mut self) {
        self.skip(b" \t\n\r\x0c");
    }

    fn take(&mut self, token: &[u8]) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn dict(&mut self, python2: bool) -> Result<(DLDataType, bool, [i64; MAX_NDIM], usize)> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.skip(b" \t"); // No line break: Python takes what follows one for an indentation.
        if !self.take(b"{") {
            return self.fail("a Python dict, which begins with '{'");
        }
        self.skip_space();
        while !self.take(b"}") {
            let key_at = self.at;
            let key = self.quoted("a key in quotes, or '}'")?;
            let again = match key {
                b"descr" => descr.is_some(),
                b"fortran_order" => order.is_some(),
                b"shape" => shape.is_some(),
                _ => {
                    self.at = key_at;
                    return self.fail("one of the keys 'descr', 'fortran_order' and 'shape'");
                }
            };
            if again {
                self.at = key_at;
                return self.fail("every key only once");
            }
            self.skip_space();
            if !self.take(b":") {
                return self.fail("':' after a key");
            }
            self.skip_space();
            match key {
                b"descr" => descr = Some(self.descr()?),
                b"fortran_order" => order = Some(self.bool()?),
                _ => shape = Some(self.shape(python2)?),
            }
            self.skip_space();
            if self.take(b",") {
                self.skip_space();
            } else if !self.rest().starts_with(b"}") {
                return self.fail("',' or '}' after a value");
            }
        }
        let close = self.at;
        // The same here: spaces, then line breaks, but no spaces after them.
        self.skip(b" \t\x0c");
        self.skip(b"\r\n");
        if !self.rest().is_empty() {
            return self.fail("only spaces and a newline after the dict");
        }
        self.at = close - 1;
        let Some(descr) = descr else { return self.fail("the key 'descr' too") };
        let Some(order) = order else { return self.fail("the key 'fortran_order' too") };
        let Some((shape, ndim)) = shape else { return self.fail("the key 'shape' too") };
        Ok((dtype(descr)?, order, shape, ndim))
    }

    /// No name that is looked for has an escape in it, so a backslash needs no care.
    fn quoted(&mut self, expected: &'static str) -> Result<&'a [u8]> {
        let Some((&quote @ (b'\'' | b'"'), rest)) = self.rest().split_first() else { return self.fail(expected) };
        let Some(len) = rest.iter().position(|&byte| byte == quote) else { return self.fail("a closing quote") };
        self.at += len + 2;
        Ok(&rest[..len])
    }

    fn descr(&mut self) -> Result<&'a [u8]> {
        let why = match self.rest().first() {
            Some(b'[') => "is structured (it has fields); DLPack has numbers only, so save each field on its own",
            Some(b'(') => "has a shape of its own (a subarray); DLPack has numbers only",
            _ => return self.quoted("a dtype in quotes"),
        };
        Err(Error::FileDtype { descr: Excerpt::new(self.rest()), why })
    }

    fn bool(&mut self) -> Result<bool> {
        if self.take(b"True") {
            Ok(true)
        } else if self.take(b"False") {
            Ok(false)
        } else {
            self.fail("True or False")
        }
    }

    fn shape(&mut self, python2: bool) -> Result<([i64; MAX_NDIM], usize)> {
        let (mut shape, mut ndim) = ([0; MAX_NDIM], 0);
        if !self.take(b"(") {
            return self.fail("a tuple of integers, which begins with '('");
        }
        self.skip_space();
        let mut comma = true;
        while !self.take(b")") {
            if !comma {
                return self.fail("',' or ')' after a dimension");
            }
            if ndim == MAX_NDIM {
                return self.fail("at most 64 dimensions, NumPy's maximum");
            }
            shape[ndim] = self.dimension(python2)?;
            ndim += 1;
            self.skip_space();
            comma = self.take(b",");
            self.skip_space();
        }
        if ndim == 1 && !comma {
            self.at -= 1;
            return self.fail("',': without it Python reads a number in brackets, not a tuple");
        }
        Ok((shape, ndim))
    }

    fn dimension(&mut self, python2: bool) -> Result<i64> {
        let start = self.at;
        let negative = self.take(b"-");
        let digits = self.rest();
        let digits = &digits[..digits.iter().take_while(|byte| byte.is_ascii_digit()).count()];
        if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
            self.at = start;
            return self.fail("a decimal integer without leading zeros");
        }
        self.at += digits.len();
        let value = digits.iter().try_fold(0i64, |value, digit| {
            let value = value.checked_mul(10)?;
            let digit = i64::from(digit - b'0');
            if negative { value.checked_sub(digit) } else { value.checked_add(digit) }
        });
        let value = value.ok_or(Error::Overflow { what: "a dimension in the file" })?; // below 0: see nbytes()
        if python2 {
            // Python 2 wrote its long integers with an L; NumPy ignores it, after spaces too, before 3.0.
            self.skip(b" \t");
            self.take(b"L");
        }
        Ok(value)
    }
}

fn dtype(descr: &[u8]) -> Result<DLDataType> {
    let (order, name) = match descr {
        &[order @ (b'<' | b'>' | b'=' | b'|'), ref name @ ..] => (order, name),
        name => (b'=', name),
    };
    let known = DTYPES.iter().find(|&&(known, ..)| known.as_bytes() == name);
    let why = match (known, name) {
        (Some(&(_, _, bits)), _) if bits > 8 && order == FOREIGN => {
            if FOREIGN == b'>' {
                "is big-endian, and this machine is little-endian; convert it with NumPy first"
            } else {
                "is little-endian, and this machine is big-endian; convert it with NumPy first"
            }
        }
        (Some(&(_, code, bits)), _) => return Ok(DLDataType { code, bits, lanes: 1 }),
        (_, [b'O', ..]) => "holds pickled Python objects, which mean nothing outside Python",
        (_, [b'S' | b'a', ..]) => "is a byte string; DLPack has numbers only",
        (_, [b'U', ..]) => "is text; DLPack has numbers only",
        (_, [b'M', ..]) => "is a date (datetime64), which DLPack does not have; save a view as int64 instead",
        (_, [b'm', ..]) => "is a time span (timedelta64), which DLPack does not have; save a view as int64 instead",
        (_, [b'V', ..]) => {
            "is raw bytes: NumPy's void, or a type of ml_dtypes (bfloat16, float8 and others), whose name the file does not hold; save a view as an integer instead"
        }
        (_, b"f1") => "is float8_e5m2 of ml_dtypes, which NumPy cannot read back; save a view as uint8 instead",
        (_, b"W4") => {
            "is complex32 or bcomplex32 of ml_dtypes (the file does not say which); save a view as float16 or uint16 instead"
        }
        (_, b"c32") => "is complex256, and DLPack's bits stop at 255",
        (_, b"f12" | b"c24") => "is a long double of 12 bytes (32-bit x86), which DLPack does not have",
        _ => "is none that NumPy writes for an array of numbers",
    };
    Err(Error::FileDtype { descr: Excerpt::new(descr), why })
}

/// A `fmt::Write` over the caller's bytes.
struct Out<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for whatever a header claims.
    const ANY_LEN: u64 = u64::MAX;

    fn file(version: [u8; 2], text: &str) -> Vec<u8> {
        let mut file = Vec::from(*MAGIC);
        file.extend(version);
        match version[0] {
            0 | 1 => file.extend((text.len() as u16).to_le_bytes()),
            _ => file.extend((text.len() as u32).to_le_bytes()),
        }
        file.extend(text.bytes());
        file
    }

    fn parse_text(text: &str) -> Result<Header> {
        parse(&file([1, 0], text), ANY_LEN)
    }

    fn parse_descr(descr: &str) -> Result<Header> {
        parse_text(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}\n"))
    }

    fn parse_shape(shape: &str) -> Result<Header> {
        parse_text(&format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n"))
    }

    fn sentence(result: Result<Header>) -> String {
        result.unwrap_err().to_string()
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize % limit
        }
    }

    /// What numpy.lib.format of NumPy 2.4.6 wrote: version, dtype, order of the array, shape, text, padding.
    #[cfg(target_endian = "little")]
    type Saved = (u8, (u8, u8), bool, &'static [i64], &'static str, usize);
    #[cfg(target_endian = "little")]
    #[rustfmt::skip]
    const SAVED: [Saved; 12] = [
        (1, (2, 32), false, &[2, 3], "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 58),
        (1, (2, 32), true, &[2, 3], "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 59),
        (1, (6, 8), false, &[], "{'descr': '|b1', 'fortran_order': False, 'shape': (), }", 62),
        (1, (1, 8), true, &[3], "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", 60),
        (1, (5, 128), true, &[0, 3], "{'descr': '<c16', 'fortran_order': False, 'shape': (0, 3), }", 57),
        (1, (2, 128), true, &[1, 7, 1], "{'descr': '<f16', 'fortran_order': False, 'shape': (1, 7, 1), }", 54),
        (1, (0, 16), true, &[1099511627776, 10], "{'descr': '<i2', 'fortran_order': True, 'shape': (1099511627776, 10), }", 46),
        (1, (0, 16), false, &[1099511627776, 10], "{'descr': '<i2', 'fortran_order': False, 'shape': (1099511627776, 10), }", 45),
        (1, (2, 32), false, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100], "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100), }", 84),
        (1, (1, 8), true, &[1000000000000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2], "{'descr': '|u1', 'fortran_order': True, 'shape': (1000000000000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2), }", 84),
        (2, (0, 32), false, &[5], "{'descr': '<i4', 'fortran_order': False, 'shape': (5,), }", 58),
        (3, (0, 32), true, &[5, 2], "{'descr': '<i4', 'fortran_order': True, 'shape': (5, 2), }", 57),
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn what_numpy_saves_is_read_and_written() {
        for (version, (code, bits), column_major, shape, text, padding) in SAVED {
            let saved = file([version, 0], &format!("{text}{:padding$}\n", ""));
            assert_eq!(saved.len() % ALIGN, 0);
            let dtype = DLDataType { code, bits, lanes: 1 };
            let header = parse(&saved, ANY_LEN).unwrap();
            let nbytes = (shape.iter().product::<i64>() * i64::from(bits) / 8) as u64;
            assert_eq!((header.dtype, header.shape(), header.nbytes), (dtype, shape, nbytes));
            assert_eq!((header.column_major, header.data_offset), (text.contains("True"), saved.len() as u64));

            let file_len = saved.len() as u64 + nbytes;
            assert_eq!(parse(&saved, file_len), Ok(header));
            if nbytes > 0 {
                let short = Error::FileTooShort { expected: file_len, found: file_len - 1 };
                assert_eq!(parse(&saved, file_len - 1), Err(short));
            }
            if version == 1 {
                let mut out = [0; MAX_WRITTEN];
                let len = write_header(dtype, column_major, shape, &mut out).unwrap();
                assert_eq!(out[..len].escape_ascii().to_string(), saved.escape_ascii().to_string());
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut random = Random(3);
        for _ in 0..20_000 {
            let (_, code, bits) = DTYPES[random.below(DTYPES.len())];
            let dtype = DLDataType { code, bits, lanes: 1 };
            let mut shape = [1; MAX_NDIM];
            let shape = &mut shape[..random.below(MAX_NDIM + 1)];
            for _ in 0..random.below(5).min(shape.len()) {
                shape[random.below(shape.len())] = [0, 1, 2, 9, 10, 99, 12345][random.below(7)];
            }
            let column_major = random.below(2) == 1;
            let mut out = [0; MAX_WRITTEN];
            let len = write_header(dtype, column_major, shape, &mut out).unwrap();
            assert_eq!(len % ALIGN, 0);
            let header = parse(&out[..len], ANY_LEN).unwrap();
            assert_eq!((header.dtype, header.shape(), header.data_offset), (dtype, &shape[..], len as u64));
            assert!(column_major || !header.column_major);
        }
        let widest = DLDataType { code: kDLComplex, bits: 128, lanes: 1 };
        let mut shape = [i64::MAX; MAX_NDIM];
        shape[7] = 0;
        assert!(write_header(widest, true, &shape, &mut [0; MAX_WRITTEN]).is_ok(), "no header is longer");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let mut out = [0; MAX_WRITTEN];
        let u1 = DLDataType { code: kDLUInt, bits: 8, lanes: 1 };
        for (code, bits, lanes) in
            [(4, 16, 1), (10, 8, 1), (2, 32, 4), (1, 8, 0), (2, 8, 1), (0, 128, 1), (6, 1, 1), (0, 4, 1)]
        {
            let found = DLDataType { code, bits, lanes };
            assert!(
                matches!(write_header(found, false, &[3], &mut out), Err(Error::Dtype { found: f, .. }) if f == found)
            );
        }
        assert_eq!(write_header(u1, false, &[1; 65], &mut out), Err(Error::Ndim { found: 65, most: 64 }));
        assert_eq!(write_header(u1, false, &[2, -1], &mut out), Err(Error::NegativeDimension { axis: 1, value: -1 }));
        let what = "the number of elements";
        assert_eq!(write_header(u1, false, &[1 << 62, 2], &mut out), Err(Error::Overflow { what }));
        assert_eq!(out, [0; MAX_WRITTEN], "nothing is written on failure");
    }

    #[test]
    fn every_dtype_in_native_order_only() {
        for (name, code, bits) in DTYPES {
            let dtype = DLDataType { code, bits, lanes: 1 };
            for order in ["", "=", "|", if NATIVE == b'<' { "<" } else { ">" }] {
                assert_eq!(parse_descr(&format!("'{order}{name}'")).unwrap().dtype, dtype);
            }
            let foreign = parse_descr(&format!("'{}{name}'", FOREIGN as char));
            if bits == 8 {
                assert_eq!(foreign.unwrap().dtype, dtype);
            } else {
                let sentence = sentence(foreign);
                assert!(sentence.contains("-endian, and this machine is "), "{sentence}");
            }
        }
    }

    #[test]
    fn what_dlpack_cannot_say_is_refused_with_the_reason() {
        for (descr, why) in [
            ("'|O'", "dtype '|O' holds pickled Python objects"),
            ("'|S5'", "dtype '|S5' is a byte string"),
            ("'|a5'", "is a byte string"),
            ("'<U3'", "dtype '<U3' is text"),
            ("'<M8[ns]'", "dtype '<M8[ns]' is a date"),
            ("'<m8'", "is a time span"),
            ("'|V2'", "is raw bytes"),
            ("'<V2'", "bfloat16"),
            ("'<V1'", "float8"),
            ("'<f1'", "float8_e5m2"),
            ("'<W4'", "complex32"),
            ("'<c32'", "is complex256"),
            ("'<f12'", "long double of 12 bytes"),
            ("[('a', '<f4')]", "is structured"),
            ("[]", "is structured"),
            ("[('\u{394}', [('b', '<f4')])]", "is structured"),
            ("('<f4', (2,))", "a subarray"),
            ("''", "dtype '' is none"),
            ("'<'", "is none"),
            ("'<f4 '", "is none"),
            ("'<f04'", "is none"),
            ("'i16'", "is none"),
            ("'f8,f4'", "is none"),
            ("'\u{394}'", "is none"),
        ] {
            for version in [[1, 0], [2, 0], [3, 0]] {
                let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}\n");
                let error = parse(&file(version, &text), ANY_LEN).unwrap_err();
                assert!(matches!(error, Error::FileDtype { .. }) && error.to_string().contains(why), "{error}");
            }
        }
        for descr in ["None", "4", "{}", "b'<f4'", "u'<f4'", "'<f4", "<f4"] {
            assert!(matches!(parse_descr(descr), Err(Error::Format { offset, .. }) if offset >= 20), "{descr}");
        }
    }

    #[test]
    fn the_dict_in_any_of_pythons_ways() {
        for text in [
            "{'descr': '=f4', 'fortran_order': True, 'shape': (3, 2)}",
            "{'descr': '=f4', 'fortran_order': True, 'shape': (3, 2), }\n",
            "{'shape': (3, 2), 'fortran_order': True, 'descr': '=f4', }    \n",
            "{'fortran_order': True, 'descr': '=f4', 'shape': (3, 2)}\t\x0c\n\n",
            "{\"descr\":\"=f4\",'fortran_order':True,\"shape\":(3,2),}",
            " \t{ 'descr'\n:\r\n'=f4'\t,\x0c'fortran_order' : True , 'shape' : ( 3 , 2 , ) , } \n",
            "{'descr': '=f4', 'fortran_order': True, 'shape': (3L, 2 L), }\n",
        ] {
            let header = parse_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(header.dtype, DLDataType { code: kDLFloat, bits: 32, lanes: 1 });
            assert_eq!((header.column_major, header.shape(), header.nbytes), (true, &[3, 2][..], 24));
            assert_eq!(header.data_offset, 10 + text.len() as u64);
        }
    }

    #[test]
    fn what_numpy_refuses_in_the_dict_is_refused() {
        for (text, offset, expected) in [
            ("", 10, "a Python dict"),
            ("\n", 10, "a Python dict"),
            ("\n{'descr': '=f4', 'fortran_order': True, 'shape': ()}", 10, "a Python dict"),
            ("['descr']", 10, "a Python dict"),
            ("{}", 11, "the key 'descr' too"),
            ("{,}", 11, "a key in quotes"),
            ("{'descr': '=f4', 'fortran_order': True, }", 50, "the key 'shape' too"),
            ("{'descr': '=f4', 'shape': ()}", 38, "the key 'fortran_order' too"),
            ("{'fortran_order': True, 'shape': ()}", 45, "the key 'descr' too"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': (), 'x': 1}", 63, "one of the keys"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': (), 'shape': ()}", 63, "every key only once"),
            ("{'descr': '=f4', 'fortran_order': 1, 'shape': ()}", 44, "True or False"),
            ("{'descr': '=f4', 'fortran_order': true, 'shape': ()}", 44, "True or False"),
            ("{'descr': '=f4', 'fortran_order': Trueish, 'shape': ()}", 48, "',' or '}'"),
            ("{'descr': '=f4', 'fortran_order': True 'shape': ()}", 49, "',' or '}'"),
            ("{'descr' '=f4', 'fortran_order': True, 'shape': ()}", 19, "':' after a key"),
            ("{'descr\": '=f4', 'fortran_order': True, 'shape': ()}", 11, "one of the keys"),
            ("{'d\\x65scr': '=f4', 'fortran_order': True, 'shape': ()}", 11, "one of the keys"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': ()", 61, "',' or '}'"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': (), ", 63, "a key in quotes"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': (),, }", 62, "a key in quotes"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': ()},\n", 62, "only spaces"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': ()}\0", 62, "only spaces"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': ()}\n \n", 63, "only spaces"),
            ("{'descr': '=f4', 'fortran_order': True, 'shape': ()}\u{a0}", 62, "only spaces"),
        ] {
            let error = parse_text(text).unwrap_err();
            let Error::Format { offset: at, expected: said, .. } = error else { panic!("{text}: {error}") };
            assert!(at == offset && said.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn shapes_in_any_of_pythons_ways_and_no_other() {
        for (text, shape) in [
            ("()", &[][..]),
            ("( )", &[]),
            ("(3,)", &[3]),
            ("(0,)", &[0]),
            ("(-0,)", &[0]),
            ("(0, 3)", &[0, 3]),
            ("(10L,)", &[10]),
            ("(9223372036854775807,)", &[i64::MAX]),
            ("(0, 9223372036854775807, 9223372036854775807)", &[0, i64::MAX, i64::MAX]),
            ("(9223372036854775807, 9223372036854775807, 0)", &[i64::MAX, i64::MAX, 0]),
        ] {
            let parsed = parse_shape(text).unwrap();
            let nbytes = if shape.contains(&0) { 0 } else { shape.iter().product::<i64>() as u64 };
            assert_eq!((parsed.shape(), parsed.nbytes), (shape, nbytes));
            assert_eq!(parsed.shape[parsed.ndim..], [0; MAX_NDIM][parsed.ndim..]);
        }
        for text in [
            "(3)", "3", "[3]", "(,)", "(3,,)", "(3 4)", "(03,)", "(00,)", "(0x3,)", "(1_0,)", "(3.0,)", "(1e3,)",
            "(3j,)", "(True,)", "(None,)", "('3',)", "(+3,)", "(- 3,)", "(--3,)", "(-,)", "(3l,)", "(3LL,)", "(3\nL,)",
            "(L,)", "((3,))", "(3,", "(", "",
        ] {
            assert!(matches!(parse_shape(text), Err(Error::Format { .. })), "{text}: {:?}", parse_shape(text));
        }
        let python3 = file([3, 0], "{'descr': '|u1', 'fortran_order': False, 'shape': (3L,), }\n");
        assert!(matches!(parse(&python3, ANY_LEN), Err(Error::Format { offset: 64, .. })));
    }

    #[test]
    fn dimensions_out_of_range_are_refused() {
        assert_eq!(sentence(parse_shape("(2, -4)")), "shape[1] is -4; dimensions must be >= 0");
        assert_eq!(parse_shape("(0, -1)"), Err(Error::NegativeDimension { axis: 1, value: -1 }));
        let least = Error::NegativeDimension { axis: 0, value: i64::MIN };
        assert_eq!(parse_shape("(-9223372036854775808,)"), Err(least));
        for text in ["(9223372036854775808,)", "(-9223372036854775809,)", &format!("(0, 1{:0>5000})", "")] {
            assert_eq!(parse_shape(text), Err(Error::Overflow { what: "a dimension in the file" }));
        }
        let (count, bytes) = ("the number of elements", "the size of the elements in bytes");
        assert_eq!(parse_shape("(4294967296, 2147483648)"), Err(Error::Overflow { what: count }));
        let f8 = |shape: i64| parse_text(&format!("{{'descr': '=f8', 'fortran_order': False, 'shape': ({shape},)}}"));
        assert_eq!(f8(1 << 60), Err(Error::Overflow { what: bytes }));
        assert_eq!(f8((1 << 60) - 1).unwrap().nbytes, i64::MAX as u64 - 7);
        let dims = |n| format!("({})", "1,".repeat(n));
        assert_eq!(parse_shape(&dims(64)).unwrap().shape(), [1; 64]);
        let error = sentence(parse_shape(&dims(65)));
        assert_eq!(error, "at byte 189: expected at most 64 dimensions, NumPy's maximum, found '1,), }\\n'");
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        let text = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n";
        for version in [[0, 9], [0, 0], [1, 1], [2, 1], [3, 1], [4, 0], [255, 255]] {
            let error = parse(&file(version, text), ANY_LEN).unwrap_err();
            assert!(matches!(error, Error::Format { offset: 6, .. }), "{error}");
        }
        for other in [&b"\x93NUMPX\x01\x00"[..], b"PK\x03\x04", b"\x93NUMP ", b"\x80"] {
            assert!(matches!(parse(other, ANY_LEN), Err(Error::Format { offset: 0, .. })));
        }
        for (major, longest) in [(1, MAX_TEXT), (2, MAX_TEXT), (3, MAX_TEXT)] {
            let text = |len| format!("{:len$}", text.trim_end());
            assert!(parse(&file([major, 0], &text(longest)), ANY_LEN).is_ok());
            let error = parse(&file([major, 0], &text(longest + 1)), ANY_LEN);
            assert!(matches!(error, Err(Error::Format { offset: 8, .. })));
        }
        let wild = b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}";
        assert!(matches!(parse(wild, ANY_LEN), Err(Error::Format { offset: 8, .. })));
    }

    #[test]
    fn no_prefix_of_a_file_is_a_file() {
        for version in 1..=3 {
            let text = "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3), }     \n";
            let mut whole = file([version, 0], text);
            let header_len = whole.len();
            whole.extend([0; 24]);
            assert!(parse(&whole, whole.len() as u64).is_ok());
            for len in 0..whole.len() {
                let error = parse(&whole[..len], len as u64).unwrap_err();
                let Error::FileTooShort { expected, found } = error else { panic!("{len}: {error}") };
                assert!(found == len as u64 && expected > found && expected <= whole.len() as u64);
                assert_eq!(parse(&whole, len as u64), Err(error), "what lies behind the file's end is not read");
                assert_eq!(parse(&whole[..len], whole.len() as u64).is_ok(), len >= header_len);
            }
            // The file goes on and only the header's length is too small.
            for len in 0..text.find('}').unwrap() {
                let error = parse(&file([version, 0], &text[..len]), ANY_LEN).unwrap_err();
                assert!(matches!(error, Error::Format { .. }), "{len}: {error}");
            }
        }
    }

    #[test]
    fn damaged_headers_do_no_harm() {
        let seeds = [
            file([1, 0], "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3), }            "),
            file([2, 0], "{'shape': (10L, 3L), 'fortran_order': True, 'descr': \"|u1\"}    "),
            file([3, 0], "{'descr': [('a', '<c16')], 'fortran_order': False, 'shape': (), }   "),
            file([1, 0], "{'descr': '>i8', 'fortran_order': False, 'shape': (9223372036854775807,), }   "),
        ];
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut accepted = 0;
        for case in 0..1_000_000 {
            let seed = &seeds[case % seeds.len()];
            let mut bytes = [b' '; 128];
            let mut len = seed.len();
            bytes[..len].copy_from_slice(seed);
            for _ in 0..1 + random.below(4) {
                // The first bytes less often: one wrong there, and nothing else is read.
                let from = if random.below(4) == 0 { 0 } else { len.min(12) - 1 };
                let at = from + random.below(len - from);
                match random.below(8) {
                    0..4 => bytes[at] ^= 1 << random.below(8),
                    4 => bytes[at] = random.below(256) as u8,
                    5 => bytes[at] = b"()[]{},:'\"LTF019- \n<>|=bif"[random.below(26)],
                    6 => bytes.copy_within(at + 1.., at),
                    _ => len = at.max(1),
                }
            }
            let file_len = [len as u64, 1 << 40, u64::MAX][random.below(3)];
            match parse(&bytes[..len], file_len) {
                Ok(header) => {
                    accepted += 1;
                    assert!(header.data_offset + header.nbytes <= file_len);
                    assert!(header.shape().iter().all(|&dimension| dimension >= 0));
                    let again = write_header(header.dtype, header.column_major, header.shape(), &mut [0; MAX_WRITTEN]);
                    assert!(again.is_ok());
                }
                Err(error) => assert_ne!(error.status() as i32, 0),
            }
        }
        assert!(accepted > 1_000, "only {accepted} got through, so little was tested");
    }
}
