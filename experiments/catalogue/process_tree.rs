//! CPU time and memory of a process and its descendants, from `/proc`, which also lists the processes of a lab.

use std::fs;

/// A process and its descendants.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTree(pub u32);

impl ProcessTree {
    /// CPU time of the running processes so far, in seconds; the resolution is a scheduler tick (4 ms or less).
    pub fn cpu_seconds(self) -> f64 {
        let threads = self.processes().into_iter().flat_map(threads);
        threads.filter_map(|path| nanoseconds(&format!("{path}/schedstat"))).sum::<f64>() * 1e-9
    }

    /// Resident memory of the largest process, in bytes: the launchers in a lab are small.
    pub fn memory(self) -> u64 {
        let sizes = self.processes().into_iter().filter_map(resident);
        sizes.max().unwrap_or(0)
    }

    fn processes(self) -> Vec<u32> {
        let mut all = vec![self.0];
        let mut next = 0;
        while let Some(&process) = all.get(next) {
            next += 1;
            for thread in threads(process) {
                let text = fs::read_to_string(format!("{thread}/children")).unwrap_or_default();
                all.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
            }
        }
        all
    }
}

/// The folders of a process's threads; none if it has ended.
fn threads(process: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path().to_str()?.to_owned())).collect()
}

/// The first number of a file.
fn nanoseconds(path: &str) -> Option<f64> {
    fs::read_to_string(path).ok()?.split(' ').next()?.parse().ok()
}

fn resident(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn measures_cpu_time_and_memory_of_descendants() {
        // The first process only waits for its busy child.
        let script = "while :; do :; done & trap 'kill $!' TERM; wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let (family, begun) = (ProcessTree(child.id()), Instant::now());
        let mut seconds = 0.0;
        while seconds < 0.05 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
            seconds = family.cpu_seconds();
        }
        let memory = family.memory();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
        assert!(seconds >= 0.05, "{seconds}");
        assert!(memory > 1 << 16, "{memory}");
    }

    #[test]
    fn a_missing_process_has_no_cpu_time_and_memory() {
        let none = ProcessTree(u32::MAX);
        assert_eq!((none.cpu_seconds(), none.memory()), (0.0, 0));
    }
}
