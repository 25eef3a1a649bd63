//! Products of several columns: blocks are unpacked once for up to twice [`TILE_PAIRS`] of them.

use super::super::multiply::Multiply;
use super::super::unpack::Unpack256;
use super::super::{Product, ROWS};
use super::{Blocks, Totals, no_totals, row_values, widened};
use crate::quant::Column;
use std::arch::aarch64::*;
use std::ops::Range;

/// Blocks of four rows that are unpacked at once for several columns: 12 KiB.
const TILE_BLOCKS: usize = 8;
/// Pairs of columns that share an unpacked tile; their sums lie on the stack.
const TILE_PAIRS: usize = 32;
/// Pairs that are multiplied at once: each load of quants serves them all.
const PAIRS: usize = 2;

/// One block of four rows, unpacked. Scales and minimums have a row a lane; where 32 elements share one, the first eight
/// are used.
#[derive(Clone, Copy)]
struct Tile {
    units: [[int8x16_t; 4]; 16],
    scales: [int32x4_t; 16],
    mins: [int16x4_t; 16],
    factors: float32x4_t,
    min_factors: float32x4_t,
}

/// Scales of a block.
const fn n_scales<B: Unpack256>() -> usize {
    if B::SCALE_BY_16 { 16 } else { 8 }
}

#[inline(always)]
pub(super) unsafe fn matmul<M: Multiply, B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    let n_blocks = product.w.cols() / 256;
    let pairs = product.pairs();
    let mut tiles = Vec::with_capacity(TILE_BLOCKS);
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        for (chunk, pairs) in pairs.chunks(TILE_PAIRS).enumerate() {
            // SAFETY: the caller has the features.
            unsafe {
                let mut totals = [[no_totals(); 2]; TILE_PAIRS];
                for start in (0..n_blocks).step_by(TILE_BLOCKS) {
                    tiles.clear();
                    tiles.extend((start..n_blocks.min(start + TILE_BLOCKS)).map(|i| unpack::<M, B>(group, i)));
                    let (several, rest) = pairs.as_chunks::<PAIRS>();
                    let (several_totals, rest_totals) = totals[..pairs.len()].as_chunks_mut::<PAIRS>();
                    for (x, totals) in several.iter().zip(several_totals) {
                        add_tiles::<M, B, PAIRS>(&tiles, start, n_blocks, x, totals);
                    }
                    for (x, totals) in rest.iter().zip(rest_totals) {
                        let (x, totals) = (std::array::from_ref(x), std::array::from_mut(totals));
                        add_tiles::<M, B, 1>(&tiles, start, n_blocks, x, totals);
                    }
                }
                for (j, totals) in totals[..pairs.len()].as_flattened().iter().enumerate() {
                    let j = 2 * TILE_PAIRS * chunk + j;
                    product.store(j, first, rows.end, &row_values::<B>(*totals));
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack<M: Multiply, B: Unpack256>(rows: [&[B]; ROWS], i: usize) -> Tile {
    let blocks = rows.map(|row| &row[i]);
    // SAFETY: the caller has the features.
    unsafe {
        let zero = vdupq_n_s8(0);
        let mut units = [[zero; 4]; 16];
        [units[0], units[1]] = units_of::<M, B, 0>(blocks);
        [units[2], units[3]] = units_of::<M, B, 1>(blocks);
        [units[4], units[5]] = units_of::<M, B, 2>(blocks);
        [units[6], units[7]] = units_of::<M, B, 3>(blocks);
        [units[8], units[9]] = units_of::<M, B, 4>(blocks);
        [units[10], units[11]] = units_of::<M, B, 5>(blocks);
        [units[12], units[13]] = units_of::<M, B, 6>(blocks);
        [units[14], units[15]] = units_of::<M, B, 7>(blocks);
        let of_rows = blocks.map(|block| block.scales());
        let mut scales = [vdupq_n_s32(0); 16];
        for (four, turned) in scales.as_chunks_mut::<4>().0.iter_mut().zip(turn(of_rows.map(|row| row.scales))) {
            *four = widened(turned);
        }
        let mut mins = [vdup_n_s16(0); 16];
        for (four, turned) in mins.as_chunks_mut::<4>().0.iter_mut().zip(turn(of_rows.map(|row| row.mins))) {
            let (low, high) = (vmovl_s8(vget_low_s8(turned)), vmovl_high_s8(turned));
            *four = [vget_low_s16(low), vget_high_s16(low), vget_low_s16(high), vget_high_s16(high)];
        }
        Tile { units, scales, mins, factors: B::factors(blocks), min_factors: B::min_factors(blocks) }
    }
}

/// The two units of group `J` of four rows.
#[inline(always)]
unsafe fn units_of<M: Multiply, B: Unpack256, const J: usize>(blocks: [&B; ROWS]) -> [[int8x16_t; 4]; 2] {
    // SAFETY: the caller has the features.
    unsafe {
        // Written out, and not by `map`, which may not be inlined with so large a closure.
        let (a, b) = (blocks[0].group::<J>(), blocks[1].group::<J>());
        let (c, d) = (blocks[2].group::<J>(), blocks[3].group::<J>());
        [M::unit([a[0], b[0], c[0], d[0]]), M::unit([a[1], b[1], c[1], d[1]])]
    }
}

/// Bytes of four rows, in turns: byte 0 of each row, then byte 1 of each, and so on.
#[inline(always)]
unsafe fn turn([a, b, c, d]: [int8x16_t; 4]) -> [int8x16_t; 4] {
    // SAFETY: the caller has NEON.
    unsafe {
        let (ac, bd, ac_high, bd_high) = (vzip1q_s8(a, c), vzip1q_s8(b, d), vzip2q_s8(a, c), vzip2q_s8(b, d));
        [vzip1q_s8(ac, bd), vzip2q_s8(ac, bd), vzip1q_s8(ac_high, bd_high), vzip2q_s8(ac_high, bd_high)]
    }
}

/// Adds the products of unpacked blocks, the first of which is block `start`, and `P` pairs of columns.
#[inline(always)]
unsafe fn add_tiles<M: Multiply, B: Unpack256, const P: usize>(
    tiles: &[Tile],
    start: usize,
    n_blocks: usize,
    x: &[[Column<'_>; 2]; P],
    totals: &mut [[Totals; 2]; P],
) {
    assert!(start + tiles.len() <= n_blocks);
    let x = x.each_ref().map(|pair| pair.each_ref().map(|x| Blocks::new(x, n_blocks)));
    for (tile, i) in tiles.iter().zip(start..) {
        // SAFETY: block `i` is below `n_blocks`; the caller has the features.
        unsafe {
            let quants = x.each_ref().map(|pair| [pair[0].quants(i), pair[1].quants(i)]);
            let mut sums = [M::zero(); P];
            let units = tile.units.chunks_exact(16 / n_scales::<B>());
            for (k, (units, scales)) in units.zip(&tile.scales).enumerate() {
                let mut products = [M::zero(); P];
                for (u, unit) in units.iter().enumerate() {
                    let at = 16 * (k * units.len() + u);
                    for (products, [a, b]) in products.iter_mut().zip(&quants) {
                        *products = M::add_unit(*products, *unit, [vld1q_s8(a.add(at)), vld1q_s8(b.add(at))]);
                    }
                }
                for (sums, products) in sums.iter_mut().zip(products) {
                    *sums = M::add_scaled(*sums, products, *scales);
                }
            }
            for ((x, totals), sums) in x.iter().zip(totals.iter_mut()).zip(sums) {
                for ((x, totals), products) in x.iter().zip(totals).zip(M::columns(sums)) {
                    let mins = if B::HAS_MIN { row_mins::<B>(tile, x.sums::<B>(i)) } else { vdupq_n_s32(0) };
                    *totals = x.add_block::<B>(*totals, (products, mins), (tile.factors, tile.min_factors), i);
                }
            }
        }
    }
}

/// Integer products of the minimums of four rows and the sums of the activations that share them.
#[inline(always)]
unsafe fn row_mins<B: Unpack256>(tile: &Tile, sums: [int16x8_t; 2]) -> int32x4_t {
    // SAFETY: the caller has NEON.
    unsafe {
        let mut total = vdupq_n_s32(0);
        for (mins, sums) in tile.mins.as_chunks::<8>().0.iter().zip(sums).take(n_scales::<B>() / 8) {
            total = vmlal_laneq_s16::<0>(total, mins[0], sums);
            total = vmlal_laneq_s16::<1>(total, mins[1], sums);
            total = vmlal_laneq_s16::<2>(total, mins[2], sums);
            total = vmlal_laneq_s16::<3>(total, mins[3], sums);
            total = vmlal_laneq_s16::<4>(total, mins[4], sums);
            total = vmlal_laneq_s16::<5>(total, mins[5], sums);
            total = vmlal_laneq_s16::<6>(total, mins[6], sums);
            total = vmlal_laneq_s16::<7>(total, mins[7], sums);
        }
        total
    }
}
