//! Every job here is compared with an index-by-index reference, guard bytes included.
use super::{Job, copy_bits, copy_bytes};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
    fn shuffle<T>(&mut self, v: &mut [T]) {
        for i in (1..v.len()).rev() {
            v.swap(i, self.below(i + 1));
        }
    }
}

/// Strides in elements, lowest and highest offset. `overlap` allows stride 0.
fn layout(rng: &mut Rng, shape: &[i64], overlap: bool) -> (Vec<i64>, i64, i64) {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if rng.below(4) > 0 {
        rng.shuffle(&mut order);
    }
    let mut strides = vec![0; shape.len()];
    let mut step = if rng.below(3) == 0 { 1 + rng.below(4) as i64 } else { 1 };
    let (mut low, mut high) = (0, 0);
    for &axis in order.iter().rev() {
        if shape[axis] == 1 {
            strides[axis] = rng.next() as i64; // garbage
            continue;
        }
        let mut stride = if rng.below(3) == 0 { -step } else { step };
        if overlap && rng.below(4) == 0 {
            stride = 0;
        } else {
            step *= shape[axis];
            if rng.below(3) == 0 {
                step += rng.below(5) as i64;
            }
        }
        strides[axis] = stride;
        let reach = stride * (shape[axis] - 1).max(0);
        low += reach.min(0);
        high += reach.max(0);
    }
    (strides, low, high)
}

fn each(shape: &[i64], mut visit: impl FnMut(&[i64])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        visit(&index);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

fn offset(index: &[i64], shape: &[i64], strides: &[i64]) -> i64 {
    (0..index.len()).filter(|&a| shape[a] != 1).map(|a| index[a] * strides[a]).sum()
}

/// `pitch` in bits.
fn check(
    rng: &mut Rng,
    shape: &[i64],
    pitch: usize,
    from: (Vec<i64>, i64, i64),
    to: (Vec<i64>, i64, i64),
    threads: usize,
) {
    const GUARD: usize = 64;
    let bits = pitch as i64;
    // Bases are bytes, so that the lowest element may begin inside a byte.
    let base = |low: i64| ((-low * bits) as usize).div_ceil(8) + GUARD;
    let size = |l: &(Vec<i64>, i64, i64), extra: usize| base(l.1) + (((l.2 + 1) * bits) as usize).div_ceil(8) + extra;
    let (skew_from, skew_to) = (rng.below(64), rng.below(64));
    let mut source = vec![0u8; size(&from, GUARD) + skew_from];
    for byte in &mut source {
        *byte = rng.next() as u8;
    }
    let mut target = vec![0u8; size(&to, GUARD) + skew_to];
    for byte in &mut target {
        *byte = rng.next() as u8;
    }
    let (from_base, to_base) = (base(from.1) + skew_from, base(to.1) + skew_to);
    let mut expected = target.clone();
    each(shape, |index| {
        let f = from_base as i64 * 8 + offset(index, shape, &from.0) * bits;
        let t = to_base as i64 * 8 + offset(index, shape, &to.0) * bits;
        if pitch % 8 == 0 {
            let n = pitch / 8;
            expected[t as usize / 8..][..n].copy_from_slice(&source[f as usize / 8..][..n]);
        } else {
            for bit in 0..bits {
                let (f, t) = ((f + bit) as usize, (t + bit) as usize);
                let value = source[f / 8] >> (f % 8) & 1;
                expected[t / 8] = expected[t / 8] & !(1 << (t % 8)) | value << (t % 8);
            }
        }
    });
    let job = Job {
        shape,
        source: source.as_ptr().wrapping_add(from_base),
        source_strides: Some(&from.0),
        target: target.as_mut_ptr().wrapping_add(to_base),
        target_strides: Some(&to.0),
        threads,
    };
    // SAFETY: both memories were made for this job and are larger than it.
    unsafe { if pitch % 8 == 0 { copy_bytes(&job, pitch / 8) } else { copy_bits(&job, pitch) } };
    if let Some(at) = (0..target.len()).find(|&i| target[i] != expected[i]) {
        panic!(
            "byte {at} (first element at {to_base}): shape {shape:?}, pitch {pitch} bits, source {:?}, target {:?}, threads {threads}",
            from.0, to.0
        );
    }
}

const ITEMS: [usize; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 33, 48, 100];
const LIGHT: bool = cfg!(miri);

fn random(rng: &mut Rng, pitch: usize, rank: usize, count: usize) {
    let mut shape: Vec<i64> = (0..rank)
        .map(|_| match rng.below(12) {
            0 => 1,
            1 => 2,
            2 => 16 + rng.below(2) as i64,
            3 => 3,
            4 => 1 + rng.below(150) as i64,
            _ => 1 + rng.below(9) as i64,
        })
        .collect();
    if rng.below(40) == 0 && rank > 0 {
        shape[rng.below(rank)] = 0;
    }
    while shape.iter().product::<i64>() as usize > count {
        let axis = (0..rank).max_by_key(|&a| shape[a]).unwrap();
        shape[axis] = (shape[axis] + 1) / 2;
    }
    let (from, to) = (layout(rng, &shape, true), layout(rng, &shape, false));
    check(rng, &shape, pitch, from, to, 1);
}

#[test]
fn random_jobs_of_bytes() {
    let mut rng = Rng(0x9E3779B97F4A7C15);
    for round in 0..if LIGHT { 4 } else { 400 } {
        for item in ITEMS {
            for rank in 0..=6 {
                random(
                    &mut rng,
                    item * 8,
                    rank,
                    if LIGHT {
                        200
                    } else if round % 20 == 0 {
                        100_000
                    } else {
                        5_000
                    },
                );
            }
        }
    }
}

#[test]
fn random_jobs_of_bits() {
    let mut rng = Rng(0xD1B54A32D192ED03);
    for _ in 0..if LIGHT { 6 } else { 500 } {
        for pitch in [1, 2, 3, 4, 6, 7, 9, 12, 18, 36, 67, 4 * 50] {
            for rank in 0..=6 {
                random(&mut rng, pitch, rank, if LIGHT { 150 } else { 3_000 });
            }
        }
    }
}

fn dense(shape: &[i64], order: &[usize]) -> (Vec<i64>, i64, i64) {
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= shape[axis].max(1);
    }
    (strides, 0, step - 1)
}

#[test]
fn transpositions_around_every_tile_boundary() {
    let mut rng = Rng(0xA0761D6478BD642F);
    let sizes: &[i64] = if LIGHT {
        &[1, 3, 17, 33]
    } else {
        &[1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 300]
    };
    for item in ITEMS {
        for &rows in sizes {
            for &columns in sizes {
                let shape = [rows, columns];
                check(&mut rng, &shape, item * 8, dense(&shape, &[1, 0]), dense(&shape, &[0, 1]), 1);
                if item <= 8 && rows * columns < 5000 {
                    // the same with a row left out between rows, and one side turned round
                    let (mut from, to) = (dense(&shape, &[1, 0]), dense(&shape, &[0, 1]));
                    let (mut low, mut high) = (0, 0);
                    #[expect(clippy::needless_range_loop)] // the axis counts
                    for axis in 0..2 {
                        from.0[axis] *= if rng.below(2) == 0 { -1 } else { 1 } * if axis == 1 { 2 } else { 1 };
                        low += (from.0[axis] * (shape[axis] - 1)).min(0);
                        high += (from.0[axis] * (shape[axis] - 1)).max(0);
                    }
                    check(&mut rng, &shape, item * 8, (from.0, low, high), to, 1);
                }
            }
        }
    }
}

#[test]
fn large_jobs_are_staged_streamed_and_shared_among_threads() {
    if LIGHT {
        return;
    }
    let mut rng = Rng(0x2545F4914F6CDD1D);
    // (shape, order of the source's axes), about 9 to 12 MiB each, so above every threshold
    let jobs: &[(&[i64], usize, &[usize])] = &[
        (&[3100, 3001], 1, &[1, 0]),
        (&[2100, 2301], 2, &[1, 0]),
        (&[1500, 2000], 3, &[1, 0]),
        (&[1501, 1700], 4, &[1, 0]),
        (&[4096, 1024], 4, &[1, 0]),
        (&[1101, 1103], 8, &[1, 0]),
        (&[1000, 700], 16, &[1, 0]),
        (&[600, 601], 32, &[1, 0]),
        (&[300, 301], 100, &[1, 0]),
        (&[70, 64, 600], 4, &[2, 1, 0]),
        (&[3, 2000, 1700], 1, &[1, 2, 0]),
        (&[2000, 1700, 3], 1, &[2, 0, 1]),
        (&[2000, 1700, 3], 4, &[2, 0, 1]),
        (&[3, 2000, 600], 4, &[1, 2, 0]),
        (&[200_000, 3, 5], 4, &[0, 2, 1]),
        (&[200_000, 3, 5], 4, &[2, 0, 1]),
        (&[64, 70, 600], 4, &[1, 0, 2]),
        (&[64, 32, 17, 90], 4, &[3, 1, 2, 0]),
        (&[2, 3, 5000, 100], 4, &[3, 2, 1, 0]),
        (&[9 << 20], 1, &[0]),
        (&[5000, 9, 250], 1, &[1, 0, 2]),
    ];
    for &(shape, item, order) in jobs {
        for threads in [1, 2, 3, 7, 100] {
            let all: Vec<usize> = (0..shape.len()).collect();
            check(&mut rng, shape, item * 8, dense(shape, order), dense(shape, &all), threads);
        }
        // every second element, and one value for all
        let all: Vec<usize> = (0..shape.len()).collect();
        let mut from = dense(shape, order);
        from.0.iter_mut().for_each(|s| *s *= 2);
        from.2 *= 2;
        check(&mut rng, shape, item * 8, from, dense(shape, &all), 2);
        check(&mut rng, shape, item * 8, (vec![0; shape.len()], 0, 0), dense(shape, &all), 1);
    }
}

#[test]
fn seventy_dimensions_of_which_some_are_larger_than_one() {
    let mut rng = Rng(0x8CB92BA72F3D8DD7);
    for _ in 0..if LIGHT { 2 } else { 20 } {
        let mut shape = vec![1; 70];
        for _ in 0..12 {
            shape[rng.below(70)] = 2;
        }
        let (from, to) = (layout(&mut rng, &shape, true), layout(&mut rng, &shape, false));
        check(&mut rng, &shape, 32, from, to, 1);
    }
    // 62 dimensions larger than 1 cannot be allocated; with one zero there is nothing to copy
    let mut shape = vec![2; 1024];
    shape[1000] = 0;
    let strides = vec![1; 1024];
    let job = Job {
        shape: &shape,
        source: core::ptr::null(),
        source_strides: Some(&strides),
        target: core::ptr::null_mut(),
        target_strides: None,
        threads: 4,
    };
    // SAFETY: both memories were made for this job and are larger than it.
    unsafe { copy_bytes(&job, 4) };
    // SAFETY: both memories were made for this job and are larger than it.
    unsafe { copy_bits(&job, 4) };
}

#[test]
fn no_strides_mean_row_major() {
    let source: Vec<u8> = (0..120).collect();
    let mut target = vec![0u8; 120];
    let mut job = Job {
        shape: &[2, 3, 4, 5],
        source: source.as_ptr(),
        source_strides: None,
        target: target.as_mut_ptr(),
        target_strides: None,
        threads: 0,
    };
    // SAFETY: both memories were made for this job and are larger than it.
    unsafe { copy_bytes(&job, 1) };
    assert_eq!(target, source);
    job.shape = &[4, 5, 6];
    job.source_strides = Some(&[1, 4, 20]);
    // SAFETY: both memories were made for this job and are larger than it.
    unsafe { copy_bytes(&job, 1) };
    for (i, j, k) in (0..120).map(|n| (n / 30, n / 6 % 5, n % 6)) {
        assert_eq!(target[i * 30 + j * 6 + k], source[i + j * 4 + k * 20]);
    }
}
