import "./symbols.js";

export { type Benchmark, type BenchmarkOptions, type BenchmarkResult, benchmark } from "./benchmark.js";
export type { ApplyChatTemplateOptions, ChatMessage, ChatTemplate } from "./chat.js";
export { ClutorError, type ErrorCode } from "./errors.js";
export type { FinishReason, Generation, GenerationResult, Piece } from "./generation.js";
export { type Inspection, inspect, kernels } from "./inspect.js";
export type { Progress, StreamProgress } from "./link.js";
export type {
  CacheOptions,
  CachePolicy,
  CacheType,
  ExpectedText,
  LoadOptions,
  SmartRouteOptions,
} from "./load-options.js";
export {
  type GenerateOptions,
  type Logits,
  type LogitsOptions,
  Model,
  type ModelInfo,
  type Perplexity,
  type PerplexityOptions,
  type Tensor,
} from "./model.js";
export type { Size } from "./sizes.js";
export type { MemoryPlan, ModelStats, PlanReason, RingStats, StoreStats } from "./stats.js";
export {
  type StreamBenchmark,
  type StreamBenchmarkOptions,
  type StreamBurst,
  type StreamRouting,
  type StreamWindow,
  streamBenchmark,
} from "./stream-benchmark.js";
export { type DetokenizeOptions, type TokenizeOptions, Tokenizer } from "./tokenizer.js";
export {
  convertTrace,
  inspectTrace,
  type SimulateOptions,
  type Simulation,
  simulateTrace,
  type TraceInfo,
} from "./traces.js";
export { version } from "./version.js";
