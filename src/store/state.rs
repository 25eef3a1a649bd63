//! What the store's mutex guards: the policy, the slots and the reads that wait. Never reads, never blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use super::arena::{Arena, Fill};
use super::counters::Counters;
use super::extent::{ExpertTable, Span};
use super::io::Cause;
use super::plan::Plan;
use super::policy::{Access, Cache, PolicyKind};
use super::ticket::Served;

/// The book-keeping of a store.
///
/// A slot is *held* by each of its tickets and by its read. The policy's pin goes with that: a slot is pinned there as
/// long as anything holds it, so neither what is used nor what is being read is ever evicted.
pub(super) struct State {
    experts: Arc<ExpertTable>,
    arena: Arc<Arena>,
    alignment: usize,
    cache: Cache,
    /// First those that the policy deals in, then the bypass buffers.
    slots: Box<[Slot]>,
    /// How many of `slots` the policy deals in.
    n_pool: usize,
    /// Reads that no thread has taken yet, by [`Purpose`].
    queues: [VecDeque<Job>; 3],
    /// Reads that threads are at, by the [`Purpose`] of the queue that they came from.
    n_reading: [usize; 3],
    /// Most threads that read for the warm start at a time.
    most_warming: usize,
    /// Something was requested since the last pass ended.
    in_pass: bool,
    stopping: bool,
    counters: Counters,
}

struct Slot {
    /// The expert in it; meaningless while it is empty.
    key: u32,
    n_tickets: usize,
    phase: Phase,
}

enum Phase {
    Empty,
    Reading(Reading),
    Ready,
    /// Only while tickets are out: they have not heard of it yet.
    Failed(ReadFailure),
}

struct Reading {
    /// Ranges that are not done yet, those that wait included.
    n_pending: usize,
    /// Whether a thread has taken one of them.
    begun: bool,
    /// What queued it.
    purpose: Purpose,
    failure: Option<ReadFailure>,
}

/// What a read is for. Threads serve the first of these first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Demand,
    Prefetch,
    /// What was hot when the model was last used.
    Warm,
}

/// A range that could not be read.
#[derive(Clone, Debug)]
pub(super) struct ReadFailure {
    /// Number of the file.
    pub(super) file: usize,
    pub(super) cause: Cause,
}

/// One read that waits or is going on.
pub(super) struct Job {
    slot: usize,
    /// The queue that it is in or was taken from.
    purpose: Purpose,
    pub(super) span: Span,
    /// Where the bytes go.
    pub(super) fill: Fill,
}

/// A read that has ended, well or not.
pub(super) struct Done {
    slot: usize,
    purpose: Purpose,
}

/// What became of the expert in a slot so far.
pub(super) enum Outcome {
    Ready,
    Failed(ReadFailure),
}

/// What a change means for those who sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Nobody,
    /// An expert is there or has failed, or room has come free.
    Waiters,
}

impl State {
    pub(super) fn new(
        experts: Arc<ExpertTable>,
        arena: Arc<Arena>,
        alignment: usize,
        policy: PolicyKind,
        plan: &Plan,
        n_io_threads: usize,
    ) -> Self {
        let cache = Cache::new(policy, experts.n_layers(), experts.n_experts(), plan.n_slots, plan.n_staging);
        let empty = || Slot { key: 0, n_tickets: 0, phase: Phase::Empty };
        Self {
            experts,
            arena,
            alignment,
            cache,
            slots: (0..plan.n_buffers()).map(|_| empty()).collect(),
            n_pool: plan.n_slots + plan.n_staging,
            queues: Default::default(),
            n_reading: [0; 3],
            // A request that comes finds a thread free, so that none of its reads waits for one of these.
            most_warming: n_io_threads.saturating_sub(1).max(1),
            in_pass: false,
            stopping: false,
            counters: Counters::default(),
        }
    }

    /// Pins an expert for a new ticket of `n_tokens` tokens, and queues its reads where it is absent. `None` where no buffer
    /// is free.
    pub(super) fn request(&mut self, key: u32, n_tokens: u32) -> Option<(usize, Served)> {
        self.in_pass = true;
        let (slot, served) = match self.bypass_with(key) {
            Some(slot) => (slot, Served::Hit),
            None => self.access(key, n_tokens)?,
        };
        let served = match (&self.slots[slot].phase, served) {
            // Others have yet to hear that the last read failed; this request tries again, and they may gain by it.
            (Phase::Failed(_), _) => Served::Miss,
            (Phase::Reading(_), Served::Staged) => Served::LatePrefetch,
            (_, served) => served,
        };
        self.counters.accesses += 1;
        match served {
            Served::Hit => self.counters.hits += 1,
            Served::Staged => self.counters.staging_hits += 1,
            Served::LatePrefetch => {
                self.counters.staging_hits += 1;
                self.counters.late_prefetches += 1;
            }
            Served::Miss => self.counters.misses += 1,
            Served::Bypass => self.counters.bypasses += 1,
        }
        if matches!(served, Served::Miss | Served::Bypass) {
            self.begin(slot, key, Purpose::Demand);
        } else if matches!(self.slots[slot].phase, Phase::Reading(_)) {
            self.raise(slot);
        }
        self.change_holds(slot, |slot| slot.n_tickets += 1);
        Some((slot, served))
    }

    /// Asks the policy for an expert's slot, and falls back on a bypass buffer.
    fn access(&mut self, key: u32, n_tokens: u32) -> Option<(usize, Served)> {
        loop {
            return match self.cache.access_for(key, n_tokens) {
                Access::Hit(slot) => Some((slot, Served::Hit)),
                Access::Staged(slot) => Some((slot, Served::Staged)),
                Access::Miss { slot, .. } => Some((slot, Served::Miss)),
                // Asked twice, the policy counts one use too many; that is rare, and better than a warm start in the way.
                Access::Bypass if self.give_up_warm() => continue,
                Access::Bypass => Some((self.free_bypass()?, Served::Bypass)),
            };
        }
    }

    /// Queues the reads of an absent expert into a staging slot, if there is room. Says whether it did.
    pub(super) fn prefetch(&mut self, key: u32) -> bool {
        if self.is_present(key) {
            return false;
        }
        let Some(slot) = self.cache.stage(key) else { return false };
        self.counters.prefetches += 1;
        self.begin(slot, key, Purpose::Prefetch);
        true
    }

    /// Tells the policy how much an expert was used before, and queues its reads behind all others, if a slot of the cache
    /// is free. Says whether it did.
    pub(super) fn warm(&mut self, key: u32, weight: f32) -> bool {
        if self.bypass_with(key).is_some() {
            return false;
        }
        let Some(slot) = self.cache.warm(key, weight) else { return false };
        self.begin(slot, key, Purpose::Warm);
        true
    }

    /// Keys by falling use, with how often they were used lately.
    pub(super) fn hot(&self) -> Vec<(u32, f32)> {
        self.cache.hot()
    }

    /// Takes back the prefetches that no thread has begun to read and nobody has requested.
    pub(super) fn cancel_prefetches(&mut self) {
        // A request moves an expert's reads to another queue, so these belong to nobody.
        while let Some(slot) = self.last_unbegun(Purpose::Prefetch) {
            self.counters.cancelled_prefetches += 1;
            self.abandon(slot);
        }
    }

    /// Ends a ticket. Reads that nobody waits for any more are taken back, if none has begun.
    pub(super) fn release(&mut self, slot: usize) -> Wake {
        let last = self.slots[slot].n_tickets == 1;
        let unbegun = matches!(self.slots[slot].phase, Phase::Reading(Reading { begun: false, .. }));
        self.change_holds(slot, |slot| slot.n_tickets -= 1);
        if last && unbegun {
            self.abandon(slot);
            return Wake::Waiters;
        }
        Wake::Nobody
    }

    /// The next read for an I/O thread, by purpose and then by age.
    ///
    /// Between passes all threads but one may read for the warm start. During one, a single thread does, and only while
    /// nothing else is being read: a request finds the other threads free and the drive all but idle.
    pub(super) fn next_job(&mut self) -> Option<Job> {
        let [demand, prefetch, warm] = &mut self.queues;
        let may_warm = match self.in_pass {
            true => self.n_reading == [0; 3],
            false => self.n_reading[Purpose::Warm as usize] < self.most_warming,
        };
        let job = demand.pop_front().or_else(|| prefetch.pop_front());
        let job = job.or_else(|| if may_warm { warm.pop_front() } else { None })?;
        self.n_reading[job.purpose as usize] += 1;
        match &mut self.slots[job.slot].phase {
            Phase::Reading(reading) => reading.begun = true,
            _ => unreachable!("only slots that are being read have reads in the queues"),
        }
        Some(job)
    }

    /// Books a read as done; `read` gives its bytes. The loan of the memory must have ended.
    pub(super) fn finish(&mut self, done: Done, read: Result<u64, ReadFailure>, read_us: u64) -> Wake {
        let Done { slot, purpose } = done;
        self.n_reading[purpose as usize] -= 1;
        self.counters.read_us += read_us;
        let Phase::Reading(reading) = &mut self.slots[slot].phase else {
            unreachable!("a slot stays in reading until its last read is done")
        };
        reading.n_pending -= 1;
        match read {
            Ok(bytes) => match reading.purpose {
                Purpose::Demand => self.counters.demand_bytes += bytes,
                Purpose::Prefetch => self.counters.prefetch_bytes += bytes,
                Purpose::Warm => self.counters.warm_bytes += bytes,
            },
            Err(failure) => {
                reading.failure.get_or_insert(failure);
                reading.n_pending -= drop_jobs(&mut self.queues, slot);
            }
        }
        if reading.n_pending > 0 {
            return Wake::Nobody;
        }
        let phase = match reading.failure.take() {
            None => {
                self.counters.warmed += u64::from(reading.purpose == Purpose::Warm);
                Phase::Ready
            }
            Some(failure) => {
                self.counters.failed_reads += 1;
                Phase::Failed(failure)
            }
        };
        self.change_holds(slot, |slot| slot.phase = phase);
        Wake::Waiters
    }

    /// What became of the expert in a slot that a ticket pins; `None` while it is being read.
    pub(super) fn outcome(&self, slot: usize) -> Option<Outcome> {
        match &self.slots[slot].phase {
            Phase::Ready => Some(Outcome::Ready),
            Phase::Failed(failure) => Some(Outcome::Failed(failure.clone())),
            Phase::Reading(_) => None,
            Phase::Empty => unreachable!("a slot with a ticket is not empty"),
        }
    }

    /// Whether an expert is in memory, or on its way there.
    pub(super) fn is_present(&self, key: u32) -> bool {
        self.cache.find(key).is_some() || self.bypass_with(key).is_some()
    }

    /// Whether an expert is in the cache or staged, and fully read.
    pub(super) fn is_resident(&self, key: u32) -> bool {
        self.cache.find(key).is_some_and(|slot| self.is_ready(slot))
    }

    /// Whether reads are going on that nobody has a ticket for. When they are done, they make room.
    pub(super) fn has_unwanted_reads(&self) -> bool {
        self.slots.iter().any(|slot| slot.n_tickets == 0 && matches!(slot.phase, Phase::Reading(_)))
    }

    pub(super) fn begin_pass(&mut self, n_tokens: u32) {
        self.cache.begin_pass(n_tokens);
    }

    /// Ends a pass. Says whether there are reads that more threads may take now.
    pub(super) fn end_token(&mut self) -> bool {
        self.cache.end_token();
        self.in_pass = false;
        !self.queues[Purpose::Warm as usize].is_empty()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Drops the reads that wait; from now on no thread gets any.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.queues.iter_mut().for_each(VecDeque::clear);
    }

    pub(super) fn add_wait_us(&mut self, wait_us: u64) {
        self.counters.wait_us += wait_us;
    }

    pub(super) fn counters(&self) -> Counters {
        let policy = self.cache.statistics();
        Counters {
            wasted_prefetches: policy.wasted,
            admission_rejects: policy.rejected,
            evictions: policy.evicted,
            ..self.counters
        }
    }

    fn is_ready(&self, slot: usize) -> bool {
        matches!(self.slots[slot].phase, Phase::Ready)
    }

    /// The bypass buffer that holds an expert, or is to.
    fn bypass_with(&self, key: u32) -> Option<usize> {
        let holds = |slot: &usize| self.slots[*slot].key == key && !matches!(self.slots[*slot].phase, Phase::Empty);
        (self.n_pool..self.slots.len()).find(holds)
    }

    fn free_bypass(&self) -> Option<usize> {
        (self.n_pool..self.slots.len()).find(|slot| matches!(self.slots[*slot].phase, Phase::Empty))
    }

    /// Queues the reads that bring an expert into a slot that nothing reads or uses.
    fn begin(&mut self, slot: usize, key: u32, purpose: Purpose) {
        let spans: Vec<Span> = self.experts.extent(key).spans(self.alignment).collect();
        let places: Vec<_> = spans.iter().map(|span| span.slot.clone()).collect();
        let fills = self.arena.fill(slot, &places);
        let reading = Reading { n_pending: spans.len(), begun: false, purpose, failure: None };
        self.slots[slot].key = key;
        self.change_holds(slot, |slot| slot.phase = Phase::Reading(reading));
        let jobs = spans.into_iter().zip(fills).map(|(span, fill)| Job { slot, purpose, span, fill });
        self.queues[purpose as usize].extend(jobs);
    }

    /// Moves the waiting reads of a slot to those that are demanded.
    fn raise(&mut self, slot: usize) {
        let [demand, others @ ..] = &mut self.queues;
        for queue in others {
            demand.extend(take_jobs(queue, slot).map(|job| Job { purpose: Purpose::Demand, ..job }));
        }
    }

    /// Takes back the reads of a slot, none of which has begun, and empties it.
    fn abandon(&mut self, slot: usize) {
        drop_jobs(&mut self.queues, slot);
        self.change_holds(slot, |slot| slot.phase = Phase::Empty);
    }

    /// Takes back the last read of the warm start that has not begun, to make room. Says whether there was one.
    fn give_up_warm(&mut self) -> bool {
        let last = self.last_unbegun(Purpose::Warm);
        last.inspect(|slot| self.abandon(*slot)).is_some()
    }

    /// The slot of the last read in a queue of which no range has begun.
    fn last_unbegun(&self, purpose: Purpose) -> Option<usize> {
        let unbegun = |slot: &usize| matches!(self.slots[*slot].phase, Phase::Reading(Reading { begun: false, .. }));
        self.queues[purpose as usize].iter().rev().map(|job| job.slot).find(unbegun)
    }

    /// Changes what holds a slot, and keeps the policy's pin in step. A slot that nothing holds any more is given back
    /// unless its bytes are worth keeping.
    fn change_holds(&mut self, slot: usize, change: impl FnOnce(&mut Slot)) {
        let of_policy = slot < self.n_pool;
        let place = &mut self.slots[slot];
        let before = place.is_held();
        change(place);
        match (before, place.is_held()) {
            (false, true) if of_policy => self.cache.pin(slot),
            (true, false) if of_policy => {
                self.cache.unpin(slot);
                if !matches!(place.phase, Phase::Ready) {
                    place.phase = Phase::Empty;
                    self.cache.discard(place.key);
                }
            }
            (true, false) => place.phase = Phase::Empty,
            _ => {}
        }
    }
}

impl Slot {
    fn is_held(&self) -> bool {
        self.n_tickets > 0 || matches!(self.phase, Phase::Reading(_))
    }
}

/// Takes the reads of a slot out of a queue. They are neighbours: they are queued and moved together.
fn take_jobs(queue: &mut VecDeque<Job>, slot: usize) -> impl Iterator<Item = Job> {
    let start = queue.iter().position(|job| job.slot == slot).unwrap_or(queue.len());
    let n_jobs = queue.iter().skip(start).take_while(|job| job.slot == slot).count();
    queue.drain(start..start + n_jobs)
}

/// Drops the reads of a slot that wait, and says how many those were.
fn drop_jobs(queues: &mut [VecDeque<Job>], slot: usize) -> usize {
    queues.iter_mut().map(|queue| take_jobs(queue, slot).count()).sum()
}

impl Job {
    /// Ends the loan of the memory.
    pub(super) fn end(self) -> Done {
        Done { slot: self.slot, purpose: self.purpose }
    }
}
