//! Plans for a model of 2 layers with 8 experts each, in memories of several sizes.

use super::*;
use crate::gguf::Gguf;
use crate::model::{Architecture, CacheType};
use crate::routing::RoutingRule;
use crate::store::{ExpertExtent, FileRange};

const MIB: u64 = 1 << 20;
/// Three matrices of 16 MiB each.
const EXPERT: u64 = 48 * MIB;

struct Case {
    config: Config,
    layout: Layout,
    experts: ExpertTable,
}

fn case() -> Case {
    let config = Config {
        architecture: Architecture::Qwen3Moe,
        n_layers: 2,
        embed_dim: 256,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 64,
        n_experts: 8,
        expert_dim: 256,
        routing: RoutingRule { n_used: 2, normalise: true, scale: 1.0 },
        context_length: 8192,
        norm_eps: 1e-6,
        rope_base: 10000.0,
        rope_scaling: crate::math::RopeScaling::None,
    };
    // The sizes come from the header of a sparse file: a plan reads no weights.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut header = b"GGUF".to_vec();
    let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    header.extend(3u32.to_le_bytes());
    header.extend([7u64, 0].iter().flat_map(|n| n.to_le_bytes()));
    let mut tensor = |name: &str, dims: &[u64], offset: u64| {
        header.extend(string(name));
        header.extend((dims.len() as u32).to_le_bytes());
        header.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        header.extend(0u32.to_le_bytes());
        header.extend(offset.to_le_bytes());
    };
    let fused = 8 * 16 * MIB;
    tensor("token_embd.weight", &[256, 102_400], 6 * fused);
    for layer in 0..2 {
        for (i, name) in ["gate", "up", "down"].iter().enumerate() {
            tensor(&format!("blk.{layer}.ffn_{name}_exps.weight"), &[256, 16384, 8], (3 * layer + i as u64) * fused);
        }
    }
    std::fs::write(&path, &header).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(6 * fused + 101 * MIB).unwrap();
    let layout = Layout::of(&Gguf::open(&path).unwrap());
    assert_eq!((layout.dense_bytes(), layout.expert_bytes()), (100 * MIB, 16 * EXPERT));
    let range = |offset| FileRange { file: 0, offset, len: EXPERT / 3 };
    let extent = |i: u64| {
        ExpertExtent::new(&[range(i * EXPERT), range(i * EXPERT + EXPERT / 3), range(i * EXPERT + 2 * EXPERT / 3)])
    };
    Case { config, layout, experts: ExpertTable::new(8, (0..16).map(extent).collect()).unwrap() }
}

fn planned(options: &LoadOptions, memory_mib: Option<(u64, u64)>) -> Result<MemoryPlan, ModelError> {
    let Case { config, layout, experts } = case();
    let memory = memory_mib.map(|(total, available)| Memory {
        total_bytes: total * MIB,
        available_bytes: available * MIB,
        source: MemorySource::Cgroup,
    });
    let planner = Planner {
        config: &config,
        layout: &layout,
        experts: &experts,
        vocab_size: 102_400,
        ring_bytes: 2 * MIB,
        options,
        memory,
        process_bytes: 20 * MIB,
    };
    planner.plan()
}

fn given(mib: u64) -> LoadOptions {
    LoadOptions { memory_bytes: Some(mib * MIB), ..LoadOptions::default() }
}

#[test]
fn what_fits_is_kept_in_memory() {
    let plan = planned(&LoadOptions::default(), Some((2000, 1900))).unwrap();
    assert_eq!((plan.streaming, plan.reason, plan.cached_share()), (false, PlanReason::FitsMemory, 1.0));
    let plan = planned(&given(1200), Some((64_000, 60_000))).unwrap();
    assert_eq!((plan.streaming, plan.reason), (false, PlanReason::FitsBudget));
    assert!(plan.peak_bytes() <= 1200 * MIB && plan.n_ctx == 8192);
    assert!(!planned(&LoadOptions::default(), None).unwrap().streaming);
}

#[test]
fn what_does_not_fit_is_streamed_with_the_largest_cache_that_stays_within() {
    let plan = planned(&given(600), Some((64_000, 60_000))).unwrap();
    assert_eq!((plan.streaming, plan.reason), (true, PlanReason::TooLarge));
    assert!(plan.peak_bytes() <= 600 * MIB);
    assert!(plan.most_bytes() + EXPERT + MIB > 600 * MIB, "another expert would have fitted: {plan:?}");
    // 800 MiB: four fifths are 640.
    let plan = planned(&LoadOptions::default(), Some((800, 790))).unwrap();
    assert!(plan.streaming && plan.peak_bytes() <= 640 * MIB);
}

#[test]
fn memory_that_others_hold_is_not_counted_on() {
    let free = planned(&LoadOptions::default(), Some((900, 890))).unwrap();
    let taken = planned(&LoadOptions::default(), Some((900, 600))).unwrap();
    assert!(taken.cached_experts < free.cached_experts);
    assert!(taken.peak_bytes() <= (600 * 9 / 10 + 20) * MIB);
}

#[test]
fn a_cache_of_a_given_size_is_streamed_whatever_would_fit() {
    let options = LoadOptions { cache_bytes: Some(5 * EXPERT + MIB), ..LoadOptions::default() };
    let plan = planned(&options, Some((64_000, 60_000))).unwrap();
    assert_eq!((plan.streaming, plan.reason, plan.cached_experts), (true, PlanReason::CacheGiven, 5));
    let options = LoadOptions { cache_bytes: Some(0), ..LoadOptions::default() };
    assert_eq!(planned(&options, None).unwrap().cached_experts, 2);
}

#[test]
fn a_memory_too_small_for_the_smallest_cache_is_refused_with_the_size_that_works() {
    let error = planned(&given(200), None).unwrap_err();
    let ModelError::TooLarge { needed_mib, usable_mib: 200, .. } = error else { panic!("{error}") };
    assert!(planned(&given(needed_mib), None).is_ok());
    assert!(planned(&given(needed_mib - 2), None).is_err());
}

#[test]
fn a_longer_context_and_wider_cache_type_cost_what_they_say() {
    let of = |n_ctx, cache_type| {
        let options = LoadOptions { n_ctx: Some(n_ctx), cache_type, ..given(600) };
        planned(&options, None).unwrap()
    };
    // 2 layers, keys and values, 128 elements of 2 bytes.
    assert_eq!(of(1024, CacheType::F16).kv_bytes, 1024 * 1024);
    assert_eq!(of(1024, CacheType::F32).kv_bytes, 2 * 1024 * 1024);
    assert_eq!(of(1 << 30, CacheType::F16).n_ctx, 8192);
}

fn dense(place: DensePlace, mib: u64) -> LoadOptions {
    LoadOptions { dense: place, ..given(mib) }
}

#[test]
fn dense_weights_go_to_the_ring_where_memory_cannot_hold_them_and_only_there() {
    // Dense weights are 100 MiB, in the ring 2; the smallest cache, staging and spare buffers are 8 experts.
    let enough = planned(&given(600), None).unwrap();
    assert!(!enough.ring && enough.dense_bytes == 100 * MIB);
    let little = planned(&given(500), None).unwrap();
    assert!(little.ring && little.dense_bytes == 2 * MIB && little.most_bytes() <= 500 * MIB);
    assert!(planned(&dense(DensePlace::Ring, 600), None).unwrap().ring);
    let error = planned(&dense(DensePlace::Resident, 500), None).unwrap_err().to_string();
    assert!(error.contains("keep dense weights in the ring"), "{error}");
    let error = planned(&dense(DensePlace::Ring, 64_000), None).unwrap_err();
    assert!(matches!(error, ModelError::RingWithoutStreaming));
}

#[test]
fn a_text_whose_length_is_known_leaves_memory_to_the_cache() {
    let of = |longest_text, n_ctx| planned(&LoadOptions { longest_text, n_ctx, ..given(700) }, None).unwrap();
    let (unknown, short, asked) = (of(None, None), of(Some(60), None), of(Some(60), Some(2048)));
    assert_eq!((unknown.n_ctx, short.n_ctx, asked.n_ctx), (4096, 60, 2048));
    assert!(short.kv_bytes + short.buffer_bytes < unknown.kv_bytes + unknown.buffer_bytes);
    assert!(short.cached_experts >= unknown.cached_experts);
    assert_eq!(of(Some(100_000), None).n_ctx, 4096);
}

#[test]
fn keys_and_values_of_the_default_context_leave_most_of_a_small_budget_to_the_cache() {
    let options = LoadOptions { cache_type: CacheType::F32, ..given(500) };
    let plan = planned(&options, None).unwrap();
    assert!(plan.n_ctx >= 512 && plan.kv_bytes <= 500 * MIB / 8, "{plan:?}");
}

#[test]
fn buffers_that_are_seldom_needed_are_in_the_budget_and_not_in_the_peak() {
    let plan = planned(&given(600), None).unwrap();
    // Four slots, logits of eight tokens, and 7 MiB by which the program may grow.
    assert_eq!(plan.spare_bytes, 4 * plan.slots.unwrap().slot_bytes as u64 + 8 * 4 * 102_400 + 7 * MIB);
    assert_eq!(plan.most_bytes(), plan.peak_bytes() + plan.spare_bytes);
    assert!(plan.most_bytes() <= 600 * MIB);
}
