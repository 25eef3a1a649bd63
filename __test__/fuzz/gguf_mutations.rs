//! Mutates valid files and opens them: whatever the bytes, the reader answers, quickly and in bounded memory.
//!
//! `GGUF_FUZZ_SEED` repeats a run, `GGUF_FUZZ_CASES` makes it longer than the default of a few seconds.
#![allow(unsafe_code)] // A global allocator that counts cannot be written without.

use std::alloc::{GlobalAlloc, Layout as AllocLayout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clutor::gguf::{Gguf, Layout, Projection, Summary};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

#[path = "../support/gguf_writer.rs"]
mod writer;

use writer::GgufWriter;

/// Counts live bytes, and the most there were since `PEAK` was last set. This file has one test: no other thread
/// allocates meanwhile.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counters are beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: AllocLayout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: AllocLayout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak memory allowed for a file of `file_bytes`: a small multiple, and what a reader needs for any file.
fn allowed(file_bytes: usize) -> usize {
    16 * file_bytes + (1 << 20)
}

/// Longest that one file of a few kilobytes may take; generous, because the machine may be busy.
const LONGEST: Duration = Duration::from_secs(1);

/// Valid files to start from; small, so that most mutations hit the header.
fn seeds() -> Vec<Vec<u8>> {
    let mut small = GgufWriter::tiny_moe();
    small.tensors.truncate(4);
    let many =
        (0..40).fold(GgufWriter::new(), |w, i| w.tensor(&format!("blk.{i}.ffn_up.{i}.weight"), &[1, 1], writer::F32));
    let numbers: Vec<_> = (0..50u32).map(|i| i.to_le_bytes().to_vec()).collect();
    let inner: Vec<_> = (0..30).map(|i| writer::array(writer::U32, &numbers[..i % 3])).collect();
    let arrays = GgufWriter::new()
        .entry("numbers", writer::ARRAY, writer::array(writer::U32, &numbers))
        .entry("nested", writer::ARRAY, writer::array(writer::ARRAY, &inner))
        .entry("bools", writer::ARRAY, writer::array(7, &[vec![1], vec![0]]))
        .u32("general.alignment", 1)
        .strings("tokenizer.ggml.tokens", &["", "a", "bc", "def"]);
    let split = GgufWriter::tiny_moe().split(&[13]).remove(0);
    [GgufWriter::tiny_moe(), small, GgufWriter { alignment: 1, ..many }.u32("general.alignment", 1), arrays, split]
        .iter()
        .map(GgufWriter::bytes)
        .collect()
}

/// Valid files made of the smallest parts that the format allows: what takes most memory for its size.
fn crowded() -> Vec<Vec<u8>> {
    let n = 20_000u32;
    let mut keys = GgufWriter::new();
    keys.entries = (0..n).map(|i| (format!("{i:x}").into(), 0, vec![0])).collect();
    let mut strings = GgufWriter::new();
    strings.entries = (0..n).map(|i| (format!("{i:x}").into(), writer::STRING, writer::string(b"x"))).collect();
    let empty = vec![writer::array(writer::STRING, &[]); n as usize];
    let arrays = GgufWriter::new().entry("nested", writer::ARRAY, writer::array(writer::ARRAY, &empty));
    let texts = vec![writer::string(b""); n as usize];
    let texts = GgufWriter::new().entry("texts", writer::ARRAY, writer::array(writer::STRING, &texts));
    let mut tensors = GgufWriter { alignment: 1, ..GgufWriter::new().u32("general.alignment", 1) };
    let name = |i| format!("blk.{i}.ffn_up.0.weight").into_bytes();
    let tensor = |i| writer::Tensor { name: name(i), dims: vec![1, 1], ty: 24, content: vec![0], offset: None };
    tensors.tensors = (0..n).map(tensor).collect();
    [keys, strings, arrays, texts, tensors].iter().map(GgufWriter::bytes).collect()
}

/// Values that tend to break readers.
const NASTY: [u64; 12] =
    [0, 1, 2, 9, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 32, (1 << 61) - 1, 1 << 62, i64::MAX as u64, u64::MAX];

fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    (rng.next_u64() % n.max(1) as u64) as usize
}

/// Changes a few things; mostly in the first bytes, where the header is.
fn mutate(bytes: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    for _ in 0..=below(rng, 4) {
        let reach = if below(rng, 4) == 0 { bytes.len() } else { bytes.len().min(2000) };
        let at = below(rng, reach);
        match below(rng, 8) {
            0 => bytes.truncate(at),
            1 | 2 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << below(rng, 8)),
            3 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = rng.next_u32() as u8),
            4 | 5 => {
                let width = if below(rng, 2) == 0 { 4 } else { 8 };
                let value = NASTY[below(rng, NASTY.len())].wrapping_add(below(rng, 3) as u64).to_le_bytes();
                bytes[at..].iter_mut().zip(&value[..width]).for_each(|(byte, new)| *byte = *new);
            }
            // Moving a part over another one makes plausible structures in the wrong place.
            6 => {
                let from = below(rng, reach);
                let part = bytes[from..].iter().take(below(rng, 64)).copied().collect::<Vec<_>>();
                bytes[at..].iter_mut().zip(part).for_each(|(byte, new)| *byte = new);
            }
            _ => {
                let part = bytes[at..].iter().take(below(rng, 64)).copied().collect::<Vec<_>>();
                bytes.splice(at..at, part);
            }
        }
    }
}

/// Does all that a program does with a file. Whether it opened.
fn exercise(path: &Path) -> bool {
    let Ok(gguf) = Gguf::open(path) else { return false };
    let layout = Layout::of(&gguf);
    let summary = Summary::of(&gguf, &layout);
    assert_eq!(summary.dense_bytes + summary.expert_bytes, gguf.tensors().iter().map(|t| t.bytes).sum::<u64>());
    let mapped = gguf.map().expect("an opened file can be mapped");
    for tensor in gguf.tensors() {
        assert_eq!(mapped.tensor_bytes(tensor).len() as u64, tensor.bytes);
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
    }
    for layer in &layout.layers {
        let Some(experts) = &layer.experts else { continue };
        for projection in Projection::ALL {
            let last = experts.n_with(projection).saturating_sub(1);
            for slice in [0, last].iter().filter_map(|expert| experts.slice(projection, *expert)) {
                let bytes = mapped.range(slice.shard, slice.offset, slice.bytes).len();
                assert_eq!(Some(bytes), slice.ty.row_bytes(slice.cols).map(|row| row * slice.rows));
            }
        }
    }
    true
}

/// What `run` gives, and the most bytes that it had allocated at one time.
fn peak_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let out = run();
    (out, PEAK.load(Relaxed).saturating_sub(before))
}

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn a_damaged_file_never_panics_hangs_or_takes_memory() {
    let seed = number_from_env("GGUF_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    });
    let cases = number_from_env("GGUF_FUZZ_CASES");
    println!("GGUF_FUZZ_SEED={seed}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model-00001-of-00001.gguf");
    let seeds = seeds();
    for (i, bytes) in seeds.iter().enumerate() {
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        assert!(exercise(&path), "seed file {i} is not valid");
    }

    for (i, bytes) in crowded().iter().enumerate() {
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        let (valid, peak) = peak_of(|| exercise(&path));
        println!("crowded file {i}: {:.1} times its size", peak as f64 / bytes.len() as f64);
        assert!(valid, "crowded file {i} is not valid");
        assert!(peak <= allowed(bytes.len()), "{peak} bytes of memory for crowded file {i} of {}", bytes.len());
    }

    let start = Instant::now();
    let (mut done, mut opened) = (0, 0);
    while cases.map_or(start.elapsed() < Duration::from_secs(4), |cases| done < cases) {
        // Each case has its own generator, so that its number repeats it.
        let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(done));
        let mut bytes = seeds[below(&mut rng, seeds.len())].clone();
        mutate(&mut bytes, &mut rng);
        std::fs::write(&path, &bytes).expect("the temporary folder is writable");

        let case_start = Instant::now();
        let (outcome, peak) = peak_of(|| std::panic::catch_unwind(|| exercise(&path)));
        let took = case_start.elapsed();

        let repeat = || format!("repeat with GGUF_FUZZ_SEED={} GGUF_FUZZ_CASES=1", seed.wrapping_add(done));
        match outcome {
            Ok(valid) => opened += u64::from(valid),
            Err(_) => panic!("the reader panicked; {}", repeat()),
        }
        assert!(took < LONGEST, "took {took:?}; {}", repeat());
        assert!(peak <= allowed(bytes.len()), "{peak} bytes of memory for a file of {}; {}", bytes.len(), repeat());
        done += 1;
    }
    println!("{done} damaged files, {opened} of them still valid");
    assert!(cases.is_some() || opened > 0 && opened < done, "mutations should make both valid and wrong files");
}
