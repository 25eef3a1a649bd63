//! Keys or values of one layer, in tiles of consecutive positions.

use crate::kernels::Kernels;
use crate::quant::{ActivationFormat, Activations};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::collections::TryReserveError;

use super::CacheType;

/// Positions of a tile. 64 are four registers of AVX-512, so that the chains of additions of one query's scores are enough
/// to hide their latency, and a tile of 128 elements a position, widened to f32, is 32 KiB: it stays in the first-level
/// cache.
pub const TILE: usize = 64;

/// Elements that share a scale in a cache of type `q8_0`, all of one head of one position.
pub const Q8_BLOCK: usize = 32;

/// How the elements of a tile of one head lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `[head_dim, TILE]`, as the product of a query with keys wants it: positions are lanes.
    Keys,
    /// `[TILE, head_dim]`, as the sum of weighted values wants it: elements are lanes.
    Values,
}

/// Tiles of all heads, `[tiles, n_kv_heads]`; within a tile the elements lie in the [`Order`].
#[derive(Clone, Debug)]
pub struct Tiles {
    numbers: Numbers,
    order: Order,
    head_dim: usize,
}

#[derive(Clone, Debug)]
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<f16>),
    /// Each [`Q8_BLOCK`] elements of a position have a scale; scales lie as their elements do.
    Q8_0 {
        quants: Vec<i8>,
        scales: Vec<f16>,
    },
}

/// One head's elements of [`TILE`] positions.
#[derive(Clone, Copy, Debug)]
pub enum Tile<'a> {
    /// In single precision.
    F32(&'a [f32]),
    /// In half precision.
    F16(&'a [f16]),
    /// In blocks of bytes with a scale.
    Q8_0 {
        /// The elements.
        quants: &'a [i8],
        /// One of each block.
        scales: &'a [f16],
    },
}

/// One head's elements of [`TILE`] positions, to be written.
#[derive(Debug)]
pub struct TileMut<'a> {
    numbers: NumbersMut<'a>,
    order: Order,
    head_dim: usize,
}

#[derive(Debug)]
enum NumbersMut<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
    Q8_0 { quants: &'a mut [i8], scales: &'a mut [f16] },
}

impl Tiles {
    pub fn new(ty: CacheType, order: Order, head_dim: usize) -> Self {
        let numbers = match ty {
            CacheType::F32 => Numbers::F32(Vec::new()),
            CacheType::F16 => Numbers::F16(Vec::new()),
            CacheType::Q8_0 => Numbers::Q8_0 { quants: Vec::new(), scales: Vec::new() },
        };
        Self { numbers, order, head_dim }
    }

    fn len(&self) -> usize {
        TILE * self.head_dim
    }

    /// Makes room for `n` tiles; memory is reserved `growth` of them at a time.
    pub fn resize(&mut self, n: usize, growth: usize) -> Result<(), TryReserveError> {
        let (len, n_scales) = (self.len(), self.len() / Q8_BLOCK);
        match &mut self.numbers {
            Numbers::F32(numbers) => resize(numbers, n * len, growth * len, 0.0),
            Numbers::F16(numbers) => resize(numbers, n * len, growth * len, f16::ZERO),
            Numbers::Q8_0 { quants, scales } => {
                resize(quants, n * len, growth * len, 0)?;
                resize(scales, n * n_scales, growth * n_scales, f16::ZERO)
            }
        }
    }

    /// A copy of the first `n` tiles.
    pub fn prefix(&self, n: usize) -> Self {
        let len = self.len();
        let numbers = match &self.numbers {
            Numbers::F32(numbers) => Numbers::F32(numbers[..n * len].to_vec()),
            Numbers::F16(numbers) => Numbers::F16(numbers[..n * len].to_vec()),
            Numbers::Q8_0 { quants, scales } => {
                Numbers::Q8_0 { quants: quants[..n * len].to_vec(), scales: scales[..n * len / Q8_BLOCK].to_vec() }
            }
        };
        Self { numbers, ..*self }
    }

    /// Tile `i`.
    pub fn tile(&self, i: usize) -> Tile<'_> {
        let len = self.len();
        let at = i * len..(i + 1) * len;
        match &self.numbers {
            Numbers::F32(numbers) => Tile::F32(&numbers[at]),
            Numbers::F16(numbers) => Tile::F16(&numbers[at]),
            Numbers::Q8_0 { quants, scales } => {
                Tile::Q8_0 { quants: &quants[at], scales: &scales[i * len / Q8_BLOCK..(i + 1) * len / Q8_BLOCK] }
            }
        }
    }

    /// `n` tiles from `first` on.
    pub fn tiles_mut(&mut self, first: usize, n: usize) -> Vec<TileMut<'_>> {
        let (len, order, head_dim) = (self.len(), self.order, self.head_dim);
        let at = first * len..(first + n) * len;
        let tile = |numbers| TileMut { numbers, order, head_dim };
        match &mut self.numbers {
            Numbers::F32(numbers) => {
                numbers[at].chunks_exact_mut(len).map(|numbers| tile(NumbersMut::F32(numbers))).collect()
            }
            Numbers::F16(numbers) => {
                numbers[at].chunks_exact_mut(len).map(|numbers| tile(NumbersMut::F16(numbers))).collect()
            }
            Numbers::Q8_0 { quants, scales } => {
                let scales = scales[at.start / Q8_BLOCK..at.end / Q8_BLOCK].chunks_exact_mut(len / Q8_BLOCK);
                let both = quants[at].chunks_exact_mut(len).zip(scales);
                both.map(|(quants, scales)| tile(NumbersMut::Q8_0 { quants, scales })).collect()
            }
        }
    }

    /// Capacity in tiles.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => numbers.capacity() / self.len(),
            Numbers::F16(numbers) => numbers.capacity() / self.len(),
            Numbers::Q8_0 { quants, .. } => quants.capacity() / self.len(),
        }
    }
}

fn resize<T: Clone>(numbers: &mut Vec<T>, len: usize, growth: usize, zero: T) -> Result<(), TryReserveError> {
    if len > numbers.capacity() {
        let room = (len.div_ceil(growth) * growth).max(numbers.len() * 5 / 4);
        numbers.try_reserve_exact(room - numbers.len())?;
    }
    numbers.resize(len, zero);
    Ok(())
}

impl TileMut<'_> {
    /// Stores `vectors`, of `head_dim` elements each, at the tile's positions from `first` on.
    pub fn write(&mut self, first: usize, vectors: &[&[f32]], kernels: &dyn Kernels) {
        let (order, n, head_dim) = (self.order, vectors.len(), self.head_dim);
        match &mut self.numbers {
            NumbersMut::F32(tile) => order.place(tile, head_dim, first, vectors),
            NumbersMut::F16(tile) => {
                let mut halves = vec![f16::ZERO; n * head_dim];
                let rows = halves.chunks_exact_mut(head_dim);
                rows.zip(vectors).for_each(|(halves, vector)| halves.convert_from_f32_slice(vector));
                let rows: Vec<&[f16]> = halves.chunks_exact(head_dim).collect();
                order.place(tile, head_dim, first, &rows);
            }
            NumbersMut::Q8_0 { quants, scales } => {
                let mut blocks = Activations::new();
                blocks.resize(ActivationFormat::Q8_0, head_dim, n);
                let columns = blocks.columns_mut().into_iter().zip(vectors);
                columns.for_each(|(column, vector)| kernels.quantize(vector, column));
                let columns: Vec<_> = (0..n).map(|i| blocks.column(i)).collect();
                let rows: Vec<&[i8]> = columns.iter().map(|column| column.quants).collect();
                order.place(quants, head_dim, first, &rows);
                // Exact: the scales were rounded to f16.
                let halves: Vec<Vec<f16>> = columns
                    .iter()
                    .map(|column| column.scales.iter().map(|scale| f16::from_f32(*scale)).collect())
                    .collect();
                let rows: Vec<&[f16]> = halves.iter().map(Vec::as_slice).collect();
                order.place(scales, head_dim / Q8_BLOCK, first, &rows);
            }
        }
    }
}

impl Order {
    /// Puts `vectors`, of `width` elements each, into `tile` at the positions from `first` on.
    fn place<T: Copy>(self, tile: &mut [T], width: usize, first: usize, vectors: &[&[T]]) {
        match self {
            Self::Keys => {
                for (i, row) in tile.chunks_exact_mut(TILE).enumerate() {
                    let places = row[first..first + vectors.len()].iter_mut();
                    places.zip(vectors).for_each(|(place, vector)| *place = vector[i]);
                }
            }
            Self::Values => {
                let places = tile[first * width..].chunks_exact_mut(width);
                places.zip(vectors).for_each(|(place, vector)| place.copy_from_slice(vector));
            }
        }
    }
}
