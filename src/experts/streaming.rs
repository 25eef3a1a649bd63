//! Experts from the drive, through the store.

use super::prefetch::{PredictionCounts, Predictor, Prefetch};
use super::{Expert, ExpertSource, ExpertsError, Fetch, LayerExperts, WarmFile};
use crate::quant::{TensorType, WeightRows};
use crate::store::policy::PolicyKind;
use crate::store::{Counters, ExpertBytes, ExpertExtent, ExpertTable, FileRange, PageCache, Store, StoreError, Ticket};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How experts are streamed.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamingOptions {
    /// Which experts stay in the cache.
    pub policy: PolicyKind,
    /// Slots for prefetched experts; those that one token uses in a layer where not given.
    pub n_staging: Option<usize>,
    /// Threads that read.
    pub n_io_threads: usize,
    /// Whether what is read stays in the system's page cache too.
    pub page_cache: PageCache,
    /// How experts are predicted.
    pub prefetch: Prefetch,
    /// Most experts prefetched for a layer; those that one token uses where not given.
    pub prefetch_n: Option<usize>,
    /// Folder where it is remembered which experts were hot, to read those first at the next load; nothing is remembered
    /// where not given. It is made when a model that was used is dropped.
    pub warm_folder: Option<PathBuf>,
}

impl Default for StreamingOptions {
    fn default() -> Self {
        Self {
            policy: PolicyKind::default(),
            n_staging: None,
            n_io_threads: 3,
            page_cache: PageCache::default(),
            prefetch: Prefetch::default(),
            prefetch_n: None,
            warm_folder: None,
        }
    }
}

/// What streaming did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamingReport {
    /// The store's counters.
    pub store: Counters,
    /// How good predictions were.
    pub prediction: PredictionCounts,
    /// Whether experts are being prefetched now.
    pub prefetching: bool,
}

/// Serves experts through a store.
#[derive(Debug)]
pub struct Streaming {
    store: Store,
    layers: Vec<LayerExperts>,
    n_used: usize,
    prefetch_n: usize,
    predictor: Mutex<Predictor>,
    warm_file: Option<WarmFile>,
}

/// The extents of all experts, for the store.
///
/// # Errors
/// Where an expert lies beyond what this machine can address.
pub fn expert_table(layers: &[LayerExperts]) -> Result<ExpertTable, StoreError> {
    let extent = |slices: &[crate::gguf::ExpertSlice; 3]| {
        ExpertExtent::new(&slices.map(|slice| FileRange { file: slice.shard, offset: slice.offset, len: slice.bytes }))
    };
    let n_experts = layers.iter().map(|layer| layer.slices.len()).max().unwrap_or(0);
    ExpertTable::new(n_experts, layers.iter().flat_map(|layer| layer.slices.iter().map(extent)).collect())
}

impl Streaming {
    /// Serves `layers`, of which a token uses `n_used` experts each, through `store`.
    pub fn new(store: Store, layers: Vec<LayerExperts>, n_used: usize, options: &StreamingOptions) -> Self {
        let predictor = Mutex::new(Predictor::new(options.prefetch, layers.len()));
        let prefetch_n = options.prefetch_n.unwrap_or(n_used);
        Self { store, layers, n_used, prefetch_n, predictor, warm_file: None }
    }

    /// Begins to read what `file` remembers, behind everything else and into free slots, and lets it remember what is hot
    /// when this is dropped. Without what cannot be read or written it goes on, and only a log tells.
    #[must_use]
    pub fn with_warm_start(mut self, file: WarmFile) -> Self {
        let hot = file.load().unwrap_or_else(|error| {
            tracing::debug!(%error, "no warm start");
            Vec::new()
        });
        for (layer, expert, weight) in hot {
            let exists = self.layers.get(layer).is_some_and(|layer| (expert as usize) < layer.slices.len());
            if exists {
                self.store.warm(layer, expert, weight);
            }
        }
        self.warm_file = Some(file);
        self
    }

    fn predictor(&self) -> MutexGuard<'_, Predictor> {
        // It holds guesses only: whatever a panic left is as good as any.
        self.predictor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expert<'t>(&self, layer: usize, bytes: ExpertBytes<'t>, expert: u32) -> Expert<'t> {
        let slices = &self.layers[layer].slices[expert as usize];
        let rows = |i: usize| WeightRows::new(slices[i].ty, bytes.matrix(i), slices[i].rows, slices[i].cols);
        Expert { gate: rows(0), up: rows(1), down: rows(2) }
    }
}

impl ExpertSource for Streaming {
    fn types(&self, layer: usize) -> [TensorType; 3] {
        self.layers[layer].types
    }

    fn fetch<'a>(
        &'a self,
        layer: usize,
        wanted: &[(u32, u32)],
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Box<dyn Fetch + 'a> {
        // A batch of tokens leaves nothing to predict: it takes most experts of the next layer anyway.
        let hints = if wanted.len() <= self.n_used {
            let experts: Vec<u32> = wanted.iter().map(|(expert, _)| *expert).collect();
            self.predictor().chose(layer, &experts)
        } else {
            self.predictor().interrupted();
            (0, Vec::new())
        };
        let mut resident = vec![false; self.layers[layer].slices.len()];
        self.store.residents(layer, &mut resident);
        // Those in memory first: a miss must not push one of them out before its turn.
        let mut order: Vec<(usize, (u32, u32))> = wanted.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, (expert, _))| !resident[*expert as usize]);
        Box::new(StoreFetch {
            streaming: self,
            layer,
            left: order.into(),
            under_way: Vec::new(),
            given: Vec::new(),
            hints: Some(hints),
            cancelled,
        })
    }

    fn looks_ahead(&self) -> Option<usize> {
        self.predictor().looks_ahead().then_some(self.prefetch_n)
    }

    fn expect(&self, layer: usize, experts: Vec<u32>) {
        self.predictor().expect(layer, experts);
    }

    fn residents(&self, layer: usize, resident: &mut [bool]) {
        self.store.residents(layer, resident);
    }

    fn begin_pass(&self, n_tokens: u32) {
        self.store.begin_pass(n_tokens);
    }

    fn end_pass(&self) {
        self.predictor().end_token();
        self.store.end_token();
    }

    fn predictions(&self) -> Vec<PredictionCounts> {
        self.predictor().counts().to_vec()
    }

    fn report(&self) -> Option<StreamingReport> {
        let predictor = self.predictor();
        let (prediction, prefetching) = (predictor.counts().iter().copied().sum(), predictor.looks_ahead());
        Some(StreamingReport { store: self.store.counters(), prediction, prefetching })
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        // Where nothing was used, there is nothing to add to what is remembered.
        let Some(file) = self.warm_file.as_ref().filter(|_| self.store.counters().accesses > 0) else { return };
        if let Err(error) = file.save(&self.store.hot()) {
            tracing::debug!(%error, "nothing to warm the next start with");
        }
    }
}

/// Experts of a layer on their way.
struct StoreFetch<'a> {
    streaming: &'a Streaming,
    layer: usize,
    /// Not requested yet: index in the caller's list, and expert with its number of tokens.
    left: VecDeque<(usize, (u32, u32))>,
    /// Requested.
    under_way: Vec<(usize, Ticket)>,
    /// Given out by the last call, pinned until the next.
    given: Vec<(usize, Ticket)>,
    /// The next layer's prediction, to be prefetched once this layer's own reads are queued.
    hints: Option<(usize, Vec<u32>)>,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl StoreFetch<'_> {
    /// Requests as many experts as the cache can pin at once, so that reads go on while others are computed.
    fn request(&mut self) -> Result<(), StoreError> {
        let store = &self.streaming.store;
        let room = store.plan().n_slots.saturating_sub(self.under_way.len()).min(self.left.len());
        let next: Vec<(usize, (u32, u32))> = self.left.drain(..room).collect();
        let wanted: Vec<(u32, u32)> = next.iter().map(|(_, wanted)| *wanted).collect();
        let tickets = store.request_each(self.layer, &wanted)?;
        self.under_way.extend(next.iter().map(|(i, _)| *i).zip(tickets));
        if let Some((layer, experts)) = self.hints.take() {
            experts.into_iter().take(self.streaming.prefetch_n).for_each(|expert| _ = store.prefetch(layer, expert));
        }
        Ok(())
    }
}

impl Fetch for StoreFetch<'_> {
    fn ready(&mut self) -> Result<Vec<(usize, Expert<'_>)>, ExpertsError> {
        self.given.clear();
        self.request()?;
        if self.under_way.is_empty() {
            return Ok(Vec::new());
        }
        let store = &self.streaming.store;
        if !self.under_way.iter().any(|(_, ticket)| store.is_ready(ticket)) {
            let tickets: Vec<&Ticket> = self.under_way.iter().map(|(_, ticket)| ticket).collect();
            store.wait_any(&tickets, self.cancelled)?;
        }
        let (ready, under_way) = self.under_way.drain(..).partition(|(_, ticket)| store.is_ready(ticket));
        (self.given, self.under_way) = (ready, under_way);
        self.given.sort_by_key(|(i, _)| *i);
        let mut experts = Vec::with_capacity(self.given.len());
        for (i, ticket) in &self.given {
            let bytes = store.wait(ticket, self.cancelled)?;
            experts.push((*i, self.streaming.expert(self.layer, bytes, ticket.expert())));
        }
        Ok(experts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::ExpertSlice;
    use crate::store::{Budget, Reader, StoreOptions};
    use std::path::Path;
    use std::sync::Arc;

    struct Zeros;

    impl Reader for Zeros {
        fn read_at(&self, _: usize, _: u64, buf: &mut [u8]) -> std::io::Result<usize> {
            buf.fill(0);
            Ok(buf.len())
        }
        fn alignment(&self) -> usize {
            1
        }
        fn path(&self, _: usize) -> &Path {
            Path::new("zeros")
        }
    }

    /// One layer of 4 experts, of which a token uses 2; all fit in the cache.
    fn streaming() -> Streaming {
        let slice = |i: u64| ExpertSlice { shard: 0, offset: 16 * i, bytes: 16, ty: TensorType::F32, rows: 2, cols: 2 };
        let slices = (0..4).map(|expert| [0, 1, 2].map(|matrix| slice(3 * expert + matrix))).collect();
        let layers = vec![LayerExperts { types: [TensorType::F32; 3], slices }];
        let options = StoreOptions::new(Budget::Cache(1 << 20), 2);
        let store = Store::new(Arc::new(Zeros), expert_table(&layers).unwrap(), &options).unwrap();
        Streaming::new(store, layers, 2, &StreamingOptions::default())
    }

    fn pass(streaming: &Streaming, n_tokens: u32, wanted: &[(u32, u32)]) {
        streaming.begin_pass(n_tokens);
        let mut fetch = streaming.fetch(0, wanted, &|| false);
        let mut n = 0;
        while n < wanted.len() {
            n += fetch.ready().unwrap().len();
        }
        drop(fetch);
        streaming.end_pass();
    }

    #[test]
    fn a_pass_of_many_tokens_counts_as_many_for_the_policy() {
        let (at_once, one_by_one) = (streaming(), streaming());
        pass(&at_once, 3, &[(0, 3), (1, 1), (2, 2)]);
        [[(0, 1), (2, 1)], [(0, 1), (1, 1)], [(0, 1), (2, 1)]].iter().for_each(|wanted| pass(&one_by_one, 1, wanted));
        let uses = |streaming: &Streaming| {
            let mut hot = streaming.store.hot();
            hot.sort_by_key(|(_, expert, _)| *expert);
            hot.into_iter().map(|(_, _, uses)| uses).collect::<Vec<f32>>()
        };
        assert_eq!(uses(&at_once).len(), 3);
        for (a, b) in uses(&at_once).into_iter().zip(uses(&one_by_one)) {
            // A pass spreads its choices evenly over its tokens.
            assert!((a / b - 1.0).abs() < 0.01, "{a} and {b}");
        }
    }
}
