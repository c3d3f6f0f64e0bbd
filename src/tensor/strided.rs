//! Copies elements from any layout to any layout, at the speed of memory where the layouts allow it.
//!
//! A job is first reduced to its nest: no dimensions of size 1, target strides positive and descending,
//! neighbours merged, the innermost contiguous run taken as one item. What is left decides: one item is a
//! `memcpy`; one fast axis for both sides is a loop over rows; two different fast axes are a transposition
//! in tiles. Tiles are built in a small buffer on the stack, for two reasons: lines of the source whose
//! addresses differ by a power of two would evict each other if they had to be visited twice, and the target
//! is written in whole cache lines, past the cache if it is large.
//!
//! Nothing here allocates. A job has fewer than 2^63 elements, so at most 62 dimensions are larger than 1.

use core::mem::MaybeUninit;

/// What to copy: one shape, two layouts with strides in elements (`None`: row-major).
#[derive(Clone, Copy, Debug)]
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
    /// How many threads may work on a large copy, the caller's included; 0 and 1 mean the caller's alone.
    pub threads: usize,
}

/// Copies elements of `size` bytes.
///
/// # Safety
/// The source holds the elements and nobody writes them meanwhile; the target may be written, nobody else uses
/// it meanwhile, and no two of its elements share memory; the two do not overlap. Count, bytes and extents were
/// checked: they fit in 63 bits. Alignment is not assumed.
pub unsafe fn copy_bytes(job: &Job, size: usize) {
    let Some(nest) = Nest::new(job, size) else { return };
    // SAFETY: the caller's contract is ours, and the nest visits the job's elements and no others.
    unsafe {
        let source = job.source.wrapping_offset(nest.source);
        let target = job.target.wrapping_offset(nest.target);
        if job.threads > 1 && nest.total >= PARALLEL_FROM {
            parallel::run(&nest, target, source, job.threads);
        } else {
            run(&nest, target, source);
        }
    }
}

/// Copies packed elements of `pitch` bits: element `i` of a byte is `byte >> (i * pitch) & mask`, and so on
/// through the following bytes. Bits of the target between the elements stay what they are.
///
/// # Safety
/// As for [`copy_bytes`], with extents in bits. Bytes of the target that hold an element are read too.
pub unsafe fn copy_bits(job: &Job, pitch: usize) {
    let Some(mut nest) = Nest::new(job, pitch) else { return };
    // SAFETY: the caller's contract is ours; a nest whose every bit offset is a multiple of 8 is one of bytes.
    unsafe {
        if nest.narrow_to_bytes() {
            let source = job.source.wrapping_offset(nest.source);
            run(&nest, job.target.wrapping_offset(nest.target), source);
        } else {
            Plan::of_bits(&nest, job.target, job.source).walk(nest.target, nest.source);
        }
    }
}

/// Room for every dimension that is larger than 1, and one more.
const MAX: usize = 64;

/// From how many bytes on the target is written past the cache. Below, who reads it next likely finds it there.
const STREAM_FROM: usize = 8 << 20;

/// From how many bytes on a tile is built on the stack first. Below, both sides stay in the caches anyway.
const STAGE_FROM: usize = 256 << 10;

/// From how many bytes on starting a thread pays.
const PARALLEL_FROM: usize = 4 << 20;

/// A dimension; strides in the unit of the nest (bytes or bits).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Dim {
    n: usize,
    target: isize,
    source: isize,
}

/// A job reduced to what matters, see the top.
#[derive(Clone, Copy)]
struct Nest {
    dims: [Dim; MAX],
    rank: usize,
    /// Size of the item in units: the element, or the run that is contiguous on both sides.
    item: usize,
    /// Of everything, in units.
    total: usize,
    /// Where the first item lies, in units from the job's first element: not 0 where an axis was turned round.
    target: isize,
    source: isize,
}

impl Nest {
    /// `None`: there is nothing to copy.
    fn new(job: &Job, item: usize) -> Option<Nest> {
        if job.shape.contains(&0) {
            return None;
        }
        let mut nest = Nest { dims: [Dim::default(); MAX], rank: 0, item, total: item, target: 0, source: 0 };
        let mut dense = 1;
        for axis in (0..job.shape.len()).rev() {
            let n = job.shape[axis];
            if n == 1 {
                continue; // its stride means nothing
            }
            let stride = |strides: Option<&[i64]>| strides.map_or(dense, |s| s[axis]) as isize * item as isize;
            let mut dim = Dim { n: n as usize, target: stride(job.target_strides), source: stride(job.source_strides) };
            dense *= n;
            if dim.target < 0 {
                let last = (n - 1) as isize;
                nest.target += last * dim.target;
                nest.source += last * dim.source;
                (dim.target, dim.source) = (-dim.target, -dim.source);
            }
            let mut at = nest.rank;
            while at > 0 && nest.dims[at - 1].target < dim.target {
                nest.dims[at] = nest.dims[at - 1];
                at -= 1;
            }
            nest.dims[at] = dim;
            nest.rank += 1;
            nest.total *= dim.n;
        }
        nest.merge();
        Some(nest)
    }

    fn merge(&mut self) {
        let mut kept = 0;
        for at in 0..self.rank {
            let inner = self.dims[at];
            if kept > 0 {
                let outer = self.dims[kept - 1];
                let n = inner.n as isize;
                if outer.target == n * inner.target && outer.source == n * inner.source {
                    self.dims[kept - 1] = Dim { n: outer.n * inner.n, ..inner };
                    continue;
                }
            }
            self.dims[kept] = inner;
            kept += 1;
        }
        if kept > 0 {
            let last = self.dims[kept - 1];
            if last.target == self.item as isize && last.source == self.item as isize {
                self.item *= last.n;
                kept -= 1;
            }
        }
        self.rank = kept;
    }

    /// From bits to bytes, if everything in it is a multiple of 8.
    fn narrow_to_bytes(&mut self) -> bool {
        let mut all = self.target | self.source | self.item as isize;
        for dim in &self.dims[..self.rank] {
            all |= dim.target | dim.source;
        }
        if all & 7 != 0 {
            return false;
        }
        for dim in &mut self.dims[..self.rank] {
            (dim.target, dim.source) = (dim.target / 8, dim.source / 8);
        }
        self.item /= 8;
        self.total /= 8;
        self.target /= 8;
        self.source /= 8;
        true
    }
}

/// # Safety
/// As for [`copy_bytes`]; the pointers are those of the nest's first item.
unsafe fn run(nest: &Nest, target: *mut u8, source: *const u8) {
    if nest.rank == 0 {
        // SAFETY: one contiguous run on both sides.
        return unsafe { core::ptr::copy_nonoverlapping(source, target, nest.item) };
    }
    // SAFETY: the caller's contract is ours.
    unsafe { Plan::of_bytes(nest, target, source).walk(0, 0) };
    fence();
}

/// One loop of a plan. An axis is blocked from outside to inside, into ever smaller ranges.
#[derive(Clone, Copy)]
enum Loop {
    /// Cuts the axis's range into ranges of `size`, at multiples of `size` less `phase`.
    Block { axis: usize, size: usize, phase: usize },
    /// Visits each index of the axis's range.
    Each { axis: usize },
}

/// Where a tile lies: offsets of its first item, and how many items it has along both axes.
#[derive(Clone, Copy)]
struct Tile {
    target: isize,
    source: isize,
    a: usize,
    b: usize,
}

/// Copies a tile, and may prepare for the next one.
type Kernel = unsafe fn(&mut Plan, Tile, Option<Tile>);

/// How a nest is visited: loops outside, and inside a kernel that copies a tile of two axes.
struct Plan {
    dims: [Dim; MAX + 1],
    range: [(usize, usize); MAX + 1],
    loops: [Loop; MAX + 4],
    depth: usize,
    /// The source's fast axis; an axis of size 1 where both sides have the same.
    a: usize,
    /// The target's fast axis.
    b: usize,
    item: usize,
    kernel: Kernel,
    /// Whether tiles are built on the stack first.
    staged: bool,
    /// Whether the target is written past the cache.
    stream: bool,
    /// Whether the whole tile is one run of the target.
    joint: bool,
    pending: Option<Tile>,
    target: *mut u8,
    source: *const u8,
    stage: Stage,
}

/// Bytes of a tile.
const TILE: usize = 16 << 10;

/// A tile, and room for rows that do not begin at multiples of the cache's way.
#[repr(C, align(64))]
struct Stage(MaybeUninit<[u8; TILE + TILE / 2]>);

impl Plan {
    fn of_bytes(nest: &Nest, target: *mut u8, source: *const u8) -> Plan {
        let item = nest.item;
        let mut plan = Plan::new(nest, target, source);
        plan.kernel = kernel_for(item);
        let (a, b) = (plan.dims[plan.a], plan.dims[plan.b]);
        let size = item as isize;
        plan.stream = nest.total >= STREAM_FROM;
        // With one fast axis for both sides lines are visited once anyway, and a stage would only be one more pass.
        plan.staged = item <= 32 && b.target == size && nest.total >= STAGE_FROM && plan.a != MAX;

        // The tile: about square in bytes, longer in one direction where the other is short.
        let room = (TILE / item).max(1);
        let line = (64 / item).max(1);
        let (mut size_a, mut size_b) = match item {
            1 => (128, 128),
            2 => (64, 128),
            3..=4 => (64, 64),
            5..=8 => (32, 64),
            9..=16 => (32, 32),
            17..=32 => (16, 32),
            33..=256 => (32, 32),
            _ => (8, 8),
        };
        let dense = a.target == b.n as isize * size;
        if a.n < size_a {
            (size_a, size_b) = (a.n, (room / a.n).max(size_b) / line * line);
        } else if b.n < size_b {
            let pitch = if dense { b.n * item } else { (b.n * item).next_multiple_of(64) };
            (size_a, size_b) = ((TILE / pitch).max(size_a), b.n);
        }
        plan.joint = dense && b.n <= size_b;
        plan.staged &= plan.joint || size_b.min(b.n) * item >= 128;
        // Cut the target's rows where its cache lines begin, if they begin at the same place in all rows.
        let mut phase = 0;
        if size_b < b.n && 64 % item == 0 && (target as usize) % item == 0 {
            phase = (target as usize % 64) / item;
        }
        let mut phase_a = 0;
        if size_a < a.n && 64 % item == 0 && (source as usize) % item == 0 && size_a % line == 0 {
            phase_a = (source as usize % 64) / item;
        }
        plan.order(nest, (size_a, phase_a), (size_b, phase));
        plan
    }

    fn of_bits(nest: &Nest, target: *mut u8, source: *const u8) -> Plan {
        let mut plan = Plan::new(nest, target, source);
        plan.kernel = bits::tile;
        plan.order(nest, (64, 0), (256, 0));
        plan
    }

    fn new(nest: &Nest, target: *mut u8, source: *const u8) -> Plan {
        let mut plan = Plan {
            dims: [Dim { n: 1, target: 0, source: 0 }; MAX + 1],
            range: [(0, 1); MAX + 1],
            loops: [Loop::Each { axis: 0 }; MAX + 4],
            depth: 0,
            a: MAX,
            b: MAX,
            item: nest.item,
            kernel: nothing,
            staged: false,
            stream: false,
            joint: false,
            pending: None,
            target,
            source,
            stage: Stage(MaybeUninit::uninit()),
        };
        for axis in 0..nest.rank {
            plan.dims[axis] = nest.dims[axis];
            plan.range[axis] = (0, nest.dims[axis].n);
        }
        if nest.rank > 0 {
            plan.b = nest.rank - 1;
            let fast = (0..nest.rank)
                .rev()
                .filter(|&axis| nest.dims[axis].source != 0)
                .min_by_key(|&axis| nest.dims[axis].source.unsigned_abs());
            plan.a = fast.filter(|&axis| axis != plan.b).unwrap_or(MAX);
        }
        plan
    }

    /// Puts the loops in order: what strides far goes outside.
    fn order(&mut self, nest: &Nest, (size_a, phase_a): (usize, usize), (size_b, phase_b): (usize, usize)) {
        let reach = |axis: usize, size: usize| self.dims[axis].target.unsigned_abs().saturating_mul(size);
        let mut todo = [(0usize, Loop::Each { axis: 0 }); MAX + 4];
        let mut count = 0;
        let mut add = |reach: usize, step: Loop| {
            let mut at = count;
            while at > 0 && todo[at - 1].0 < reach {
                todo[at] = todo[at - 1];
                at -= 1;
            }
            todo[at] = (reach, step);
            count += 1;
        };
        // More rows of the target at a time than the TLB has entries, and every line costs a page walk.
        let a = self.dims[self.a];
        let rows = 1024;
        if self.a != MAX && a.n > rows && a.target.unsigned_abs() >= 2048 {
            add(usize::MAX, Loop::Block { axis: self.a, size: rows / size_a.min(rows) * size_a, phase: phase_a });
        }
        for axis in 0..nest.rank {
            if axis == self.a {
                add(reach(axis, size_a), Loop::Block { axis, size: size_a, phase: phase_a });
            } else if axis == self.b {
                add(reach(axis, size_b), Loop::Block { axis, size: size_b, phase: phase_b });
            } else {
                add(reach(axis, 1), Loop::Each { axis });
            }
        }
        for (at, step) in todo[..count].iter().enumerate() {
            self.loops[at] = step.1;
        }
        self.depth = count;
    }

    /// # Safety
    /// As for [`copy_bytes`], for the nest and the pointers that the plan was made of; the offsets are those of the
    /// first item.
    unsafe fn walk(&mut self, target: isize, source: isize) {
        // SAFETY: the caller's contract is ours.
        unsafe {
            self.level(0, target, source);
            if let Some(last) = self.pending {
                (self.kernel)(self, last, None);
            }
        }
    }

    /// # Safety
    /// As for `walk`; `target` and `source` are the offsets that the outer loops have reached.
    unsafe fn level(&mut self, level: usize, target: isize, source: isize) {
        if level == self.depth {
            let (a, b) = (self.range[self.a], self.range[self.b]);
            let (dim_a, dim_b) = (self.dims[self.a], self.dims[self.b]);
            let target = target + a.0 as isize * dim_a.target + b.0 as isize * dim_b.target;
            let source = source + a.0 as isize * dim_a.source + b.0 as isize * dim_b.source;
            let next = Tile { target, source, a: a.1, b: b.1 };
            if let Some(tile) = self.pending.replace(next) {
                // SAFETY: the ranges lie inside the axes, so these are items of the job.
                unsafe { (self.kernel)(self, tile, Some(next)) };
            }
            return;
        }
        match self.loops[level] {
            Loop::Each { axis } => {
                let (dim, (start, len)) = (self.dims[axis], self.range[axis]);
                for index in start as isize..(start + len) as isize {
                    // SAFETY: as promised to us.
                    unsafe { self.level(level + 1, target + index * dim.target, source + index * dim.source) }
                }
            }
            Loop::Block { axis, size, phase } => {
                let (start, len) = self.range[axis];
                let mut at = start;
                while at < start + len {
                    let end = ((at + phase) / size * size + size - phase).min(start + len);
                    self.range[axis] = (at, end - at);
                    // SAFETY: as promised to us.
                    unsafe { self.level(level + 1, target, source) }
                    at = end;
                }
                self.range[axis] = (start, len);
            }
        }
    }
}

unsafe fn nothing(_: &mut Plan, _: Tile, _: Option<Tile>) {}

fn kernel_for(item: usize) -> Kernel {
    type Bytes<const N: usize> = MaybeUninit<[u8; N]>;
    match item {
        1 => tile::<MaybeUninit<u8>, 1>,
        2 => tile::<MaybeUninit<u16>, 2>,
        4 => tile::<MaybeUninit<u32>, 4>,
        8 => tile::<MaybeUninit<u64>, 8>,
        16 => tile::<MaybeUninit<u128>, 16>,
        32 => tile::<MaybeUninit<[u128; 2]>, 32>,
        3 => tile::<Bytes<3>, 3>,
        6 => tile::<Bytes<6>, 6>,
        12 => tile::<Bytes<12>, 12>,
        24 => tile::<Bytes<24>, 24>,
        _ => runs,
    }
}

/// Copies a tile of items of `N` bytes.
///
/// # Safety
/// `target` and `source` are the offsets of the first of `a` times `b` items of the plan.
unsafe fn tile<T: Copy, const N: usize>(plan: &mut Plan, tile: Tile, next: Option<Tile>) {
    let Tile { target, source, a, b } = tile;
    let (dim_a, dim_b) = (plan.dims[plan.a], plan.dims[plan.b]);
    let to = plan.target.wrapping_offset(target);
    let from = plan.source.wrapping_offset(source);
    // SAFETY: the caller says that the items are there; the stage has room for a tile with the pitch used.
    unsafe {
        if !plan.staged || a * b * N < 512 {
            return rectangle::<T, N>(
                to,
                dim_a.target,
                dim_b.target,
                from,
                dim_a.source,
                dim_b.source,
                a,
                b,
                core::ptr::null(),
            );
        }
        let ahead = match next {
            Some(next) if dim_a.source == N as isize => plan.source.wrapping_offset(next.source),
            _ => core::ptr::null(),
        };
        let stage = plan.stage.0.as_mut_ptr().cast::<u8>();
        let bytes = b * N;
        if plan.joint {
            debug_assert!(a * bytes <= size_of::<Stage>());
            rectangle::<T, N>(stage, bytes as isize, N as isize, from, dim_a.source, dim_b.source, a, b, ahead);
            return flush(to, stage, a * bytes, plan.stream);
        }
        // The target's place in its cache line is kept, so that lines are moved whole.
        let pitch = bytes.next_multiple_of(64) + if a > 1 && a * 64 <= TILE / 2 { 64 } else { 0 };
        debug_assert!(a * pitch <= size_of::<Stage>());
        rectangle::<T, N>(stage, pitch as isize, N as isize, from, dim_a.source, dim_b.source, a, b, ahead);
        for row in 0..a {
            let to = to.wrapping_offset(row as isize * dim_a.target);
            flush(to, stage.add(row * pitch), bytes, plan.stream);
        }
    }
}

/// Copies items of `N` bytes from any two strides to any two.
///
/// # Safety
/// `a` times `b` items are there on both sides.
#[allow(clippy::too_many_arguments)]
#[inline(never)] // large, and once for each item size is enough
unsafe fn rectangle<T: Copy, const N: usize>(
    to: *mut u8,
    to_a: isize,
    to_b: isize,
    from: *const u8,
    from_a: isize,
    from_b: isize,
    a: usize,
    b: usize,
    ahead: *const u8,
) {
    const { assert!(size_of::<T>() == N) };
    // SAFETY: each of the three forms visits each item of the rectangle, and nothing else.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if N <= 8 && 16 % N == 0 && a >= 16 / N && b >= 16 / N && to_b == N as isize && from_a == N as isize {
            return match N {
                1 => simd::transpose::<1, 16>(to, to_a, from, from_b, a, b, ahead),
                2 => simd::transpose::<2, 8>(to, to_a, from, from_b, a, b, ahead),
                4 => simd::transpose::<4, 4>(to, to_a, from, from_b, a, b, ahead),
                _ => simd::transpose::<8, 2>(to, to_a, from, from_b, a, b, ahead),
            };
        }
        if a <= b && a <= 8 || a == 1 {
            for row in 0..a as isize {
                strided::<T>(to.wrapping_offset(row * to_a), to_b, from.wrapping_offset(row * from_a), from_b, b);
            }
        } else {
            for row in 0..b as isize {
                if !ahead.is_null() {
                    prefetch(ahead.wrapping_offset(row * from_b), a * N);
                }
                strided::<T>(to.wrapping_offset(row * to_b), to_a, from.wrapping_offset(row * from_b), from_a, a);
            }
        }
    }
}

/// Copies a row. The strides that occur most are constants, so that the compiler can vectorise.
///
/// # Safety
/// `n` items are there on both sides.
#[inline(never)]
unsafe fn strided<T: Copy>(to: *mut u8, to_stride: isize, from: *const u8, from_stride: isize, n: usize) {
    let size = size_of::<T>() as isize;
    // SAFETY: as promised to us; each form has the strides that it is given.
    unsafe {
        if to_stride == size {
            if from_stride == 0 {
                let value = from.cast::<T>().read_unaligned();
                for index in 0..n {
                    to.cast::<T>().add(index).write_unaligned(value);
                }
            } else if from_stride == size {
                core::ptr::copy_nonoverlapping(from, to, n * size_of::<T>());
            } else if from_stride == 2 * size {
                constant::<T, 1, 2>(to, from, n);
            } else if from_stride == 3 * size {
                constant::<T, 1, 3>(to, from, n);
            } else if from_stride == 4 * size {
                constant::<T, 1, 4>(to, from, n);
            } else if from_stride == -size {
                constant::<T, 1, -1>(to, from, n);
            } else {
                any::<T>(to, to_stride, from, from_stride, n);
            }
        } else if from_stride == size && to_stride == 2 * size {
            constant::<T, 2, 1>(to, from, n);
        } else if from_stride == size && to_stride == 3 * size {
            constant::<T, 3, 1>(to, from, n);
        } else if from_stride == size && to_stride == 4 * size {
            constant::<T, 4, 1>(to, from, n);
        } else {
            any::<T>(to, to_stride, from, from_stride, n);
        }
    }
}

/// # Safety
/// As for `strided`, with strides in items.
#[inline(always)]
unsafe fn constant<T: Copy, const TO: isize, const FROM: isize>(to: *mut u8, from: *const u8, n: usize) {
    let (to, from) = (to.cast::<T>(), from.cast::<T>());
    for index in 0..n as isize {
        // SAFETY: as promised to us.
        unsafe {
            let value = from.offset(index * FROM).read_unaligned();
            to.offset(index * TO).write_unaligned(value);
        }
    }
}

/// # Safety
/// As for `strided`.
#[inline(always)]
unsafe fn any<T: Copy>(to: *mut u8, to_stride: isize, from: *const u8, from_stride: isize, n: usize) {
    for index in 0..n as isize {
        // SAFETY: as promised to us.
        unsafe {
            let value = from.offset(index * from_stride).cast::<T>().read_unaligned();
            to.offset(index * to_stride).cast::<T>().write_unaligned(value);
        }
    }
}

/// Copies a tile of items that are runs of bytes.
///
/// # Safety
/// As for `tile`.
unsafe fn runs(plan: &mut Plan, tile: Tile, _next: Option<Tile>) {
    let Tile { target, source, a, b } = tile;
    let (dim_a, dim_b) = (plan.dims[plan.a], plan.dims[plan.b]);
    let stream = plan.stream && plan.item >= 256;
    for index_a in 0..a as isize {
        let to = plan.target.wrapping_offset(target + index_a * dim_a.target);
        let from = plan.source.wrapping_offset(source + index_a * dim_a.source);
        for index in 0..b as isize {
            let next = from.wrapping_offset((index + 1) * dim_b.source);
            if stream {
                prefetch(next, plan.item.min(1024));
            }
            let to = to.wrapping_offset(index * dim_b.target);
            // SAFETY: the caller says that the items are there.
            unsafe { flush(to, from.wrapping_offset(index * dim_b.source), plan.item, stream) };
        }
    }
}

/// Copies contiguous bytes, past the cache if `stream` says so.
///
/// # Safety
/// `n` bytes are there on both sides.
#[inline(always)]
unsafe fn flush(to: *mut u8, from: *const u8, n: usize, stream: bool) {
    // SAFETY: as promised to us.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if stream && n >= 128 {
            return simd::stream(to, from, n);
        }
        let _ = stream;
        core::ptr::copy_nonoverlapping(from, to, n);
    }
}

/// Hints that `n` bytes will be read. The address need not exist.
#[inline(always)]
fn prefetch(from: *const u8, n: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let skew = from as usize % 64;
        for at in (0..n + skew).step_by(64) {
            let line = from.wrapping_sub(skew).wrapping_add(at).cast();
            // SAFETY: a prefetch reads nothing and cannot fault.
            unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(line) }
        }
    }
    let _ = (from, n);
}

/// Stores past the cache are not ordered with others: another thread that is told "done" must see them.
fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence()
    }
}

/// SSE2, which every x86-64 has. It moves more bytes than the memory delivers, so wider ones would idle.
#[cfg(target_arch = "x86_64")]
mod simd {
    use core::arch::x86_64::*;

    /// Transposes items of `N` bytes: source rows along `a` are contiguous, target rows along `b` are. The last
    /// block of a row or column overlaps the one before it where the size is no multiple of the block's.
    ///
    /// # Safety
    /// `a` times `b` items are there on both sides, at least `M` of each, and `M` times `N` is 16.
    #[inline(never)]
    pub unsafe fn transpose<const N: usize, const M: usize>(
        to: *mut u8,
        to_a: isize,
        from: *const u8,
        from_b: isize,
        a: usize,
        b: usize,
        ahead: *const u8,
    ) {
        let mut at_b = 0;
        while at_b < b {
            let at = at_b.min(b - M);
            let (to, from) = (to.wrapping_add(at * N), from.wrapping_offset(at as isize * from_b));
            if !ahead.is_null() {
                for row in at..at + M {
                    super::prefetch(ahead.wrapping_offset(row as isize * from_b), a * N);
                }
            }
            let mut at_a = 0;
            while at_a < a {
                let at = at_a.min(a - M);
                // SAFETY: the block ends at the last row and column at the latest.
                unsafe {
                    block::<N, M>(to.wrapping_offset(at as isize * to_a), to_a, from.wrapping_add(at * N), from_b)
                };
                at_a += M;
            }
            at_b += M;
        }
    }

    /// # Safety
    /// `M` rows of 16 bytes are there on both sides, and `M` times `N` is 16.
    #[inline(always)]
    unsafe fn block<const N: usize, const M: usize>(
        to: *mut u8,
        to_stride: isize,
        from: *const u8,
        from_stride: isize,
    ) {
        let mut rows = [zero(); M];
        for (index, row) in rows.iter_mut().enumerate() {
            // SAFETY: as promised to us; unaligned.
            *row = unsafe { _mm_loadu_si128(from.wrapping_offset(index as isize * from_stride).cast()) };
        }
        // Interleaving the first half of the rows with the second, log2(M) times, is a transposition.
        rows = interleave::<N, M>(rows);
        if M > 2 {
            rows = interleave::<N, M>(rows);
        }
        if M > 4 {
            rows = interleave::<N, M>(rows);
        }
        if M > 8 {
            rows = interleave::<N, M>(rows);
        }
        for (index, row) in rows.iter().enumerate() {
            // SAFETY: as promised to us; unaligned.
            unsafe { _mm_storeu_si128(to.wrapping_offset(index as isize * to_stride).cast(), *row) };
        }
    }

    #[inline(always)]
    fn zero() -> __m128i {
        // SAFETY: every x86-64 has SSE2.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    fn interleave<const N: usize, const M: usize>(rows: [__m128i; M]) -> [__m128i; M] {
        let mut next = [zero(); M];
        for index in 0..M / 2 {
            let (x, y) = (rows[index], rows[index + M / 2]);
            // SAFETY: every x86-64 has SSE2.
            (next[2 * index], next[2 * index + 1]) = unsafe {
                match N {
                    1 => (_mm_unpacklo_epi8(x, y), _mm_unpackhi_epi8(x, y)),
                    2 => (_mm_unpacklo_epi16(x, y), _mm_unpackhi_epi16(x, y)),
                    4 => (_mm_unpacklo_epi32(x, y), _mm_unpackhi_epi32(x, y)),
                    _ => (_mm_unpacklo_epi64(x, y), _mm_unpackhi_epi64(x, y)),
                }
            };
        }
        next
    }

    /// Copies contiguous bytes; whole lines of the target go past the cache.
    ///
    /// # Safety
    /// `n` bytes are there on both sides, at least 64.
    #[cfg(not(miri))]
    pub unsafe fn stream(to: *mut u8, from: *const u8, n: usize) {
        let head = (to as usize).wrapping_neg() % 64;
        // SAFETY: as promised to us; streaming stores begin at a line of the target.
        unsafe {
            if head > 0 {
                core::ptr::copy_nonoverlapping(from, to, head);
            }
            let lines = (n - head) / 64;
            for line in 0..lines {
                let (to, from) = (to.add(head + line * 64), from.add(head + line * 64));
                let x0 = _mm_loadu_si128(from.cast());
                let x1 = _mm_loadu_si128(from.add(16).cast());
                let x2 = _mm_loadu_si128(from.add(32).cast());
                let x3 = _mm_loadu_si128(from.add(48).cast());
                _mm_stream_si128(to.cast(), x0);
                _mm_stream_si128(to.add(16).cast(), x1);
                _mm_stream_si128(to.add(32).cast(), x2);
                _mm_stream_si128(to.add(48).cast(), x3);
            }
            let done = head + lines * 64;
            if done < n {
                core::ptr::copy_nonoverlapping(from.add(done), to.add(done), n - done);
            }
        }
    }
}

/// Elements that are no whole bytes; every offset here is in bits.
mod bits {
    use super::{Plan, Tile};

    /// # Safety
    /// `target` and `source` are the offsets of the first of `a` times `b` items of the plan.
    pub unsafe fn tile(plan: &mut Plan, tile: Tile, _next: Option<Tile>) {
        let Tile { target, source, a, b } = tile;
        let (dim_a, dim_b) = (plan.dims[plan.a], plan.dims[plan.b]);
        for row in 0..a as isize {
            let target = target + row * dim_a.target;
            let source = source + row * dim_a.source;
            // SAFETY: the caller says that the items are there.
            unsafe {
                if plan.item <= 8 && dim_b.target == plan.item as isize {
                    packed(plan, target, source, dim_b.source, b);
                } else {
                    for index in 0..b as isize {
                        let (to, from) = (target + index * dim_b.target, source + index * dim_b.source);
                        run(plan.target, to, plan.source, from, plan.item);
                    }
                }
            }
        }
    }

    /// Small items, one beside the other in the target: no byte is written twice.
    ///
    /// # Safety
    /// `n` items are there on both sides.
    unsafe fn packed(plan: &Plan, target: isize, source: isize, stride: isize, n: usize) {
        let item = plan.item;
        let mut to = plan.target.wrapping_offset(target >> 3);
        let mut held = (target & 7) as usize;
        // SAFETY: as promised to us; only bytes that hold a bit of an item are touched.
        unsafe {
            let mut word = *to as u32 & mask(held);
            for index in 0..n as isize {
                word |= get(plan.source, source + index * stride, item) << held;
                held += item;
                if held >= 8 {
                    *to = word as u8;
                    to = to.wrapping_add(1);
                    word >>= 8;
                    held -= 8;
                }
            }
            if held > 0 {
                *to = (*to as u32 & !mask(held) | word) as u8;
            }
        }
    }

    fn mask(bits: usize) -> u32 {
        (1 << bits) - 1
    }

    /// # Safety
    /// `n` bits are there, at most 8.
    #[inline(always)]
    unsafe fn get(from: *const u8, at: isize, n: usize) -> u32 {
        let (byte, shift) = (from.wrapping_offset(at >> 3), (at & 7) as usize);
        // SAFETY: as promised to us; the second byte is read only if it holds a bit of the item.
        unsafe {
            let mut word = *byte as u32;
            if shift + n > 8 {
                word |= (*byte.wrapping_add(1) as u32) << 8;
            }
            word >> shift & mask(n)
        }
    }

    /// # Safety
    /// `n` bits are there, at most 8, and they lie in one byte.
    unsafe fn put(to: *mut u8, at: isize, n: usize, value: u32) {
        let (byte, shift) = (to.wrapping_offset(at >> 3), at & 7);
        // SAFETY: as promised to us.
        unsafe { *byte = (*byte as u32 & !(mask(n) << shift) | value << shift) as u8 };
    }

    /// Copies a run of `n` bits.
    ///
    /// # Safety
    /// They are there on both sides.
    unsafe fn run(to: *mut u8, mut to_at: isize, from: *const u8, mut from_at: isize, mut n: usize) {
        // SAFETY: as promised to us: each step stays inside the run.
        unsafe {
            let head = ((-to_at) & 7) as usize;
            if head > 0 {
                let head = head.min(n);
                put(to, to_at, head, get(from, from_at, head));
                (to_at, from_at, n) = (to_at + head as isize, from_at + head as isize, n - head);
            }
            let (bytes, shift) = (n / 8, from_at & 7);
            let target = to.wrapping_offset(to_at >> 3);
            let source = from.wrapping_offset(from_at >> 3);
            if shift == 0 {
                core::ptr::copy_nonoverlapping(source, target, bytes);
            } else {
                let mut at = 0;
                while at + 8 <= bytes {
                    let low = u64::from_le(source.add(at).cast::<u64>().read_unaligned()) >> shift;
                    let high = (*source.add(at + 8) as u64) << (64 - shift);
                    target.add(at).cast::<u64>().write_unaligned((low | high).to_le());
                    at += 8;
                }
                while at < bytes {
                    let low = *source.add(at) >> shift;
                    *target.add(at) = low | *source.add(at + 1) << (8 - shift);
                    at += 1;
                }
            }
            let tail = n % 8;
            if tail > 0 {
                let done = (n - tail) as isize;
                put(to, to_at + done, tail, get(from, from_at + done, tail));
            }
        }
    }
}

/// Several threads on one copy.
mod parallel {
    use super::Nest;

    /// # Safety
    /// As for `super::run`.
    pub unsafe fn run(nest: &Nest, target: *mut u8, source: *const u8, _threads: usize) {
        // SAFETY: the caller's contract is ours.
        unsafe { super::run(nest, target, source) }
    }
}

#[cfg(test)]
mod tests;
