//! What `inspect` tells of a file.

use super::error::NodeError;
use super::shapes::{Inspection, ModelInfo};
use crate::model;
use std::path::Path;

/// Reads the header of the file at `path`, of any GGUF file, and sums it up.
pub(super) fn inspect(_path: &Path) -> Result<Inspection, NodeError> {
    Err(NodeError::OnlyVocabulary)
}

impl From<&model::ModelInfo> for ModelInfo {
    fn from(info: &model::ModelInfo) -> Self {
        Self {
            architecture: info.architecture.clone(),
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
            threads: info.n_threads as u32,
            kernels: info.kernels.to_owned(),
            cache_type: match info.cache_type {
                model::CacheType::F16 => "f16",
                model::CacheType::F32 => "f32",
            }
            .to_owned(),
        }
    }
}
