//! The arithmetic against enumeration: every element of many small tensors is looked at.

use super::super::testing::Random;
use super::*;
use crate::abi::DLDataType;
use crate::error::Status;

fn dtype(code: u8, bits: u8, lanes: u16) -> Dtype {
    Dtype::new(DLDataType { code, bits, lanes }).unwrap()
}

fn u8s() -> Dtype {
    dtype(1, 8, 1)
}

/// Where each element lies, in elements from the first one, in C order.
fn places(shape: &[i64], strides: Option<&[i64]>) -> Vec<i64> {
    let Some(strides) = strides else { return (0..shape.iter().product()).collect() };
    let mut places = vec![0];
    for (&dimension, &stride) in shape.iter().zip(strides) {
        places = places.iter().flat_map(|&at| (0..dimension).map(move |index| at + index * stride)).collect();
    }
    places
}

/// Checks everything that the module says of one tensor against its elements.
fn compare(shape: &[i64], strides: Option<&[i64]>, dtype: Dtype, padded: bool) {
    let places = places(shape, strides);
    let bits = i64::from(dtype.element_bits());
    let pitch = if padded { (bits + 7) / 8 * 8 } else { bits };
    let of = format!("shape {shape:?} strides {strides:?} {dtype} padded {padded}");

    let measured = measure(shape, strides, dtype, padded).unwrap();
    assert_eq!(measured.count, places.len() as u64, "count of {of}");
    assert_eq!(measured.nbytes as i64, (places.len() as i64 * pitch + 7) / 8, "nbytes of {of}");
    let low = places.iter().min().map_or(0, |&at| (at * pitch).div_euclid(8));
    let high = places.iter().max().map_or(0, |&at| ((at + 1) * pitch + 7).div_euclid(8));
    assert_eq!((measured.low, measured.high), (low, high), "extent of {of}");
    assert_eq!(measured.span() as i64, high - low, "span of {of}");
    let in_order = places.iter().copied().eq(0..places.len() as i64);
    assert_eq!(measured.row_major, in_order, "row-major of {of}");

    // Fortran order: the same with all axes the other way round.
    let reversed = |numbers: &[i64]| numbers.iter().rev().copied().collect::<Vec<_>>();
    let dense: Vec<i64>;
    let given = match strides {
        Some(strides) => strides,
        None => {
            dense = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
            &dense
        }
    };
    let transposed = self::places(&reversed(shape), Some(&reversed(given)));
    let in_order = transposed.iter().copied().eq(0..transposed.len() as i64);
    assert_eq!(is_column_major(shape, strides), in_order, "column-major of {of}");

    let mut distinct = places.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(overlaps(shape, strides), distinct.len() < places.len(), "overlap of {of}");

    let negative = strides.filter(|_| !places.is_empty()).and_then(|strides| {
        (0..shape.len()).find(|&axis| shape[axis] > 1 && strides[axis] < 0).map(|axis| (axis, strides[axis]))
    });
    assert_eq!(first_negative_stride(shape, strides), negative, "negative strides of {of}");
}

#[test]
fn arithmetic_agrees_with_enumeration() {
    let dtypes = [u8s(), dtype(2, 32, 1), dtype(5, 128, 1), dtype(2, 32, 3)];
    let packed = [dtype(17, 4, 1), dtype(15, 6, 1), dtype(0, 2, 1), dtype(17, 4, 3)];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for rank in 0..=4usize {
        for code in 0..5u32.pow(rank as u32) {
            let shape: Vec<i64> = (0..rank as u32).map(|axis| i64::from(code / 5u32.pow(axis) % 5)).collect();
            for &dtype in dtypes.iter().chain(&packed) {
                compare(&shape, None, dtype, false);
                compare(&shape, None, dtype, true);
            }
            let samples = if cfg!(miri) { 2 } else { 150 };
            for sample in 0..samples {
                let strides: Vec<i64> = match sample % 3 {
                    0 => (0..rank).map(|_| random.pick(-5, 5)).collect(),
                    // Wide steps, so that most do not overlap, and some by a hair.
                    1 => (0..rank).map(|_| random.pick(-25, 25)).collect(),
                    // Dense in some order of the axes, perhaps mirrored: the layouts that exist in life.
                    _ => permuted(&shape, &mut random),
                };
                let padded = random.below(2) == 1;
                let dtype = if random.below(2) == 1 { &dtypes } else { &packed }[random.below(4) as usize];
                compare(&shape, Some(&strides), dtype, padded);
            }
        }
    }
}

fn permuted(shape: &[i64], random: &mut Random) -> Vec<i64> {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    for last in (1..axes.len()).rev() {
        axes.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for axis in axes {
        strides[axis] = if random.below(4) == 0 { -step } else { step };
        step *= shape[axis].max(1);
    }
    strides
}

#[test]
fn one_zero_dimension_makes_the_count_zero_whatever_the_others_are() {
    for shape in [&[0][..], &[i64::MAX, 0, i64::MAX], &[0, i64::MAX, i64::MAX], &[i64::MAX, i64::MAX, 0]] {
        let strides = vec![i64::MIN; shape.len()];
        for strides in [None, Some(&strides[..])] {
            let empty = Measure { count: 0, nbytes: 0, low: 0, high: 0, row_major: true };
            assert_eq!(measure(shape, strides, u8s(), false), Ok(empty));
            assert!(is_column_major(shape, strides) && !overlaps(shape, strides));
            assert_eq!(first_negative_stride(shape, strides), None);
        }
    }
    // But a negative one is wrong wherever it stands.
    for (shape, axis) in [([0, -1], 1), ([-1, 0], 0)] {
        assert_eq!(measure(&shape, None, u8s(), false), Err(Error::NegativeDimension { axis, value: -1 }));
    }
}

#[test]
fn strides_of_dimensions_of_size_1_are_not_read() {
    let shape = [1; 70];
    for wild in [0, -1, 7, i64::MIN, i64::MAX] {
        let strides = [wild; 70];
        let one = Measure { count: 1, nbytes: 4, low: 0, high: 4, row_major: true };
        assert_eq!(measure(&shape, Some(&strides), dtype(2, 32, 1), false), Ok(one));
        assert!(is_column_major(&shape, Some(&strides)) && !overlaps(&shape, Some(&strides)));
        assert_eq!(first_negative_stride(&shape, Some(&strides)), None);
    }
    let mut shape = [1; 70];
    let mut strides = [i64::MIN; 70];
    (shape[3], strides[3]) = (2, 3);
    (shape[66], strides[66]) = (3, 1);
    let measured = measure(&shape, Some(&strides), u8s(), false).unwrap();
    assert_eq!((measured.count, measured.high, measured.row_major), (6, 6, true));
}

#[test]
fn what_does_not_fit_in_63_bits_is_refused_at_the_boundary() {
    let measure = |shape: &[i64], strides: Option<&[i64]>, dtype: Dtype| measure(shape, strides, dtype, false);
    let refused = |result: Result<Measure>| result.is_err_and(|error| error.status() == Status::DLRO_ERR_BOUNDS);
    let max = i64::MAX;

    // The count.
    assert_eq!(measure(&[max], None, u8s()).unwrap().nbytes, max as u64);
    assert_eq!(measure(&[max], None, dtype(17, 4, 1)).unwrap().nbytes, 1 << 62);
    assert!(measure(&[(1 << 31) - 1, 1 << 32], None, u8s()).is_ok());
    assert!(refused(measure(&[1 << 31, 1 << 32], None, u8s())));
    assert!(refused(measure(&[1 << 32, 1 << 32, 1 << 32], None, u8s())), "a product that wraps to 0");
    assert!(refused(measure(&[3; 40], None, u8s())) && measure(&[3; 39], None, u8s()).is_ok());
    // The size in bytes.
    for dtype in [dtype(2, 16, 1), dtype(5, 128, 1), dtype(5, 128, 65535), dtype(17, 4, 65535)] {
        let most = (i128::from(max) * 8 / i128::from(dtype.element_bits())) as i64;
        assert!(measure(&[most], None, dtype).is_ok_and(|measured| measured.nbytes > (max / 2) as u64), "{dtype}");
        assert!(refused(measure(&[most + 1], None, dtype)), "{dtype}");
    }
    // The extent, in both directions.
    for stride in [max, -max, i64::MIN, i64::MIN + 1, max / 2, -(max / 2), 1 << 62, -(1 << 62)] {
        for dimension in [2, 3, max] {
            assert!(refused(measure(&[dimension], Some(&[stride]), dtype(2, 32, 1))), "[{dimension}] by {stride}");
        }
    }
    assert_eq!(measure(&[2], Some(&[max - 1]), u8s()).unwrap().high, max);
    assert!(refused(measure(&[2], Some(&[max]), u8s())));
    assert!(refused(measure(&[2, 2], Some(&[max - 1, 2]), u8s())), "the sum wraps, no term does");
    assert!(refused(measure(&[2, 2], Some(&[-max, -2]), u8s())), "the same below");
}

#[test]
fn the_distance_between_both_ends_fits_in_63_bits_too() {
    let span = |strides: [i64; 2]| measure(&[2, 2], Some(&strides), u8s(), false).map(|measured| measured.span());
    let far = (1i64 << 62) - 1;
    assert_eq!(span([far, -far]), Ok(i64::MAX as u64));
    for strides in [[far + 1, -far], [far, -far - 1], [i64::MAX - 1, -i64::MAX]] {
        assert!(span(strides).is_err(), "{strides:?}");
    }
}

/// The Conway-Guy sequence: `n` numbers of which no two subsets have the same sum, close to as small as that can
/// be. As strides of dimensions of 2 they never overlap, and that is hard to see.
fn conway_guy(n: usize) -> Vec<i64> {
    let mut u = vec![0i64, 1];
    for i in 1..n {
        let back = ((2.0 * i as f64).sqrt() + 0.5) as usize;
        u.push(2 * u[i] - u[i - back]);
    }
    (0..n).map(|i| u[n] - u[i]).collect()
}

#[test]
fn overlaps_gives_up_on_the_safe_side_and_soon() {
    for n in 1..=10 {
        let strides = conway_guy(n);
        assert!(!overlaps(&vec![2; n], Some(&strides)), "{strides:?} is within the budget");
    }
    let started = std::time::Instant::now();
    assert!(overlaps(&[2; 40], Some(&conway_guy(40))), "nobody found out, so the answer is yes");
    assert!(cfg!(miri) || started.elapsed().as_millis() < 1000, "{:?}", started.elapsed());
}

#[test]
fn the_widest_tensors_are_decided_at_once() {
    let plain: Vec<i64> = (0..62).map(|axis| 1 << axis).collect();
    let mirrored: Vec<i64> = plain.iter().map(|stride| -stride).collect();
    for strides in [&plain, &mirrored] {
        assert!(!overlaps(&[2; 62], Some(strides)), "each stride steps over the ones below");
    }
    let mut broadcast = plain;
    broadcast[40] = 0;
    assert!(overlaps(&[2; 62], Some(&broadcast)));
}
