//! What crosses the boundary: plain objects with one field per fact.
//!
//! Counts of bytes and tokens are `i64`, JavaScript numbers that are exact up to 2^53.

use super::bench::BenchReport;
use super::stream::StreamReport;
use super::traces::{Simulation, TraceInfo};
use napi_derive::napi;
use std::collections::BTreeMap;

#[napi(object)]
pub struct LoadOptions {
    pub threads: Option<u32>,
    pub context_length: Option<u32>,
    /// Tokens of the longest text, prompt and answer together, and of the longest prompt, where that is known.
    pub longest_text: Option<u32>,
    pub longest_prompt: Option<u32>,
    /// `f16`, `f32` or `q8_0`.
    pub cache_type: String,
    /// A kernel path's name; the best one where absent.
    pub kernels: Option<String>,
    /// Only the tokenizer is wanted, so the file may be without tensors.
    pub vocabulary_only: bool,
    /// Memory for the whole process.
    pub memory_bytes: Option<i64>,
    /// Memory for cached experts alone; they are streamed then.
    pub cache_bytes: Option<i64>,
    /// `auto`, `resident` or `ring`.
    pub dense: Option<String>,
    /// Whether the files are mapped where everything fits, or copied; the engine chooses where absent.
    pub mmap: Option<bool>,
    /// A cache policy's name, perhaps with a colon and its parameter.
    pub policy: Option<String>,
    /// `off`, `prev`, `ahead` or `auto`.
    pub prefetch: Option<String>,
    pub prefetch_count: Option<u32>,
    pub staging: Option<u32>,
    pub io_threads: Option<u32>,
    pub os_cache: Option<bool>,
    pub smart_route: Option<SmartRoute>,
    /// Folder where it is remembered which experts were hot.
    pub warm_folder: Option<String>,
}

#[napi(object)]
pub struct SmartRoute {
    /// J.
    pub keep: u32,
    /// M.
    pub candidates: u32,
    pub tau: f64,
}

#[napi(object)]
pub struct GenerateOptions {
    pub max_tokens: u32,
    pub temperature: f64,
    pub top_k: u32,
    pub top_p: f64,
    pub min_p: f64,
    pub repeat_penalty: f64,
    pub repeat_last_n: u32,
    pub seed: i64,
    pub stop: Vec<String>,
    pub ignore_eos: bool,
    /// Control tokens written in the prompt's text become their ids.
    pub special: bool,
    /// File that the routing is recorded in.
    pub trace: Option<String>,
}

/// How a conversation becomes text. Lists and objects come as JSON, which keeps the order of keys.
#[napi(object)]
pub struct ChatOptions {
    pub tools: Option<String>,
    pub add_generation_prompt: bool,
    /// An object with further variables.
    pub variables: String,
    /// A template to use instead of the model's.
    pub template: Option<String>,
    /// Seconds from 1970-01-01 00:00 on the wall's clock.
    pub now_seconds: i64,
}

#[napi(object)]
pub struct ChatTemplateInfo {
    /// `file`, or the name of the default.
    pub name: String,
    pub source: String,
}

/// An answer, or news of one, for the request with the number `request`.
#[napi(object)]
#[derive(Default)]
pub struct Event {
    pub request: u32,
    /// `done`, `failed`, `progress`, `pieces` (then `drain` has something), or `ended` (the thread of a model).
    pub kind: String,
    pub done: Option<i64>,
    pub total: Option<i64>,
    /// With the progress of a benchmark of streaming.
    pub hit_rate: Option<f64>,
    pub info: Option<ModelInfo>,
    pub inspection: Option<Inspection>,
    /// A conversation as the model reads it.
    pub chat: Option<String>,
    pub plan: Option<MemoryPlan>,
    pub perplexity: Option<PerplexityScore>,
    pub trace: Option<TraceInfo>,
    pub simulation: Option<Simulation>,
    pub stream: Option<StreamReport>,
    pub bench: Option<BenchReport>,
    /// Shapes of the arrays that `copyOut` holds for this request, in order, outermost dimension first.
    pub arrays: Option<Vec<Vec<u32>>>,
    pub failure: Option<Failure>,
}

#[napi(object)]
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: String,
    pub message: String,
}

#[napi(object)]
#[derive(Clone)]
pub struct ModelInfo {
    pub architecture: String,
    pub name: Option<String>,
    pub n_layers: u32,
    pub n_experts: u32,
    pub n_experts_used: u32,
    pub n_heads: u32,
    pub n_kv_heads: u32,
    pub head_dim: u32,
    pub embed_dim: u32,
    pub expert_dim: u32,
    pub vocab_size: u32,
    /// What the model was trained for.
    pub trained_context_length: i64,
    /// What this instance has room for.
    pub context_length: u32,
    pub file_bytes: i64,
    pub dense_bytes: i64,
    pub expert_bytes: i64,
    /// Bytes of the cache of keys and values for each token of a text.
    pub kv_bytes_per_token: i64,
    pub threads: u32,
    pub kernels: String,
    pub cache_type: String,
}

#[napi(object)]
pub struct Inspection {
    pub architecture: String,
    pub name: Option<String>,
    pub n_layers: i64,
    pub n_experts: i64,
    pub n_experts_used: i64,
    pub n_heads: i64,
    pub n_kv_heads: i64,
    pub head_dim: i64,
    pub embed_dim: i64,
    pub expert_dim: i64,
    pub vocab_size: i64,
    pub context_length: i64,
    pub file_bytes: i64,
    /// Files that the model is split into.
    pub n_shards: i64,
    pub n_tensors: i64,
    pub n_weights: i64,
    pub dense_bytes: i64,
    pub expert_bytes: i64,
    pub bytes_per_expert: i64,
    pub expert_bytes_per_token: i64,
    pub tensor_types: BTreeMap<String, TensorTypeUse>,
}

#[napi(object)]
pub struct TensorTypeUse {
    pub tensors: i64,
    pub bytes: i64,
}

/// Where a model's bytes go.
#[napi(object)]
pub struct MemoryPlan {
    /// Experts are read from the drive as they are needed; otherwise all are in memory.
    pub streaming: bool,
    /// What decided: `fits-budget`, `fits-memory`, `too-large` or `cache-size`.
    pub reason: String,
    /// The reason in a few words.
    pub explanation: String,
    /// Bytes that the whole must fit in, where there is such a limit.
    pub budget_bytes: Option<i64>,
    /// Where the weights are that every token needs: `resident`, in memory, or `ring`, two layers' at a time.
    pub dense: String,
    /// Bytes of those weights that are in memory at once.
    pub dense_bytes: i64,
    /// Bytes for experts: all of them, or the cache and its staging buffers.
    pub expert_bytes: i64,
    /// Bytes of what takes up memory only once it is needed, which is seldom, such as the logits of every token of a text:
    /// within the budget, and not in the predicted peak.
    pub spare_bytes: i64,
    /// Experts that are in memory at once.
    pub cached_experts: i64,
    /// Experts of all layers.
    pub n_experts: i64,
    /// `cachedExperts` of `nExperts`, 0 to 1.
    pub cached_share: f64,
    /// Tokens that prompt and answer may have together.
    pub context_length: i64,
    /// Tokens that are computed at once, at most.
    pub batch_tokens: i64,
    /// Bytes of the keys and values of a full context.
    pub kv_bytes: i64,
    /// Bytes of the buffers of a pass.
    pub buffer_bytes: i64,
    /// Bytes for the process itself: what it holds already, and what it grows by.
    pub process_bytes: i64,
    /// Peak of the process's memory with a full context: the sum of the bytes above but the budget's and the spare ones.
    pub predicted_peak_bytes: i64,
}

/// What a model did so far. All counts begin at 0 when it is loaded.
#[napi(object)]
pub struct ModelCounts {
    pub plan: MemoryPlan,
    /// Tokens that went through the model, of prompts and of answers.
    pub tokens: i64,
    pub store: Option<StoreCounts>,
    /// Bytes of dense weights read, and time that the computation waited for them; absent where they are in memory.
    pub ring: Option<RingCounts>,
    pub substitutions: Option<Substitutions>,
}

/// What the ring of dense weights did.
#[napi(object)]
pub struct RingCounts {
    pub read_bytes: i64,
    pub wait_us: i64,
}

/// The store's counters, as the store has them.
#[napi(object)]
pub struct StoreCounts {
    pub accesses: i64,
    pub hits: i64,
    pub staging_hits: i64,
    pub misses: i64,
    pub bypasses: i64,
    pub prefetches: i64,
    pub late_prefetches: i64,
    pub wasted_prefetches: i64,
    pub cancelled_prefetches: i64,
    pub admission_rejects: i64,
    pub evictions: i64,
    pub demand_bytes: i64,
    pub prefetch_bytes: i64,
    pub warm_bytes: i64,
    pub warmed: i64,
    pub failed_reads: i64,
    pub read_us: i64,
    pub wait_us: i64,
    /// Experts predicted; of these, experts then chosen; experts chosen where there was a prediction.
    pub predicted: i64,
    pub confirmed: i64,
    pub chosen: i64,
    /// Experts are being prefetched now.
    pub prefetching: bool,
}

/// What SMART-ROUTE gave away.
#[napi(object)]
pub struct Substitutions {
    /// Choices of an expert for a token.
    pub slots: i64,
    /// Choices that went to a substitute.
    pub substituted: i64,
    /// Router probability of the experts replaced less that of their substitutes, summed over the choices.
    pub dropped_mass: f64,
    /// Largest difference of router logits that was accepted.
    pub largest_gap: f64,
}

#[napi(object)]
pub struct PerplexityScore {
    /// Mean negative log-likelihood of a token, in nats.
    pub nll: f64,
    pub perplexity: f64,
    pub tokens: i64,
}

/// What a generation has made since the last look.
#[napi(object)]
pub struct Drained {
    pub ids: Vec<u32>,
    /// One text per id.
    pub texts: Vec<String>,
    pub outcome: Option<Outcome>,
    pub failure: Option<Failure>,
}

#[napi(object)]
#[derive(Clone)]
pub struct Outcome {
    /// `eos`, `stop`, `max-tokens`, `context` or `abort`.
    pub reason: String,
    /// What was held back until the end.
    pub text: String,
    pub prompt_tokens: i64,
    pub reused_tokens: i64,
    pub tokens: i64,
    pub prompt_ms: f64,
    pub decode_ms: f64,
}
