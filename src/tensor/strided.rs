//! Copies elements from any layout to any layout.

use super::layout::effective_stride;
use crate::error::Result;

/// What to copy: one shape, two layouts with strides in elements (`None`: row-major).
pub struct Job<'a> {
    /// Dimensions of both.
    pub shape: &'a [i64],
    /// First element to read.
    pub source: *const u8,
    /// In elements.
    pub source_strides: Option<&'a [i64]>,
    /// First element to write.
    pub target: *mut u8,
    /// In elements.
    pub target_strides: Option<&'a [i64]>,
}

/// Copies elements of `size` bytes.
///
/// # Safety
/// Both memories hold the elements, the target may be written, they do not overlap, nothing is empty.
pub unsafe fn copy_bytes(job: &Job, size: usize) -> Result<()> {
    for_each(job, |from, to| {
        // SAFETY: the caller says that the elements are there.
        unsafe {
            core::ptr::copy_nonoverlapping(
                job.source.wrapping_offset(from as isize * size as isize),
                job.target.wrapping_offset(to as isize * size as isize),
                size,
            )
        }
    });
    Ok(())
}

/// Copies packed elements of `pitch` bits, little bit-endian as DLPack packs them.
///
/// # Safety
/// As for [`copy_bytes`].
pub unsafe fn copy_bits(job: &Job, pitch: u32) -> Result<()> {
    let pitch = pitch as isize;
    for_each(job, |from, to| {
        for bit in 0..pitch {
            let (from, to) = (from as isize * pitch + bit, to as isize * pitch + bit);
            // SAFETY: the caller says that the elements are there.
            unsafe {
                let value = *job.source.wrapping_offset(from >> 3) >> (from & 7) & 1;
                let byte = job.target.wrapping_offset(to >> 3);
                *byte = *byte & !(1 << (to & 7)) | value << (to & 7);
            }
        }
    });
    Ok(())
}

fn for_each(job: &Job, mut visit: impl FnMut(i64, i64)) {
    fn walk(job: &Job, axis: usize, from: i64, to: i64, visit: &mut impl FnMut(i64, i64)) {
        if axis == job.shape.len() {
            return visit(from, to);
        }
        let (s, t) = if job.shape[axis] == 1 {
            (0, 0)
        } else {
            (
                effective_stride(job.shape, job.source_strides, axis),
                effective_stride(job.shape, job.target_strides, axis),
            )
        };
        for index in 0..job.shape[axis] {
            walk(job, axis + 1, from + index * s, to + index * t, visit);
        }
    }
    walk(job, 0, 0, 0, &mut visit);
}
