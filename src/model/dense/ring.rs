//! Dense tensors two parts at a time: one that is computed with, and the next one, on its way from the drive.

use super::Bytes;
use super::parts::Parts;
use super::read::{Cause, fill, read_exact};
use crate::gguf::TensorInfo;
use crate::model::weights::Matrix;
use crate::model::{ForwardError, ModelError};
use crate::store::Reader;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use memmap2::MmapMut;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Dense tensors that are read anew in every pass.
///
/// A thread reads. Memory goes to it with the number of a part and comes back filled, so nobody shares it.
#[derive(Debug)]
pub struct Ring {
    source: Source,
    /// Passes take turns.
    state: Mutex<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Source {
    reader: Arc<dyn Reader>,
    parts: Arc<Parts>,
}

/// What the ring did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingReport {
    /// Bytes read.
    pub read_bytes: u64,
    /// Time in which the computation waited for reads, in microseconds.
    pub wait_us: u64,
}

#[derive(Debug)]
struct State {
    /// Absent once the ring is being dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    free: Vec<MmapMut>,
    /// The part that is computed with.
    current: Option<(usize, MmapMut)>,
    /// A part that was read ahead.
    ahead: Option<(usize, MmapMut)>,
    /// A part that is being read.
    under_way: Option<usize>,
    report: RingReport,
}

#[derive(Debug)]
struct Job {
    part: usize,
    memory: MmapMut,
}

#[derive(Debug)]
struct Done {
    part: usize,
    memory: MmapMut,
    read: Result<u64, Failure>,
}

#[derive(Debug)]
enum Failure {
    Read { shard: usize, cause: Cause },
    Panicked,
}

/// Parts in memory at once.
const N_SLOTS: usize = 2;
/// How often a wait asks whether it is still wanted.
const ASK_EVERY: Duration = Duration::from_millis(5);

impl Ring {
    /// Bytes of memory that a ring for `parts` takes.
    pub fn bytes_for(parts: &Parts) -> u64 {
        (N_SLOTS * parts.slot_bytes()) as u64
    }

    /// A ring for `parts`, whose files `reader` reads. It begins with the first part at once.
    ///
    /// # Errors
    /// Where the system has no memory or no thread for it.
    pub fn new(reader: Arc<dyn Reader>, parts: Parts) -> Result<Self, ModelError> {
        let bytes = Self::bytes_for(&parts);
        let memory = || MmapMut::map_anon(parts.slot_bytes());
        let free = (0..N_SLOTS)
            .map(|_| memory())
            .collect::<Result<_, _>>()
            .map_err(|source| ModelError::Memory { bytes, source })?;
        let source = Source { reader, parts: Arc::new(parts) };
        // Room for all that can be sent: neither side ever waits for the other to take.
        let (jobs, received) = crossbeam_channel::bounded(N_SLOTS);
        let (finished, done) = crossbeam_channel::bounded(N_SLOTS);
        let readers = source.clone();
        let thread = Builder::new()
            .name("clutor-dense".to_owned())
            .spawn(move || readers.serve(&received, &finished))
            .map_err(|source| ModelError::RingThread { source })?;
        let mut state = State {
            jobs: Some(jobs),
            done,
            free,
            current: None,
            ahead: None,
            under_way: None,
            report: RingReport::default(),
        };
        state.read(0);
        Ok(Self { source, state: Mutex::new(state), thread: Some(thread) })
    }

    /// Reads a whole tensor, outside of the parts.
    pub(super) fn tensor(&self, tensor: &TensorInfo) -> Result<Vec<u8>, ModelError> {
        let mut bytes = vec![0; tensor.bytes as usize];
        read_exact(&*self.source.reader, tensor.shard, tensor.offset, &mut bytes)
            .map_err(|cause| ModelError::Read { tensor: tensor.name.clone(), source: cause.into() })?;
        Ok(bytes)
    }

    /// Waits for the end of the pass before.
    pub(super) fn turn(&self) -> RingTurn<'_> {
        RingTurn { source: &self.source, state: self.state() }
    }

    /// What it did so far.
    pub fn report(&self) -> RingReport {
        self.state().report
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves it whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.state().jobs = None;
        if let Some(thread) = self.thread.take() {
            // It catches all panics, so there is no error to lose.
            let _never = thread.join();
        }
    }
}

impl Source {
    /// The thread: reads what it is asked for until nobody can ask any more.
    fn serve(&self, jobs: &Receiver<Job>, finished: &Sender<Done>) {
        for Job { part, mut memory } in jobs {
            let read = catch_unwind(AssertUnwindSafe(|| self.read(part, &mut memory)));
            let read = read.unwrap_or(Err(Failure::Panicked));
            if finished.send(Done { part, memory, read }).is_err() {
                return;
            }
        }
    }

    fn read(&self, part: usize, memory: &mut [u8]) -> Result<u64, Failure> {
        let mut bytes = 0;
        for read in &self.parts.part(part).reads {
            fill(&*self.reader, read.shard, read.offset, &mut memory[read.at.clone()], read.needed)
                .map_err(|cause| Failure::Read { shard: read.shard, cause })?;
            bytes += read.at.len() as u64;
        }
        Ok(bytes)
    }

    fn error(&self, what: String, failure: Failure) -> ForwardError {
        match failure {
            Failure::Panicked => ForwardError::ReadPanicked { what },
            Failure::Read { shard, cause } => {
                let path = self.reader.path(shard).to_owned();
                match cause {
                    Cause::System(error) => ForwardError::Read { path, what, source: Arc::new(error) },
                    Cause::EndOfFile(end) => ForwardError::EndOfFile { path, what, end },
                }
            }
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// The right to a pass.
pub struct RingTurn<'a> {
    source: &'a Source,
    state: MutexGuard<'a, State>,
}

impl RingTurn<'_> {
    pub(super) fn pass(&mut self, wants_logits: bool) -> RingPass<'_> {
        RingPass { source: self.source, state: &mut self.state, wants_logits }
    }
}

/// A pass through the parts, in order.
pub struct RingPass<'a> {
    source: &'a Source,
    state: &'a mut State,
    wants_logits: bool,
}

impl RingPass<'_> {
    /// Brings part number `part` into memory, and lets the one after it be read from then on.
    pub(super) fn enter(&mut self, part: usize, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<(), ForwardError> {
        let started = Instant::now();
        let entered = self.state.enter(part, cancelled);
        self.state.report.wait_us += started.elapsed().as_micros() as u64;
        match entered {
            Ok(()) => {}
            Err(None) => return Err(ForwardError::Cancelled),
            Err(Some(failure)) => return Err(self.source.error(self.source.parts.what(part), failure)),
        }
        self.state.read_ahead(self.source.parts.next(part, self.wants_logits));
        Ok(())
    }

    pub(super) fn bytes(&self) -> Bytes<'_> {
        let (part, memory) = self.state.current.as_ref().expect("a part was entered");
        Bytes::Part(self.source.parts.part(*part), memory)
    }

    pub(super) fn bytes_ahead(&mut self) -> Option<Bytes<'_>> {
        if self.state.under_way.is_some()
            && let Ok(done) = self.state.done.try_recv()
        {
            // A failure is told when the part is entered and read once more.
            let _told_later = self.state.take(done);
        }
        let (part, memory) = self.state.ahead.as_ref()?;
        Some(Bytes::Part(self.source.parts.part(*part), memory))
    }

    pub(super) fn output_chunks(&self) -> &[Range<usize>] {
        self.source.parts.output()
    }

    pub(super) fn enter_output(
        &mut self,
        chunk: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Range<usize>, ForwardError> {
        self.enter(self.source.parts.n_layers() + chunk, cancelled)?;
        Ok(self.output_chunks()[chunk].clone())
    }

    /// Reads one row by itself.
    pub(super) fn row<'b>(&self, row: &Matrix, scratch: &'b mut Vec<u8>) -> Result<&'b [u8], ForwardError> {
        let (shard, offset, bytes) = row.range();
        scratch.resize(bytes as usize, 0);
        read_exact(&*self.source.reader, shard, offset, scratch)
            .map_err(|cause| self.source.error("a row of the embedding".to_owned(), Failure::Read { shard, cause }))?;
        Ok(scratch)
    }
}

impl State {
    /// Makes `part` the current one. `None` as an error is the wish of `cancelled`.
    fn enter(&mut self, part: usize, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<(), Option<Failure>> {
        if self.current.as_ref().is_some_and(|(current, _)| *current == part) {
            return Ok(());
        }
        self.free.extend(self.current.take().map(|(_, memory)| memory));
        // What was read ahead and failed is read once more: the failure belongs to nobody until then.
        let mut is_demanded = false;
        loop {
            match self.ahead.take() {
                Some((ahead, memory)) if ahead == part => {
                    self.current = Some((ahead, memory));
                    return Ok(());
                }
                // An earlier pass went another way.
                other => self.free.extend(other.map(|(_, memory)| memory)),
            }
            if self.under_way.is_none() {
                is_demanded = true;
                self.read(part);
            }
            let done = loop {
                match self.done.recv_timeout(ASK_EVERY) {
                    Ok(done) => break done,
                    Err(RecvTimeoutError::Timeout) if cancelled() => return Err(None),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(Some(Failure::Panicked)),
                }
            };
            if let Err(failure) = self.take(done)
                && is_demanded
            {
                return Err(Some(failure));
            }
        }
    }

    /// Has `part` read if nothing else is being read and it is not there already.
    fn read_ahead(&mut self, part: usize) {
        let is_here = |place: &Option<(usize, MmapMut)>| place.as_ref().is_some_and(|(here, _)| *here == part);
        if self.under_way.is_none() && !is_here(&self.ahead) && !is_here(&self.current) {
            self.free.extend(self.ahead.take().map(|(_, memory)| memory));
            self.read(part);
        }
    }

    fn read(&mut self, part: usize) {
        if let (Some(jobs), Some(memory)) = (&self.jobs, self.free.pop()) {
            self.under_way = Some(part);
            // The channel has room for all the memory there is, and the thread lives as long as the sender.
            let _sent = jobs.send(Job { part, memory });
        }
    }

    /// Takes back memory that was read into.
    fn take(&mut self, Done { part, memory, read }: Done) -> Result<(), Failure> {
        self.under_way = None;
        match read {
            Ok(bytes) => {
                self.report.read_bytes += bytes;
                self.ahead = Some((part, memory));
                Ok(())
            }
            Err(failure) => {
                self.free.push(memory);
                Err(failure)
            }
        }
    }
}
