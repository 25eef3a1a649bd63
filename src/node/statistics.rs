//! Where a model's bytes are and what it did so far, as JavaScript sees it.

use super::shapes::{MemoryPlan, ModelCounts, RingCounts, StoreCounts, Substitutions};
use crate::experts::StreamingReport;
use crate::model::{self, Model, PlanReason, RingReport};
use crate::routing;

impl From<&Model> for ModelCounts {
    fn from(model: &Model) -> Self {
        Self {
            plan: model.plan().into(),
            tokens: model.n_tokens() as i64,
            store: model.streaming_report().map(StoreCounts::from),
            ring: model.ring_report().map(RingCounts::from),
            substitutions: model.substitutions().map(Substitutions::from),
        }
    }
}

impl From<&model::MemoryPlan> for MemoryPlan {
    fn from(plan: &model::MemoryPlan) -> Self {
        let reason = match plan.reason {
            PlanReason::FitsBudget => "fits-budget",
            PlanReason::FitsMemory => "fits-memory",
            PlanReason::TooLarge => "too-large",
            PlanReason::CacheGiven => "cache-size",
        };
        Self {
            streaming: plan.streaming,
            reason: reason.to_owned(),
            explanation: plan.reason.text().to_owned(),
            budget_bytes: plan.budget_bytes.map(|bytes| bytes as i64),
            dense: if plan.ring { "ring" } else { "resident" }.to_owned(),
            dense_bytes: plan.dense_bytes as i64,
            expert_bytes: plan.expert_bytes as i64,
            spare_bytes: plan.spare_bytes as i64,
            cached_experts: plan.cached_experts as i64,
            n_experts: plan.n_experts as i64,
            cached_share: plan.cached_share(),
            context_length: plan.n_ctx as i64,
            batch_tokens: plan.batch_tokens as i64,
            kv_bytes: plan.kv_bytes as i64,
            buffer_bytes: plan.buffer_bytes as i64,
            process_bytes: plan.process_bytes as i64,
            predicted_peak_bytes: plan.peak_bytes() as i64,
        }
    }
}

impl From<RingReport> for RingCounts {
    fn from(report: RingReport) -> Self {
        Self { read_bytes: report.read_bytes as i64, wait_us: report.wait_us as i64 }
    }
}

impl From<StreamingReport> for StoreCounts {
    fn from(report: StreamingReport) -> Self {
        let StreamingReport { store, prediction, prefetching } = report;
        Self {
            accesses: store.accesses as i64,
            hits: store.hits as i64,
            staging_hits: store.staging_hits as i64,
            misses: store.misses as i64,
            bypasses: store.bypasses as i64,
            prefetches: store.prefetches as i64,
            late_prefetches: store.late_prefetches as i64,
            wasted_prefetches: store.wasted_prefetches as i64,
            cancelled_prefetches: store.cancelled_prefetches as i64,
            admission_rejects: store.admission_rejects as i64,
            evictions: store.evictions as i64,
            demand_bytes: store.demand_bytes as i64,
            prefetch_bytes: store.prefetch_bytes as i64,
            warm_bytes: store.warm_bytes as i64,
            warmed: store.warmed as i64,
            failed_reads: store.failed_reads as i64,
            read_us: store.read_us as i64,
            wait_us: store.wait_us as i64,
            predicted: prediction.predicted as i64,
            confirmed: prediction.confirmed as i64,
            chosen: prediction.chosen as i64,
            prefetching,
        }
    }
}

impl From<routing::Substitutions> for Substitutions {
    fn from(counts: routing::Substitutions) -> Self {
        Self {
            slots: counts.slots as i64,
            substituted: counts.substituted as i64,
            dropped_mass: counts.dropped_mass,
            largest_gap: f64::from(counts.largest_gap),
        }
    }
}
