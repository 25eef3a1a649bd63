//! Keys and values of the positions that a sequence has passed.

use half::f16;
use half::slice::HalfFloatSliceExt;
use std::collections::TryReserveError;

/// Element type of a key/value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheType {
    /// Half precision: half the memory, the default.
    #[default]
    F16,
    /// Single precision, for comparison with other engines.
    F32,
}

impl CacheType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Vectors of consecutive positions, `[positions, kv_dim]`, in the cache's element type.
#[derive(Clone, Debug)]
pub enum Vectors {
    /// In half precision.
    F16(Vec<f16>),
    /// In single precision.
    F32(Vec<f32>),
}

/// Positions by which a cache grows, so that memory follows the text and not the context's limit.
const GROWTH: usize = 256;

impl Vectors {
    fn new(ty: CacheType) -> Self {
        match ty {
            CacheType::F16 => Self::F16(Vec::new()),
            CacheType::F32 => Self::F32(Vec::new()),
        }
    }

    fn resize(&mut self, len: usize, growth: usize) -> Result<(), TryReserveError> {
        fn resize<T: Clone>(vectors: &mut Vec<T>, len: usize, growth: usize, zero: T) -> Result<(), TryReserveError> {
            if len > vectors.capacity() {
                let room = (len.div_ceil(growth) * growth).max(vectors.len() * 5 / 4);
                vectors.try_reserve_exact(room - vectors.len())?;
            }
            vectors.resize(len, zero);
            Ok(())
        }
        match self {
            Self::F16(vectors) => resize(vectors, len, growth, f16::ZERO),
            Self::F32(vectors) => resize(vectors, len, growth, 0.0),
        }
    }

    /// A copy of the first `len` elements.
    fn prefix(&self, len: usize) -> Self {
        match self {
            Self::F16(vectors) => Self::F16(vectors[..len].to_vec()),
            Self::F32(vectors) => Self::F32(vectors[..len].to_vec()),
        }
    }

    fn write(&mut self, pos: usize, vector: &[f32]) {
        let at = pos * vector.len()..(pos + 1) * vector.len();
        match self {
            Self::F16(vectors) => vectors[at].convert_from_f32_slice(vector),
            Self::F32(vectors) => vectors[at].copy_from_slice(vector),
        }
    }
}

/// Keys and values of one layer.
#[derive(Clone, Debug)]
pub struct LayerCache {
    /// Keys, after their norm and rotation.
    pub keys: Vectors,
    /// Values.
    pub values: Vectors,
}

/// One text's key/value cache: every layer, positions `0..len`.
#[derive(Clone, Debug)]
pub struct Sequence {
    layers: Vec<LayerCache>,
    kv_dim: usize,
    /// Positions by which memory is reserved.
    growth: usize,
    len: usize,
}

impl Sequence {
    /// An empty cache of `n_layers` layers with vectors of `kv_dim` elements. Addresses for `room` positions are reserved
    /// with the first one; memory is taken as they fill up.
    pub fn new(n_layers: usize, kv_dim: usize, ty: CacheType, room: usize) -> Self {
        let layer = LayerCache { keys: Vectors::new(ty), values: Vectors::new(ty) };
        Self { layers: vec![layer; n_layers], kv_dim, growth: room.max(GROWTH), len: 0 }
    }

    /// Number of positions held: the next token stands at this position.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all positions from `len` on; keeps everything where it is already shorter.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Keys and values of `layer`; vectors at positions from [`len`](Self::len) on belong to a pass that is under way.
    pub(super) fn layer(&self, layer: usize) -> &LayerCache {
        &self.layers[layer]
    }

    /// A copy of the first `len` positions, at most those held.
    pub fn prefix(&self, len: usize) -> Self {
        let len = len.min(self.len);
        let copy = |layer: &LayerCache| LayerCache {
            keys: layer.keys.prefix(len * self.kv_dim),
            values: layer.values.prefix(len * self.kv_dim),
        };
        Self { layers: self.layers.iter().map(copy).collect(), len, ..*self }
    }

    /// Makes room for `n` more positions in every layer.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub(super) fn reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        let (len, growth) = ((self.len + n) * self.kv_dim, self.growth * self.kv_dim);
        for layer in &mut self.layers {
            layer.keys.resize(len, growth)?;
            layer.values.resize(len, growth)?;
        }
        Ok(())
    }

    /// Stores the key and the value of position `pos`, for which there is room.
    pub(super) fn write(&mut self, layer: usize, pos: usize, key: &[f32], value: &[f32]) {
        self.layers[layer].keys.write(pos, key);
        self.layers[layer].values.write(pos, value);
    }

    /// Counts `n` positions, written in every layer, as held.
    pub(super) fn commit(&mut self, n: usize) {
        self.len += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_the_text_in_steps() {
        let mut sequence = Sequence::new(1, 4, CacheType::F32, 0);
        sequence.reserve(1).unwrap();
        let Vectors::F32(keys) = &sequence.layer(0).keys else { unreachable!() };
        assert_eq!((keys.len(), keys.capacity()), (4, GROWTH * 4));
    }

    #[test]
    fn a_pass_that_was_not_committed_leaves_no_trace() {
        let mut sequence = Sequence::new(2, 2, CacheType::F16, 0);
        sequence.reserve(3).unwrap();
        sequence.write(1, 0, &[1.0, 2.0], &[3.0, 4.0]);
        assert_eq!(sequence.len(), 0);
        sequence.reserve(1).unwrap();
        sequence.write(1, 0, &[5.0, 6.0], &[7.0, 8.0]);
        sequence.commit(1);
        let Vectors::F16(values) = &sequence.layer(1).values else { unreachable!() };
        assert_eq!(values.as_slice(), [f16::from_f32(7.0), f16::from_f32(8.0)]);
    }

    #[test]
    fn a_prefix_is_a_copy_of_its_own() {
        let mut sequence = Sequence::new(1, 2, CacheType::F32, 0);
        sequence.reserve(2).unwrap();
        sequence.write(0, 0, &[1.0, 2.0], &[3.0, 4.0]);
        sequence.commit(2);
        let prefix = sequence.prefix(1);
        sequence.write(0, 0, &[9.0, 9.0], &[9.0, 9.0]);
        let Vectors::F32(keys) = &prefix.layer(0).keys else { unreachable!() };
        assert_eq!((prefix.len(), keys.as_slice()), (1, &[1.0, 2.0][..]));
        assert_eq!(sequence.prefix(9).len(), 2);
    }

    #[test]
    fn truncation_never_lengthens() {
        let mut sequence = Sequence::new(1, 2, CacheType::F16, 0);
        sequence.reserve(5).unwrap();
        sequence.commit(5);
        sequence.truncate(9);
        assert_eq!(sequence.len(), 5);
        sequence.truncate(2);
        assert_eq!(sequence.len(), 2);
    }
}
