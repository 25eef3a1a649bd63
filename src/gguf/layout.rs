//! Which bytes are read for every token, and which belong to one expert.

use crate::quant::TensorType;

use super::{Gguf, TensorInfo};

/// One of the matrices of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// `ffn_gate`: `[expert_dim, embed_dim]`.
    Gate,
    /// `ffn_up`: `[expert_dim, embed_dim]`.
    Up,
    /// `ffn_down`: `[embed_dim, expert_dim]`.
    Down,
    /// `ffn_gate_up`: gate's rows, then up's, in one matrix, as a few architectures store them.
    GateUp,
}

impl Projection {
    /// All of them, in the order of their names above.
    pub const ALL: [Self; 4] = [Self::Gate, Self::Up, Self::Down, Self::GateUp];

    /// The part of the tensor's name after `blk.N.`, for example `ffn_gate`.
    pub fn tensor_stem(self) -> &'static str {
        match self {
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
            Self::GateUp => "ffn_gate_up",
        }
    }
}

/// One matrix of one expert: where its bytes are and how they are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSlice {
    /// Index into [`Gguf::shards`].
    pub shard: usize,
    /// Where it starts, in bytes from the beginning of the shard's file.
    pub offset: u64,
    /// Bytes of the matrix.
    pub bytes: u64,
    /// Element type.
    pub ty: TensorType,
    /// Outputs.
    pub rows: usize,
    /// Inputs, the values of one row.
    pub cols: usize,
}

/// The routed experts of a layer.
#[derive(Clone, Debug, Default)]
pub struct Experts {
    /// By `Projection`, in the order of [`Projection::ALL`].
    matrices: [Matrices; 4],
}

/// The matrices of one projection, for all experts of a layer.
#[derive(Clone, Debug, Default)]
enum Matrices {
    #[default]
    Absent,
    /// One tensor `[n_experts, rows, cols]`: `blk.N.ffn_gate_exps.weight`.
    Fused { first: ExpertSlice, n_experts: usize },
    /// One tensor for each expert, the older layout: `blk.N.ffn_gate.E.weight`; ascending by expert.
    Apart(Vec<(usize, ExpertSlice)>),
}

impl Matrices {
    fn get(&self, expert: usize) -> Option<ExpertSlice> {
        match self {
            Self::Absent => None,
            Self::Fused { first, n_experts } if expert < *n_experts => {
                // Within the tensor, whose end the reader checked.
                let skipped = first.bytes.checked_mul(expert as u64)?;
                Some(ExpertSlice { offset: first.offset.checked_add(skipped)?, ..*first })
            }
            Self::Fused { .. } => None,
            Self::Apart(experts) => {
                let at = experts.binary_search_by_key(&expert, |(expert, _)| *expert).ok()?;
                experts.get(at).map(|(_, slice)| *slice)
            }
        }
    }

    fn n_experts(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Fused { n_experts, .. } => *n_experts,
            Self::Apart(experts) => experts.len(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Fused { first, n_experts } => first.bytes.saturating_mul(*n_experts as u64),
            Self::Apart(experts) => sum(experts.iter().map(|(_, slice)| slice.bytes)),
        }
    }

    /// Bytes of the largest expert's matrix.
    fn largest(&self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Fused { first, .. } => first.bytes,
            Self::Apart(experts) => experts.iter().map(|(_, slice)| slice.bytes).max().unwrap_or(0),
        }
    }
}

impl Experts {
    /// One matrix of expert `expert`, or `None` where the file has none.
    pub fn slice(&self, projection: Projection, expert: usize) -> Option<ExpertSlice> {
        self.matrices.get(projection as usize)?.get(expert)
    }

    /// How many experts have this matrix; 0 where no tensor holds it.
    pub fn n_with(&self, projection: Projection) -> usize {
        self.matrices.get(projection as usize).map_or(0, Matrices::n_experts)
    }

    /// Number of experts: that of the projection which has most. A sound file has the same for all.
    pub fn n_experts(&self) -> usize {
        self.matrices.iter().map(Matrices::n_experts).max().unwrap_or(0)
    }

    /// Bytes of all experts.
    pub fn bytes(&self) -> u64 {
        sum(self.matrices.iter().map(Matrices::bytes))
    }

    /// Bytes of one whole expert, all its matrices together.
    pub fn expert_bytes(&self, expert: usize) -> u64 {
        sum(self.matrices.iter().filter_map(|matrices| matrices.get(expert)).map(|slice| slice.bytes))
    }

    /// Bytes of the largest expert, or more where experts that are stored apart differ in which matrix is largest.
    pub fn largest_bytes(&self) -> u64 {
        sum(self.matrices.iter().map(Matrices::largest))
    }
}

/// The tensors of one layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its number: the N of `blk.N.`.
    pub layer: usize,
    /// Tensors that every token reads, as indices into [`Gguf::tensors`], in their order there.
    pub dense: Vec<usize>,
    /// Bytes of `dense`.
    pub dense_bytes: u64,
    /// Routed experts, or `None` in a dense layer.
    pub experts: Option<Box<Experts>>,
}

/// The tensors of a model, sorted into layers, and in each into dense ones and experts. Works for any architecture:
/// only the names and shapes of tensors count.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Layers that have tensors, ascending by number. A damaged file may leave numbers out.
    pub layers: Vec<Layer>,
    /// Tensors of no layer, for example the embedding, as indices into [`Gguf::tensors`].
    pub outside: Vec<usize>,
    /// Bytes of `outside`.
    pub outside_bytes: u64,
}

impl Layout {
    /// Sorts the tensors of `gguf`.
    pub fn of(gguf: &Gguf) -> Self {
        let tensors = gguf.tensors();
        let mut outside = Vec::new();
        let mut inside = Vec::new();
        for (i, tensor) in tensors.iter().enumerate() {
            match layer_and_rest(&tensor.name) {
                Some((layer, rest)) => inside.push((layer, i, role(tensor, rest))),
                None => outside.push(i),
            }
        }
        // Stable, so that tensors keep their order within a layer. Sorted rather than indexed by number: a crafted
        // name can hold any number.
        inside.sort_by_key(|(layer, ..)| *layer);
        let layers = inside.chunk_by(|a, b| a.0 == b.0).filter_map(|group| Layer::of(tensors, group)).collect();
        let outside_bytes = bytes_of(tensors, &outside);
        Self { layers, outside, outside_bytes }
    }

    /// Layer number `layer`, or `None` where it has no tensors.
    pub fn layer(&self, layer: usize) -> Option<&Layer> {
        let at = self.layers.binary_search_by_key(&layer, |l| l.layer).ok()?;
        self.layers.get(at)
    }

    /// One matrix of one expert, or `None` where the file has none.
    pub fn expert(&self, layer: usize, projection: Projection, expert: usize) -> Option<ExpertSlice> {
        self.layer(layer)?.experts.as_ref()?.slice(projection, expert)
    }

    /// Number of experts of the layer that has most; 0 in a dense model.
    pub fn n_experts(&self) -> usize {
        self.experts().map(Experts::n_experts).max().unwrap_or(0)
    }

    /// Bytes of everything but routed experts: what every token may read.
    pub fn dense_bytes(&self) -> u64 {
        sum(self.layers.iter().map(|layer| layer.dense_bytes)).saturating_add(self.outside_bytes)
    }

    /// Bytes of all routed experts.
    pub fn expert_bytes(&self) -> u64 {
        sum(self.experts().map(Experts::bytes))
    }

    /// Bytes of one whole expert, averaged over all experts and rounded down; 0 in a dense model. Layers differ where
    /// a file mixes tensor types.
    pub fn mean_expert_bytes(&self) -> u64 {
        let n = sum(self.experts().map(|experts| experts.n_experts() as u64));
        self.expert_bytes().checked_div(n).unwrap_or(0)
    }

    /// Bytes of the largest expert of any layer; 0 in a dense model.
    pub fn largest_expert_bytes(&self) -> u64 {
        self.experts().map(Experts::largest_bytes).max().unwrap_or(0)
    }

    /// Dense bytes of the layer that has most.
    pub fn largest_dense_layer_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.dense_bytes).max().unwrap_or(0)
    }

    /// Bytes of the experts that one token uses, with `n_experts_used` in each layer that has any; where experts of
    /// one layer differ in size, by their average.
    pub fn expert_bytes_per_token(&self, n_experts_used: usize) -> u64 {
        sum(self.experts().map(|experts| {
            let n = experts.n_experts();
            let used = n_experts_used.min(n) as u128;
            let bytes = u128::from(experts.bytes()).saturating_mul(used).checked_div(n as u128).unwrap_or(0);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        }))
    }

    /// Bytes that one token reads: everything dense, and the experts that it uses.
    pub fn bytes_per_token(&self, n_experts_used: usize) -> u64 {
        self.dense_bytes().saturating_add(self.expert_bytes_per_token(n_experts_used))
    }

    fn experts(&self) -> impl Iterator<Item = &Experts> {
        self.layers.iter().filter_map(|layer| layer.experts.as_deref())
    }
}

impl Layer {
    /// Makes a layer of its tensors: number, index and role of each. `None` where there are none.
    fn of(tensors: &[TensorInfo], group: &[(usize, usize, Role)]) -> Option<Self> {
        let layer = group.first()?.0;
        let mut dense = Vec::new();
        let mut experts = Experts::default();
        // Fused tensors first: where a file has both layouts, they are what the model uses.
        for (_, i, role) in group {
            if let Role::Fused(projection) = *role
                && let Some((n_experts, first)) = tensors.get(*i).and_then(first_expert)
                && let Some(matrices) = experts.matrices.get_mut(projection as usize)
            {
                *matrices = Matrices::Fused { first, n_experts };
            }
        }
        for (_, i, role) in group {
            match *role {
                Role::Fused(_) => {}
                Role::Apart(projection, expert) => {
                    let slice = tensors.get(*i).and_then(whole_matrix);
                    match (experts.matrices.get_mut(projection as usize), slice) {
                        (Some(matrices @ Matrices::Absent), Some(slice)) => {
                            *matrices = Matrices::Apart(vec![(expert, slice)]);
                        }
                        (Some(Matrices::Apart(experts)), Some(slice)) => experts.push((expert, slice)),
                        _ => dense.push(*i),
                    }
                }
                Role::Dense => dense.push(*i),
            }
        }
        for matrices in &mut experts.matrices {
            if let Matrices::Apart(experts) = matrices {
                experts.sort_by_key(|(expert, _)| *expert);
            }
        }
        let experts = (experts.n_experts() > 0).then(|| Box::new(experts));
        let dense_bytes = bytes_of(tensors, &dense);
        Some(Self { layer, dense, dense_bytes, experts })
    }
}

/// What a tensor of a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Dense,
    Fused(Projection),
    /// With the number of the expert.
    Apart(Projection, usize),
}

fn role(tensor: &TensorInfo, rest: &str) -> Role {
    let Some(stem) = rest.strip_suffix(".weight") else { return Role::Dense };
    for projection in Projection::ALL {
        let Some(suffix) = stem.strip_prefix(projection.tensor_stem()) else { continue };
        // One expert leaves its dimension of 1 out of the file.
        if suffix == "_exps" && matches!(tensor.shape.len(), 2 | 3) {
            return Role::Fused(projection);
        }
        if let Some(expert) = suffix.strip_prefix('.').and_then(parse_index)
            && tensor.shape.len() == 2
        {
            return Role::Apart(projection, expert);
        }
    }
    Role::Dense
}

/// Number of experts of a fused tensor, and its first expert.
fn first_expert(tensor: &TensorInfo) -> Option<(usize, ExpertSlice)> {
    let (n_experts, rows, cols) = match *tensor.shape {
        [n_experts, rows, cols] => (n_experts, rows, cols),
        [rows, cols] => (1, rows, cols),
        _ => return None,
    };
    let bytes = tensor.bytes.checked_div(n_experts as u64)?;
    Some((n_experts, ExpertSlice { shard: tensor.shard, offset: tensor.offset, bytes, ty: tensor.ty, rows, cols }))
}

fn whole_matrix(tensor: &TensorInfo) -> Option<ExpertSlice> {
    let [rows, cols] = *tensor.shape else { return None };
    let TensorInfo { ty, shard, offset, bytes, .. } = *tensor;
    Some(ExpertSlice { shard, offset, bytes, ty, rows, cols })
}

/// Splits `blk.7.attn_q.weight` into 7 and `attn_q.weight`.
fn layer_and_rest(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((parse_index(layer)?, rest))
}

/// A number as files write it: digits without a sign or leading zeros, so that no two names mean one index.
fn parse_index(digits: &str) -> Option<usize> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

fn bytes_of(tensors: &[TensorInfo], indices: &[usize]) -> u64 {
    sum(indices.iter().filter_map(|i| tensors.get(*i)).map(|tensor| tensor.bytes))
}

/// Sums sizes of things that lie apart in files, whose lengths the sum therefore cannot exceed.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}
