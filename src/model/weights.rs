//! A model's tensors, found by name and checked against its configuration.

use super::dense::{Bytes, Dense};
use super::{Architecture, Config, ModelError};
use crate::experts::LayerExperts;
use crate::gguf::{ExpertSlice, Gguf, Layout, Projection, TensorInfo};
use crate::quant::{TensorType, WeightRows, dequantize_row};
use std::collections::HashSet;
use std::ops::Range;

/// A dense matrix: where it lies in the model's files.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    slice: ExpertSlice,
}

impl Matrix {
    /// Its rows.
    ///
    /// # Panics
    /// If it is not among `bytes`.
    pub fn rows<'a>(&self, bytes: Bytes<'a>) -> WeightRows<'a> {
        let (shard, offset, len) = self.range();
        WeightRows::new(self.slice.ty, bytes.range(shard, offset, len), self.slice.rows, self.slice.cols)
    }

    /// Some of its rows, as a matrix.
    pub fn chunk(&self, rows: Range<usize>) -> Self {
        let row_bytes = self.slice.bytes / self.slice.rows.max(1) as u64;
        let (offset, bytes) = (self.slice.offset + row_bytes * rows.start as u64, row_bytes * rows.len() as u64);
        Self { slice: ExpertSlice { offset, bytes, rows: rows.len(), ..self.slice } }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.slice.rows
    }

    /// Shard, first byte there, and bytes.
    pub fn range(&self) -> (usize, u64, u64) {
        (self.slice.shard, self.slice.offset, self.slice.bytes)
    }

    /// Element type.
    pub fn ty(&self) -> TensorType {
        self.slice.ty
    }
}

/// Dense tensors of one layer; names are those of the file.
#[derive(Debug)]
pub struct Layer {
    /// `[embed_dim]`.
    pub attn_norm: Vec<f32>,
    /// `[n_heads · head_dim, embed_dim]`.
    pub attn_q: Matrix,
    /// `[n_kv_heads · head_dim, embed_dim]`.
    pub attn_k: Matrix,
    /// `[n_kv_heads · head_dim, embed_dim]`.
    pub attn_v: Matrix,
    /// `[head_dim]` in qwen3moe, `[n_heads · head_dim]` in olmoe.
    pub attn_q_norm: Vec<f32>,
    /// `[head_dim]` in qwen3moe, `[n_kv_heads · head_dim]` in olmoe.
    pub attn_k_norm: Vec<f32>,
    /// `[embed_dim, n_heads · head_dim]`.
    pub attn_output: Matrix,
    /// `[embed_dim]`.
    pub ffn_norm: Vec<f32>,
    /// Router, `[n_experts, embed_dim]`.
    pub ffn_gate_inp: Matrix,
}

/// All dense tensors.
#[derive(Debug)]
pub struct Weights {
    /// `[vocab_size, embed_dim]`.
    pub token_embd: Matrix,
    /// `[embed_dim]`.
    pub output_norm: Vec<f32>,
    /// `[vocab_size, embed_dim]`; the embedding again where the file has none of its own.
    pub output: Matrix,
    /// In order.
    pub layers: Vec<Layer>,
    /// Tokens that have an embedding.
    pub vocab_size: usize,
}

impl Weights {
    /// Finds and checks every dense tensor of the model.
    ///
    /// # Errors
    /// Where a tensor is missing, has the wrong shape or a type that cannot be multiplied with, or where a layer has a
    /// tensor that the architecture does not know.
    pub fn find(gguf: &Gguf, layout: &Layout, dense: &Dense, config: &Config) -> Result<Self, ModelError> {
        let mut finder = Finder { gguf, dense, used: HashSet::new() };
        let token_embd = finder.matrix("token_embd.weight", None, config.embed_dim)?;
        let vocab_size = token_embd.slice.rows;
        let output = match gguf.tensor("output.weight") {
            Some(_) => finder.matrix("output.weight", Some(vocab_size), config.embed_dim)?,
            None => token_embd,
        };
        let output_norm = finder.vector("output_norm.weight", config.embed_dim)?;
        let layers = (0..config.n_layers).map(|layer| finder.layer(layer, config)).collect::<Result<_, _>>()?;
        finder.refuse_unknown(layout, config)?;
        Ok(Self { token_embd, output_norm, output, layers, vocab_size })
    }
}

/// Looks tensors up and remembers which were.
struct Finder<'a> {
    gguf: &'a Gguf,
    dense: &'a Dense,
    used: HashSet<String>,
}

impl<'a> Finder<'a> {
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<&'a TensorInfo, ModelError> {
        let missing = || ModelError::MissingTensor { tensor: name.into() };
        let tensor = self.gguf.tensor(name).ok_or_else(missing)?;
        if tensor.shape != expected {
            return Err(ModelError::Shape {
                tensor: name.into(),
                found: tensor.shape.clone(),
                expected: expected.into(),
            });
        }
        multipliable(name, tensor.ty)?;
        self.used.insert(name.into());
        Ok(tensor)
    }

    /// A matrix of `cols` columns; any number of rows where `rows` is `None`.
    fn matrix(&mut self, name: &str, rows: Option<usize>, cols: usize) -> Result<Matrix, ModelError> {
        let stated = self.gguf.tensor(name).and_then(|tensor| tensor.shape.first().copied());
        let rows = rows.or(stated).unwrap_or(0);
        let tensor = self.tensor(name, &[rows, cols])?;
        let TensorInfo { ty, bytes, shard, offset, .. } = *tensor;
        Ok(Matrix { slice: ExpertSlice { shard, offset, bytes, ty, rows, cols } })
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name, &[len])?;
        let mut vector = vec![0.0; len];
        dequantize_row(tensor.ty, &self.dense.tensor_bytes(tensor)?, &mut vector);
        Ok(vector)
    }

    fn layer(&mut self, layer: usize, config: &Config) -> Result<Layer, ModelError> {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let (embed_dim, q_dim, kv_dim) = (config.embed_dim, config.q_dim(), config.kv_dim());
        let (q_norm, k_norm) = match config.architecture {
            Architecture::Olmoe => (q_dim, kv_dim),
            Architecture::Qwen3Moe => (config.head_dim, config.head_dim),
        };
        Ok(Layer {
            attn_norm: self.vector(&name("attn_norm"), embed_dim)?,
            attn_q: self.matrix(&name("attn_q"), Some(q_dim), embed_dim)?,
            attn_k: self.matrix(&name("attn_k"), Some(kv_dim), embed_dim)?,
            attn_v: self.matrix(&name("attn_v"), Some(kv_dim), embed_dim)?,
            attn_q_norm: self.vector(&name("attn_q_norm"), q_norm)?,
            attn_k_norm: self.vector(&name("attn_k_norm"), k_norm)?,
            attn_output: self.matrix(&name("attn_output"), Some(embed_dim), q_dim)?,
            ffn_norm: self.vector(&name("ffn_norm"), embed_dim)?,
            ffn_gate_inp: self.matrix(&name("ffn_gate_inp"), Some(config.n_experts), embed_dim)?,
        })
    }

    /// A layer's tensor that the forward pass would leave out, such as a bias, means another model than the one that
    /// the file's name promises. Tensors outside the layers are extras that published files carry.
    fn refuse_unknown(&self, layout: &Layout, config: &Config) -> Result<(), ModelError> {
        let dense = layout.layers.iter().flat_map(|layer| &layer.dense);
        for tensor in dense.filter_map(|&i| self.gguf.tensors().get(i)) {
            if !self.used.contains(&tensor.name) {
                let architecture = config.architecture.name();
                return Err(ModelError::UnknownTensor { tensor: tensor.name.clone(), architecture });
            }
        }
        Ok(())
    }
}

/// Finds and checks the experts of all layers.
///
/// # Errors
/// Where a matrix is missing, has the wrong shape or a type that cannot be multiplied with.
pub fn find_experts(layout: &Layout, config: &Config) -> Result<Vec<LayerExperts>, ModelError> {
    (0..config.n_layers).map(|layer| experts_of(layout, layer, config)).collect()
}

/// Finds the experts of one layer, in either layout.
fn experts_of(layout: &Layout, layer: usize, config: &Config) -> Result<LayerExperts, ModelError> {
    let (embed_dim, expert_dim) = (config.embed_dim, config.expert_dim);
    let matrix = |expert: usize, projection: Projection| {
        let name = format!("blk.{layer}.{}_exps.weight", projection.tensor_stem());
        let Some(slice) = layout.expert(layer, projection, expert) else {
            return Err(ModelError::MissingTensor { tensor: name });
        };
        let (rows, cols) = match projection {
            Projection::Down => (embed_dim, expert_dim),
            _ => (expert_dim, embed_dim),
        };
        if (slice.rows, slice.cols) != (rows, cols) {
            let (found, expected) = (vec![slice.rows, slice.cols], vec![rows, cols]);
            return Err(ModelError::Shape { tensor: name, found, expected });
        }
        multipliable(&name, slice.ty)?;
        Ok(slice)
    };
    let stated = layout.layer(layer).and_then(|l| l.experts.as_deref()).map_or(0, |experts| experts.n_experts());
    if stated > config.n_experts {
        return Err(ModelError::Contradiction {
            key: format!("{}.expert_count", config.architecture.name()),
            value: config.n_experts.to_string(),
            why: format!("layer {layer} holds {stated} experts"),
        });
    }
    let slices: Vec<[ExpertSlice; 3]> = (0..config.n_experts)
        .map(|expert| {
            Ok([matrix(expert, Projection::Gate)?, matrix(expert, Projection::Up)?, matrix(expert, Projection::Down)?])
        })
        .collect::<Result<_, ModelError>>()?;
    let types = slices[0].map(|slice| slice.ty);
    if let Some((expert, _)) = slices.iter().enumerate().find(|(_, slices)| slices.map(|slice| slice.ty) != types) {
        return Err(ModelError::Contradiction {
            key: format!("blk.{layer}.*.{expert}.weight"),
            value: "of another type than expert 0's".into(),
            why: "experts of one layer must have the same types".into(),
        });
    }
    Ok(LayerExperts { types, slices })
}

fn multipliable(name: &str, ty: TensorType) -> Result<(), ModelError> {
    match ty.activation_format() {
        Some(_) => Ok(()),
        None => Err(ModelError::UnsupportedType { tensor: name.into(), ty }),
    }
}
