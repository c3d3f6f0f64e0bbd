//! Copies against a copy bit by bit. What lies beside the target's elements is somebody else's.

use super::super::dtype::Dtype;
use super::super::testing::{Random, checked, describe, flags};
use super::*;

const BYTES: usize = 256;

fn bit(memory: &[u8], at: i64) -> bool {
    memory[(at >> 3) as usize] >> (at & 7) & 1 == 1
}

/// Where each element begins, in bits from the first byte of the memory.
fn places(shape: &[i64], strides: &[i64], first: i64, pitch: i64) -> Vec<i64> {
    let mut places = vec![first];
    for (&dimension, &stride) in shape.iter().zip(strides) {
        places = places.iter().flat_map(|&at| (0..dimension).map(move |index| at + index * stride * pitch)).collect();
    }
    places
}

/// A layout of that shape in which no elements overlap: some order of the axes, perhaps mirrored, perhaps with gaps.
fn strides(shape: &[i64], random: &mut Random) -> Vec<i64> {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    if random.below(3) > 0 {
        for last in (1..axes.len()).rev() {
            axes.swap(last, random.below(last as u64 + 1) as usize);
        }
    } else {
        axes.reverse(); // C order more often than chance has it
    }
    let plain = random.below(3) == 0;
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for axis in axes {
        step *= if plain { 1 } else { random.pick(1, 2) };
        strides[axis] = if !plain && random.below(4) == 0 { -step } else { step };
        step *= shape[axis].max(1);
    }
    strides
}

#[test]
fn exactly_the_elements_are_copied_and_not_a_bit_beside_them() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let mut copied = 0;
    for round in 0..rounds {
        let (code, bits, lanes) =
            [(17, 4, 1), (15, 6, 1), (0, 2, 1), (17, 4, 3), (1, 8, 1), (2, 16, 1), (2, 32, 3), (5, 128, 1)]
                [random.below(8) as usize];
        let dtype = DLDataType { code, bits, lanes };
        let padded = random.below(4) == 0;
        let pitch = i64::from(Dtype::new(dtype).unwrap().pitch_bits(padded));
        let wanted = Flags::from_bits_retain(if padded { 4 } else { 0 });
        let shape: Vec<i64> = (0..random.below(4)).map(|_| random.pick(0, 3)).collect();

        let mut memory = [[0u8; BYTES]; 2];
        memory.iter_mut().flatten().for_each(|byte| *byte = random.below(256) as u8);
        let before = memory;
        let sides = [strides(&shape, &mut random), strides(&shape, &mut random)];
        let fits = |places: &[i64]| places.iter().all(|&at| at >= 0 && at + pitch <= BYTES as i64 * 8);
        let first = BYTES as i64 / 2 * 8;
        let [from, to] = [0, 1].map(|side| places(&shape, &sides[side], first, pitch));
        if !fits(&from) || !fits(&to) {
            continue;
        }
        let bytes = memory.as_mut_ptr().cast::<u8>();
        let [source, target] = [0, 1].map(|side| {
            let mut layout = describe(bytes.wrapping_add(side * BYTES), dtype, &shape, Some(&sides[side]));
            layout.byte_offset = BYTES as u64 / 2;
            // SAFETY: the arrays are alive and not changed below.
            unsafe { Checked::new(&layout, wanted, 0) }.unwrap()
        });
        // SAFETY: both memories are there, and nobody else uses them.
        let fresh = unsafe {
            copy_into(&source, &target).unwrap();
            copy(&source, Wanted { column_major: round % 2 == 0, alignment: 0, threads: 0 }).unwrap()
        };

        let mut expected = before[1];
        let element = i64::from(bits) * i64::from(lanes);
        for (&from, &to) in from.iter().zip(&to) {
            for offset in 0..element {
                let mask = 1 << ((to + offset) & 7);
                let byte = &mut expected[((to + offset) >> 3) as usize];
                *byte = *byte & !mask | if bit(&before[0], from + offset) { mask } else { 0 };
            }
        }
        let of = format!("{dtype:?} padded {padded} {shape:?} {sides:?}");
        assert_eq!(memory[0], before[0], "the source of {of}");
        if pitch == element {
            assert_eq!(memory[1], expected, "{of}");
        }

        let fresh_checked = checked(&fresh);
        if let Some(data) = fresh_checked.first() {
            // SAFETY: new memory of that size.
            let bytes = unsafe { core::slice::from_raw_parts(data, fresh_checked.measure.nbytes as usize) };
            let places = places(&shape, fresh_checked.strides.unwrap_or(&[]), 0, pitch);
            for (&from, &to) in from.iter().zip(&places) {
                assert!((0..element).all(|offset| bit(&before[0], from + offset) == bit(bytes, to + offset)), "{of}");
            }
            if pitch == element {
                let end = places.len() as i64 * pitch;
                assert!((end..bytes.len() as i64 * 8).all(|at| !bit(bytes, at)), "bits behind the last one of {of}");
            }
        }
        assert_eq!(flags(&fresh), wanted | Flags::IS_COPIED);
        copied += from.len();
    }
    assert!(copied > rounds as usize / 2, "{copied} elements in {rounds} rounds test little");
}
