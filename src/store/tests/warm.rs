//! The warm start: how it keeps out of the way, and what it counts.

use super::*;
use std::thread::yield_now;

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

#[test]
fn between_passes_all_threads_read_for_it() {
    let gate = Arc::new(Gate::default());
    let files = Files::new({
        let gate = Arc::clone(&gate);
        move |call| {
            if call.file == 1 {
                gate.pass();
            }
            Does::Read
        }
    });
    let store = store_with(&files, StoreOptions { n_io_threads: 3, ..options(4, 512) });
    fetch(&store, 0, 0).unwrap();
    assert!(store.warm(1, 1, 1.0));
    // One thread comes to the gate; the others are told when the pass ends.
    gate.wait_for_arrivals(1);
    store.end_token();
    gate.wait_for_arrivals(3);
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
