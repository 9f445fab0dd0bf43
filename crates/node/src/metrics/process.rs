//! The metrics `process_*`, with the names and meanings of Prometheus' client libraries.

use std::fmt;
use std::fs;
use std::sync::OnceLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The unit of times in `/proc`, per second: USER_HZ, a constant of Linux on x86-64.
const TICKS: f64 = 100.0;
/// The index of the start time among the fields of `/proc/self/stat` behind the program's name
/// (proc_pid_stat(5): field 22, and the first one behind the name is field 3).
const START_TIME: usize = 19;

/// Reads the metrics of this process at each scrape. Those that cannot be read are left out.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "User and system CPU time spent in seconds";
        let cpu = ConstCounter::new(cpu_seconds());
        register(&mut encoder, "process_cpu_seconds", help, &cpu)?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes",
                bytes(&status, "VmRSS:"),
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes",
                bytes(&status, "VmSize:"),
            ),
            ("process_threads", "Number of OS threads", number(&status, "Threads:")),
            ("process_open_fds", "Number of open file descriptors", open_files()),
            (
                "process_max_fds",
                "Maximum number of open file descriptors",
                getrlimit(Resource::Nofile).current,
            ),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value.and_then(|value| i64::try_from(value).ok()) else { continue };
            register(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        let Some(start) = start_time() else { return Ok(()) };
        let help = "Start time of the process since unix epoch in seconds";
        register(&mut encoder, "process_start_time_seconds", help, &ConstGauge::new(start))
    }
}

fn register(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The number in a line of `/proc/self/status`.
fn number(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The bytes in a line of `/proc/self/status`, which has KiB.
fn bytes(status: &str, key: &str) -> Option<u64> {
    number(status, key)?.checked_mul(1024)
}

/// The number of open file descriptors.
fn open_files() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2, the length of the folder; 0 before.
    match fs::metadata(FOLDER).ok()?.len() {
        0 => Some(fs::read_dir(FOLDER).ok()?.count() as u64),
        count => Some(count),
    }
}

/// The time at which the process started, in seconds since 1970. It is read once, because it is
/// relative to the start of the machine, which is computed from its clock.
fn start_time() -> Option<f64> {
    static TIME: OnceLock<Option<f64>> = OnceLock::new();
    *TIME.get_or_init(|| {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let machine = fs::read_to_string("/proc/stat").ok()?;
        start_time_of(&stat, &machine)
    })
}

fn start_time_of(stat: &str, machine: &str) -> Option<f64> {
    // The program's name is in brackets, and may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(START_TIME)?.parse().ok()?;
    Some(number(machine, "btime ")? as f64 + ticks / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_proc_are_read_whatever_the_name_of_the_program() {
        let status = "Name:\tlevada\nVmSize:\t  2048 kB\nVmRSS:\t     3 kB\nThreads:\t7\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(3072));
        assert_eq!(number(status, "Threads:"), Some(7));
        assert_eq!(number(status, "VmSwap:"), None);
        let stat =
            "1 (a) b) S 0 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 9 0 250 4096 1 18446744073709551615";
        let machine = "cpu 1 2\nbtime 1000\n";
        assert_eq!(start_time_of(stat, machine), Some(1002.5));
        for cut in 0..stat.len() {
            let _ = start_time_of(&stat[..cut], machine);
        }
    }

    #[test]
    fn this_process_has_all_values() {
        assert!(cpu_seconds() > 0.0);
        assert!(open_files().is_some_and(|count| count > 2));
        assert!(start_time().is_some_and(|start| start > 1e9));
    }
}
