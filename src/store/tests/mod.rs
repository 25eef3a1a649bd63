//! The store over readers that misbehave, and over real files.

mod faults;
mod files;
mod requests;
mod stress;
mod warm;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::policy::PolicyKind;
use super::{Budget, ExpertExtent, ExpertTable, FileRange, Reader, Store, StoreError, StoreOptions, Ticket};

pub(super) const N_LAYERS: usize = 3;
pub(super) const N_EXPERTS: u32 = 8;

/// Bytes of each matrix of the experts here: gate, up, down. No multiple of anything.
const MATRICES: [u64; 3] = [5001, 4097, 9000];

/// The byte at `offset` of file `file`: neighbours differ, and so do files and blocks.
pub(super) fn pattern(file: usize, offset: u64) -> u8 {
    let mixed = (offset ^ (file as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// The files that the tests read: their bytes follow a pattern, and a hook decides what each call does.
struct Files {
    hook: Box<dyn Fn(&Call) -> Does + Send + Sync>,
    n_calls: AtomicUsize,
    alignment: usize,
}

/// A call of the reader.
struct Call {
    /// How many came before.
    number: usize,
    file: usize,
    offset: u64,
    len: usize,
}

/// What a call does.
enum Does {
    Read,
    /// Stops after so many bytes.
    Short(usize),
    Fail(io::ErrorKind),
    /// Fails with what the system says for this number.
    System(i32),
    Panic,
}

impl Files {
    fn new(hook: impl Fn(&Call) -> Does + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { hook: Box::new(hook), n_calls: AtomicUsize::new(0), alignment: 512 })
    }

    fn sound() -> Arc<Self> {
        Self::new(|_| Does::Read)
    }

    fn n_calls(&self) -> usize {
        self.n_calls.load(Ordering::SeqCst)
    }
}

impl Reader for Files {
    fn read_at(&self, file: usize, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let number = self.n_calls.fetch_add(1, Ordering::SeqCst);
        let n = match (self.hook)(&Call { number, file, offset, len: buf.len() }) {
            Does::Read => buf.len(),
            Does::Short(n) => n.min(buf.len()),
            Does::Fail(kind) => return Err(kind.into()),
            Does::System(number) => return Err(io::Error::from_raw_os_error(number)),
            Does::Panic => panic!("the reader panics, as the test wants"),
        };
        for (at, byte) in (offset..).zip(&mut buf[..n]) {
            *byte = pattern(file, at);
        }
        Ok(n)
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn path(&self, file: usize) -> &Path {
        Path::new(["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"][file])
    }
}

/// Holds calls back until it is opened.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Passes when the gate is open.
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(open, _)| !*open).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    /// Waits until `n` calls have come to the gate, all told.
    fn wait_for_arrivals(&self, n: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |(_, arrived)| *arrived < n).unwrap());
    }
}

/// Where matrix `matrix` of an expert lies: tensor after tensor, as in a model file, in two files.
fn place(layer: usize, expert: u32, matrix: usize) -> FileRange {
    let tensors_before: u64 = MATRICES[..matrix].iter().sum::<u64>() * u64::from(N_EXPERTS);
    let layers_before = layer as u64 * MATRICES.iter().sum::<u64>() * u64::from(N_EXPERTS);
    let len = MATRICES[matrix];
    FileRange { file: layer % 2, offset: 777 + layers_before + tensors_before + u64::from(expert) * len, len }
}

fn table() -> ExpertTable {
    let experts = (0..N_LAYERS).flat_map(|layer| (0..N_EXPERTS).map(move |expert| (layer, expert)));
    let extents = experts.map(|(layer, expert)| ExpertExtent::new(&[0, 1, 2].map(|m| place(layer, expert, m))));
    ExpertTable::new(N_EXPERTS as usize, extents.collect()).unwrap()
}

/// Options for `n_slots` slots of a cache that needs 2, 2 staging slots and one I/O thread.
fn options(n_slots: usize, alignment: usize) -> StoreOptions {
    let budget = Budget::Cache((n_slots * table().slot_bytes(alignment)) as u64);
    StoreOptions { budget, n_experts_used: 2, n_staging: 2, policy: PolicyKind::Lru, n_io_threads: 1 }
}

fn store(files: &Arc<Files>, n_slots: usize) -> Store {
    store_with(files, options(n_slots, files.alignment))
}

fn store_with(files: &Arc<Files>, options: StoreOptions) -> Store {
    Store::new(Arc::clone(files) as Arc<dyn Reader>, table(), &options).unwrap()
}

fn never() -> bool {
    false
}

/// Waits for a ticket and checks every byte of its expert.
fn check(store: &Store, ticket: &Ticket) -> Result<(), StoreError> {
    let bytes = store.wait(ticket, &never)?;
    assert_eq!(bytes.n_matrices(), MATRICES.len());
    for matrix in 0..bytes.n_matrices() {
        let FileRange { file, offset, len } = place(ticket.layer(), ticket.expert(), matrix);
        let expected: Vec<u8> = (offset..offset + len).map(|at| pattern(file, at)).collect();
        assert!(bytes.matrix(matrix) == expected, "wrong bytes in matrix {matrix} of {ticket:?}");
    }
    Ok(())
}

/// Requests an expert, checks its bytes, and lets it go.
fn fetch(store: &Store, layer: usize, expert: u32) -> Result<(), StoreError> {
    check(store, &store.request(layer, expert)?)
}
