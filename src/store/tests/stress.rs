//! Real threads, at full speed.

use super::*;
use crate::store::arena::Arena;

#[test]
fn many_threads_always_see_the_right_bytes() {
    let files = Files::new(|call| match call.number % 17 {
        3 => Does::Short(100),
        5 => Does::Fail(io::ErrorKind::Interrupted),
        11 => Does::System(5),
        _ => Does::Read,
    });
    let store = store_with(&files, StoreOptions { n_io_threads: 4, n_staging: 3, ..options(3, 512) });
    let user = |seed: u32| {
        let mut random = seed;
        let mut held = Vec::new();
        for _ in 0..1500 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (layer, expert) = ((random >> 8) as usize % N_LAYERS, random >> 16 & 7);
            match random >> 28 {
                0 => store.cancel_prefetches(),
                1..4 => _ = store.prefetch(layer, expert),
                4 => drop(store.request(layer, expert)),
                _ => match store.request(layer, expert) {
                    Ok(ticket) => held.push(ticket),
                    Err(StoreError::AllPinned { .. }) => held.clear(),
                    Err(other) => panic!("seed {seed}: {other}"),
                },
            }
            if held.len() > 2 {
                let ticket = held.swap_remove(random as usize % 3);
                match check(&store, &ticket) {
                    Ok(()) | Err(StoreError::Read { .. }) => {}
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 1..4 {
            scope.spawn(move || user(seed));
        }
    });
    let counters = store.counters();
    assert_eq!(counters.accesses, counters.hits + counters.staging_hits + counters.misses + counters.bypasses);
    assert!(counters.failed_reads > 0 && counters.hits > 0 && counters.prefetches > 0);
}

#[test]
fn a_slot_is_lent_in_parts_to_writers_or_whole_to_readers() {
    let arena = Arc::new(Arena::new(3, 100).unwrap());
    let mut parts = arena.fill(1, &[0..10, 10..10, 50..100]);
    std::thread::scope(|scope| {
        for (value, part) in (1..).zip(&mut parts) {
            scope.spawn(move || part.fill(value));
        }
    });
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [10, 0, 50]);
    drop(parts);
    let views = [arena.view(1), arena.view(1)];
    for view in &views {
        assert_eq!((view.len(), view[9], view[10], view[50], view[99]), (100, 1, 0, 3, 3));
    }
    assert!(arena.view(0).iter().chain(&*arena.view(2)).all(|&byte| byte == 0), "neighbours are untouched");
}

#[test]
#[should_panic(expected = "in use")]
fn a_slot_that_is_read_cannot_be_filled() {
    let arena = Arc::new(Arena::new(1, 100).unwrap());
    let _view = arena.view(0);
    arena.fill(0, &[0..1]);
}

#[test]
#[should_panic(expected = "being filled")]
fn a_slot_that_is_filled_cannot_be_read() {
    let arena = Arc::new(Arena::new(1, 100).unwrap());
    let _fill = arena.fill(0, &[0..1]);
    arena.view(0);
}

#[test]
#[should_panic(expected = "do not overlap")]
fn parts_of_a_slot_do_not_overlap() {
    Arc::new(Arena::new(1, 100).unwrap()).fill(0, &[0..10, 9..20]);
}

#[test]
#[should_panic(expected = "lie in the slot")]
fn parts_of_a_slot_do_not_reach_into_the_next() {
    Arc::new(Arena::new(2, 100).unwrap()).fill(0, &[90..101]);
}

#[test]
fn slots_start_on_pages() {
    let arena = Arc::new(Arena::new(4, 8192).unwrap());
    for slot in 0..4 {
        assert_eq!(arena.view(slot).as_ptr().addr() % 4096, 0);
    }
}

#[test]
fn an_arena_that_the_system_cannot_give_is_an_error() {
    assert!(Arena::new(usize::MAX / 4096, 4096).is_err());
    assert!(Arena::new(usize::MAX, 4096).is_err());
}
