//! From a file to a model that is ready for its first token.

use super::weights::Weights;
use super::{CacheType, Config, Model, ModelError, read_tokenizer};
use crate::experts::Resident;
use crate::gguf::{Gguf, Layout, MappedGguf};
use crate::guard::{Memory, MemorySource, compute_threads};
use crate::kernels;
use crate::math::Rope;
use crate::parallel::Pool;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Compute threads; the physical cores that the process may use where not given.
    pub n_threads: Option<usize>,
    /// Longest text in tokens, at most the model's own context, which is the default where memory allows it.
    pub n_ctx: Option<usize>,
    /// Element type of the key/value cache.
    pub cache_type: CacheType,
    /// Kernel path by name; the fastest one where not given.
    pub kernels: Option<String>,
}

/// How far loading has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights in memory.
    pub done_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

/// What a user wants to know about a loaded model.
#[allow(missing_docs)] // Names as in `Config` and `gguf::Summary`.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    pub architecture: &'static str,
    pub name: Option<String>,
    pub n_layers: usize,
    pub n_experts: usize,
    pub n_experts_used: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub embed_dim: usize,
    pub expert_dim: usize,
    pub vocab_size: usize,
    /// Positions that the model was trained for.
    pub context_length: usize,
    /// Positions that this load allows.
    pub n_ctx: usize,
    pub n_threads: usize,
    /// Name of the kernel path in use.
    pub kernels: &'static str,
    pub cache_type: CacheType,
    pub file_bytes: u64,
    pub dense_bytes: u64,
    pub expert_bytes: u64,
    /// Bytes of the key/value cache per token of text.
    pub kv_bytes_per_token: u64,
}

/// Share of the memory that a model may take; the rest is for its caches, the program and the system.
const USABLE_PERCENT: u64 = 80;
/// Bytes faulted in between two reports of progress.
const STEP_BYTES: usize = 64 << 20;
/// A touch per page brings it in; pages are 4 KiB or larger.
const PAGE_BYTES: usize = 4096;

impl Model {
    /// Loads the model at `path`: any shard of a split model stands for the whole.
    ///
    /// `progress` is called as weights come into memory and can break the load off.
    ///
    /// # Errors
    /// Where the file is damaged, not a supported model, or larger than this process may hold, or where `progress`
    /// broke off.
    pub fn load(
        path: &Path,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, ModelError> {
        let gguf = Gguf::open(path)?;
        let config = Config::read(gguf.metadata())?;
        let kernels = match &options.kernels {
            Some(name) => kernels::by_name(name)?,
            None => kernels::best(),
        };
        let tokenizer = read_tokenizer(gguf.metadata())?;
        let layout = Layout::of(&gguf);
        let (dense_bytes, expert_bytes) = (layout.dense_bytes(), layout.expert_bytes());
        let memory = Memory::detect();
        check_fits(dense_bytes.saturating_add(expert_bytes), memory)?;

        let files = Arc::new(gguf.map()?);
        let (weights, experts) = Weights::find(&gguf, &files, &config)?;
        if let Some(tokenizer) = &tokenizer
            && tokenizer.vocab_size() > weights.vocab_size
        {
            return Err(ModelError::Vocabulary { tokens: tokenizer.vocab_size(), rows: weights.vocab_size });
        }
        let pool = Pool::new(options.n_threads.unwrap_or_else(compute_threads))?;
        fault_in(&files, &pool, progress)?;

        let kv_bytes_per_token = (2 * config.n_layers * config.kv_dim() * options.cache_type.bytes()) as u64;
        let affordable = affordable_ctx(dense_bytes.saturating_add(expert_bytes), kv_bytes_per_token, memory);
        let n_ctx = options.n_ctx.unwrap_or(affordable).clamp(1, config.context_length);
        let info = ModelInfo {
            architecture: config.architecture.name(),
            name: gguf.metadata().get_str("general.name")?.map(|name| name.into_owned()),
            n_layers: config.n_layers,
            n_experts: config.n_experts,
            n_experts_used: config.routing.n_used,
            n_heads: config.n_heads,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            embed_dim: config.embed_dim,
            expert_dim: config.expert_dim,
            vocab_size: weights.vocab_size,
            context_length: config.context_length,
            n_ctx,
            n_threads: pool.n_threads(),
            kernels: kernels.name(),
            cache_type: options.cache_type,
            file_bytes: gguf.shards().iter().map(|shard| shard.len).sum(),
            dense_bytes,
            expert_bytes,
            kv_bytes_per_token,
        };
        Ok(Self {
            rope: Rope::new(config.head_dim, config.rope_base, config.rope_scaling),
            experts: Box::new(Resident::new(Arc::clone(&files), experts)),
            cache_type: options.cache_type,
            config,
            info,
            n_ctx,
            files,
            weights,
            tokenizer,
            kernels,
            pool,
        })
    }
}

/// A model that is mapped although it does not fit makes the machine read it again for every token.
fn check_fits(weight_bytes: u64, memory: Option<Memory>) -> Result<(), ModelError> {
    let Some(memory) = memory else { return Ok(()) };
    let usable = memory.total_bytes / 100 * USABLE_PERCENT;
    if weight_bytes <= usable {
        return Ok(());
    }
    let limit = match memory.source {
        MemorySource::Machine => "80 % of the machine's",
        MemorySource::Cgroup => "80 % of the control group's limit",
    };
    Err(ModelError::TooLarge { needed_mib: weight_bytes >> 20, usable_mib: usable >> 20, limit })
}

/// Longest context whose key/value cache takes at most half of what the weights leave of the usable memory.
fn affordable_ctx(weight_bytes: u64, kv_bytes_per_token: u64, memory: Option<Memory>) -> usize {
    let Some(memory) = memory else { return usize::MAX };
    let left = (memory.total_bytes / 100 * USABLE_PERCENT).saturating_sub(weight_bytes);
    usize::try_from(left / 2 / kv_bytes_per_token.max(1)).unwrap_or(usize::MAX).max(1)
}

/// Brings every page of the files into memory, on all threads, so that the first token does not wait for page faults.
fn fault_in(
    files: &MappedGguf,
    pool: &Pool,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<(), ModelError> {
    let total_bytes = files.maps().iter().map(|map| map.len() as u64).sum();
    let mut done_bytes = 0;
    for map in files.maps() {
        #[cfg(unix)]
        if let Err(error) = map.advise(memmap2::Advice::WillNeed) {
            // Only advice: without it the touches below read page by page.
            tracing::debug!(%error, "the system took no read-ahead advice");
        }
        for step in map.chunks(STEP_BYTES) {
            let parts: Vec<&[u8]> = step.chunks(step.len().div_ceil(pool.n_threads()).max(PAGE_BYTES)).collect();
            pool.for_each(parts, |_, part| {
                for page in part.chunks(PAGE_BYTES) {
                    std::hint::black_box(page[0]);
                }
            });
            done_bytes += step.len() as u64;
            if progress(LoadProgress { done_bytes, total_bytes }).is_break() {
                return Err(ModelError::Cancelled);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory { total_bytes: 1000, available_bytes: 900, source: MemorySource::Cgroup };

    #[test]
    fn a_model_over_four_fifths_of_the_memory_is_refused_with_the_numbers() {
        assert!(check_fits(800, Some(MEMORY)).is_ok());
        let memory = Memory { total_bytes: 1000 << 20, ..MEMORY };
        let error = check_fits(900 << 20, Some(memory)).unwrap_err().to_string();
        assert!(error.contains("900 MiB") && error.contains("control group"), "{error}");
    }

    #[test]
    fn the_default_context_is_bounded_by_memory() {
        assert_eq!(affordable_ctx(600, 10, Some(MEMORY)), 10);
        assert_eq!(affordable_ctx(800, 10, Some(MEMORY)), 1);
        assert_eq!(affordable_ctx(0, 10, None), usize::MAX);
    }
}
