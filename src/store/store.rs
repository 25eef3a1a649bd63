//! The store's face: requests, waits, hints.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::arena::Arena;
use super::counters::Counters;
use super::extent::ExpertTable;
use super::io::{ALIGNMENT, Reader};
use super::plan::{Budget, Plan};
use super::policy::PolicyKind;
use super::shared::Shared;
use super::state::{Outcome, State, Wake};
use super::sync::{Builder, JoinHandle};
use super::ticket::{ExpertBytes, Served, Ticket};
use super::{StoreError, worker};

/// How a store is made.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Memory for experts.
    pub budget: Budget,
    /// Experts that one token uses in a layer. The cache never has fewer slots.
    pub n_experts_used: usize,
    /// Slots for prefetched experts; 0 makes every hint do nothing.
    pub n_staging: usize,
    /// Which experts stay.
    pub policy: PolicyKind,
    /// Threads that read, 1 to [`Store::MAX_IO_THREADS`].
    pub n_io_threads: usize,
}

impl StoreOptions {
    /// Options with defaults: as many staging slots as one token uses experts in a layer, the default policy, 3 I/O
    /// threads.
    pub fn new(budget: Budget, n_experts_used: usize) -> Self {
        let policy = PolicyKind::default();
        Self { budget, n_experts_used, n_staging: n_experts_used, policy, n_io_threads: 3 }
    }
}

/// Serves experts from files, in memory that does not grow.
///
/// May be used from several threads at once. Dropping it ends its I/O threads, after the calls that they are in; its
/// memory goes when the last ticket is gone as well.
pub struct Store {
    shared: Arc<Shared>,
    plan: Plan,
    threads: Vec<JoinHandle<()>>,
}

impl Store {
    /// Most I/O threads.
    pub const MAX_IO_THREADS: usize = 16;

    /// Makes a store for `experts`, whose files `reader` reads. Nothing is read yet.
    ///
    /// # Errors
    /// If the system has no room for the arena or refuses a thread, or the number of threads is out of range.
    ///
    /// # Panics
    /// If the reader's alignment is not a power of two up to [`ALIGNMENT`].
    pub fn new(reader: Arc<dyn Reader>, experts: ExpertTable, options: &StoreOptions) -> Result<Self, StoreError> {
        let StoreOptions { budget, n_experts_used, n_staging, policy, n_io_threads } = options.clone();
        if !(1..=Self::MAX_IO_THREADS).contains(&n_io_threads) {
            return Err(StoreError::IoThreads { found: n_io_threads, most: Self::MAX_IO_THREADS });
        }
        let alignment = reader.alignment();
        assert!(alignment.is_power_of_two() && alignment <= ALIGNMENT, "alignment {alignment} is not supported");

        let plan = Plan::for_alignment(&experts, budget, n_experts_used, n_staging, alignment);
        let arena = Arena::new(plan.n_buffers(), plan.slot_bytes)
            .map_err(|source| StoreError::Memory { bytes: plan.arena_bytes(), source })?;
        let (arena, experts) = (Arc::new(arena), Arc::new(experts));
        let state = State::new(Arc::clone(&experts), Arc::clone(&arena), alignment, policy, &plan, n_io_threads);
        let mut store =
            Self { shared: Arc::new(Shared::new(experts, arena, reader, state)), plan, threads: Vec::new() };
        for number in 0..n_io_threads {
            let shared = Arc::clone(&store.shared);
            // On an error the store is dropped, which ends the threads that run already.
            let thread = Builder::new()
                .name(format!("clutor-io-{number}"))
                .spawn(move || worker::run(&shared))
                .map_err(|source| StoreError::Thread { source })?;
            store.threads.push(thread);
        }
        Ok(store)
    }

    /// The slots that it has.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Requests an expert: pins it, and queues its reads if it is absent. Blocks only if every buffer is taken and some
    /// of them by reads that nobody wants any more, until those have ended.
    ///
    /// Of the experts that a layer needs, request those first that are [`resident`](Self::resident), so that a miss cannot
    /// evict one of them; [`request_all`](Self::request_all) does so.
    ///
    /// # Errors
    /// [`StoreError::AllPinned`] if tickets hold all buffers.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn request(&self, layer: usize, expert: u32) -> Result<Ticket, StoreError> {
        self.request_for(layer, expert, 1)
    }

    /// As [`request`](Self::request), for an expert that `n_tokens` tokens of the pass chose.
    ///
    /// # Errors
    /// # Panics
    /// As [`request`](Self::request).
    pub fn request_for(&self, layer: usize, expert: u32, n_tokens: u32) -> Result<Ticket, StoreError> {
        let tickets = self.request_each(layer, &[(expert, n_tokens)])?;
        match tickets.into_iter().next() {
            Some(ticket) => Ok(ticket),
            None => unreachable!("one ticket for each expert"),
        }
    }

    /// Requests `experts` of a layer, those first that are in memory already. Tickets are in the order of `experts`.
    ///
    /// # Errors
    /// [`StoreError::AllPinned`] if there are not enough buffers; then none of them stays requested.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn request_all(&self, layer: usize, experts: &[u32]) -> Result<Vec<Ticket>, StoreError> {
        let choices: Vec<(u32, u32)> = experts.iter().map(|&expert| (expert, 1)).collect();
        self.request_each(layer, &choices)
    }

    /// As [`request_all`](Self::request_all), of `(expert, n_tokens)`: with how many tokens of the pass chose each.
    ///
    /// # Errors
    /// # Panics
    /// As [`request_all`](Self::request_all).
    pub fn request_each(&self, layer: usize, choices: &[(u32, u32)]) -> Result<Vec<Ticket>, StoreError> {
        let keys: Vec<(u32, u32)> =
            choices.iter().map(|&(expert, n_tokens)| (self.shared.experts.key(layer, expert), n_tokens)).collect();
        // Declared before the guard: tickets lock the state when they are dropped.
        let mut tickets: Vec<Option<Ticket>> = keys.iter().map(|_| None).collect();
        let mut queued = false;
        let mut state = self.shared.lock();
        for only_present in [true, false] {
            for (&(key, n_tokens), ticket) in keys.iter().zip(&mut tickets) {
                if ticket.is_some() || (only_present && !state.is_present(key)) {
                    continue;
                }
                let (slot, served) = loop {
                    if let Some(found) = state.request(key, n_tokens) {
                        break found;
                    }
                    // Whatever becomes of this call, others may have joined the reads that it has queued.
                    self.shared.wake_readers();
                    if !state.has_unwanted_reads() {
                        return Err(StoreError::AllPinned { n_buffers: self.plan.n_buffers() });
                    }
                    state = self.shared.sleep(state);
                };
                queued |= matches!(served, Served::Miss | Served::Bypass);
                *ticket = Some(Ticket::new(Arc::clone(&self.shared), slot, key, served));
            }
        }
        drop(state);
        if queued {
            self.shared.wake_readers();
        }
        Ok(tickets.into_iter().flatten().collect())
    }

    /// Blocks until the expert of `ticket` is there, and lends its bytes.
    ///
    /// `cancelled` is asked every few milliseconds while it blocks, and at least once before.
    ///
    /// # Errors
    /// If the read failed: every ticket of that read hears of it, and a new request reads again.
    /// [`StoreError::Cancelled`] if `cancelled` said so. Nothing stays pinned once the ticket is dropped.
    ///
    /// # Panics
    /// If the ticket is another store's.
    pub fn wait<'t>(&self, ticket: &'t Ticket, cancelled: &dyn Fn() -> bool) -> Result<ExpertBytes<'t>, StoreError> {
        self.check(ticket);
        if let Some(bytes) = ticket.seen() {
            return Ok(bytes);
        }
        match self.shared.wait_for(cancelled, |state| state.outcome(ticket.slot()))? {
            Outcome::Ready => Ok(ticket.see()),
            Outcome::Failed(failure) => Err(self.shared.error(ticket.key(), failure)),
        }
    }

    /// Blocks until the expert of one of `tickets` is there, and gives its index; the first one's if several are.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); a read that failed counts if no expert is there.
    ///
    /// # Panics
    /// If there are no tickets, or one is another store's.
    pub fn wait_any(&self, tickets: &[impl Borrow<Ticket>], cancelled: &dyn Fn() -> bool) -> Result<usize, StoreError> {
        assert!(!tickets.is_empty(), "there is nothing to wait for");
        tickets.iter().for_each(|ticket| self.check(ticket.borrow()));
        let (index, outcome) = self.shared.wait_for(cancelled, |state| {
            let mut failed = None;
            for (index, ticket) in tickets.iter().enumerate() {
                match state.outcome(ticket.borrow().slot()) {
                    Some(Outcome::Ready) => return Some((index, Outcome::Ready)),
                    Some(outcome) => failed = failed.or(Some((index, outcome))),
                    None => {}
                }
            }
            failed
        })?;
        match outcome {
            Outcome::Ready => Ok(index),
            Outcome::Failed(failure) => Err(self.shared.error(tickets[index].borrow().key(), failure)),
        }
    }

    /// Whether [`wait`](Self::wait) would return at once, with the bytes or with an error.
    ///
    /// # Panics
    /// If the ticket is another store's.
    pub fn is_ready(&self, ticket: &Ticket) -> bool {
        self.check(ticket);
        ticket.seen().is_some() || self.shared.lock().outcome(ticket.slot()).is_some()
    }

    /// Hints that an expert may be requested soon. Says whether that queued a read: not if it is in memory or on its way,
    /// or no staging slot is free.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn prefetch(&self, layer: usize, expert: u32) -> bool {
        let key = self.shared.experts.key(layer, expert);
        let queued = self.shared.lock().prefetch(key);
        if queued {
            self.shared.wake_readers();
        }
        queued
    }

    /// Takes back the hints whose reads have not begun.
    pub fn cancel_prefetches(&self) {
        self.shared.lock().cancel_prefetches();
        self.shared.wake(Wake::Waiters);
    }

    /// Whether an expert is in memory and fully read, right now.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn resident(&self, layer: usize, expert: u32) -> bool {
        let key = self.shared.experts.key(layer, expert);
        self.shared.lock().is_resident(key)
    }

    /// Which experts of a layer are [`resident`](Self::resident), all at one moment: sets `resident`, `[n_experts]`.
    ///
    /// # Panics
    /// If there is no such layer, or `resident` has another length.
    pub fn residents(&self, layer: usize, resident: &mut [bool]) {
        let experts = &self.shared.experts;
        assert!(layer < experts.n_layers() && resident.len() == experts.n_experts(), "one flag for each expert");
        let state = self.shared.lock();
        let first = (layer * experts.n_experts()) as u32;
        for (key, resident) in (first..).zip(resident) {
            *resident = state.is_resident(key);
        }
    }

    /// Tells an idle cache what an earlier run used ([`hot`](Self::hot)): queues the reads of an expert behind all others,
    /// if a slot of the cache is free. Says whether it did. Requests that find no room take such reads back, and during a
    /// pass at most one thread reads for this, while nothing else is being read.
    ///
    /// # Panics
    /// If there is no such expert, or `weight` is negative or not finite.
    pub fn warm(&self, layer: usize, expert: u32, weight: f32) -> bool {
        let key = self.shared.experts.key(layer, expert);
        let queued = self.shared.lock().warm(key, weight);
        if queued {
            self.shared.wake_readers();
        }
        queued
    }

    /// Experts by falling use, as (layer, expert, weight): what [`warm`](Self::warm) takes at the next start.
    pub fn hot(&self) -> Vec<(usize, u32, f32)> {
        let hot = self.shared.lock().hot();
        let place = |(key, weight)| {
            let (layer, expert) = self.shared.experts.place(key);
            (layer, expert, weight)
        };
        hot.into_iter().map(place).collect()
    }

    /// Tells the policy that the coming requests are for `n_tokens` tokens at once, until [`end_token`](Self::end_token).
    ///
    /// # Panics
    /// If there are no tokens.
    pub fn begin_pass(&self, n_tokens: u32) {
        self.shared.lock().begin_pass(n_tokens);
    }

    /// Tells the policy that a pass through the layers is done, one token's unless [`begin_pass`](Self::begin_pass) said
    /// otherwise: its clock.
    pub fn end_token(&self) {
        let for_more = self.shared.lock().end_token();
        if for_more {
            self.shared.wake_readers();
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters()
    }

    fn check(&self, ticket: &Ticket) {
        assert!(ticket.is_of(&self.shared), "the ticket is another store's");
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("plan", &self.plan)
            .field("n_io_threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // An I/O thread catches all panics, so there is no error to lose.
            let _never = thread.join();
        }
    }
}
