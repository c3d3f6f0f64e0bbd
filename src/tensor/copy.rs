//! Copies of elements: into a new tensor, or from one tensor into another.

use super::export::Fresh;
use super::layout;
use super::managed::{Owned, Strides};
use super::strided::{self, Job};
use super::view::Checked;
use crate::abi::*;
use crate::error::{Error, MAX_NDIM, Result};
use core::mem::MaybeUninit;

/// How a new copy is laid out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Fortran order instead of C order.
    pub column_major: bool,
    /// In bytes; at least [`ALIGNMENT`](crate::memory::heap::ALIGNMENT) is used.
    pub alignment: usize,
    /// How many threads may copy at most, the caller's included; 0 and 1 mean the caller's alone.
    pub threads: usize,
}

/// Copies the elements into new memory: dense, writable, IS_COPIED, solely owned by the caller.
///
/// # Safety
/// The source's memory is there and nobody writes it meanwhile.
pub unsafe fn copy(source: &Checked, wanted: Wanted) -> Result<Owned> {
    source.require_host()?;
    let strides = if wanted.column_major { Strides::ColumnMajor } else { Strides::RowMajor };
    let known = Flags::READ_ONLY.bits() | Flags::IS_COPIED.bits() | Flags::IS_SUBBYTE_TYPE_PADDED.bits();
    let copied = Fresh {
        shape: source.shape,
        strides,
        dtype: source.dtype,
        flags: (source.flags - Flags::READ_ONLY) | Flags::IS_COPIED,
        at_least_minor: if source.flags.bits() & !known == 0 { 0 } else { source.minor },
        alignment: wanted.alignment,
        zeroed: source.dtype.is_subbyte() && !source.is_padded(), // the bits behind the last element are 0
    }
    .make()?;
    // SAFETY: made a moment ago.
    let target = unsafe { super::view::Untrusted::new(copied.as_ptr()).validate() }?;
    // SAFETY: new memory, so it is writable and overlaps nothing.
    unsafe { copy_elements(source, &target, wanted.threads) }?;
    Ok(copied)
}

/// Copies the elements of one tensor over those of another of the same shape and dtype.
///
/// # Safety
/// Both memories are there, and nobody writes the source or uses the target meanwhile.
pub unsafe fn copy_into(source: &Checked, target: &Checked) -> Result<()> {
    source.require_host()?;
    target.require_host()?;
    if target.flags.contains(Flags::READ_ONLY) {
        return Err(Error::WriteToReadOnly { flags: target.flags.bits() });
    }
    if source.dtype != target.dtype {
        return Err(Error::DtypesDiffer { source: source.dtype.raw(), target: target.dtype.raw() });
    }
    if source.is_padded() != target.is_padded() && source.dtype.is_subbyte() {
        return Err(Error::PaddingDiffers);
    }
    if source.shape.len() != target.shape.len() {
        return Err(Error::RanksDiffer { source: source.shape.len(), target: target.shape.len() });
    }
    if let Some(axis) = (0..source.shape.len()).find(|&axis| source.shape[axis] != target.shape[axis]) {
        return Err(Error::ShapesDiffer { axis, source: source.shape[axis], target: target.shape[axis] });
    }
    if target.overlaps() {
        return Err(Error::Overlap);
    }
    if intersect(source, target) {
        // SAFETY: as promised to us.
        let between = unsafe { copy(source, Wanted::default()) }?;
        // SAFETY: made a moment ago.
        let between = unsafe { super::view::Untrusted::new(between.as_ptr()).validate() }?;
        // SAFETY: new memory, which the target cannot overlap.
        return unsafe { copy_elements(&between, target, 1) };
    }
    // SAFETY: as promised to us, and they do not overlap.
    unsafe { copy_elements(source, target, 1) }
}

/// Copies the elements into `target` without gaps, in C or Fortran order.
///
/// # Safety
/// The source's memory is there, nobody writes it meanwhile, and `target` is as long as the elements.
pub unsafe fn copy_dense(source: &Checked, column_major: bool, target: &mut [u8]) -> Result<()> {
    debug_assert_eq!(target.len() as u64, source.measure.nbytes);
    let mut numbers = [MaybeUninit::uninit(); MAX_NDIM];
    let numbers = &mut numbers[..source.shape.len()];
    if column_major {
        layout::write_column_major(source.shape, numbers)
    } else {
        layout::write_row_major(source.shape, numbers)
    }
    // SAFETY: written whole just now.
    let strides = unsafe { &*(core::ptr::from_ref(numbers) as *const [i64]) };
    let measure = layout::measure(source.shape, Some(strides), source.dtype, source.is_padded())?;
    let target = Checked { strides: Some(strides), data: target.as_mut_ptr(), byte_offset: 0, measure, ..*source };
    // SAFETY: promised by the caller; a slice that is ours alone overlaps nothing.
    unsafe { copy_elements(source, &target, 1) }
}

fn intersect(a: &Checked, b: &Checked) -> bool {
    let (Some(low_a), Some(low_b)) = (a.lowest(), b.lowest()) else { return false };
    let (low_a, low_b) = (low_a.addr() as u64, low_b.addr() as u64);
    low_a < low_b + b.measure.span() && low_b < low_a + a.measure.span()
}

/// Copies elements between tensors that fit.
///
/// # Safety
/// Both memories are there, the target may be written, and they do not overlap. Shape, dtype and padding
/// are the same.
pub unsafe fn copy_elements(source: &Checked, target: &Checked, threads: usize) -> Result<()> {
    let (Some(from), Some(to)) = (source.first(), target.first()) else { return Ok(()) };
    let pitch = source.dtype.pitch_bits(source.is_padded());
    if source.measure.row_major && target.measure.row_major && (threads <= 1 || pitch % 8 != 0) {
        // Packed bits lie in the same places too, but behind the last one may be somebody else's.
        let rest = (source.measure.count % 8 * u64::from(pitch)) % 8;
        let whole = source.measure.nbytes as usize - usize::from(rest != 0);
        // SAFETY: both tensors are dense and have so many bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(from, to, whole);
            if rest != 0 {
                let (last, mask) = (to.add(whole), (1u8 << rest) - 1);
                *last = *last & !mask | *from.add(whole) & mask;
            }
        }
        return Ok(());
    }
    let job = Job {
        shape: source.shape,
        source: from,
        source_strides: source.strides,
        target: to,
        target_strides: target.strides,
        threads,
    };
    if pitch % 8 == 0 {
        // SAFETY: as promised to us; the element is whole bytes.
        unsafe { strided::copy_bytes(&job, pitch as usize / 8) };
    } else {
        // SAFETY: as promised to us.
        unsafe { strided::copy_bits(&job, pitch as usize) };
    }
    Ok(())
}

#[cfg(test)]
mod tests;
