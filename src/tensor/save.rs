//! Tensors into files: `.npy` and safetensors, straight from memory where the elements lie as the file wants them.

use super::copy;
use super::layout;
use super::view::{Checked, Untrusted};
use crate::abi::*;
use crate::error::{Error, MAX_NDIM, Result};
use crate::memory::replacement::Replacement;
use crate::memory::{heap, npy, safetensors};
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

/// Saves a tensor as `numpy.save` saves the same array.
///
/// # Safety
/// The tensor's memory is there and nobody writes it meanwhile.
pub unsafe fn npy(path: &CStr, tensor: &Checked) -> Result<()> {
    tensor.require_host()?;
    // As NumPy: Fortran order where it is one and C order is none; what is neither is written in C order.
    let column_major = !tensor.measure.row_major && layout::is_column_major(tensor.shape, tensor.strides);
    let mut header = [0; npy::MAX_WRITTEN];
    let len = npy::write_header(tensor.dtype.raw(), column_major, tensor.shape, &mut header)?;
    let mut file = Replacement::create(path)?;
    // SAFETY: an array of ours, and as promised to us.
    unsafe {
        file.write(header.as_ptr(), len as u64)?;
        write_elements(&mut file, tensor, column_major)?;
    }
    file.finish()
}

/// What one of several tensors is the matter with, or what the matter is with all.
#[derive(Debug)]
pub struct Misfit {
    /// Whose fault it is.
    pub tensor: Option<usize>,
    /// What it is.
    pub error: Error,
}

impl From<Error> for Misfit {
    fn from(error: Error) -> Self {
        Misfit { tensor: None, error }
    }
}

/// Saves tensors, with their names, and pairs of metadata.
///
/// # Safety
/// The tensors are live managed tensors whose memory is there and nobody writes it meanwhile.
pub unsafe fn safetensors(
    path: &CStr,
    names: &[&CStr],
    tensors: &[NonNull<DLManagedTensorVersioned>],
    metadata: &[(&CStr, &CStr)],
) -> core::result::Result<(), Misfit> {
    if cfg!(target_endian = "big") {
        return Err(Error::Unsupported {
            what: "saving safetensors, which are little-endian, on a big-endian machine",
        }
        .into());
    }
    // SAFETY: promised by the caller.
    let checked = |number: usize| unsafe { Untrusted::new(tensors[number]) }.validate();
    let mut order = safetensors::reserved(names.len())?;
    for (number, &name) in names.iter().enumerate() {
        let part = || {
            let tensor = checked(number)?;
            tensor.require_host()?;
            let (dtype, measure) = (tensor.dtype.raw(), tensor.measure);
            let part = safetensors::Part::new(name, dtype, tensor.is_padded(), measure.nbytes, number)?;
            let bits = u128::from(measure.count) * u128::from(dtype.bits);
            if bits % 8 != 0 {
                let why = "ends within a byte for this shape, which it must not in a safetensors file";
                return Err(Error::Dtype { found: dtype, why });
            }
            Ok(part)
        };
        order.push(part().map_err(|error| Misfit { tensor: Some(number), error })?);
    }
    let header = safetensors::write_header(&mut order, metadata, |number, visit| visit(checked(number)?.shape))?;
    let mut file = Replacement::create(path)?;
    // SAFETY: a vector of ours.
    unsafe { file.write(header.as_ptr(), header.len() as u64) }?;
    for part in &order {
        // SAFETY: promised by the caller.
        unsafe { write_elements(&mut file, &checked(part.number)?, false) }?;
    }
    Ok(file.finish()?)
}

/// As large as the caches like it, and as the copy engine needs it to work in blocks.
const CHUNK: usize = 1 << 20;

/// Writes the elements of host memory in C order, or in Fortran order if that is how they lie.
///
/// # Safety
/// The tensor's memory is there and nobody writes it meanwhile.
unsafe fn write_elements(file: &mut Replacement, tensor: &Checked, column_major: bool) -> Result<()> {
    let Some(first) = tensor.first() else { return Ok(()) };
    if tensor.measure.row_major || column_major {
        // SAFETY: dense, and as promised to us.
        return unsafe { file.write(first, tensor.measure.nbytes) };
    }
    let pitch = tensor.dtype.pitch_bits(tensor.is_padded());
    if pitch % 8 != 0 {
        // Rows that end within a byte cannot be written one after the other. Nobody strides packed tensors, so
        // they may cost a copy.
        // SAFETY: as promised to us.
        let copied = unsafe { copy::copy(tensor, copy::Wanted::default()) }?;
        // SAFETY: made a moment ago.
        let copied = unsafe { Untrusted::new(copied.as_ptr()) }.validate()?;
        let Some(first) = copied.first() else { return Ok(()) };
        // SAFETY: dense, and alive until the end of this function.
        return unsafe { file.write(first, copied.measure.nbytes) };
    }
    // SAFETY: as promised to us.
    unsafe { write_in_chunks(file, tensor, first, pitch as usize / 8) }
}

/// # Safety
/// As for [`write_elements`]; the tensor has strides, elements of `size` bytes, and the first at `first`.
unsafe fn write_in_chunks(file: &mut Replacement, tensor: &Checked, first: *mut u8, size: usize) -> Result<()> {
    let (shape, Some(strides)) = (tensor.shape, tensor.strides) else { return Ok(()) };
    // A chunk is some rows of one axis, each with all that lies behind; the axes before it are counted through.
    let (mut axis, mut row) = (shape.len() - 1, size);
    while axis > 0 && row * shape[axis] as usize <= CHUNK {
        row *= shape[axis] as usize;
        axis -= 1;
    }
    let rows = (CHUNK / row).max(1).min(shape[axis] as usize);
    let buffer = Buffer(heap::allocate(rows * row)?);

    let mut block = [0i64; MAX_NDIM];
    let block = &mut block[..shape.len() - axis];
    block.copy_from_slice(&shape[axis..]);
    let mut index = [0i64; MAX_NDIM];
    let mut outer = 0i64; // in elements, where the counted axes stand
    loop {
        let mut start = 0;
        while start < shape[axis] {
            block[0] = (shape[axis] - start).min(rows as i64);
            let from = outer + if shape[axis] == 1 { 0 } else { start * strides[axis] };
            let dense = DLTensor {
                data: buffer.0.as_ptr(),
                device: DLDevice { device_type: kDLCPU, device_id: 0 },
                ndim: block.len() as i32,
                dtype: tensor.dtype.raw(),
                shape: block.as_mut_ptr(),
                strides: core::ptr::null_mut(),
                byte_offset: 0,
            };
            let window = DLTensor {
                data: first.wrapping_offset(from as isize * size as isize).cast(),
                strides: strides[axis..].as_ptr().cast_mut(),
                ..dense
            };
            // SAFETY: both have arrays of ours of that length. The window is part of the tensor, and the buffer is
            // large enough and nobody else's.
            unsafe {
                let dense = Checked::new(&dense, tensor.flags, 0)?;
                copy::copy_elements(&Checked::new(&window, tensor.flags, 0)?, &dense, 1)?;
                file.write(buffer.0.as_ptr().cast(), dense.measure.nbytes)?;
            }
            start += block[0];
        }
        // The next of the counted axes, like an odometer.
        let mut turn = axis;
        loop {
            if turn == 0 {
                return Ok(());
            }
            turn -= 1;
            let stride = if shape[turn] == 1 { 0 } else { strides[turn] };
            index[turn] += 1;
            outer += stride;
            if index[turn] < shape[turn] {
                break;
            }
            outer -= index[turn] * stride;
            index[turn] = 0;
        }
    }
}

/// Freed when dropped.
struct Buffer(NonNull<c_void>);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: from heap::allocate, and its last user is gone.
        unsafe { libc::free(self.0.as_ptr()) }
    }
}
