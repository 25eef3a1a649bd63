//! How many compute threads pay.

use std::collections::BTreeSet;

/// Threads for compute: physical cores that this process may use, within its CPU quota; at least 1.
///
/// The standard library counts the processors of the affinity mask and of the cgroup's quota. Two hyper-threads of one
/// core share its vector units, so a second thread there gains nothing.
pub fn compute_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    allowed.min(physical_cores().unwrap_or(allowed)).max(1)
}

/// Distinct cores, by the sets of hyper-threads that the kernel lists; `None` where it lists none.
fn physical_cores() -> Option<usize> {
    let cores: BTreeSet<String> = std::fs::read_dir("/sys/devices/system/cpu")
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path().join("topology/thread_siblings_list");
            std::fs::read_to_string(path).ok()
        })
        .collect();
    (!cores.is_empty()).then_some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_thread_and_never_more_than_processors() {
        let n = compute_threads();
        assert!(n >= 1 && n <= std::thread::available_parallelism().unwrap().get());
    }
}
