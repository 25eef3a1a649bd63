//! What requests, hints and waits do.

use super::*;
use crate::store::{ALIGNMENT, Plan, Served};

/// A store whose reads stop at a gate.
fn gated(n_slots: usize) -> (Store, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let reads = Arc::clone(&gate);
    let files = Files::new(move |_| {
        reads.pass();
        Does::Read
    });
    (store(&files, n_slots), gate)
}

#[test]
fn an_expert_is_read_once_and_served_in_place() {
    let files = Files::sound();
    let store = store(&files, 4);
    let ticket = store.request(1, 5).unwrap();
    assert_eq!((ticket.layer(), ticket.expert(), ticket.served()), (1, 5, Served::Miss));
    check(&store, &ticket).unwrap();
    drop(ticket);
    let again = store.request(1, 5).unwrap();
    assert_eq!(again.served(), Served::Hit);
    assert!(store.is_ready(&again));
    check(&store, &again).unwrap();
    assert_eq!(files.n_calls(), MATRICES.len());
}

#[test]
fn every_expert_of_the_model_comes_with_its_own_bytes() {
    for alignment in [1, 512, 4096] {
        let files = Arc::new(Files { hook: Box::new(|_| Does::Read), n_calls: AtomicUsize::new(0), alignment });
        let store = store(&files, 3);
        for (layer, expert) in (0..N_LAYERS).flat_map(|layer| (0..N_EXPERTS).map(move |expert| (layer, expert))) {
            fetch(&store, layer, expert).unwrap();
        }
    }
}

#[test]
fn reads_are_aligned_as_the_reader_wants() {
    let files = Files::new(|call| {
        assert_eq!((call.offset % 512, call.len % 512), (0, 0));
        Does::Read
    });
    fetch(&store(&files, 2), 0, 3).unwrap();
}

#[test]
fn matrices_keep_the_alignment_that_they_have_in_the_file() {
    let files = Files::sound();
    let store = store(&files, 2);
    let ticket = store.request(0, 1).unwrap();
    let bytes = store.wait(&ticket, &never).unwrap();
    for matrix in 0..MATRICES.len() {
        let in_memory = bytes.matrix(matrix).as_ptr().addr();
        assert_eq!(in_memory % 512, place(0, 1, matrix).offset as usize % 512);
    }
}

#[test]
fn a_staged_expert_that_is_requested_moves_into_the_cache() {
    let files = Files::sound();
    let store = store(&files, 2);
    assert!(store.prefetch(0, 1));
    while !store.resident(0, 1) {
        std::thread::yield_now();
    }
    let calls = files.n_calls();
    let ticket = store.request(0, 1).unwrap();
    assert_eq!(ticket.served(), Served::Staged);
    check(&store, &ticket).unwrap();
    drop(ticket);
    assert_eq!(store.request(0, 1).unwrap().served(), Served::Hit);
    assert_eq!(files.n_calls(), calls);
    let counters = store.counters();
    assert_eq!((counters.prefetches, counters.staging_hits, counters.late_prefetches), (1, 1, 0));
    assert_eq!(counters.demand_bytes, 0);
}

#[test]
fn hints_for_what_is_there_or_has_no_room_do_nothing() {
    let (store, gate) = gated(2);
    let wanted = store.request(0, 0).unwrap();
    assert!(!store.prefetch(0, 0), "it is on its way");
    assert!(store.prefetch(0, 1) && store.prefetch(0, 2));
    assert!(!store.prefetch(0, 1), "it is on its way");
    assert!(!store.prefetch(0, 3), "both staging slots wait for their reads");
    gate.open();
    check(&store, &wanted).unwrap();
    assert_eq!(store.counters().prefetches, 2);
}

#[test]
fn a_late_prefetch_is_raised_before_other_prefetches() {
    let gate = Arc::new(Gate::default());
    let order = Arc::new(Mutex::new(Vec::new()));
    let (reads, offsets) = (Arc::clone(&gate), Arc::clone(&order));
    let files = Files::new(move |call| {
        offsets.lock().unwrap().push(call.offset);
        reads.pass();
        Does::Read
    });
    let store = store(&files, 2);
    let first = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1); // The only thread is busy with a range of the first.
    assert!(store.prefetch(0, 1) && store.prefetch(0, 2));
    let late = store.request(0, 2).unwrap();
    assert_eq!(late.served(), Served::LatePrefetch);
    assert!(!store.is_ready(&late));
    gate.open();
    check(&store, &late).unwrap();
    check(&store, &first).unwrap();
    let seen = order.lock().unwrap().clone();
    let position = |expert| seen.iter().position(|&offset| offset == place(0, expert, 0).offset / 512 * 512);
    assert!(position(2).unwrap() < position(1).unwrap_or(usize::MAX), "{seen:?}");
    assert_eq!(store.counters().late_prefetches, 1);
}

#[test]
fn demanded_reads_come_before_prefetches() {
    let (store, gate) = gated(4);
    let first = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1);
    assert!(store.prefetch(0, 1));
    let wanted = store.request(0, 2).unwrap();
    gate.open();
    check(&store, &wanted).unwrap();
    check(&store, &first).unwrap();
    // Its three ranges came after the six of those that were wanted; the prefetch goes last.
    let counters = store.counters();
    assert!(counters.demand_bytes > 0);
    assert_eq!(counters.misses, 2);
}

#[test]
fn prefetches_that_have_not_begun_are_taken_back() {
    let (store, gate) = gated(2);
    let wanted = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1);
    assert!(store.prefetch(0, 1) && store.prefetch(0, 2));
    store.cancel_prefetches();
    assert!(store.prefetch(0, 3) && store.prefetch(0, 4), "their slots are free again");
    gate.open();
    check(&store, &wanted).unwrap();
    assert_eq!(store.counters().cancelled_prefetches, 2);
    fetch(&store, 0, 1).unwrap();
}

#[test]
fn what_is_in_memory_is_requested_first() {
    let files = Files::sound();
    let store = store(&files, 2);
    fetch(&store, 0, 0).unwrap();
    fetch(&store, 0, 1).unwrap();
    // Expert 0 is the next to go; a miss before it would evict it.
    let tickets = store.request_all(0, &[5, 0]).unwrap();
    assert_eq!(tickets.iter().map(Ticket::served).collect::<Vec<_>>(), [Served::Miss, Served::Hit]);
    for (ticket, expert) in tickets.iter().zip([5, 0]) {
        assert_eq!(ticket.expert(), expert);
        check(&store, ticket).unwrap();
    }
}

#[test]
fn a_pinned_expert_stays_whatever_is_requested_meanwhile() {
    let files = Files::sound();
    let store = store(&files, 2);
    let pinned = store.request(0, 0).unwrap();
    check(&store, &pinned).unwrap();
    for expert in 1..N_EXPERTS {
        fetch(&store, 0, expert).unwrap();
    }
    check(&store, &pinned).unwrap();
}

#[test]
fn bypass_buffers_serve_when_everything_is_pinned_and_then_an_error_says_so() {
    let files = Files::sound();
    let store = store(&files, 2);
    // Two slots and K + 2 = 4 bypass buffers.
    let tickets = store.request_all(0, &[0, 1, 2, 3, 4, 5]).unwrap();
    assert!(tickets[..2].iter().all(|ticket| ticket.served() == Served::Miss));
    assert!(tickets[2..].iter().all(|ticket| ticket.served() == Served::Bypass));
    let error = store.request_all(0, &[0, 6]).unwrap_err();
    assert!(error.to_string().contains("in use at once"), "{error}");
    tickets.iter().for_each(|ticket| check(&store, ticket).unwrap());

    let shared = store.request(0, 5).unwrap();
    assert_eq!(shared.served(), Served::Hit, "another ticket's buffer serves as well");
    check(&store, &shared).unwrap();
    drop(tickets);
    check(&store, &shared).unwrap();
    drop(shared);
    fetch(&store, 0, 6).unwrap();
    assert!(!store.resident(0, 5), "a bypass buffer is no cache");
    assert_eq!(store.counters().bypasses, 4);
}

#[test]
fn a_dropped_ticket_takes_its_reads_back_if_they_have_not_begun() {
    let (store, gate) = gated(2);
    let first = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1);
    drop(store.request(0, 1).unwrap());
    assert!(!store.resident(0, 1));
    gate.open();
    check(&store, &first).unwrap();
    assert_eq!(store.request(0, 1).unwrap().served(), Served::Miss);
}

#[test]
fn a_read_that_has_begun_is_finished_and_kept() {
    let (store, gate) = gated(2);
    let ticket = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1);
    drop(ticket);
    gate.open();
    while !store.resident(0, 0) {
        std::thread::yield_now();
    }
    assert_eq!(store.request(0, 0).unwrap().served(), Served::Hit);
}

#[test]
fn a_request_waits_for_room_that_unwanted_reads_are_about_to_give() {
    let gate = Arc::new(Gate::default());
    let reads = Arc::clone(&gate);
    let files = Files::new(move |_| {
        reads.pass();
        Does::Read
    });
    // So many threads that a range of each of the six buffers is being read.
    let store = store_with(&files, StoreOptions { n_io_threads: 16, n_staging: 0, ..options(2, 512) });
    for expert in 0..6 {
        let ticket = store.request(0, expert).unwrap();
        gate.wait_for_arrivals(expert as usize * MATRICES.len() + 1);
        drop(ticket);
    }
    let later = std::thread::scope(|scope| {
        let later = scope.spawn(|| fetch(&store, 0, 7));
        gate.open();
        later.join().unwrap()
    });
    later.unwrap();
}

#[test]
fn wait_any_gives_an_expert_that_is_there() {
    let gate = Arc::new(Gate::default());
    let reads = Arc::clone(&gate);
    let held = place(0, 0, 0).offset / 512 * 512;
    let files = Files::new(move |call| {
        if call.offset == held {
            reads.pass();
        }
        Does::Read
    });
    let store = store_with(&files, StoreOptions { n_io_threads: 2, ..options(2, 512) });
    let tickets = store.request_all(0, &[0, 1]).unwrap();
    assert_eq!(store.wait_any(&tickets, &never).unwrap(), 1);
    gate.open();
    let rest = [&tickets[0]];
    assert_eq!(store.wait_any(&rest, &never).unwrap(), 0);
    check(&store, &tickets[0]).unwrap();
}

#[test]
fn a_warm_start_reads_behind_everything_else_and_is_not_cancelled_as_a_prefetch() {
    let (store, gate) = gated(4);
    let wanted = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1);
    assert!(store.warm(1, 1, 3.0) && store.warm(1, 2, 2.0) && store.warm(1, 3, 1.0));
    assert!(!store.warm(1, 4, 0.5), "the cache is full");
    assert!(!store.warm(1, 1, 0.5), "it is on its way");
    assert!(store.prefetch(2, 0));
    store.cancel_prefetches();
    // The least of them makes room for what is wanted; what is wanted of them is raised.
    let also_wanted = store.request(2, 5).unwrap();
    assert_eq!(also_wanted.served(), Served::Miss);
    let warm = store.request(1, 2).unwrap();
    assert_eq!(warm.served(), Served::Hit);
    gate.open();
    for ticket in [&wanted, &also_wanted, &warm] {
        check(&store, ticket).unwrap();
    }
    let first = store.request(1, 1).unwrap();
    assert_eq!(first.served(), Served::Hit);
    check(&store, &first).unwrap();
    drop(first);
    assert_eq!(store.request(1, 3).unwrap().served(), Served::Miss);
}

#[test]
fn what_was_hot_warms_the_next_store() {
    let first = store(&Files::sound(), 4);
    first.begin_pass(3);
    drop(first.request_each(0, &[(6, 3), (2, 1)]).unwrap());
    first.end_token();
    let hot = first.hot();
    assert_eq!(hot.iter().map(|&(layer, expert, _)| (layer, expert)).collect::<Vec<_>>(), [(0, 6), (0, 2)]);
    let second = store(&Files::sound(), 4);
    for (layer, expert, weight) in hot {
        assert!(second.warm(layer, expert, weight));
    }
    assert_eq!(second.request(0, 6).unwrap().served(), Served::Hit);
}

#[test]
fn a_wait_that_is_cancelled_leaves_nothing_behind() {
    let (store, gate) = gated(2);
    let ticket = store.request(0, 0).unwrap();
    gate.wait_for_arrivals(1);
    let asked = AtomicUsize::new(0);
    let cancelled = || asked.fetch_add(1, Ordering::SeqCst) == 2;
    assert!(matches!(store.wait(&ticket, &cancelled), Err(StoreError::Cancelled)));
    let tickets = [ticket];
    assert!(matches!(store.wait_any(&tickets, &|| true), Err(StoreError::Cancelled)));
    drop(tickets);
    gate.open();
    assert!(store.counters().wait_us > 0);
    // Every buffer can be pinned, so none was left pinned.
    let all = store.request_all(0, &[1, 2, 3, 4, 5, 6]).unwrap();
    all.iter().for_each(|ticket| check(&store, ticket).unwrap());
}

#[test]
fn a_store_is_dropped_while_reads_go_on_and_tickets_are_out() {
    let (store, gate) = gated(2);
    let tickets = store.request_all(0, &[0, 1, 2]).unwrap();
    store.prefetch(0, 3);
    gate.wait_for_arrivals(1);
    gate.open();
    drop(store);
    assert_eq!(tickets[2].expert(), 2);
}

#[test]
fn bytes_stay_readable_after_the_store_is_dropped() {
    let store = store(&Files::sound(), 2);
    let ticket = store.request(0, 0).unwrap();
    let bytes = store.wait(&ticket, &never).unwrap();
    drop(store);
    assert_eq!(bytes.matrix(0)[0], pattern(0, place(0, 0, 0).offset));
}

#[test]
fn residency_of_a_layer_is_seen_at_one_moment() {
    let store = store(&Files::sound(), 4);
    fetch(&store, 1, 2).unwrap();
    fetch(&store, 2, 3).unwrap();
    let mut residents = [true; N_EXPERTS as usize];
    store.residents(1, &mut residents);
    assert_eq!(residents, [0, 1, 2, 3, 4, 5, 6, 7].map(|expert| expert == 2));
    assert!(store.resident(2, 3) && !store.resident(2, 2));
}

#[test]
fn counters_add_up() {
    let files = Files::sound();
    let store = store(&files, 3);
    // Deterministic, with repetition and jumps.
    let mut chosen = 1u32;
    for step in 0..400 {
        chosen = chosen.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (layer, expert) = (chosen as usize >> 16 & 1, chosen >> 20 & 7);
        if step % 3 == 0 {
            store.prefetch(layer, expert);
        } else {
            fetch(&store, layer, expert).unwrap();
        }
        if step % 20 == 0 {
            store.end_token();
        }
    }
    store.cancel_prefetches();
    drop(store.request_all(0, &[0, 1, 2, 3, 4, 5]));
    let counters = store.counters();
    let served = counters.hits + counters.staging_hits + counters.misses + counters.bypasses;
    assert_eq!(counters.accesses, served);
    assert!(counters.hits > 0 && counters.staging_hits > 0 && counters.misses > 0 && counters.evictions > 0);
    assert!(counters.late_prefetches <= counters.staging_hits && counters.wasted_prefetches <= counters.prefetches);
    assert!(counters.demand_bytes > 0 && counters.prefetch_bytes > 0 && counters.failed_reads == 0);
}

#[test]
fn a_plan_is_what_the_store_takes() {
    let experts = table();
    let slot_bytes = experts.slot_bytes(ALIGNMENT);
    let plan = Plan::new(&experts, Budget::Cache(5 * slot_bytes as u64 + 100), 2, 3);
    assert_eq!((plan.n_slots, plan.n_staging, plan.n_bypass), (5, 3, 4));
    assert_eq!(plan.arena_bytes(), 12 * slot_bytes as u64);
    let whole = Plan::new(&experts, Budget::Arena(plan.arena_bytes()), 2, 3);
    assert_eq!(whole, plan);
    let none = Plan::new(&experts, Budget::Arena(0), 2, 3);
    assert_eq!(none.n_slots, 2, "one token's experts always fit");
    let all = Plan::new(&experts, Budget::Cache(u64::MAX), 2, 3);
    assert_eq!(all.n_slots, N_LAYERS * N_EXPERTS as usize, "never more than there are experts");
}

#[test]
fn a_slot_holds_the_expert_that_touches_most_blocks() {
    let expert = |offset, len| ExpertExtent::new(&[FileRange { file: 0, offset, len }; 2]);
    let slot_bytes = |extents: &[ExpertExtent]| ExpertTable::new(1, extents.to_vec()).unwrap().slot_bytes(4096);
    assert_eq!(slot_bytes(&[expert(8192, 4096)]), 2 * 4096);
    assert_eq!(slot_bytes(&[expert(8191, 4098), expert(8192, 4097)]), 2 * 3 * 4096);
    assert_eq!(slot_bytes(&[ExpertExtent::default()]), 4096, "no slot is empty");
}

#[test]
fn extents_past_all_addresses_are_an_error_that_names_the_expert() {
    let sound = ExpertExtent::new(&[FileRange { file: 0, offset: 0, len: 10 }]);
    let wrong = ExpertExtent::new(&[FileRange { file: 0, offset: u64::MAX - 4, len: 10 }]);
    let error = ExpertTable::new(2, vec![sound, sound, sound, wrong]).unwrap_err();
    assert!(error.to_string().starts_with("expert 1 of layer 1"), "{error}");
    let long = ExpertExtent::new(&[FileRange { file: 0, offset: 0, len: u64::MAX / 2 }; 2]);
    assert!(ExpertTable::new(1, vec![long]).is_err());
}

#[test]
fn layers_without_experts_take_no_room() {
    let one = ExpertExtent::new(&[FileRange { file: 0, offset: 5, len: 100 }]);
    let experts = ExpertTable::new(1, vec![ExpertExtent::default(), one]).unwrap();
    let options = StoreOptions { n_io_threads: 1, ..StoreOptions::new(Budget::Cache(1 << 20), 1) };
    let store = Store::new(Files::sound(), experts, &options).unwrap();
    assert_eq!(store.plan().n_slots, 1);
    let ticket = store.request(1, 0).unwrap();
    assert_eq!(store.wait(&ticket, &never).unwrap().matrix(0).len(), 100);
}

#[test]
fn numbers_of_threads_out_of_range_are_refused() {
    for n_io_threads in [0, 17] {
        let options = StoreOptions { n_io_threads, ..options(2, 512) };
        let error = Store::new(Files::sound(), table(), &options).unwrap_err();
        assert!(error.to_string().contains("1 to 16"), "{error}");
    }
}
