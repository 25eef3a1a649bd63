//! From a file to a model that is ready for its first token.

use super::dense::{Dense, OwnedTensors, Parts, Ring};
use super::identity::identity;
use super::plan::{self, MemoryPlan};
use super::resident::{self, Residency};
use super::weights::{Weights, find_experts};
use super::{CacheType, Config, DensePlace, Model, ModelError, read_chat_templates, read_tokenizer};
use crate::experts::{ExpertSource, Resident, Streaming, StreamingOptions, WarmFile, expert_table};
use crate::gguf::{Gguf, Layout};
use crate::guard::compute_threads;
use crate::kernels;
use crate::math::Rope;
use crate::parallel::Pool;
use crate::routing::SmartRoute;
use crate::store::{ALIGNMENT, Budget, FileReader, Reader, Store, StoreOptions};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Compute threads; the physical cores that the process may use where not given.
    pub n_threads: Option<usize>,
    /// Longest text in tokens, at most the model's own context, which is the default where memory allows it.
    pub n_ctx: Option<usize>,
    /// Tokens of the longest text, prompt and answer together, where that is known: the default context is no longer than
    /// that while experts are streamed, for memory serves better as cache.
    pub longest_text: Option<usize>,
    /// Tokens of the longest prompt, where that is known: buffers are no larger than it needs.
    pub longest_prompt: Option<usize>,
    /// Element type of the key/value cache.
    pub cache_type: CacheType,
    /// Kernel path by name; the fastest one where not given.
    pub kernels: Option<String>,
    /// Memory that the whole process may take; what the system allows where not given.
    pub memory_bytes: Option<u64>,
    /// Memory for cached experts alone: they are streamed then, whatever would fit.
    pub cache_bytes: Option<u64>,
    /// Where dense tensors are while experts are streamed.
    pub dense: DensePlace,
    /// How a model that fits comes into memory.
    pub residency: Residency,
    /// How experts are streamed, if they are.
    pub streaming: StreamingOptions,
    /// Routing that prefers experts that are in memory.
    pub smart: Option<SmartRoute>,
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

impl Model {
    /// Says where the bytes of the model at `path` would go, without loading it.
    ///
    /// # Errors
    /// As [`load`](Self::load), as far as headers and sizes tell.
    pub fn plan_for(path: &Path, options: &LoadOptions) -> Result<MemoryPlan, ModelError> {
        let gguf = Gguf::open(path)?;
        let config = Config::read(gguf.metadata())?;
        let layout = Layout::of(&gguf);
        let table = expert_table(&find_experts(&layout, &config)?)?;
        // Held while memory is looked at, as in a load.
        let _tokenizer = read_tokenizer(gguf.metadata())?;
        let ring_bytes = Ring::bytes_for(&Parts::of(&gguf, &layout, config.n_layers));
        let plan = plan::plan(&config, &layout, &table, vocabulary_rows(&gguf), ring_bytes, options)?;
        check_smart(options.smart, &config, &plan)?;
        Ok(plan)
    }

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
        Self::load_through(path, options, &|reader| reader, progress)
    }

    /// As [`load`](Self::load), but a streamed model is read through what `wrap` makes of its files: for measurements on
    /// a drive of another speed, and for faults.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    ///
    /// # Panics
    /// If the reader's alignment is not that of its files.
    pub fn load_through(
        path: &Path,
        options: &LoadOptions,
        wrap: &dyn Fn(Arc<dyn Reader>) -> Arc<dyn Reader>,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, ModelError> {
        let gguf = Gguf::open(path)?;
        let config = Config::read(gguf.metadata())?;
        let kernels = match &options.kernels {
            Some(name) => kernels::by_name(name)?,
            None => kernels::best(),
        };
        let tokenizer = read_tokenizer(gguf.metadata())?;
        let chat_templates = read_chat_templates(gguf.metadata())?;
        let layout = Layout::of(&gguf);
        let experts = find_experts(&layout, &config)?;
        let table = expert_table(&experts)?;
        let parts = Parts::of(&gguf, &layout, config.n_layers);
        let plan = plan::plan(&config, &layout, &table, vocabulary_rows(&gguf), Ring::bytes_for(&parts), options)?;
        let smart = check_smart(options.smart, &config, &plan)?;
        let pool = Pool::new(options.n_threads.unwrap_or_else(compute_threads))?;

        let (dense, source): (Dense, Box<dyn ExpertSource>) = match &plan.slots {
            None => {
                let files = Arc::new(resident::bring(&gguf, options.residency, &pool, progress)?);
                (Dense::Whole(Arc::clone(&files)), Box::new(Resident::new(files, experts)))
            }
            Some(slots) => {
                let reader = wrap(Arc::new(FileReader::open(gguf.shards(), options.streaming.page_cache)?));
                assert_eq!(reader.alignment(), ALIGNMENT, "the plan is made for the alignment of files");
                let mut done_bytes = 0;
                let total_bytes = plan.dense_bytes;
                let mut loaded = |bytes| {
                    done_bytes += bytes;
                    match progress(LoadProgress { done_bytes, total_bytes }) {
                        ControlFlow::Continue(()) => Ok(()),
                        ControlFlow::Break(()) => Err(ModelError::Cancelled),
                    }
                };
                let dense = if plan.ring {
                    loaded(total_bytes)?;
                    Dense::Ring(Ring::new(Arc::clone(&reader), parts)?)
                } else {
                    Dense::Owned(OwnedTensors::read(&gguf, &layout, &*reader, &pool, &mut loaded)?)
                };
                let store = Store::new(
                    reader,
                    table,
                    &StoreOptions {
                        budget: Budget::Arena(slots.arena_bytes()),
                        n_experts_used: config.routing.n_used,
                        n_staging: slots.n_staging,
                        policy: options.streaming.policy,
                        n_io_threads: options.streaming.n_io_threads,
                    },
                )?;
                let streaming = Streaming::new(store, experts, config.routing.n_used, &options.streaming);
                (dense, Box::new(warmed(streaming, &gguf, &config, &options.streaming)))
            }
        };
        let weights = Weights::find(&gguf, &layout, &dense, &config)?;
        if let Some(tokenizer) = &tokenizer
            && tokenizer.vocab_size() > weights.vocab_size
        {
            return Err(ModelError::Vocabulary { tokens: tokenizer.vocab_size(), rows: weights.vocab_size });
        }
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
            n_ctx: plan.n_ctx,
            n_threads: pool.n_threads(),
            kernels: kernels.name(),
            cache_type: options.cache_type,
            file_bytes: gguf.shards().iter().map(|shard| shard.len).sum(),
            dense_bytes: layout.dense_bytes(),
            expert_bytes: layout.expert_bytes(),
            kv_bytes_per_token: config.position_bytes(options.cache_type) as u64,
        };
        Ok(Self {
            rope: Rope::new(config.head_dim, config.rope_base, config.rope_scaling),
            experts: source,
            smart,
            substitutions: Mutex::default(),
            n_tokens: AtomicU64::new(0),
            n_ctx: plan.n_ctx,
            plan,
            cache_type: options.cache_type,
            config,
            info,
            dense,
            weights,
            tokenizer,
            chat_templates,
            kernels,
            pool,
        })
    }
}

/// Rows of the embedding, or 0 where the file has none; finding the weights says so.
fn vocabulary_rows(gguf: &Gguf) -> usize {
    gguf.tensor("token_embd.weight").and_then(|tensor| tensor.shape.first().copied()).unwrap_or(0)
}

/// `streaming` with the warm start that `options` ask for. It is a gain and no need, so nothing about it is an error.
fn warmed(streaming: Streaming, gguf: &Gguf, config: &Config, options: &StreamingOptions) -> Streaming {
    let Some(folder) = &options.warm_folder else { return streaming };
    match identity(gguf) {
        Ok(identity) => {
            streaming.with_warm_start(WarmFile::new(folder, identity, config.n_layers as u32, config.n_experts as u32))
        }
        Err(error) => {
            tracing::debug!(%error, "no warm start: a router cannot be read");
            streaming
        }
    }
}

fn check_smart(
    smart: Option<SmartRoute>,
    config: &Config,
    plan: &MemoryPlan,
) -> Result<Option<SmartRoute>, ModelError> {
    let Some(route) = smart else { return Ok(None) };
    let SmartRoute { n_kept, n_candidates, tau } = route;
    let (n_experts, n_used) = (config.n_experts, config.routing.n_used);
    if n_kept > n_used || !(n_used..=n_experts).contains(&n_candidates) || !(tau >= 0.0 && tau.is_finite()) {
        return Err(ModelError::Smart { n_kept, n_candidates, n_experts, n_used });
    }
    if !plan.streaming {
        return Err(ModelError::SmartWithoutStreaming);
    }
    Ok(smart)
}
