//! The streaming benchmark, as JavaScript sees it. It runs on a thread of its own.

use super::error::NodeError;
use super::options::load_options;
use super::shapes::{LoadOptions, MemoryPlan, RingCounts, StoreCounts};
use crate::stream::{self, Choices, Work};
use crate::workload::SyntheticRouting;
use napi_derive::napi;
use std::path::PathBuf;
use std::time::Duration;

#[napi(object)]
pub struct StreamOptions {
    /// As for a model that generates; what is for texts has no effect.
    pub load: LoadOptions,
    /// Tokens; a default, or all of the trace, where absent.
    pub tokens: Option<u32>,
    /// File with recorded choices; the ones below count where absent.
    pub trace: Option<String>,
    pub seed: i64,
    /// Exponent of the popularity of experts.
    pub skew: f64,
    /// Tokens that a favourite lasts, on average.
    pub drift_tokens: f64,
    pub burst_start: Option<u32>,
    pub burst_tokens: Option<u32>,
    /// Of the prediction, 0 to 1.
    pub accuracy: f64,
    /// `dot`, `checksum` or `delay`.
    pub compute: String,
    /// Of each expert, with `delay`.
    pub delay_us: Option<f64>,
    pub windows: u32,
}

/// What a benchmark found, as it was counted.
#[napi(object)]
pub struct StreamReport {
    pub architecture: String,
    pub n_layers: u32,
    pub n_experts: u32,
    pub n_experts_used: u32,
    pub threads: u32,
    /// Name of the arithmetic path.
    pub kernels: String,
    pub plan: MemoryPlan,
    /// The cache policy, with its parameter.
    pub policy: String,
    pub tokens: i64,
    pub elapsed_us: i64,
    /// Until the first token began.
    pub loading_us: i64,
    /// Of the work on weights.
    pub working_us: i64,
    pub store: StoreCounts,
    pub ring: RingCounts,
    pub windows: Vec<StreamWindow>,
    pub burst: Option<StreamBurst>,
    /// Hexadecimal.
    pub digest: String,
}

/// A part of the run.
#[napi(object)]
pub struct StreamWindow {
    pub first_token: i64,
    pub tokens: i64,
    pub hit_rate: f64,
    pub read_bytes: i64,
    pub wait_us: i64,
    pub elapsed_us: i64,
}

/// Hit rates around a burst of structureless choices.
#[napi(object)]
pub struct StreamBurst {
    pub first_token: i64,
    pub tokens: i64,
    pub before: Option<f64>,
    pub during: f64,
    pub after: Option<f64>,
    pub recovered_after: Option<i64>,
}

/// How to run a benchmark; fails where a cache policy has no such name.
pub(super) fn stream_options(options: StreamOptions) -> Result<stream::StreamOptions, NodeError> {
    let choices = match options.trace {
        Some(path) => Choices::Trace(PathBuf::from(path)),
        None => Choices::Synthetic(SyntheticRouting {
            seed: options.seed as u64,
            skew: options.skew,
            drift_tokens: options.drift_tokens,
            burst: options.burst_start.zip(options.burst_tokens).map(|(start, tokens)| {
                let start = start as usize;
                start..start.saturating_add(tokens as usize)
            }),
        }),
    };
    let work = match options.compute.as_str() {
        "delay" => Work::Delay(Duration::from_nanos((options.delay_us.unwrap_or(0.0) * 1000.0) as u64)),
        "checksum" => Work::Checksum,
        _ => Work::Dot,
    };
    Ok(stream::StreamOptions {
        load: load_options(options.load)?,
        n_tokens: options.tokens.map(|tokens| tokens as usize),
        choices,
        accuracy: options.accuracy,
        work,
        n_windows: options.windows as usize,
    })
}

impl From<stream::StreamReport> for StreamReport {
    fn from(report: stream::StreamReport) -> Self {
        let us = |time: Duration| time.as_micros() as i64;
        let window = |window: &stream::Window| StreamWindow {
            first_token: window.first_token as i64,
            tokens: window.n_tokens as i64,
            hit_rate: window.hit_rate,
            read_bytes: window.read_bytes as i64,
            wait_us: window.wait_us as i64,
            elapsed_us: us(window.elapsed),
        };
        let burst = |burst: stream::Burst| StreamBurst {
            first_token: burst.tokens.start as i64,
            tokens: burst.tokens.len() as i64,
            before: burst.before,
            during: burst.during,
            after: burst.after,
            recovered_after: burst.recovered_after.map(|tokens| tokens as i64),
        };
        let info = &report.info;
        Self {
            architecture: info.architecture.to_owned(),
            n_layers: info.n_layers as u32,
            n_experts: info.n_experts as u32,
            n_experts_used: info.n_experts_used as u32,
            threads: info.n_threads as u32,
            kernels: info.kernels.to_owned(),
            plan: (&report.plan).into(),
            policy: report.policy.to_string(),
            tokens: report.n_tokens as i64,
            elapsed_us: us(report.elapsed),
            loading_us: us(report.loading),
            working_us: us(report.working),
            store: report.streaming.into(),
            ring: report.ring.into(),
            windows: report.windows.iter().map(window).collect(),
            burst: report.burst.map(burst),
            digest: format!("{:016x}", report.digest),
        }
    }
}
