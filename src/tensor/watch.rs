//! Tensors put under the guard's eyes.

use super::managed::Ours;
use super::view::Checked;
use crate::error::{Error, Result, cut};
use crate::memory::guard::{self, Watched};
use crate::memory::{Memory, Mutability, heap};
use core::fmt::Write;
use core::ptr::NonNull;

/// A tensor on the guard's list. Keeps the memory alive, so that the range cannot become somebody else's.
#[derive(Debug)]
pub struct Watch {
    memory: NonNull<Memory>,
    place: usize,
}

struct Fixed<'a> {
    target: &'a mut [u8],
    length: usize,
}

impl Write for Fixed<'_> {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let fits = cut(s, self.target.len() - self.length);
        self.target[self.length..self.length + fits.len()].copy_from_slice(fits.as_bytes());
        self.length += fits.len();
        Ok(())
    }
}

/// Puts a tensor on the list under a label.
pub fn watch(tensor: &Checked, ours: Ours, label: &str) -> Result<NonNull<Watch>> {
    let lowest =
        tensor.lowest().ok_or(Error::Unsupported { what: "watching a tensor without elements or addresses" })?;
    if ours.mutability() == Mutability::Writable {
        return Err(Error::Unsupported { what: "watching a writable tensor" });
    }
    let mut watched = Watched {
        range: (lowest.addr(), tensor.measure.span() as usize),
        first: tensor.first().map_or(0, |first| first.addr()),
        label: [0; Watched::LABEL],
        label_length: 0,
        dtype: [0; 32],
        dtype_length: 0,
        strides: [0; Watched::AXES],
        shape: [0; Watched::AXES],
        order: core::array::from_fn(|axis| axis),
        ndim: 0,
        item: 0,
        mutability: ours.mutability(),
    };
    let mut text = Fixed { target: &mut watched.label, length: 0 };
    let _ = text.write_str(label);
    watched.label_length = text.length;
    let mut text = Fixed { target: &mut watched.dtype, length: 0 };
    let _ = write!(text, "{}", tensor.dtype);
    watched.dtype_length = text.length;
    let pitch = tensor.dtype.pitch_bits(tensor.is_padded()) as usize;
    if pitch & 7 == 0 && tensor.shape.len() <= Watched::AXES {
        watched.item = pitch / 8;
        watched.ndim = tensor.shape.len();
        for axis in 0..watched.ndim {
            watched.shape[axis] = tensor.shape[axis];
            let stride = super::layout::effective_stride(tensor.shape, tensor.strides, axis);
            watched.strides[axis] = if tensor.shape[axis] > 1 { stride.wrapping_mul(watched.item as i64) } else { 0 };
        }
    }
    let strides = watched.strides;
    let wider = |a: usize, b: usize| strides[a].unsigned_abs() > strides[b].unsigned_abs();
    super::layout::insertion_sort(&mut watched.order[..watched.ndim], wider);
    let watch = heap::allocate(size_of::<Watch>())?.cast::<Watch>();
    match guard::watch(&watched) {
        Ok(place) => {
            let memory = ours.memory_ptr();
            ours.memory().retain();
            // SAFETY: allocated for exactly this.
            unsafe { watch.write(Watch { memory, place }) };
            Ok(watch)
        }
        Err(error) => {
            // SAFETY: allocated above, known to nobody.
            unsafe { libc::free(watch.as_ptr().cast()) };
            Err(error)
        }
    }
}

/// Takes a tensor off the list.
///
/// # Safety
/// The caller owns the watch and gives it up.
pub unsafe fn end(watch: NonNull<Watch>) {
    // SAFETY: made by `watch`, ended once.
    unsafe {
        let Watch { memory, place } = watch.read();
        libc::free(watch.as_ptr().cast());
        guard::unwatch(place);
        Memory::leave(memory, Mutability::ReadOnly);
    }
}
