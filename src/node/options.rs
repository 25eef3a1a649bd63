//! Options as the engine has them.

use super::error::NodeError;
use super::shapes::{GenerateOptions, LoadOptions, SmartRoute};
use crate::experts::{Prefetch, StreamingOptions};
use crate::model::{DensePlace, Residency};
use crate::store::PageCache;
use crate::{generate, model, routing, sampling};
use std::path::PathBuf;

/// How to load; fails where a cache policy has no such name.
pub(super) fn load_options(options: LoadOptions) -> Result<model::LoadOptions, NodeError> {
    let streaming = streaming(&options)?;
    let bytes = |given: Option<i64>| given.and_then(|bytes| u64::try_from(bytes).ok());
    Ok(model::LoadOptions {
        n_threads: options.threads.map(|n| n as usize),
        n_ctx: options.context_length.map(|n| n as usize),
        longest_text: options.longest_text.map(|n| n as usize),
        longest_prompt: options.longest_prompt.map(|n| n as usize),
        cache_type: model::CacheType::from_name(&options.cache_type).unwrap_or_default(),
        kernels: options.kernels,
        memory_bytes: bytes(options.memory_bytes),
        cache_bytes: bytes(options.cache_bytes),
        dense: match options.dense.as_deref() {
            Some("resident") => DensePlace::Resident,
            Some("ring") => DensePlace::Ring,
            _ => DensePlace::default(),
        },
        residency: match options.mmap {
            None => Residency::Auto,
            Some(true) => Residency::Map,
            Some(false) => Residency::Copy,
        },
        streaming,
        smart: options.smart_route.map(routing::SmartRoute::from),
    })
}

fn streaming(options: &LoadOptions) -> Result<StreamingOptions, NodeError> {
    let defaults = StreamingOptions::default();
    Ok(StreamingOptions {
        policy: match &options.policy {
            Some(policy) => policy.parse()?,
            None => defaults.policy,
        },
        n_staging: options.staging.map(|n| n as usize),
        n_io_threads: options.io_threads.map_or(defaults.n_io_threads, |n| n as usize),
        page_cache: match options.os_cache {
            Some(true) => PageCache::Use,
            Some(false) => PageCache::Bypass,
            None => defaults.page_cache,
        },
        prefetch: match options.prefetch.as_deref() {
            Some("off") => Prefetch::Off,
            Some("prev") => Prefetch::Prev,
            Some("ahead") => Prefetch::Ahead,
            Some("auto") => Prefetch::Auto,
            _ => defaults.prefetch,
        },
        prefetch_n: options.prefetch_count.map(|n| n as usize),
        warm_folder: options.warm_folder.as_ref().map(PathBuf::from),
    })
}

impl From<SmartRoute> for routing::SmartRoute {
    fn from(route: SmartRoute) -> Self {
        let SmartRoute { keep, candidates, tau } = route;
        Self { n_kept: keep as usize, n_candidates: candidates as usize, tau: tau as f32 }
    }
}

impl From<GenerateOptions> for generate::GenerateOptions {
    fn from(options: GenerateOptions) -> Self {
        Self {
            max_tokens: options.max_tokens as usize,
            sampling: sampling::SamplingOptions {
                temperature: options.temperature as f32,
                top_k: options.top_k as usize,
                top_p: options.top_p as f32,
                min_p: options.min_p as f32,
                repeat_penalty: options.repeat_penalty as f32,
                repeat_last_n: options.repeat_last_n as usize,
                seed: options.seed as u64,
            },
            stop: options.stop,
            ignore_eos: options.ignore_eos,
            trace: options.trace.map(PathBuf::from),
        }
    }
}
