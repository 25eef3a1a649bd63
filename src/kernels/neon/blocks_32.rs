//! Products of the types with blocks of 32, four rows at once: one float lane a row.

use super::multiply::{Multiply, sums_of_four};
use super::unpack::Unpack32;
use super::{Product, ROWS, eight_sums};
use crate::quant::Column;
use std::arch::aarch64::*;
use std::ops::Range;

/// Blocks of four rows that are unpacked at once for several columns: 10 KiB.
const TILE_BLOCKS: usize = 64;
/// Pairs of columns that share an unpacked tile; their sums lie on the stack.
const TILE_PAIRS: usize = 32;
/// Pairs that are multiplied at once: each load of quants serves them all.
const PAIRS: usize = 2;

/// Float sums of four rows: of products and of minimums.
type Totals = (float32x4_t, float32x4_t);

/// One block of four rows, unpacked.
#[derive(Clone, Copy)]
struct Tile {
    units: [[int8x16_t; 4]; 2],
    scales: float32x4_t,
    mins: float32x4_t,
}

/// # Safety
/// The processor has NEON and what `M` needs.
#[inline(always)]
pub(super) unsafe fn matmul<M: Multiply, B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    // SAFETY: the caller has the features.
    unsafe {
        if B::EIGHT_SUMS {
            return eight_sums::blocks_32::<M, B>(product, rows);
        }
        match product.columns {
            [x] => matmul_one::<M, B>(product, rows, x),
            _ => matmul_several::<M, B>(product, rows),
        }
    }
}

/// Decoding reads each weight once: quants go from memory through registers and nowhere else.
#[inline(always)]
unsafe fn matmul_one<M: Multiply, B: Unpack32>(product: Product<'_>, rows: Range<usize>, x: &Column<'_>) {
    let n_blocks = product.w.cols() / 32;
    let x = Blocks::new::<B>(x, n_blocks);
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        // SAFETY: block `i` is below `n_blocks`; the caller has the features.
        unsafe {
            let mut totals = no_totals();
            for i in 0..n_blocks {
                let blocks = group.map(|row| &row[i]);
                let x_quants = x.quants(i);
                // Written out: in a closure, which has no features of its own, the path's instructions would be calls.
                let products = sums_of_four([
                    block_product::<M, B>(blocks[0], x_quants),
                    block_product::<M, B>(blocks[1], x_quants),
                    block_product::<M, B>(blocks[2], x_quants),
                    block_product::<M, B>(blocks[3], x_quants),
                ]);
                totals = x.add_block::<B>(totals, products, B::scales(blocks), B::mins(blocks), i);
            }
            product.store(0, first, rows.end, &row_values::<B>(totals));
        }
    }
}

/// Lanes whose sum is the integer product of a block and 32 activations.
#[inline(always)]
unsafe fn block_product<M: Multiply, B: Unpack32>(block: &B, x: [int8x16_t; 2]) -> int32x4_t {
    // SAFETY: the caller has the features.
    unsafe {
        let [a, b] = block.quants();
        M::add_products(M::add_products(vdupq_n_s32(0), a, x[0]), b, x[1])
    }
}

/// Blocks are unpacked once for up to twice [`TILE_PAIRS`] columns.
#[inline(always)]
unsafe fn matmul_several<M: Multiply, B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    let n_blocks = product.w.cols() / 32;
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
unsafe fn unpack<M: Multiply, B: Unpack32>(rows: [&[B]; ROWS], i: usize) -> Tile {
    let blocks = rows.map(|row| &row[i]);
    // SAFETY: the caller has the features.
    unsafe {
        let (a, b, c, d) = (blocks[0].quants(), blocks[1].quants(), blocks[2].quants(), blocks[3].quants());
        let units = [M::unit([a[0], b[0], c[0], d[0]]), M::unit([a[1], b[1], c[1], d[1]])];
        Tile { units, scales: B::scales(blocks), mins: B::mins(blocks) }
    }
}

/// Adds the products of unpacked blocks, the first of which is block `start`, and `P` pairs of columns.
#[inline(always)]
unsafe fn add_tiles<M: Multiply, B: Unpack32, const P: usize>(
    tiles: &[Tile],
    start: usize,
    n_blocks: usize,
    x: &[[Column<'_>; 2]; P],
    totals: &mut [[Totals; 2]; P],
) {
    assert!(start + tiles.len() <= n_blocks);
    let x = x.each_ref().map(|pair| pair.each_ref().map(|x| Blocks::new::<B>(x, n_blocks)));
    for (i, tile) in tiles.iter().enumerate() {
        for (x, totals) in x.iter().zip(totals.iter_mut()) {
            // SAFETY: block `start + i` is below `n_blocks`; the caller has the features.
            unsafe {
                let [a, b] = [x[0].quants(start + i), x[1].quants(start + i)];
                let sums = M::add_unit(M::zero(), tile.units[0], [a[0], b[0]]);
                let sums = M::columns(M::add_unit(sums, tile.units[1], [a[1], b[1]]));
                for ((x, totals), sums) in x.iter().zip(totals).zip(sums) {
                    *totals = x.add_block::<B>(*totals, sums, tile.scales, tile.mins, start + i);
                }
            }
        }
    }
}

/// A column whose fields have been checked to hold a number of blocks.
struct Blocks<'a>(&'a Column<'a>);

impl<'a> Blocks<'a> {
    #[inline(always)]
    fn new<B: Unpack32>(column: &'a Column<'a>, n_blocks: usize) -> Self {
        assert!(column.quants.len() == 32 * n_blocks && column.scales.len() == n_blocks);
        assert!(!B::HAS_MIN || column.scaled_sums.len() == n_blocks);
        Self(column)
    }

    /// The quants of block `i`, which must exist.
    #[inline(always)]
    unsafe fn quants(&self, i: usize) -> [int8x16_t; 2] {
        // SAFETY: block `i` exists, by the caller, who has NEON.
        unsafe {
            let at = self.0.quants.as_ptr().add(32 * i);
            [vld1q_s8(at), vld1q_s8(at.add(16))]
        }
    }

    /// Adds the integer products of four rows and block `i`, which must exist, to their float sums.
    #[inline(always)]
    unsafe fn add_block<B: Unpack32>(
        &self,
        (total, min_total): Totals,
        products: int32x4_t,
        scales: float32x4_t,
        mins: float32x4_t,
        i: usize,
    ) -> Totals {
        // SAFETY: block `i` exists, by the caller, who has NEON.
        unsafe {
            let factors = vmulq_n_f32(scales, *self.0.scales.get_unchecked(i));
            let total = vfmaq_f32(total, factors, vcvtq_f32_s32(products));
            if !B::HAS_MIN {
                return (total, min_total);
            }
            (total, vfmaq_n_f32(min_total, mins, *self.0.scaled_sums.get_unchecked(i)))
        }
    }
}

#[inline(always)]
unsafe fn no_totals() -> Totals {
    // SAFETY: the caller has NEON.
    unsafe { (vdupq_n_f32(0.0), vdupq_n_f32(0.0)) }
}

/// The results of four rows from their float sums.
#[inline(always)]
unsafe fn row_values<B: Unpack32>((total, min_total): Totals) -> [f32; ROWS] {
    let mut lanes = [0.0; ROWS];
    // SAFETY: the array is 16 bytes; the caller has NEON.
    unsafe {
        let total = if B::HAS_MIN { vaddq_f32(total, min_total) } else { total };
        vst1q_f32(lanes.as_mut_ptr(), total);
    }
    lanes
}
