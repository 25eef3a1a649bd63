//! Keys and values of the positions that a sequence has passed.

mod tiles;

pub use tiles::{Order, Q8_BLOCK, TILE, Tile, Tiles};

use super::attention::HeadShape;
use super::linear::Compute;
use std::collections::TryReserveError;

/// Element type of a key/value cache.
#[allow(non_camel_case_types)] // The name is the format's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheType {
    /// Half precision: half the memory, the default.
    #[default]
    F16,
    /// Single precision, for comparison with other engines.
    F32,
    /// Blocks of 32 bytes with an f16 scale: about half the memory of `F16`, for long texts.
    Q8_0,
}

impl CacheType {
    /// Bytes of `n` elements, a multiple of 32 where the type has blocks.
    pub fn bytes(self, n: usize) -> usize {
        match self {
            Self::F16 => 2 * n,
            Self::F32 => 4 * n,
            Self::Q8_0 => n + 2 * (n / Q8_BLOCK),
        }
    }

    /// Its name, as the option has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The type called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::F16, Self::F32, Self::Q8_0].into_iter().find(|ty| ty.name() == name)
    }
}

/// Positions by which a cache grows, so that memory follows the text and not the context's limit.
const GROWTH: usize = 256;
/// Elements to write below which a hand-off costs more than it saves.
const SERIAL_WORK: usize = 1 << 15;

/// Keys and values of one layer.
#[derive(Clone, Debug)]
pub struct LayerCache {
    /// Keys, after their norm and rotation.
    pub keys: Tiles,
    /// Values.
    pub values: Tiles,
}

/// One text's key/value cache: every layer, positions `0..len`.
#[derive(Clone, Debug)]
pub struct Sequence {
    layers: Vec<LayerCache>,
    n_kv_heads: usize,
    /// Positions by which memory is reserved.
    growth: usize,
    len: usize,
    /// Positions whose memory was ever used: it is not given back before the end.
    held: usize,
}

impl Sequence {
    /// An empty cache of `n_layers` layers with keys and values of `shape`. Addresses for `room` positions are reserved
    /// with the first one; memory is taken as they fill up, a tile at a time.
    ///
    /// # Panics
    /// If `ty` has blocks and heads are not whole blocks.
    pub fn new(n_layers: usize, shape: HeadShape, ty: CacheType, room: usize) -> Self {
        let HeadShape { n_kv_heads, head_dim, .. } = shape;
        assert!(ty != CacheType::Q8_0 || head_dim.is_multiple_of(Q8_BLOCK), "heads of {head_dim} in blocks");
        let tiles = |order| Tiles::new(ty, order, head_dim);
        let layer = LayerCache { keys: tiles(Order::Keys), values: tiles(Order::Values) };
        Self { layers: vec![layer; n_layers], n_kv_heads, growth: room.max(GROWTH), len: 0, held: 0 }
    }

    /// Number of positions held: the next token stands at this position.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of positions whose memory it takes: the most that it ever had.
    pub fn held(&self) -> usize {
        self.held
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all positions from `len` on; keeps everything where it is already shorter.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Keys and values of `layer`; vectors at positions from [`len`](Self::len) on belong to a pass that is under way, or
    /// to nothing.
    pub(super) fn layer(&self, layer: usize) -> &LayerCache {
        &self.layers[layer]
    }

    /// A copy of the first `len` positions, at most those held.
    pub fn prefix(&self, len: usize) -> Self {
        let len = len.min(self.len);
        let n = self.n_tiles(len);
        let copy = |layer: &LayerCache| LayerCache { keys: layer.keys.prefix(n), values: layer.values.prefix(n) };
        Self { layers: self.layers.iter().map(copy).collect(), len, held: len, ..*self }
    }

    /// Makes room for `n` more positions in every layer.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub fn reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        let (n_tiles, growth) = (self.n_tiles(self.len + n), self.n_tiles(self.growth));
        for layer in &mut self.layers {
            layer.keys.resize(n_tiles, growth)?;
            layer.values.resize(n_tiles, growth)?;
        }
        self.held = self.held.max(self.len + n);
        Ok(())
    }

    /// Stores keys and values, each `[n_kv_heads, head_dim]`, of the positions from `pos` on, for which there is room.
    pub fn write(&mut self, compute: &Compute<'_>, layer: usize, pos: usize, keys: &[&[f32]], values: &[&[f32]]) {
        let (n_heads, end) = (self.n_kv_heads, pos + keys.len());
        let first_tile = pos / TILE;
        let n_tiles = (end.div_ceil(TILE) - first_tile) * n_heads;
        let LayerCache { keys: key_tiles, values: value_tiles } = &mut self.layers[layer];
        let key_tiles = key_tiles.tiles_mut(first_tile * n_heads, n_tiles);
        let tiles = key_tiles.into_iter().zip(value_tiles.tiles_mut(first_tile * n_heads, n_tiles));
        let write = |i: usize, (mut key_tile, mut value_tile): (tiles::TileMut<'_>, tiles::TileMut<'_>)| {
            let (tile, head) = (first_tile + i / n_heads, i % n_heads);
            let from = pos.max(tile * TILE);
            let held = from - pos..end.min((tile + 1) * TILE) - pos;
            key_tile.write(from % TILE, &heads(&keys[held.clone()], head, n_heads), compute.kernels);
            value_tile.write(from % TILE, &heads(&values[held], head, n_heads), compute.kernels);
        };
        let work: usize = keys.iter().map(|key| key.len()).sum();
        if work <= SERIAL_WORK {
            tiles.enumerate().for_each(|(i, tile)| write(i, tile));
        } else {
            compute.pool.for_each(tiles.collect(), write);
        }
    }

    /// Counts `n` positions, written in every layer, as held.
    pub fn commit(&mut self, n: usize) {
        self.len += n;
    }

    /// Tiles of all heads that hold `len` positions.
    fn n_tiles(&self, len: usize) -> usize {
        len.div_ceil(TILE) * self.n_kv_heads
    }
}

/// The elements of one head of each of `vectors`.
fn heads<'a>(vectors: &[&'a [f32]], head: usize, n_heads: usize) -> Vec<&'a [f32]> {
    vectors.iter().map(|vector| &vector[head * vector.len() / n_heads..(head + 1) * vector.len() / n_heads]).collect()
}

#[cfg(test)]
mod tests;
