//! The header of safetensors files: what it says about the tensors in the file, and the header that the crate
//! `safetensors` would write.
//!
//! Written here and not with the crate `safetensors`, because that crate and serde_json allocate infallibly and
//! a hundred megabytes of header would abort somebody else's process. serde-json-core does not allocate,
//! but neither unescapes names nor says at which byte something is wrong. So this is a tokenizer for the one
//! schema: it works in the header's own bytes, in which strings are unescaped and NUL-terminated in place.
//!
//! A test holds it together with the crate: what that one refuses is refused. What it takes is taken, but for
//! what the format forbids (a name twice), what C cannot say (NUL in a name), what DLPack cannot say (a
//! dimension above 2^63 - 1, more than 1024 dimensions), and what nobody writes: serde's other spellings of a struct
//! (an array, for example), and numbers from 10^308 on in keys that the format does not have.

use crate::abi::*;
use crate::error::{Error, Excerpt, MAX_NDIM, Result};
use core::cmp::Ordering;
use core::ffi::CStr;
use core::fmt::{self, Write};

/// The longest header that the format allows.
pub const MAX_HEADER: u64 = 100_000_000;

/// Bytes in front of the header: its length.
pub const LENGTH: usize = 8;

/// The key that is no tensor.
const METADATA: &[u8] = b"__metadata__";

/// Every dtype of the format, in its order of alignment: writers put tensors with later ones first.
const DTYPES: [(&str, u8, u8); 22] = [
    ("BOOL", kDLBool, 8),
    ("F4", kDLFloat4_e2m1fn, 4),
    ("F6_E2M3", kDLFloat6_e2m3fn, 6),
    ("F6_E3M2", kDLFloat6_e3m2fn, 6),
    ("U8", kDLUInt, 8),
    ("I8", kDLInt, 8),
    ("F8_E5M2", kDLFloat8_e5m2, 8),
    ("F8_E4M3", kDLFloat8_e4m3fn, 8),
    ("F8_E8M0", kDLFloat8_e8m0fnu, 8),
    ("F8_E4M3FNUZ", kDLFloat8_e4m3fnuz, 8),
    ("F8_E5M2FNUZ", kDLFloat8_e5m2fnuz, 8),
    ("I16", kDLInt, 16),
    ("U16", kDLUInt, 16),
    ("F16", kDLFloat, 16),
    ("BF16", kDLBfloat, 16),
    ("I32", kDLInt, 32),
    ("U32", kDLUInt, 32),
    ("F32", kDLFloat, 32),
    ("C64", kDLComplex, 64),
    ("F64", kDLFloat, 64),
    ("I64", kDLInt, 64),
    ("U64", kDLUInt, 64),
];

/// One tensor. Small, and of one size, so that a header costs little more memory than its own text.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where in the text.
    name: u32,
    name_len: u32,
    /// Where in the text, behind the bracket; read again when it is asked for.
    shape: u32,
    ndim: u16,
    /// Index in `DTYPES`.
    dtype: u8,
    /// In bytes, from the end of the header.
    begin: u64,
    end: u64,
}

/// A header that was found to be right.
#[derive(Debug)]
pub struct Index {
    /// The file up to the end of the header.
    text: Vec<u8>,
    /// By `begin`; those of the same place, which are empty, in the header's order.
    entries: Vec<Entry>,
    /// Numbers of `entries`, by name.
    by_name: Vec<u32>,
    /// Where keys and values are in the text, in the header's order.
    metadata: Vec<(u32, u32)>,
}

/// What the header says of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// In this machine's byte order.
    pub dtype: DLDataType,
    /// Number of dimensions.
    pub ndim: usize,
    /// In bytes, from the end of the header.
    pub begin: u64,
    /// How many bytes the elements take.
    pub nbytes: u64,
}

/// How much of the file to read for [`Index::parse`]: the first 8 bytes of a file of `file_len` bytes say so.
pub fn length_to_read(start: &[u8], file_len: u64) -> Result<usize> {
    let &length = start.first_chunk::<LENGTH>().ok_or(Error::FileTooShort { expected: 8, found: file_len })?;
    let header = u64::from_le_bytes(length);
    if header > MAX_HEADER {
        let found = Excerpt::new(&length);
        return Err(Error::Format { offset: 0, expected: "a header length of at most 100000000 bytes", found });
    }
    let expected = LENGTH as u64 + header;
    if expected > file_len { Err(Error::FileTooShort { expected, found: file_len }) } else { Ok(expected as usize) }
}

impl Index {
    /// Reads a header. `text` is the beginning of the file, as long as [`length_to_read`] says.
    pub fn parse(text: Vec<u8>, file_len: u64) -> Result<Self> {
        if let Err(error) = core::str::from_utf8(&text[LENGTH..]) {
            let at = LENGTH + error.valid_up_to();
            return Err(Error::Format { offset: at as u64, expected: "UTF-8", found: Excerpt::new(&text[at..]) });
        }
        let mut index = Index { text, entries: Vec::new(), by_name: Vec::new(), metadata: Vec::new() };
        Json { text: &mut index.text, at: LENGTH }.header(&mut index.entries, &mut index.metadata)?;
        // The place in the text makes the order a total one.
        let place = |number: u32| &index.entries[number as usize];
        let key = |entry: &Entry| (entry.begin, entry.end, entry.name);
        let order = sorted(index.entries.len(), &|a, b| key(place(a)).cmp(&key(place(b))))?;
        let mut entries = reserved(order.len())?;
        entries.extend(order.into_iter().map(|number| *place(number)));
        index.entries = entries;
        index.check_places(file_len)?;
        index.check_names()?;
        Ok(index)
    }

    /// The format: no overlap, no hole, nothing behind the last tensor.
    fn check_places(&self, file_len: u64) -> Result<()> {
        let mut next = 0;
        for entry in &self.entries {
            let name = Excerpt::new(self.name_of(entry));
            if entry.begin != next {
                return Err(Error::TensorPlace { name, begin: entry.begin, expected: next });
            }
            next = entry.end;
            // In 64 bits and from left to right as the crate multiplies, so that a product that overflows before
            // it comes to a 0 is refused here too.
            let (mut count, mut large) = (1u64, None);
            for (axis, dimension) in self.dimensions(entry).enumerate() {
                count = count.checked_mul(dimension).ok_or(Error::Overflow { what: "the number of elements" })?;
                if dimension > i64::MAX as u64 {
                    large = Some(axis);
                }
            }
            if large.is_some() {
                return Err(Error::Overflow { what: "a dimension in the file" });
            }
            let bits = count.checked_mul(u64::from(DTYPES[entry.dtype as usize].2));
            let bits = bits.ok_or(Error::Overflow { what: "the size of the elements in bits" })?;
            if bits % 8 != 0 {
                return Err(Error::TensorPartByte { name, bits });
            }
            if entry.end - entry.begin != bits / 8 {
                return Err(Error::TensorExtent { name, found: entry.end - entry.begin, expected: bits / 8 });
            }
        }
        let expected = next.checked_add(self.data_offset()).ok_or(Error::Overflow { what: "the size of the file" })?;
        if expected > file_len {
            Err(Error::FileTooShort { expected, found: file_len })
        } else if expected < file_len {
            Err(Error::FileTooLong { expected, found: file_len })
        } else {
            Ok(())
        }
    }

    fn check_names(&mut self) -> Result<()> {
        let key = |number: u32| {
            let entry = &self.entries[number as usize];
            (self.name_of(entry), entry.name)
        };
        let by_name = sorted(self.entries.len(), &|a, b| key(a).cmp(&key(b)))?;
        for pair in by_name.windows(2) {
            let [first, second] = [pair[0], pair[1]].map(|number| &self.entries[number as usize]);
            if self.name_of(first) == self.name_of(second) {
                return Err(twice(self.name_of(second), second.name as usize));
            }
        }
        self.by_name = by_name;
        // The same for metadata, without keeping the order.
        let at = |number: u32| self.metadata[number as usize].0;
        let key = |number: u32| (self.string(at(number)), at(number));
        for pair in sorted(self.metadata.len(), &|a, b| key(a).cmp(&key(b)))?.windows(2) {
            if key(pair[0]).0 == key(pair[1]).0 {
                return Err(twice(key(pair[1]).0.to_bytes(), key(pair[1]).1 as usize));
            }
        }
        Ok(())
    }

    /// Where in the file the elements begin. A multiple of 8 in files by the usual writers, any number in others.
    pub fn data_offset(&self) -> u64 {
        self.text.len() as u64
    }

    /// How many bytes the elements of all tensors take.
    pub fn nbytes(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// How many tensors there are.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// What a tensor is called: UTF-8.
    pub fn name(&self, number: usize) -> Result<&CStr> {
        Ok(self.string(self.entry(number)?.name))
    }

    /// The number of the tensor that is called so.
    pub fn find(&self, name: &[u8]) -> Result<usize> {
        let found = self.by_name.binary_search_by_key(&name, |&number| self.name_of(&self.entries[number as usize]));
        match found {
            Ok(at) => Ok(self.by_name[at] as usize),
            Err(_) => Err(Error::Name { name: Excerpt::new(name), why: "belongs to no tensor in the file" }),
        }
    }

    /// What the header says of a tensor. Writes the dimensions.
    pub fn tensor(&self, number: usize, shape: &mut [i64; MAX_NDIM]) -> Result<Found> {
        let entry = self.entry(number)?;
        let (name, code, bits) = DTYPES[entry.dtype as usize];
        if cfg!(target_endian = "big") && bits > 8 {
            let why = "is little-endian in every safetensors file, and this machine is big-endian";
            return Err(Error::FileDtype { descr: Excerpt::new(name.as_bytes()), why });
        }
        for (slot, dimension) in shape.iter_mut().zip(self.dimensions(entry)) {
            *slot = dimension as i64; // not more, says check_places
        }
        Ok(Found {
            dtype: DLDataType { code, bits, lanes: 1 },
            ndim: entry.ndim as usize,
            begin: entry.begin,
            nbytes: entry.end - entry.begin,
        })
    }

    /// How many pairs `__metadata__` has.
    pub fn metadata_count(&self) -> usize {
        self.metadata.len()
    }

    /// A key and a value of `__metadata__`: UTF-8.
    pub fn metadata(&self, number: usize) -> Result<(&CStr, &CStr)> {
        let what = "metadata entries";
        let found = self.metadata.get(number);
        let &(key, value) = found.ok_or(Error::NoSuchIndex { what, index: number, count: self.metadata.len() })?;
        Ok((self.string(key), self.string(value)))
    }

    fn entry(&self, number: usize) -> Result<&Entry> {
        let count = self.entries.len();
        self.entries.get(number).ok_or(Error::NoSuchIndex { what: "tensors", index: number, count })
    }

    fn name_of(&self, entry: &Entry) -> &[u8] {
        &self.text[entry.name as usize..][..entry.name_len as usize]
    }

    /// A string that the tokenizer terminated.
    fn string(&self, at: u32) -> &CStr {
        CStr::from_bytes_until_nul(&self.text[at as usize..]).unwrap_or_default()
    }

    /// Reads a shape once more: whole numbers of 64 bits between commas and spaces.
    fn dimensions(&self, entry: &Entry) -> impl Iterator<Item = u64> {
        let mut rest = &self.text[entry.shape as usize..];
        (0..entry.ndim).map(move |_| {
            rest = &rest[rest.iter().take_while(|byte| !byte.is_ascii_digit()).count()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (number, after) = rest.split_at(digits);
            rest = after;
            number.iter().fold(0u64, |value, digit| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
        })
    }
}

/// A tensor to be saved.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    name: &'a str,
    /// Index in `DTYPES`.
    dtype: usize,
    nbytes: u64,
    /// The caller's number.
    pub number: usize,
}

impl<'a> Part<'a> {
    /// Checks that the format can say it.
    pub fn new(name: &'a CStr, found: DLDataType, padded: bool, nbytes: u64, number: usize) -> Result<Self> {
        let refuse = |why| Err(Error::Name { name: Excerpt::new(name.to_bytes()), why });
        let Ok(name) = name.to_str() else { return refuse("is not UTF-8") };
        if name.as_bytes() == METADATA {
            return refuse("stands for the metadata in a safetensors file");
        }
        let known = DTYPES.iter().position(|&(_, code, bits)| found == DLDataType { code, bits, lanes: 1 });
        let Some(index) = known else {
            return Err(Error::Dtype { found, why: "has no name in a safetensors file" });
        };
        if found.bits < 8 && padded {
            return Err(Error::Dtype { found, why: "is padded to whole bytes, and a safetensors file packs it" });
        }
        Ok(Part { name, dtype: index, nbytes, number })
    }
}

/// Writes the bytes that the crate writes before the elements, and puts the parts in the order in which their
/// elements follow. `shape` calls back with the dimensions of the part with that number.
///
/// Of metadata the crate writes as many pairs in any order; here they keep the caller's.
pub fn write_header(
    parts: &mut [Part],
    metadata: &[(&CStr, &CStr)],
    shape: impl Fn(usize, &mut dyn FnMut(&[i64]) -> Result<()>) -> Result<()>,
) -> Result<Vec<u8>> {
    const TWICE: &str = "is there twice";
    let twice = |name: &[u8]| Error::Name { name: Excerpt::new(name), why: TWICE };
    let part = |number: u32| &parts[number as usize];
    let by_name = sorted(parts.len(), &|a, b| part(a).name.cmp(part(b).name))?;
    if let Some(pair) = by_name.windows(2).find(|pair| part(pair[0]).name == part(pair[1]).name) {
        return Err(twice(part(pair[0]).name.as_bytes()));
    }
    let by_place = |a: &Part, b: &Part| b.dtype.cmp(&a.dtype).then(a.name.cmp(b.name));
    let order = sorted(parts.len(), &|a, b| by_place(part(a), part(b)))?;
    let mut ordered = reserved(parts.len())?;
    ordered.extend(order.into_iter().map(|number| *part(number)));
    parts.copy_from_slice(&ordered);

    let mut out = Growing { bytes: Vec::new(), failed: None };
    let mut write = || -> Result<()> {
        out.text("\0\0\0\0\0\0\0\0{")?;
        if !metadata.is_empty() {
            out.text("\"__metadata__\":{")?;
            let mut keys: Vec<&str> = reserved(metadata.len())?;
            for (number, (key, value)) in metadata.iter().enumerate() {
                let [key, value] = [key, value].map(|text| {
                    let refuse =
                        |_| Error::Name { name: Excerpt::new(text.to_bytes()), why: "of metadata is not UTF-8" };
                    text.to_str().map_err(refuse)
                });
                let (key, value) = (key?, value?);
                keys.push(key);
                out.text(if number == 0 { "" } else { "," })?;
                out.quoted(key)?;
                out.text(":")?;
                out.quoted(value)?;
            }
            let key = |number: u32| keys[number as usize];
            let order = sorted(keys.len(), &|a, b| key(a).cmp(key(b)))?;
            if let Some(pair) = order.windows(2).find(|pair| key(pair[0]) == key(pair[1])) {
                return Err(twice(key(pair[0]).as_bytes()));
            }
            out.text(if parts.is_empty() { "}" } else { "}," })?;
        }
        let mut begin = 0u64;
        for (number, part) in parts.iter().enumerate() {
            out.text(if number == 0 { "" } else { "," })?;
            out.quoted(part.name)?;
            out.text(":{\"dtype\":\"")?;
            out.text(DTYPES[part.dtype].0)?;
            out.text("\",\"shape\":[")?;
            shape(part.number, &mut |shape| {
                for (axis, dimension) in shape.iter().enumerate() {
                    out.print(format_args!("{}{dimension}", if axis == 0 { "" } else { "," }))?;
                }
                Ok(())
            })?;
            let end = begin.checked_add(part.nbytes).filter(|&end| i64::try_from(end).is_ok());
            let end = end.ok_or(Error::Overflow { what: "the size of all tensors in bytes" })?;
            out.print(format_args!("],\"data_offsets\":[{begin},{end}]}}"))?;
            begin = end;
        }
        out.text("}")?;
        // The elements begin at a multiple of 8.
        while out.bytes.len() % LENGTH != 0 {
            out.text(" ")?;
        }
        Ok(())
    };
    write()?;
    let length = out.bytes.len() - LENGTH;
    out.bytes[..LENGTH].copy_from_slice(&(length as u64).to_le_bytes());
    Ok(out.bytes)
}

/// Text that grows, or says why it cannot.
struct Growing {
    bytes: Vec<u8>,
    failed: Option<Error>,
}

impl Growing {
    fn text(&mut self, text: &str) -> Result<()> {
        if self.bytes.len() + text.len() > LENGTH + MAX_HEADER as usize {
            return Err(Error::HeaderTooLong { most: MAX_HEADER });
        }
        self.bytes.try_reserve(text.len()).map_err(|_| no_memory::<u8>(self.bytes.len() + text.len()))?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn print(&mut self, arguments: fmt::Arguments) -> Result<()> {
        self.write_fmt(arguments).map_err(|_| self.failed.take().unwrap_or(Error::Overflow { what: "the header" }))
    }

    /// A string of JSON, escaped where serde_json escapes.
    fn quoted(&mut self, text: &str) -> Result<()> {
        self.text("\"")?;
        let mut from = 0;
        for (at, byte) in text.bytes().enumerate() {
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                0x08 => "\\b",
                b'\t' => "\\t",
                b'\n' => "\\n",
                0x0c => "\\f",
                b'\r' => "\\r",
                0..0x20 => "\\u00",
                _ => continue,
            };
            self.text(&text[from..at])?;
            self.text(escape)?;
            if escape.len() > 2 {
                self.print(format_args!("{byte:02x}"))?;
            }
            from = at + 1;
        }
        self.text(&text[from..])?;
        self.text("\"")
    }
}

impl fmt::Write for Growing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text).map_err(|error| {
            self.failed = Some(error);
            fmt::Error
        })
    }
}

fn twice(name: &[u8], at: usize) -> Error {
    Error::Format { offset: at as u64, expected: "every name only once", found: Excerpt::new(name) }
}

/// The numbers below `count` in order. One sort for everything, through a pointer: each kind of element would bring
/// ten kilobytes of code. Unstable, since the stable one allocates.
fn sorted(count: usize, compare: &dyn Fn(u32, u32) -> Ordering) -> Result<Vec<u32>> {
    let mut order = reserved(count)?;
    order.extend(0..u32::try_from(count).map_err(|_| Error::Overflow { what: "the number of names" })?);
    order.sort_unstable_by(|&a, &b| compare(a, b));
    Ok(order)
}

/// A vector with room, or the error.
pub fn reserved<T>(count: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count).map_err(|_| no_memory::<T>(count))?;
    Ok(vector)
}

/// Appends, or says that it cannot.
fn push<T>(vector: &mut Vec<T>, value: T) -> Result<()> {
    vector.try_reserve(1).map_err(|_| no_memory::<T>(vector.len() + 1))?;
    vector.push(value);
    Ok(())
}

fn no_memory<T>(count: usize) -> Error {
    Error::NoMemory { nbytes: count.saturating_mul(size_of::<T>()) }
}

/// A string in the text: unescaped, and a NUL behind it.
#[derive(Clone, Copy)]
struct Span {
    at: usize,
    len: usize,
}

/// JSON as serde_json reads it. `text` begins where the file begins, so that `at` is an offset in the file.
struct Json<'a> {
    text: &'a mut [u8],
    at: usize,
}

/// serde_json's limit, so that no header overflows the stack.
const DEEPEST: u32 = 127;

impl Json<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn get(&self, span: Span) -> &[u8] {
        &self.text[span.at..][..span.len]
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T> {
        self.fail_at(self.at, expected)
    }

    fn fail_at<T>(&self, at: usize, expected: &'static str) -> Result<T> {
        Err(Error::Format { offset: at as u64, expected, found: Excerpt::new(&self.text[at..]) })
    }

    fn space(&mut self) {
        self.at += self.rest().iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
    }

    /// Takes a token, and the spaces before it.
    fn take(&mut self, token: &[u8]) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn need(&mut self, token: &[u8], expected: &'static str) -> Result<()> {
        if self.take(token) { Ok(()) } else { self.fail(expected) }
    }

    /// Whether one more item follows in a list that ends with `close`.
    fn more(&mut self, first: &mut bool, close: u8, expected: &'static str) -> Result<bool> {
        if self.take(&[close]) {
            return Ok(false);
        }
        if !core::mem::take(first) {
            self.need(b",", expected)?;
            self.space();
        }
        Ok(true)
    }

    /// A key and the colon behind it.
    fn key(&mut self) -> Result<Span> {
        let key = self.string("a key in double quotes")?;
        self.need(b":", "':' after a key")?;
        self.space();
        Ok(key)
    }

    fn header(mut self, entries: &mut Vec<Entry>, metadata: &mut Vec<(u32, u32)>) -> Result<()> {
        // The format wants the brace at once; the crate takes spaces before it, for writers that align so.
        self.need(b"{", "a safetensors header, which begins with '{'")?;
        let (mut first, mut seen) = (true, false);
        while self.more(&mut first, b'}', "',' or '}' after a tensor")? {
            let name = self.key()?;
            if self.get(name) != METADATA {
                self.c_string(name)?;
                let entry = self.tensor(name)?;
                push(entries, entry)?;
            } else if core::mem::replace(&mut seen, true) {
                return self.fail_at(name.at, "the key __metadata__ only once");
            } else if !self.take(b"null") {
                self.metadata(metadata)?;
            }
        }
        self.space();
        if self.rest().is_empty() { Ok(()) } else { self.fail("only spaces after the header's last '}'") }
    }

    fn metadata(&mut self, metadata: &mut Vec<(u32, u32)>) -> Result<()> {
        self.need(b"{", "an object of strings, which begins with '{'")?;
        let mut first = true;
        while self.more(&mut first, b'}', "',' or '}' after a value")? {
            let key = self.key()?;
            self.c_string(key)?;
            let value = self.string("a string in double quotes, as all metadata is")?;
            self.c_string(value)?;
            push(metadata, (key.at as u32, value.at as u32))?;
        }
        Ok(())
    }

    fn tensor(&mut self, name: Span) -> Result<Entry> {
        let start = self.at;
        self.need(b"{", "an object that describes the tensor, which begins with '{'")?;
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        let mut first = true;
        while self.more(&mut first, b'}', "',' or '}' after a value")? {
            let key = self.key()?;
            let again = match self.get(key) {
                b"dtype" => dtype.replace(self.dtype()?).is_some(),
                b"shape" => shape.replace(self.shape()?).is_some(),
                b"data_offsets" => offsets.replace(self.offsets()?).is_some(),
                _ => {
                    self.skip(3)?; // inside of two objects
                    false
                }
            };
            if again {
                return self.fail_at(key.at, "every key only once");
            }
        }
        let Some(dtype) = dtype else { return self.fail_at(start, "the key 'dtype' in what describes the tensor") };
        let Some((shape, ndim)) = shape else {
            return self.fail_at(start, "the key 'shape' in what describes the tensor");
        };
        let Some((begin, end)) = offsets else {
            return self.fail_at(start, "the key 'data_offsets' in what describes the tensor");
        };
        // A header has at most 100 MB, so its offsets fit.
        let (name, name_len) = (name.at as u32, name.len as u32);
        Ok(Entry { name, name_len, shape: shape as u32, ndim, dtype, begin, end })
    }

    fn dtype(&mut self) -> Result<u8> {
        let name = self.string("a dtype in double quotes")?;
        let known = DTYPES.iter().position(|&(known, ..)| known.as_bytes() == self.get(name));
        known.map(|index| index as u8).ok_or(Error::FileDtype {
            descr: Excerpt::new(self.get(name)),
            why: "is none that a safetensors file can have",
        })
    }

    /// Where the numbers begin, and how many they are.
    fn shape(&mut self) -> Result<(usize, u16)> {
        self.need(b"[", "an array of dimensions, which begins with '['")?;
        let (start, mut ndim, mut first) = (self.at, 0, true);
        while self.more(&mut first, b']', "',' or ']' after a dimension")? {
            if ndim == MAX_NDIM {
                return self.fail("at most 1024 dimensions");
            }
            self.unsigned()?;
            ndim += 1;
        }
        Ok((start, ndim as u16))
    }

    fn offsets(&mut self) -> Result<(u64, u64)> {
        self.need(b"[", "two offsets, in an array that begins with '['")?;
        let start = self.at;
        self.space();
        let begin = self.unsigned()?;
        self.need(b",", "',' between two offsets")?;
        self.space();
        let end = self.unsigned()?;
        self.need(b"]", "']' after two offsets")?;
        if end < begin { self.fail_at(start, "an end that is not before the beginning") } else { Ok((begin, end)) }
    }

    fn unsigned(&mut self) -> Result<u64> {
        const EXPECTED: &str = "a decimal integer from 0 to 2^64 - 1";
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = &self.rest()[..digits];
        let value = number.iter().try_fold(0u64, |value, digit| {
            value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')))
        });
        let odd = digits == 0
            || (number[0] == b'0' && digits > 1)
            || matches!(self.rest().get(digits), Some(b'.' | b'e' | b'E'));
        match value {
            Some(value) if !odd => {
                self.at += digits;
                Ok(value)
            }
            _ => self.fail(EXPECTED),
        }
    }

    /// Reads a string, and leaves it unescaped and NUL-terminated in its place, which is never shorter.
    fn string(&mut self, expected: &'static str) -> Result<Span> {
        if self.text.get(self.at) != Some(&b'"') {
            return self.fail(expected);
        }
        let start = self.at + 1;
        let (mut from, mut to) = (start, start);
        loop {
            match self.text.get(from).copied() {
                None => return self.fail("a string with a closing quote"),
                Some(b'"') => break,
                Some(0..0x20) => return self.fail_at(from, "no control character in a string"),
                Some(b'\\') => {
                    let (character, len) = self.escape(from)?;
                    to += character.encode_utf8(&mut self.text[to..to + len]).len();
                    from += len;
                }
                Some(byte) => {
                    self.text[to] = byte;
                    (from, to) = (from + 1, to + 1);
                }
            }
        }
        self.text[to] = 0;
        self.at = from + 1;
        Ok(Span { at: start, len: to - start })
    }

    /// The character that an escape stands for, and the escape's length.
    fn escape(&self, at: usize) -> Result<(char, usize)> {
        let character = match self.text.get(at + 1) {
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte as char,
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let half = self.hex(at)?;
                if let Some(character) = char::from_u32(half) {
                    return Ok((character, 6));
                }
                let low = if self.text[at + 6..].starts_with(b"\\u") { self.hex(at + 6)? } else { 0 };
                if !(0xd800..0xdc00).contains(&half) || !(0xdc00..0xe000).contains(&low) {
                    return self.fail_at(at, "both halves of a surrogate pair");
                }
                let code = 0x10000 + ((half - 0xd800) << 10) + (low - 0xdc00);
                return Ok((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12));
            }
            _ => return self.fail_at(at, "an escape of JSON"),
        };
        Ok((character, 2))
    }

    /// The four digits of an escape that begins with `\u`.
    fn hex(&self, at: usize) -> Result<u32> {
        let Some(digits) = self.text.get(at + 2..at + 6) else { return self.fail_at(at, "four hexadecimal digits") };
        let value = digits.iter().try_fold(0, |value, &digit| Some(value << 4 | (digit as char).to_digit(16)?));
        value.map_or_else(|| self.fail_at(at, "four hexadecimal digits"), Ok)
    }

    /// In C the string would end at a NUL.
    fn c_string(&self, span: Span) -> Result<()> {
        if self.get(span).contains(&0) { self.fail_at(span.at, "no \\u0000 in a string") } else { Ok(()) }
    }

    /// Skips a value of any kind: what later versions of the format may say about a tensor.
    fn skip(&mut self, depth: u32) -> Result<()> {
        if depth > DEEPEST + 1 {
            return self.fail("no more than 127 brackets inside each other");
        }
        let mut first = true;
        match self.rest().first().copied() {
            Some(b'"') => drop(self.string("a string")?),
            Some(b'{') => {
                self.at += 1;
                while self.more(&mut first, b'}', "',' or '}' after a value")? {
                    self.key()?;
                    self.skip(depth + 1)?;
                }
            }
            Some(b'[') => {
                self.at += 1;
                while self.more(&mut first, b']', "',' or ']' after a value")? {
                    self.skip(depth + 1)?;
                }
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ if self.take(b"true") || self.take(b"false") || self.take(b"null") => {}
            _ => return self.fail("a value of JSON"),
        }
        Ok(())
    }

    /// A number that a double can hold. serde_json refuses those that it cannot; without a conversion, which is
    /// 14 kB of code, the largest power of ten is refused too.
    fn number(&mut self) -> Result<()> {
        let start = self.at;
        self.at += usize::from(self.rest()[0] == b'-');
        let whole = self.at;
        let mut right = self.digits() > 0 && (self.text[whole] != b'0' || self.at == whole + 1);
        let point = self.at;
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            right &= self.digits() > 0;
        }
        let leading = self.text[whole..self.at].iter().position(|byte| (b'1'..=b'9').contains(byte));
        let mut exponent = 0i64;
        if let Some(b'e' | b'E') = self.rest().first() {
            self.at += 1;
            let negative = self.rest().first() == Some(&b'-');
            self.at += usize::from(matches!(self.rest().first(), Some(b'+' | b'-')));
            let digits = self.at;
            right &= self.digits() > 0;
            for digit in &self.text[digits..self.at] {
                exponent = (exponent * 10 + i64::from(digit - b'0')).min(1 << 40);
            }
            exponent = if negative { -exponent } else { exponent };
        }
        // The power of ten of the first digit that is not 0.
        let power = leading.map_or(i64::MIN, |leading| {
            let place = point as i64 - (whole + leading) as i64;
            exponent + if place > 0 { place - 1 } else { place }
        });
        if right && power < 308 { Ok(()) } else { self.fail_at(start, "a number of JSON below 10^308") }
    }

    fn digits(&mut self) -> usize {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
    use std::collections::HashMap;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut file = Vec::from((header.len() as u64).to_le_bytes());
        file.extend(header.bytes());
        file.resize(file.len() + data, 7);
        file
    }

    fn open(file: &[u8]) -> Result<Index> {
        let length = length_to_read(&file[..file.len().min(8)], file.len() as u64)?;
        Index::parse(file[..length].to_vec(), file.len() as u64)
    }

    fn sentence(header: &str, data: usize) -> String {
        open(&file(header, data)).unwrap_err().to_string()
    }

    type Views = Vec<(String, String, Vec<u64>, usize, usize)>;

    fn ours(index: &Index) -> (Views, Vec<(String, String)>) {
        let text = |text: &CStr| text.to_str().unwrap().to_owned();
        let mut views = Vec::new();
        for number in 0..index.count() {
            let mut shape = [-1; MAX_NDIM];
            let found = index.tensor(number, &mut shape).unwrap();
            let known = |&&(_, code, bits): &&(&str, u8, u8)| found.dtype == DLDataType { code, bits, lanes: 1 };
            let dtype = DTYPES.iter().find(known).unwrap().0.to_owned();
            let shape = shape[..found.ndim].iter().map(|&dimension| dimension as u64).collect();
            let name = text(index.name(number).unwrap());
            assert_eq!(index.find(name.as_bytes()), Ok(number));
            views.push((name, dtype, shape, found.begin as usize, (found.begin + found.nbytes) as usize));
        }
        assert!(views.is_sorted_by_key(|view| (view.3, view.4)));
        views.sort();
        let pair = |number| index.metadata(number).map(|(key, value)| (text(key), text(value))).unwrap();
        let mut metadata: Vec<_> = (0..index.metadata_count()).map(pair).collect();
        metadata.sort();
        (views, metadata)
    }

    fn theirs(metadata: &::safetensors::tensor::Metadata) -> (Views, Vec<(String, String)>) {
        let mut views: Views = metadata
            .tensors()
            .into_iter()
            .map(|(name, info)| {
                let shape = info.shape.iter().map(|&dimension| dimension as u64).collect();
                (name, info.dtype.to_string(), shape, info.data_offsets.0, info.data_offsets.1)
            })
            .collect();
        views.sort();
        let mut pairs: Vec<_> = metadata.metadata().clone().unwrap_or_default().into_iter().collect();
        pairs.sort();
        (views, pairs)
    }

    /// Why a file that the crate takes may be refused here.
    fn allowed(error: &Error) -> bool {
        let text = error.to_string();
        let spelled = |what: &str, instead: &str| text.contains(what) && text.contains(&format!("found '{instead}"));
        text.contains("every name only once")
            || text.contains("no \\u0000 in a string")
            || text.contains("at most 1024 dimensions")
            || text.contains("a number of JSON below 10^308, found '1e308")
            || text.contains("a number of JSON below 10^308, found '12e307")
            || text.contains("a dimension in the file does not fit")
            || spelled("an object that describes the tensor", "[")
            || spelled("a dtype in double quotes", "{")
    }

    /// The same verdict and the same views as the crate's; answers whether both took the file.
    fn compare(file: &[u8]) -> bool {
        match (SafeTensors::read_metadata(file), open(file)) {
            (Ok((length, metadata)), Ok(index)) => {
                assert_eq!(ours(&index), theirs(&metadata), "{}", file.escape_ascii());
                assert_eq!(index.data_offset(), length as u64 + 8);
                true
            }
            (Ok(_), Err(error)) => {
                assert!(allowed(&error), "only ours refuses {}: {error}", file.escape_ascii());
                false
            }
            (Err(error), Ok(_)) => panic!("only ours takes {}: {error}", file.escape_ascii()),
            (Err(_), Err(_)) => false,
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % limit as u64) as usize
        }

        fn of<'a>(&mut self, choice: &[&'a str]) -> &'a str {
            choice[self.below(choice.len())]
        }
    }

    const ALL: [Dtype; 22] = {
        use Dtype::*;
        [
            BOOL,
            F4,
            F6_E2M3,
            F6_E3M2,
            U8,
            I8,
            F8_E5M2,
            F8_E4M3,
            F8_E8M0,
            F8_E4M3FNUZ,
            F8_E5M2FNUZ,
            I16,
            U16,
            F16,
            BF16,
            I32,
            U32,
            F32,
            C64,
            F64,
            I64,
            U64,
        ]
    };

    #[test]
    fn every_dtype_of_the_crate_in_its_order() {
        for ((name, code, bits), theirs) in DTYPES.into_iter().zip(ALL) {
            assert_eq!((name.to_owned(), bits as usize), (theirs.to_string(), theirs.bitsize()));
            assert!(crate::tensor::dtype::Dtype::new(DLDataType { code, bits, lanes: 1 }).is_ok());
        }
        assert!(ALL.is_sorted());
    }

    /// Headers as the crate writes them, and headers that are odd in every way that JSON allows.
    fn generate(random: &mut Random) -> Vec<u8> {
        if random.below(3) == 0 {
            let bytes = [3; 4096];
            let mut tensors = HashMap::new();
            for number in 0..random.below(6) {
                let dtype = ALL[random.below(ALL.len())];
                let mut shape: Vec<_> = (0..random.below(4)).map(|_| random.below(5)).collect();
                shape.push(8 * random.below(2));
                let nbytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
                let name = format!("{}{number}", random.of(&["w", "a.b", "\u{394}", "\"", "\\\n", "\u{1f600}", ""]));
                tensors.insert(name, TensorView::new(dtype, shape, &bytes[..nbytes]).unwrap());
            }
            let metadata = (random.below(2) == 0).then(|| HashMap::from([("k\t".to_owned(), "v\u{1}".to_owned())]));
            return serialize(&tensors, metadata).unwrap();
        }
        let (mut parts, mut end) = (Vec::new(), 0);
        for number in 0..random.below(5) {
            let space = random.of(&["", "", " ", "\n", "\t\r"]);
            let rows = random.below(4);
            let dtype = random.of(&["F32", "U8", "F4", "BOOL", "F6_E2M3", "C64", "F\\u00332", "F128"]);
            let bits = DTYPES.iter().find(|known| known.0 == dtype).map_or(32, |known| known.2 as usize);
            let shape = random.of(&["2,4", "8", "1,1,8", "8,0", "0,18446744073709551615", "4,1,2", "3"]);
            let count = match shape {
                "8,0" | "0,18446744073709551615" => 0,
                "3" => 3 * rows,
                _ => 8 * rows,
            };
            let nbytes = count * bits / 8;
            let begin = if random.below(15) == 0 { random.below(20) } else { end };
            let mut fields = vec![
                format!("\"{}\":{space}\"{dtype}\"", random.of(&["dtype", "dtype", "d\\u0074ype"])),
                format!("\"shape\"{space}:[{rows},{shape}{space}]"),
                format!("\"data_offsets\":[{space}{begin}{space},{}]", begin + nbytes),
            ];
            let swap = random.below(3);
            fields.swap(0, swap);
            if random.below(4) == 0 {
                let odd = [
                    "null",
                    "[{\"a\":[1,-2.5e3,0.0]},[]]",
                    "\"\\ud83d\\ude00\\u0000\"",
                    "1e400",
                    "-0.001e310",
                    "0e999999999999999999999",
                    "1e308",
                    "12e307",
                    "0.0009e-400",
                    "\"\\udc00\"",
                    "{}",
                    "-",
                    "01",
                    "[1,]",
                    "tru",
                    "\"\u{1}\"",
                    "{\"a\" 1}",
                    "-0",
                    "123456789012345678901234567890",
                    "1.",
                    "1e+",
                ];
                fields.push(format!("\"extra\":{}", random.of(&odd)));
            }
            if random.below(20) == 0 {
                fields.push(fields[0].clone());
            }
            let names =
                ["t", "t", "t", "\\u0394", "\\\"\\\\\\/\\b\\f\\n\\r\\t", "\\ud83d\\ude00", "\\ud83d", "\\u0000"];
            let tag = if random.below(12) == 0 { 0 } else { number };
            parts.push(format!("{space}\"{}{tag}\"{space}:{{{}}}{space}", random.of(&names), fields.join(",")));
            end = begin + nbytes;
        }
        if random.below(3) == 0 {
            let values = [
                "{}",
                "null",
                "{\"a\":\"b\",\"c\":\"\"}",
                "{\"a\":1}",
                "{\"a\":\"1\",\"a\":\"2\"}",
                "[]",
                "{\"\":\"\\u0041\"}",
            ];
            parts.push(format!("\"{}\":{}", random.of(&["__metadata__", "__metadat\\u0061__"]), random.of(&values)));
        }
        if !parts.is_empty() {
            let at = random.below(parts.len());
            parts.swap(0, at);
        }
        let odd = random.below(8) == 0;
        let (before, after) =
            if odd { (random.of(&["", " \n", "\0"]), random.of(&["", " \t\r\n", "\0", "}"])) } else { ("", "   ") };
        file(&format!("{before}{{{}}}{after}", parts.join(",")), end)
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn the_crates_verdict_on_generated_and_damaged_files() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let (mut taken, mut taken_damaged) = (0, 0);
        for _ in 0..20_000 {
            let whole = generate(&mut random);
            taken += usize::from(compare(&whole));
            for _ in 0..4 {
                let mut bytes = whole.clone();
                for _ in 0..1 + random.below(2) {
                    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
                    let at = if random.below(20) == 0 { random.below(8) } else { 8 + random.below(header) };
                    if bytes.len() <= at.max(8) {
                        continue; // cut off a moment ago
                    }
                    let byte = &mut bytes[at];
                    match random.below(6) {
                        0 => *byte ^= 1 << random.below(8),
                        1 => *byte = b"{}[]\":,\\u0123456789eE+-. \0tfn"[random.below(29)],
                        2 => bytes.truncate(at),
                        3 => bytes.push(0),
                        _ => {
                            // One byte more or less, and the length says so: structure breaks, not only bytes.
                            let grow = random.below(2) == 0;
                            if grow {
                                bytes.insert(at.max(8), b' ')
                            } else {
                                _ = bytes.remove(at)
                            }
                            let length = if grow { header + 1 } else { header - 1 };
                            bytes[..8].copy_from_slice(&(length as u64).to_le_bytes());
                        }
                    }
                }
                taken_damaged += usize::from(compare(&bytes));
            }
        }
        assert!(taken > 3_000 && taken_damaged > 3_000, "{taken} and {taken_damaged} taken: too few to learn from");
    }

    #[test]
    fn no_prefix_of_a_file_is_a_file() {
        let whole = file(r#"{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#, 16);
        assert!(compare(&whole));
        for length in 0..whole.len() {
            assert!(matches!(open(&whole[..length]), Err(Error::FileTooShort { .. })));
            let mut cut = whole[..length].to_vec();
            if length >= 8 {
                cut[..8].copy_from_slice(&(length as u64 - 8).to_le_bytes());
                assert!(open(&cut).is_err(), "{length}");
                assert!(!compare(&cut));
            }
        }
    }

    #[test]
    fn each_fault_has_its_sentence() {
        let w = |begin: u64, end: u64| format!(r#""w":{{"dtype":"F32","shape":[2],"data_offsets":[{begin},{end}]}}"#);
        for (header, data, said) in [
            (
                format!("{{{}}}", w(4, 12)),
                12,
                "tensor 'w': its data_offsets begin at 4, and the tensors before it end at 0: a hole",
            ),
            (
                format!(r#"{{"v":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},{}}}"#, w(3, 11)),
                11,
                "tensor 'w': its data_offsets begin at 3, and the tensors before it end at 4: they overlap",
            ),
            (
                format!("{{{}}}", w(0, 7)),
                7,
                "tensor 'w': its data_offsets hold 7 bytes, and its shape and dtype need 8",
            ),
            (format!("{{{}}}", w(0, 8)), 7, "the file must have 70 bytes for what is asked of it, and has 69"),
            (
                format!("{{{}}}", w(0, 8)),
                9,
                "the file's tensors end at byte 70, and it has 71: the rest belongs to no tensor",
            ),
            (
                format!("{{{}}}", w(8, 0)),
                8,
                "at byte 56: expected an end that is not before the beginning, found '8,0]}}'",
            ),
            (format!("{{{},{}}}", w(0, 8), w(8, 16)), 16, "at byte 63: expected every name only once, found 'w'"),
            (
                r#"{"n":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#.into(),
                1,
                "tensor 'n': its elements take 12 bits, which is no whole number of bytes",
            ),
            (
                r#"{"n":{"dtype":"F128","shape":[],"data_offsets":[0,16]}}"#.into(),
                16,
                "dtype 'F128' is none that a safetensors file",
            ),
            (
                r#"{"n":{"dtype":"F32","data_offsets":[0,4]}}"#.into(),
                4,
                "at byte 13: expected the key 'shape' in what describes",
            ),
            (
                r#"{"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#.into(),
                0,
                "at byte 10: expected no \\u0000 in a string",
            ),
            (
                r#"{"n":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#.into(),
                0,
                "expected a decimal integer from 0 to",
            ),
            (
                r#"{"n":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}"#.into(),
                0,
                "a dimension in the file does not fit",
            ),
            (
                r#"{"n":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}"#.into(),
                0,
                "the number of elements does not fit",
            ),
            (r#"{"__metadata__":{"a":1}}"#.into(), 0, "a string in double quotes, as all metadata is, found '1}}'"),
            (r#"{"__metadata__":null,"__metadata__":null}"#.into(), 0, "the key __metadata__ only once"),
            ("[]".into(), 0, "at byte 8: expected a safetensors header, which begins with '{', found '[]'"),
            ("".into(), 0, "at byte 8: expected a safetensors header"),
        ] {
            let sentence = sentence(&header, data);
            assert!(sentence.contains(said), "{header}: {sentence}");
            assert!(!compare(&file(&header, data)));
        }
        let mut bytes = file("{\"\u{394}\":1}", 0);
        bytes[10] = 0xff;
        assert_eq!(open(&bytes).unwrap_err().to_string(), "at byte 10: expected UTF-8, found '\\xff\\x94\\\":1}'");
        let long = (MAX_HEADER + 1).to_le_bytes();
        assert!(matches!(length_to_read(&long, u64::MAX), Err(Error::Format { offset: 0, .. })));
        assert_eq!(length_to_read(&MAX_HEADER.to_le_bytes(), u64::MAX), Ok(100_000_008));
        assert!(matches!(length_to_read(&MAX_HEADER.to_le_bytes(), 9), Err(Error::FileTooShort { .. })));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn the_bytes_that_the_crate_writes() {
        let mut random = Random(0x1234_5678_9abc_def1);
        let bytes = [3; 4096];
        let words =
            ["w", "a.b", "\u{394}", "\"", "\\\n\r\t\u{8}\u{c}/", "\u{1f}\u{0001}\u{7f}", "\u{1f600}", "", "__metadata"];
        for _ in 0..2_000 {
            let mut tensors = Vec::new();
            for number in 0..random.below(8) {
                let dtype = random.below(ALL.len());
                let mut shape: Vec<_> = (0..random.below(4)).map(|_| random.below(5)).collect();
                shape.insert(random.below(shape.len() + 1), 8 * random.below(2));
                let nbytes = shape.iter().product::<usize>() * ALL[dtype].bitsize() / 8;
                let name = format!("{}{number}\0", random.of(&words));
                tensors.insert(random.below(tensors.len() + 1), (name, dtype, shape, nbytes));
            }
            let metadata = (random.below(2) == 0).then(|| (format!("{}\0", random.of(&words)), "v\u{1}\0".to_owned()));
            let plain = |text: &str| text.trim_end_matches('\0').to_owned();
            let views = tensors.iter().map(|(name, dtype, shape, nbytes)| {
                (plain(name), TensorView::new(ALL[*dtype], shape.clone(), &bytes[..*nbytes]).unwrap())
            });
            let pairs = metadata.iter().map(|(key, value)| (plain(key), plain(value))).collect::<HashMap<_, _>>();
            let theirs = serialize(views, (!pairs.is_empty()).then_some(pairs)).unwrap();

            fn c(text: &str) -> &CStr {
                CStr::from_bytes_with_nul(text.as_bytes()).unwrap()
            }
            let mut parts = Vec::new();
            for (number, (name, dtype, _, nbytes)) in tensors.iter().enumerate() {
                let (_, code, bits) = DTYPES[*dtype];
                let dtype = DLDataType { code, bits, lanes: 1 };
                parts.push(Part::new(c(name), dtype, false, *nbytes as u64, number).unwrap());
            }
            let pairs: Vec<_> = metadata.iter().map(|(key, value)| (c(key), c(value))).collect();
            let shape = |number: usize, visit: &mut dyn FnMut(&[i64]) -> Result<()>| {
                visit(&tensors[number].2.iter().map(|&dimension| dimension as i64).collect::<Vec<_>>())
            };
            let header = write_header(&mut parts, &pairs, shape).unwrap();
            assert_eq!(header.escape_ascii().to_string(), theirs[..header.len()].escape_ascii().to_string());
            let nbytes: usize = tensors.iter().map(|tensor| tensor.3).sum();
            assert_eq!(theirs.len(), header.len() + nbytes);
            let index = open(&theirs).unwrap();
            for (place, part) in parts.iter().enumerate().filter(|(_, part)| part.nbytes > 0) {
                assert_eq!(index.find(part.name.as_bytes()), Ok(place));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn what_cannot_be_written_is_refused() {
        let u1 = DLDataType { code: kDLUInt, bits: 8, lanes: 1 };
        let part = |name| Part::new(name, u1, false, 0, 0);
        let refused = |result: Result<Part>| result.unwrap_err().to_string();
        assert!(refused(part(c"__metadata__")).contains("stands for the metadata"));
        assert!(refused(part(c"\xff")).contains("the name '\\xff' is not UTF-8"));
        for (code, bits, lanes) in [(0, 4, 1), (5, 128, 1), (2, 32, 2), (8, 8, 1), (2, 128, 1)] {
            let error = Part::new(c"a", DLDataType { code, bits, lanes }, false, 0, 0).unwrap_err();
            assert!(matches!(error, Error::Dtype { .. }), "{error}");
        }
        let f4 = DLDataType { code: kDLFloat4_e2m1fn, bits: 4, lanes: 1 };
        assert!(refused(Part::new(c"a", f4, true, 0, 0)).contains("is padded to whole bytes"));
        assert!(Part::new(c"a", u1, true, 0, 0).is_ok(), "whole bytes are packed and padded at once");
        let no_shape = |_: usize, visit: &mut dyn FnMut(&[i64]) -> Result<()>| visit(&[0]);
        let write = |parts: &mut [Part], pairs: &[(&CStr, &CStr)]| {
            write_header(parts, pairs, no_shape).map(|_| ()).unwrap_err().to_string()
        };
        let (a, b) = (part(c"a").unwrap(), part(c"b").unwrap());
        assert_eq!(write(&mut [a, b, a], &[]), "the name 'a' is there twice");
        assert_eq!(write(&mut [a], &[(c"k", c""), (c"k", c"")]), "the name 'k' is there twice");
        assert_eq!(write(&mut [a], &[(c"k", c"\xff")]), "the name '\\xff' of metadata is not UTF-8");
        let large = Part { nbytes: i64::MAX as u64, ..a };
        assert!(write(&mut [large, Part { nbytes: 1, ..b }], &[]).contains("the size of all tensors in bytes"));
        let long = std::ffi::CString::new("a".repeat(MAX_HEADER as usize)).unwrap();
        assert!(write(&mut [a], &[(c"k", &long)]).contains("more than 100000000 bytes"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn depth_is_limited_as_in_the_crate() {
        for depth in [1, 2, 100, 124, 125, 126, 127, 128, 129, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let value = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let header = format!(r#"{{"n":{{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":{value}}}}}"#);
                assert_eq!(compare(&file(&header, 0)), depth <= 125, "{depth}");
            }
        }
    }

    #[test]
    fn as_many_dimensions_as_a_tensor_has() {
        for (ndim, fits) in [(64, true), (1024, true), (1025, false)] {
            let ones = vec!["1"; ndim].join(",");
            let header = format!(r#"{{"n":{{"dtype":"U8","shape":[{ones}],"data_offsets":[0,1]}}}}"#);
            assert_eq!(compare(&file(&header, 1)), fits);
        }
    }
}
