//! Shape and stride arithmetic, every step checked: count, bytes, extent, contiguity, self-overlap.
//!
//! Strides count elements, as in DLPack. The rules that make callers stumble are kept here once: one zero
//! dimension makes the tensor empty whatever the others are; the stride of a dimension of size 1 means
//! nothing and is not read; an empty tensor is contiguous whatever its strides.

use super::dtype::Dtype;
use crate::error::{Error, Result};
use core::mem::MaybeUninit;

/// What a shape, its strides and the distance between elements come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Number of elements.
    pub count: u64,
    /// Bytes of the elements; packed sub-byte elements are rounded up once over the whole tensor.
    pub nbytes: u64,
    /// Where the lowest byte lies, in bytes from the first element: 0 or, with negative strides, below.
    pub low: i64,
    /// Where the highest byte ends, in bytes from the first element.
    pub high: i64,
    /// Whether the elements lie in C order without gaps.
    pub row_major: bool,
}

impl Measure {
    /// Bytes from the lowest to the highest: not `nbytes` where the tensor is strided or broadcast.
    pub const fn span(&self) -> u64 {
        (self.high - self.low) as u64
    }
}

/// The element count of a row-major tensor; `None` if it is none, or is empty, or has too many.
#[inline(always)]
pub fn dense_count(shape: &[i64], strides: &[i64]) -> Option<i64> {
    let mut count = 1i64;
    let mut axis = shape.len().min(strides.len());
    // A plain loop: an iterator of pairs, backwards, becomes a call.
    while axis > 0 {
        axis -= 1;
        let dimension = shape[axis];
        if dimension != 1 {
            if dimension < 1 || strides[axis] != count {
                return None;
            }
            count = count.checked_mul(dimension)?;
        }
    }
    Some(count)
}

/// Measures a tensor. `strides` of `None` means row-major.
pub fn measure(shape: &[i64], strides: Option<&[i64]>, dtype: Dtype, padded: bool) -> Result<Measure> {
    let pitch = i128::from(dtype.pitch_bits(padded));
    let mut count: i64 = 1;
    let mut overflow = false;
    let mut empty = false;
    let mut row_major = true;
    // In elements, relative to the first one.
    let (mut low, mut high) = (0i64, 0i64);
    for axis in (0..shape.len()).rev() {
        let dimension = shape[axis];
        if dimension <= 1 {
            if dimension < 0 {
                return Err(Error::NegativeDimension { axis, value: dimension });
            }
            empty |= dimension == 0;
            continue;
        }
        if let Some(strides) = strides {
            let stride = strides[axis];
            row_major &= stride == count;
            // A row-major tensor's extent is its size: the products below are only for the others.
            let (reach, o) = stride.overflowing_mul(dimension - 1);
            let side = if reach < 0 { &mut low } else { &mut high };
            let (sum, p) = side.overflowing_add(reach);
            *side = sum;
            overflow |= o | p;
        }
        let (product, o) = count.overflowing_mul(dimension);
        count = product;
        overflow |= o;
    }
    if empty {
        return Ok(Measure { count: 0, nbytes: 0, low: 0, high: 0, row_major: true });
    }
    if overflow {
        return Err(Error::Overflow { what: "the tensor's element count or extent" });
    }
    if strides.is_none() {
        high = count - 1;
    }
    let too_large = Error::Overflow { what: "the tensor's size or extent in bytes" };
    // Bits do not fit in 64, so that every size in bytes that does is accepted.
    let bytes = |bits: i128| i64::try_from(bits >> 3).map_err(|_| too_large);
    let nbytes = bytes(i128::from(count) * pitch + 7)?;
    let (low, high) = (bytes(i128::from(low) * pitch)?, bytes((i128::from(high) + 1) * pitch + 7)?);
    if high.checked_sub(low).is_none() {
        return Err(too_large);
    }
    Ok(Measure { count: count as u64, nbytes: nbytes as u64, low, high, row_major })
}

/// Whether the elements lie in Fortran order without gaps.
pub fn is_column_major(shape: &[i64], strides: Option<&[i64]>) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1i64;
    let mut all = true;
    for axis in 0..shape.len() {
        if shape[axis] == 1 {
            continue;
        }
        all &= effective_stride(shape, strides, axis) == expected;
        expected = expected.wrapping_mul(shape[axis]);
    }
    all
}

/// The stride of one axis, in elements, also where strides are NULL.
pub fn effective_stride(shape: &[i64], strides: Option<&[i64]>, axis: usize) -> i64 {
    match strides {
        Some(strides) => strides[axis],
        None => shape[axis + 1..].iter().fold(1i64, |product, &dimension| product.wrapping_mul(dimension)),
    }
}

/// Writes the strides of a row-major tensor, in elements; those of an empty tensor as if zero dimensions
/// were 1, which is what NumPy and PyTorch write.
pub fn write_row_major(shape: &[i64], strides: &mut [MaybeUninit<i64>]) {
    let mut step = 1i64;
    for (stride, &dimension) in strides.iter_mut().zip(shape).rev() {
        stride.write(step);
        step = step.wrapping_mul(dimension.max(1));
    }
}

/// Writes the strides of a column-major tensor, in elements.
pub fn write_column_major(shape: &[i64], strides: &mut [MaybeUninit<i64>]) {
    let mut step = 1i64;
    for (stride, &dimension) in strides.iter_mut().zip(shape) {
        stride.write(step);
        step = step.wrapping_mul(dimension.max(1));
    }
}

/// The first axis with a negative stride that means something.
pub fn first_negative_stride(shape: &[i64], strides: Option<&[i64]>) -> Option<(usize, i64)> {
    if shape.contains(&0) {
        return None;
    }
    let strides = strides?;
    (0..shape.len()).find(|&axis| shape[axis] > 1 && strides[axis] < 0).map(|axis| (axis, strides[axis]))
}

/// More dimensions of 2 or more than this, and the count of a tensor that was measured would not fit.
const MAX_WIDE: usize = 63;

/// Whether two different indices lead to the same element. `shape` and `strides` were measured before.
///
/// Exact, but for the rare shape whose answer would take more than a few thousand steps to find (the
/// question is NP-hard); there the answer is yes, which can only cost a copy.
pub fn overlaps(shape: &[i64], strides: Option<&[i64]>) -> bool {
    let Some(strides) = strides else { return false };
    if shape.contains(&0) {
        return false;
    }
    let mut axes = [(0u64, 0u64); MAX_WIDE]; // (|stride|, dimension - 1), widest stride first
    let mut wide = 0;
    for (&dimension, &stride) in shape.iter().zip(strides) {
        if dimension > 1 {
            if stride == 0 || wide == MAX_WIDE {
                return true;
            }
            axes[wide] = (stride.unsigned_abs(), (dimension - 1) as u64);
            wide += 1;
        }
    }
    let axes = &mut axes[..wide];
    insertion_sort(axes, |a, b| a > b);
    // Each stride steps over everything that the narrower ones reach: no overlap, and nearly always the answer.
    let mut reach = 0u128;
    let nested = axes.iter().rev().all(|&(stride, steps)| {
        let clear = stride as u128 > reach;
        reach += stride as u128 * steps as u128;
        clear
    });
    !nested && collides(axes)
}

/// Sorts the few axes of a tensor so that `before` holds for neighbours; the standard library's sorts are made for
/// thousands and take as many bytes of code.
pub fn insertion_sort<T: Copy>(items: &mut [T], before: impl Fn(T, T) -> bool) {
    for end in 1..items.len() {
        let item = items[end];
        let mut at = end;
        while at > 0 && before(item, items[at - 1]) {
            items[at] = items[at - 1];
            at -= 1;
        }
        items[at] = item;
    }
}

/// Whether some non-zero combination of steps, each from -steps to +steps, comes back to 0.
fn collides(axes: &[(u64, u64)]) -> bool {
    let mut reach = [0i128; MAX_WIDE + 1]; // how far the axes from i on can go
    for i in (0..axes.len()).rev() {
        reach[i] = reach[i + 1] + axes[i].0 as i128 * axes[i].1 as i128;
    }
    let mut budget = 1 << 14;
    search(axes, &reach, 0, false, &mut budget)
}

fn search(axes: &[(u64, u64)], reach: &[i128], remainder: i128, moved: bool, budget: &mut u32) -> bool {
    if *budget == 0 {
        return true;
    }
    *budget -= 1;
    let Some(&(stride, steps)) = axes.first() else { return moved && remainder == 0 };
    if remainder.abs() > reach[0] {
        return false;
    }
    let (stride, steps) = (stride as i128, steps as i128);
    // Only steps after which the narrower axes can still cancel what is left.
    let rest = reach[1];
    let first = (-steps).max(div_ceil(-rest - remainder, stride));
    let last = steps.min((rest - remainder).div_euclid(stride));
    let first = if moved { first } else { first.max(0) }; // a combination and its mirror image are one
    let mut step = first;
    while step <= last {
        if search(&axes[1..], &reach[1..], remainder + step * stride, moved || step != 0, budget) {
            return true;
        }
        step += 1;
    }
    false
}

fn div_ceil(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}

#[cfg(test)]
mod tests;
