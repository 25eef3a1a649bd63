//! The benchmark of prompts and decoding, as JavaScript sees it. It runs on a thread of its own.

use super::error::NodeError;
use super::options::load_options;
use super::shapes::{LoadOptions, MemoryPlan, ModelInfo};
use crate::bench::{self, Work};
use napi_derive::napi;

#[napi(object)]
pub struct BenchOptions {
    /// As for a model that generates; the context is what the work needs.
    pub load: LoadOptions,
    /// Tokens of each prompt, above 0.
    pub prompts: Vec<u32>,
    /// Tokens of each decoding, above 0.
    pub decodes: Vec<u32>,
    /// Tokens in the context before, one depth at least.
    pub depths: Vec<u32>,
    /// Runs of each, one at least.
    pub runs: u32,
    pub seed: i64,
}

/// What a benchmark found, as it was counted.
#[napi(object)]
pub struct BenchReport {
    pub info: ModelInfo,
    pub plan: MemoryPlan,
    pub loading_ms: f64,
    /// Bytes that the machine's bandwidth was measured with.
    pub buffer_bytes: i64,
    /// Bytes a second that one thread reads, and that all threads read together.
    pub one_thread: f64,
    pub all_threads: f64,
    pub measurements: Vec<BenchMeasurement>,
}

#[napi(object)]
pub struct BenchMeasurement {
    /// llama.cpp's name for it, without the depth.
    pub name: String,
    /// `prompt` or `decode`.
    pub kind: String,
    pub tokens: i64,
    pub depth: i64,
    /// Of the median run.
    pub tokens_per_second: f64,
    pub runs: Vec<BenchRun>,
}

#[napi(object)]
pub struct BenchRun {
    pub elapsed_ms: f64,
    pub weight_bytes: i64,
    /// Requests for streamed experts, and those that the cache or a prefetch served.
    pub accesses: i64,
    pub hits: i64,
    /// Bytes read from the drive, and time that the computation waited for them.
    pub read_bytes: i64,
    pub wait_us: i64,
}

/// How to run a benchmark; fails where a cache policy has no such name.
pub(super) fn bench_options(options: BenchOptions) -> Result<bench::BenchOptions, NodeError> {
    let works = |counts: Vec<u32>, work: fn(usize) -> Work| counts.into_iter().map(move |n| work(n as usize));
    Ok(bench::BenchOptions {
        load: load_options(options.load)?,
        work: works(options.prompts, Work::Prompt).chain(works(options.decodes, Work::Decode)).collect(),
        depths: options.depths.into_iter().map(|depth| depth as usize).collect(),
        n_runs: options.runs as usize,
        seed: options.seed as u64,
        bandwidth_bytes: bench::BenchOptions::DEFAULT_BANDWIDTH_BYTES,
    })
}

impl From<bench::BenchReport> for BenchReport {
    fn from(report: bench::BenchReport) -> Self {
        Self {
            info: (&report.info).into(),
            plan: (&report.plan).into(),
            loading_ms: report.loading.as_secs_f64() * 1e3,
            buffer_bytes: report.bandwidth.buffer_bytes as i64,
            one_thread: report.bandwidth.one_thread,
            all_threads: report.bandwidth.all_threads,
            measurements: report.measurements.iter().map(BenchMeasurement::from).collect(),
        }
    }
}

impl From<&bench::Measurement> for BenchMeasurement {
    fn from(measured: &bench::Measurement) -> Self {
        let run = |run: &bench::Run| BenchRun {
            elapsed_ms: run.record.elapsed.as_secs_f64() * 1e3,
            weight_bytes: run.weight_bytes as i64,
            accesses: run.record.accesses as i64,
            hits: run.record.hits as i64,
            read_bytes: run.record.read_bytes as i64,
            wait_us: run.record.wait_us as i64,
        };
        let kind = match measured.work {
            Work::Prompt(_) => "prompt",
            Work::Decode(_) => "decode",
        };
        Self {
            name: measured.work.to_string(),
            kind: kind.to_owned(),
            tokens: measured.work.n_tokens() as i64,
            depth: measured.depth as i64,
            tokens_per_second: measured.tokens_per_second(),
            runs: measured.runs.iter().map(run).collect(),
        }
    }
}
