//! Reads that stop short, are interrupted, fail, end early or panic.

use super::*;
use crate::store::Served;

/// What Linux and macOS call EIO.
const EIO: i32 = 5;

#[test]
fn reads_that_stop_short_are_continued() {
    for most in [1, 7, 511, 512, 1000] {
        let files = Files::new(move |_| Does::Short(most));
        fetch(&store(&files, 2), 1, 3).unwrap();
    }
}

#[test]
fn interrupted_reads_are_made_again() {
    let files = Files::new(|call| match call.number % 3 {
        0 => Does::Fail(io::ErrorKind::Interrupted),
        1 => Does::Short(1000),
        _ => Does::Read,
    });
    fetch(&store(&files, 2), 2, 0).unwrap();
}

#[test]
fn a_store_whose_reads_are_interrupted_for_ever_can_be_dropped() {
    let files = Files::new(|_| Does::Fail(io::ErrorKind::Interrupted));
    let store = store(&files, 2);
    let ticket = store.request(0, 0).unwrap();
    let cancelled = || files.n_calls() > 3;
    assert!(matches!(store.wait(&ticket, &cancelled), Err(StoreError::Cancelled)));
    drop(store);
}

#[test]
fn a_read_that_fails_once_is_an_error_and_the_next_request_succeeds() {
    for failing in 0..MATRICES.len() {
        let files = Files::new(move |call| if call.number == failing { Does::System(EIO) } else { Does::Read });
        let store = store(&files, 2);
        let ticket = store.request(1, 6).unwrap();
        let error = check(&store, &ticket).unwrap_err();
        let message = error.to_string();
        let reason = io::Error::from_raw_os_error(EIO).to_string();
        for part in ["model-00002-of-00002.gguf", "expert 6", "layer 1", &reason] {
            assert!(message.contains(part), "`{message}` lacks `{part}`");
        }
        let StoreError::Read { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.raw_os_error(), Some(EIO));
        assert!(store.is_ready(&ticket) && !store.resident(1, 6));
        drop(ticket);
        fetch(&store, 1, 6).unwrap();
        assert_eq!(store.counters().failed_reads, 1);
    }
}

#[test]
fn all_tickets_of_a_failed_read_hear_of_it() {
    let files = Files::new(|call| if call.number == 0 { Does::System(EIO) } else { Does::Read });
    let store = store(&files, 2);
    let tickets = store.request_all(0, &[4, 4]).unwrap();
    assert_eq!(tickets[1].served(), Served::Hit);
    for ticket in &tickets {
        assert!(matches!(check(&store, ticket), Err(StoreError::Read { .. })));
    }
}

#[test]
fn a_request_tries_again_while_others_still_hold_the_failed_one() {
    let files = Files::new(|call| if call.number == 0 { Does::System(EIO) } else { Does::Read });
    let store = store(&files, 2);
    let failed = store.request(0, 4).unwrap();
    assert!(check(&store, &failed).is_err());
    let again = store.request(0, 4).unwrap();
    assert_eq!(again.served(), Served::Miss);
    check(&store, &again).unwrap();
    check(&store, &failed).unwrap();
}

#[test]
fn reads_that_fail_for_ever_pin_nothing() {
    let files = Files::new(|call| if call.file == 1 { Does::System(EIO) } else { Does::Read });
    let store = store(&files, 2);
    for round in 0..20 {
        store.prefetch(1, round % N_EXPERTS);
        let tickets = store.request_all(1, &[0, 1, 2, 3, 4, 5]).unwrap();
        for ticket in &tickets {
            assert!(check(&store, ticket).is_err());
        }
        assert!(matches!(store.wait_any(&tickets, &never), Err(StoreError::Read { layer: 1, .. })));
    }
    // Layers 0 and 2 lie in the other file.
    for expert in 0..N_EXPERTS {
        fetch(&store, 0, expert).unwrap();
    }
    let all = store.request_all(2, &[0, 1, 2, 3, 4, 5]).unwrap();
    all.iter().for_each(|ticket| check(&store, ticket).unwrap());
}

#[test]
fn a_prefetch_that_fails_is_forgotten() {
    let files = Files::new(|call| if call.number == 0 { Does::System(EIO) } else { Does::Read });
    let store = store(&files, 2);
    assert!(store.prefetch(0, 1));
    while store.counters().failed_reads == 0 {
        std::thread::yield_now();
    }
    assert!(!store.resident(0, 1));
    let ticket = store.request(0, 1).unwrap();
    assert_eq!(ticket.served(), Served::Miss);
    check(&store, &ticket).unwrap();
}

#[test]
fn a_file_that_ends_inside_an_expert_is_an_error_that_says_where() {
    let end = place(0, 2, 2).offset + 100;
    let files = Files::new(move |call| match end.saturating_sub(call.offset) {
        left if left < call.len as u64 => Does::Short(left as usize),
        _ => Does::Read,
    });
    let store = store(&files, 2);
    fetch(&store, 0, 1).unwrap();
    let error = fetch(&store, 0, 2).unwrap_err();
    assert!(error.to_string().contains(&format!("ends at byte {end}, inside expert 2 of layer 0")), "{error}");
}

#[test]
fn a_file_may_end_with_its_last_expert() {
    // The read is aligned out past the end.
    let last = place(2, N_EXPERTS - 1, 2);
    let end = last.offset + last.len;
    let files = Files::new(move |call| match end.saturating_sub(call.offset) {
        left if left < call.len as u64 => Does::Short(left as usize),
        _ => Does::Read,
    });
    fetch(&store(&files, 2), 2, N_EXPERTS - 1).unwrap();
}

#[test]
fn a_thread_that_panics_fails_its_expert_and_serves_the_next() {
    let files = Files::new(|call| if call.number % 4 == 0 { Does::Panic } else { Does::Read });
    let store = store(&files, 2);
    let error = fetch(&store, 0, 3).unwrap_err();
    assert!(matches!(error, StoreError::Panicked { layer: 0, expert: 3, .. }), "{error:?}");
    fetch(&store, 0, 3).unwrap();
    assert!(fetch(&store, 0, 4).is_err());
}

#[test]
fn threads_that_panic_for_ever_hang_nobody() {
    let files = Files::new(|_| Does::Panic);
    let store = store_with(&files, StoreOptions { n_io_threads: 3, ..options(2, 512) });
    for expert in 0..N_EXPERTS {
        store.prefetch(1, expert);
        assert!(matches!(fetch(&store, 0, expert), Err(StoreError::Panicked { .. })));
    }
}
