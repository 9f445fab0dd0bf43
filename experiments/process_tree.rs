//! CPU time and memory of a process and its descendants, from `/proc`, which also lists the
//! processes of a lab.

use std::fs;

/// The ticks of a second in `/proc`: USER_HZ, which is 100 on all architectures that Levada runs
/// on.
const TICKS: f64 = 100.0;

/// A process and its descendants.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTree(pub u32);

impl ProcessTree {
    /// CPU time of the running processes so far, in seconds; the resolution is a scheduler tick (4
    /// ms or less).
    pub fn cpu_seconds(self) -> f64 {
        let threads = self.processes().into_iter().flat_map(threads);
        threads.filter_map(|path| nanoseconds(&format!("{path}/schedstat"))).sum::<f64>() * 1e-9
    }

    /// CPU time of the running processes so far, and of those that ended and were waited for, in
    /// seconds. It is counted in ticks of 10 ms.
    pub fn all_cpu_seconds(self) -> f64 {
        self.processes().into_iter().map(|process| ticks(process).iter().sum::<f64>()).sum()
    }

    /// CPU time of the children of the first process that have ended and were waited for, and of
    /// theirs, in seconds. It is counted in ticks of 10 ms.
    pub fn ended_cpu_seconds(self) -> f64 {
        let [_, _, user, system] = ticks(self.0);
        user + system
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

/// CPU time of a process and of its children that were waited for, each as user and as system time,
/// in seconds; 0 if it has ended. See proc_pid_stat(5), fields 14 to 17.
fn ticks(process: u32) -> [f64; 4] {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before it may have spaces, and parentheses.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut words = after_name.split_whitespace().skip(11);
    std::array::from_fn(|_| {
        let ticks: Option<f64> = words.next().and_then(|word| word.parse().ok());
        ticks.unwrap_or(0.0) / TICKS
    })
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
        let family = ProcessTree(child.id());
        let begun = Instant::now();
        let mut seconds = 0.0;
        let mut all = 0.0;
        while (seconds < 0.05 || all < 0.05) && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
            (seconds, all) = (family.cpu_seconds(), family.all_cpu_seconds());
        }
        let memory = family.memory();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
        assert!(seconds >= 0.05 && all >= 0.05, "{seconds}, {all}");
        assert!(memory > 1 << 16, "{memory}");
    }

    #[test]
    fn measures_the_cpu_time_of_a_child_that_has_ended() {
        let this = ProcessTree(std::process::id());
        let before = this.ended_cpu_seconds();
        let begun = Instant::now();
        while this.ended_cpu_seconds() < before + 0.05 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
            assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        }
    }

    #[test]
    fn a_missing_process_has_no_cpu_time_and_memory() {
        let none = ProcessTree(u32::MAX);
        assert_eq!((none.cpu_seconds(), none.memory()), (0.0, 0));
        assert_eq!(none.all_cpu_seconds(), 0.0);
    }
}
