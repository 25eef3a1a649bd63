use super::*;
use crate::kernels;
use crate::parallel::Pool;

const SHAPE: HeadShape = HeadShape { n_heads: 2, n_kv_heads: 2, head_dim: 2 };

fn write(sequence: &mut Sequence, layer: usize, pos: usize, keys: &[&[f32]], values: &[&[f32]]) {
    let pool = Pool::new(1).unwrap();
    sequence.write(&Compute { pool: &pool, kernels: kernels::best() }, layer, pos, keys, values);
}

/// Elements of `head` at `pos`, and those of its value.
fn read(sequence: &Sequence, shape: HeadShape, layer: usize, head: usize, pos: usize) -> (Vec<f32>, Vec<f32>) {
    let HeadShape { n_kv_heads, head_dim, .. } = shape;
    let (tile, slot) = (pos / TILE * n_kv_heads + head, pos % TILE);
    let element = |tile: Tile<'_>, at: usize, block: usize| match tile {
        Tile::F32(numbers) => numbers[at],
        Tile::F16(numbers) => numbers[at].to_f32(),
        Tile::Q8_0 { quants, scales } => f32::from(quants[at]) * scales[block].to_f32(),
    };
    let LayerCache { keys, values } = sequence.layer(layer);
    let key = (0..head_dim).map(|i| element(keys.tile(tile), i * TILE + slot, i / Q8_BLOCK * TILE + slot));
    let value = (0..head_dim)
        .map(|i| element(values.tile(tile), slot * head_dim + i, slot * (head_dim / Q8_BLOCK) + i / Q8_BLOCK));
    (key.collect(), value.collect())
}

#[test]
fn memory_grows_with_the_text_in_steps() {
    let mut sequence = Sequence::new(1, SHAPE, CacheType::F32, 0);
    sequence.reserve(1).unwrap();
    assert_eq!(sequence.layer(0).keys.capacity(), GROWTH / TILE * 2);
    assert_eq!(sequence.held(), 1);
}

#[test]
fn a_pass_that_was_not_committed_leaves_no_trace() {
    let mut sequence = Sequence::new(2, SHAPE, CacheType::F16, 0);
    sequence.reserve(3).unwrap();
    write(&mut sequence, 1, 0, &[&[1.0, 2.0, 3.0, 4.0]], &[&[5.0, 6.0, 7.0, 8.0]]);
    assert_eq!(sequence.len(), 0);
    sequence.reserve(1).unwrap();
    write(&mut sequence, 1, 0, &[&[9.0, 10.0, 11.0, 12.0]], &[&[13.0, 14.0, 15.0, 16.0]]);
    sequence.commit(1);
    assert_eq!(sequence.len(), 1);
    assert_eq!(read(&sequence, SHAPE, 1, 0, 0), (vec![9.0, 10.0], vec![13.0, 14.0]));
    assert_eq!(read(&sequence, SHAPE, 1, 1, 0), (vec![11.0, 12.0], vec![15.0, 16.0]));
}

#[test]
fn positions_of_a_pass_lie_where_they_belong_whatever_tiles_they_are_in() {
    let shape = HeadShape { n_heads: 3, n_kv_heads: 3, head_dim: 64 };
    let vector = |pos: usize, sign: f32| -> Vec<f32> {
        (0..192).map(|i| sign * ((pos * 192 + i) as f32 * 0.37).sin()).collect()
    };
    for ty in [CacheType::F32, CacheType::F16, CacheType::Q8_0] {
        // More positions than one thread writes alone.
        for n in [1, 5, 300] {
            let pool = Pool::new(2).unwrap();
            let compute = Compute { pool: &pool, kernels: kernels::best() };
            let mut sequence = Sequence::new(1, shape, ty, 0);
            for first in (0..600).step_by(n) {
                let keys: Vec<Vec<f32>> = (first..first + n).map(|pos| vector(pos, 1.0)).collect();
                let values: Vec<Vec<f32>> = (first..first + n).map(|pos| vector(pos, -1.0)).collect();
                let keys: Vec<&[f32]> = keys.iter().map(Vec::as_slice).collect();
                let values: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
                sequence.reserve(n).unwrap();
                sequence.write(&compute, 0, first, &keys, &values);
                sequence.commit(n);
            }
            // Half a step of 1/127 and the rounding of the scale; half a unit in the last place of f16.
            let allowed = match ty {
                CacheType::F32 => 0.0,
                CacheType::F16 => 2f32.powi(-12),
                CacheType::Q8_0 => 0.5 / 127.0 + 2f32.powi(-11),
            };
            for pos in [0, 1, 63, 64, 299, 300, 511, 599] {
                for head in 0..3 {
                    let (key, value) = read(&sequence, shape, 0, head, pos);
                    let right = &vector(pos, 1.0)[head * 64..(head + 1) * 64];
                    for ((key, value), right) in key.iter().zip(&value).zip(right) {
                        assert!((key - right).abs() <= allowed, "{ty:?} {n} {pos}: {key} for {right}");
                        assert_eq!(*value, -key);
                    }
                }
            }
        }
    }
}

#[test]
fn a_prefix_is_a_copy_of_its_own() {
    for ty in [CacheType::F32, CacheType::F16, CacheType::Q8_0] {
        let shape = HeadShape { n_heads: 1, n_kv_heads: 1, head_dim: 32 };
        let mut sequence = Sequence::new(1, shape, ty, 0);
        sequence.reserve(2).unwrap();
        write(&mut sequence, 0, 0, &[&[127.0; 32]], &[&[-127.0; 32]]);
        sequence.commit(2);
        let prefix = sequence.prefix(1);
        write(&mut sequence, 0, 0, &[&[254.0; 32]], &[&[254.0; 32]]);
        assert_eq!(read(&prefix, shape, 0, 0, 0), (vec![127.0; 32], vec![-127.0; 32]));
        assert_eq!((prefix.len(), sequence.prefix(9).len()), (1, 2));
    }
}

#[test]
fn truncation_never_lengthens() {
    let mut sequence = Sequence::new(1, SHAPE, CacheType::F16, 0);
    sequence.reserve(5).unwrap();
    sequence.commit(5);
    sequence.truncate(9);
    assert_eq!(sequence.len(), 5);
    sequence.truncate(2);
    assert_eq!((sequence.len(), sequence.held()), (2, 5));
    assert_eq!(sequence.prefix(1).held(), 1);
}

#[test]
fn a_block_has_34_bytes_and_every_type_its_name() {
    assert_eq!([CacheType::F16, CacheType::F32, CacheType::Q8_0].map(|ty| ty.bytes(64)), [128, 256, 68]);
    for ty in [CacheType::F16, CacheType::F32, CacheType::Q8_0] {
        assert_eq!(CacheType::from_name(ty.name()), Some(ty));
    }
    assert_eq!(CacheType::from_name("q4_0"), None);
}
