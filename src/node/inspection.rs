//! What `inspect` tells of a file.

use super::error::NodeError;
use super::shapes::{Inspection, ModelInfo, TensorTypeUse};
use crate::gguf::{Gguf, Layout, Summary};
use crate::model;
use std::path::Path;

/// Reads the header of the GGUF file at `path` and sums it up. What the file does not state is 0 or empty.
pub(super) fn inspect(path: &Path) -> Result<Inspection, NodeError> {
    let gguf = Gguf::open(path)?;
    let summary = Summary::of(&gguf, &Layout::of(&gguf));
    let or_zero = |count: Option<usize>| count.unwrap_or(0) as i64;
    let tensor_types = summary.tensor_types.iter().map(|used| {
        let tensor_type = TensorTypeUse { tensors: used.n_tensors as i64, bytes: used.bytes as i64 };
        (used.ty.name().to_owned(), tensor_type)
    });
    Ok(Inspection {
        architecture: summary.architecture.unwrap_or_default(),
        name: summary.name,
        n_layers: summary.n_layers as i64,
        n_experts: summary.n_experts as i64,
        n_experts_used: summary.n_experts_used as i64,
        n_heads: or_zero(summary.n_heads),
        n_kv_heads: or_zero(summary.n_kv_heads),
        head_dim: or_zero(summary.head_dim),
        embed_dim: or_zero(summary.embed_dim),
        expert_dim: or_zero(summary.expert_dim),
        vocab_size: or_zero(summary.vocab_size),
        context_length: or_zero(summary.context_length),
        file_bytes: summary.file_bytes as i64,
        n_shards: summary.n_shards as i64,
        n_tensors: summary.n_tensors as i64,
        n_weights: summary.n_weights as i64,
        dense_bytes: summary.dense_bytes as i64,
        expert_bytes: summary.expert_bytes as i64,
        bytes_per_expert: summary.bytes_per_expert as i64,
        expert_bytes_per_token: summary.expert_bytes_per_token as i64,
        tensor_types: tensor_types.collect(),
    })
}

impl From<&model::ModelInfo> for ModelInfo {
    fn from(info: &model::ModelInfo) -> Self {
        Self {
            architecture: info.architecture.to_owned(),
            name: info.name.clone(),
            n_layers: info.n_layers as u32,
            n_experts: info.n_experts as u32,
            n_experts_used: info.n_experts_used as u32,
            n_heads: info.n_heads as u32,
            n_kv_heads: info.n_kv_heads as u32,
            head_dim: info.head_dim as u32,
            embed_dim: info.embed_dim as u32,
            expert_dim: info.expert_dim as u32,
            vocab_size: info.vocab_size as u32,
            trained_context_length: info.context_length as i64,
            context_length: info.n_ctx as u32,
            file_bytes: info.file_bytes as i64,
            dense_bytes: info.dense_bytes as i64,
            expert_bytes: info.expert_bytes as i64,
            kv_bytes_per_token: info.kv_bytes_per_token as i64,
            threads: info.n_threads as u32,
            kernels: info.kernels.to_owned(),
            cache_type: info.cache_type.name().to_owned(),
        }
    }
}
