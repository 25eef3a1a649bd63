//! How much memory this process may use: the machine's, or less where a control group says so.

use std::path::{Path, PathBuf};

/// Memory that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Most that the process may ever hold, in bytes.
    pub total_bytes: u64,
    /// What it could take now without pushing anything else out, in bytes.
    pub available_bytes: u64,
    /// What sets `total_bytes`.
    pub source: MemorySource,
}

/// What limits the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// The machine.
    Machine,
    /// A control group's limit, as containers set it.
    Cgroup,
}

impl Memory {
    /// Asks the system; `None` where it does not say.
    pub fn detect() -> Option<Self> {
        let machine = machine()?;
        Some(cgroup_limits(Path::new("/")).into_iter().fold(machine, |memory, (limit, used)| {
            let available_bytes = memory.available_bytes.min(limit.saturating_sub(used));
            if limit < memory.total_bytes {
                Memory { total_bytes: limit, available_bytes, source: MemorySource::Cgroup }
            } else {
                Memory { available_bytes, ..memory }
            }
        }))
    }
}

/// Bytes that this process holds in memory now; what a small program holds where the system does not say.
pub fn process_bytes() -> u64 {
    const SMALL_PROGRAM: u64 = 64 << 20;
    resident_bytes().unwrap_or(SMALL_PROGRAM)
}

#[cfg(target_os = "linux")]
fn resident_bytes() -> Option<u64> {
    // The second number of `statm` is the resident size, in pages.
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> Option<u64> {
    let (pid, mut system) = (sysinfo::get_current_pid().ok()?, sysinfo::System::new());
    system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[pid]), false);
    system.process(pid).map(|process| process.memory())
}

#[cfg(target_os = "linux")]
fn machine() -> Option<Memory> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

#[cfg(not(target_os = "linux"))]
fn machine() -> Option<Memory> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    Some(Memory {
        total_bytes: system.total_memory(),
        available_bytes: system.available_memory(),
        source: MemorySource::Machine,
    })
}

#[cfg(any(target_os = "linux", test))]
fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let total_bytes = field("MemTotal")?;
    // Kernels before 3.14 have no MemAvailable; what is free is then the safe answer.
    let available_bytes = field("MemAvailable").or_else(|| field("MemFree"))?;
    Some(Memory { total_bytes, available_bytes, source: MemorySource::Machine })
}

/// Limit and use, in bytes, of every control group that this process is in and that has a limit: its own and all above
/// it, version 1 or 2. `root` is `/` but in tests.
fn cgroup_limits(root: &Path) -> Vec<(u64, u64)> {
    let Ok(groups) = std::fs::read_to_string(root.join("proc/self/cgroup")) else { return Vec::new() };
    let mut limits = Vec::new();
    for line in groups.lines() {
        // Lines are `id:controllers:path`; version 2 has id 0 and no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, limit, usage) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max", "memory.current")
        } else if controllers.split(',').any(|c| c == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        let mount = root.join(mount);
        let mut group: PathBuf = path.trim_start_matches('/').into();
        loop {
            let folder = mount.join(&group);
            // Inside a container the path may be the host's and not exist; the mount's own root is the group then.
            if let Some(limit) = number(&folder.join(limit)) {
                limits.push((limit, working_set(&folder, usage)));
            }
            if !group.pop() {
                break;
            }
        }
    }
    limits
}

/// Bytes charged to the group that cannot be taken back: its use less the file pages that the kernel may drop.
fn working_set(folder: &Path, usage: &str) -> u64 {
    let used = number(&folder.join(usage)).unwrap_or(0);
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let inactive = stat.lines().find_map(|line| {
        line.strip_prefix("total_inactive_file ").or_else(|| line.strip_prefix("inactive_file "))?.trim().parse().ok()
    });
    used.saturating_sub(inactive.unwrap_or(0))
}

/// The number in a control file; `None` for `max`, or where there is none.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = Memory::detect().unwrap();
        assert!(memory.total_bytes > 1 << 26 && memory.available_bytes <= memory.total_bytes);
    }

    #[test]
    fn this_process_holds_some_of_it() {
        let held = process_bytes();
        assert!(held > 1 << 20 && held < Memory::detect().unwrap().total_bytes);
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        let memory = parse_meminfo("MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    400 kB\n").unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (1_024_000, 409_600));
        assert_eq!(parse_meminfo("garbage"), None);
    }

    #[test]
    fn every_limit_on_the_way_to_the_root_counts_in_version_2() {
        let root = tree(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "300\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ]);
        assert_eq!(cgroup_limits(root.path()), [(1000, 200)]);
    }

    #[test]
    fn version_1_is_read_and_a_path_of_the_host_falls_back_to_the_mount() {
        let root = tree(&[
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "500\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n"),
        ]);
        assert_eq!(cgroup_limits(root.path()), [(500, 100)]);
    }

    #[test]
    fn no_control_groups_are_no_limit() {
        assert_eq!(cgroup_limits(tree(&[("proc/other", "")]).path()), []);
    }
}
