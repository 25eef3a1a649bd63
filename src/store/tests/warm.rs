//! The warm start: how it keeps out of the way, and what it counts.

use super::*;
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Waits until a store has warmed `n` experts.
fn wait_for_warmed(store: &Store, n: u64) {
    while store.counters().warmed < n {
        yield_now();
    }
}

#[test]
fn during_a_pass_one_thread_reads_for_it_and_only_while_nothing_else_is_read() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let files = Files::new({
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |_| {
            most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            (0..100).for_each(|_| yield_now());
            now.fetch_sub(1, Ordering::SeqCst);
            Does::Read
        }
    });
    let store = store_with(&files, StoreOptions { n_io_threads: 3, ..options(6, 512) });
    fetch(&store, 0, 0).unwrap();
    most.store(0, Ordering::SeqCst);
    (1..5).for_each(|expert| assert!(store.warm(1, expert, 1.0)));
    wait_for_warmed(&store, 4);
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

/// Files whose second one, where layer 1 is, cannot be read before the gate opens: a drive as slow as can be. The list has
/// the files of all reads that began.
fn gated() -> (Arc<Files>, Arc<Gate>, Arc<Mutex<Vec<usize>>>) {
    let (gate, begun) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
    let files = Files::new({
        let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
        move |call| {
            begun.lock().unwrap().push(call.file);
            if call.file == 1 {
                gate.pass();
            }
            Does::Read
        }
    });
    (files, gate, begun)
}

#[test]
fn the_first_request_waits_for_none_of_its_reads() {
    let (files, gate, _) = gated();
    let store = store_with(&files, StoreOptions { n_io_threads: 3, ..options(6, 512) });
    (1..5).for_each(|expert| assert!(store.warm(1, expert, 1.0)));
    // As many reads as there may be at once; none of them ends before the request is served.
    gate.wait_for_arrivals(2);
    let ticket = store.request(0, 0).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let served = store.wait(&ticket, &|| Instant::now() > until).map(|_| ());
    gate.open();
    served.expect("a request is served while reads for the warm start hang");
    wait_for_warmed(&store, 4);
}

#[test]
fn with_one_thread_a_request_waits_for_the_read_under_way_and_no_other() {
    let (files, gate, begun) = gated();
    let store = store_with(&files, options(6, 512));
    (1..5).for_each(|expert| assert!(store.warm(1, expert, 1.0)));
    gate.wait_for_arrivals(1);
    let ticket = store.request(0, 0).unwrap();
    gate.open();
    check(&store, &ticket).unwrap();
    wait_for_warmed(&store, 4);
    assert_eq!(begun.lock().unwrap()[..5], [1, 0, 0, 0, 1]);
}

#[test]
fn between_passes_all_threads_but_one_read_for_it() {
    let (files, gate, _) = gated();
    let store = store_with(&files, StoreOptions { n_io_threads: 3, ..options(4, 512) });
    fetch(&store, 0, 0).unwrap();
    assert!(store.warm(1, 1, 1.0));
    // One thread comes to the gate; another is told when the pass ends.
    gate.wait_for_arrivals(1);
    store.end_token();
    gate.wait_for_arrivals(2);
    gate.open();
    wait_for_warmed(&store, 1);
}

#[test]
fn its_experts_and_bytes_are_counted_apart() {
    let store = store(&Files::sound(), 4);
    assert!(store.warm(1, 1, 2.0) && store.warm(1, 2, 1.0));
    wait_for_warmed(&store, 2);
    let before = store.counters();
    assert!(before.warm_bytes >= 2 * MATRICES.iter().sum::<u64>());
    assert_eq!((before.demand_bytes, before.prefetch_bytes, before.accesses), (0, 0, 0));
    fetch(&store, 1, 1).unwrap();
    assert_eq!((store.counters().hits, store.counters().demand_bytes), (1, 0));
}

#[test]
fn a_failed_read_for_it_bothers_nobody() {
    let files = Files::new(|call| if call.number == 0 { Does::Fail(io::ErrorKind::Other) } else { Does::Read });
    let store = store(&files, 4);
    assert!(store.warm(1, 1, 2.0));
    while store.counters().failed_reads == 0 {
        yield_now();
    }
    assert_eq!(store.counters().warmed, 0);
    fetch(&store, 1, 1).unwrap();
}
