//! The programs and their loads.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::Report;
use super::nginx::{NGINX, NGINX_ALONE};
use super::setup::{Setup, Words};

/// A server, and the loads that clients put on it.
pub struct Program {
    /// Its name in rows.
    pub name: &'static str,
    /// The Debian packages of server and client.
    pub package: &'static str,
    /// The programs that must be installed.
    pub needs: &'static [&'static str],
    /// It does not run as root.
    pub refuses_root: bool,
    /// The unit of its rates.
    pub unit: &'static str,
    /// Makes its files.
    pub prepare: fn(&Setup) -> anyhow::Result<()>,
    /// The server.
    pub server: fn(&Setup) -> anyhow::Result<Words>,
    /// Whether it has started.
    pub is_ready: fn(&Setup) -> bool,
    /// The signal that ends it.
    pub stop: Signal,
    /// The loads.
    pub loads: &'static [Load],
}

/// A load.
pub struct Load {
    /// Its name in rows.
    pub name: &'static str,
    /// Whether a quick run has it.
    pub is_quick: bool,
    /// The client; the last parameter says whether the run is quick.
    pub client: fn(&Setup, bool) -> Words,
    /// Finds the figures in its output.
    pub read: fn(&str) -> Option<Report>,
}

/// All of them.
pub const PROGRAMS: &[Program] = &[NGINX, NGINX_ALONE, REDIS, MEMCACHED, IPERF3, POSTGRES];

/// The newest PostgreSQL of Debian is not in the path.
pub fn path_of(program: &str) -> String {
    if !["postgres", "initdb", "pgbench"].contains(&program) {
        return program.to_owned();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let all = versions.map(|version| version.path().join("bin").join(program));
    let newest: Option<PathBuf> = all.filter(|path| path.is_file()).max();
    newest.map_or(program.to_owned(), |path| path.display().to_string())
}

/// The number behind a text.
pub fn number(text: &str, before: &str) -> Option<f64> {
    let rest = text.split_once(before)?.1.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// The seconds of a load.
pub fn seconds(quick: bool) -> u32 {
    if quick { 1 } else { 2 }
}

const REDIS: Program = Program {
    name: "redis",
    package: "redis-server redis-tools",
    needs: &["redis-server", "redis-benchmark"],
    refuses_root: false,
    unit: "1/s",
    prepare: |_| Ok(()),
    server: |setup| {
        let words = format!("--bind 127.0.0.1 --port {} --appendonly no", setup.port());
        let words = Words::new(["redis-server"]).and(&words);
        Ok(words.and(&format!("--dir {} --save", setup.path().display())).and_one(""))
    },
    is_ready: Setup::accepts,
    stop: Signal::TERM,
    loads: &[
        Load {
            name: "GET, 1 client",
            is_quick: true,
            client: |setup, quick| {
                redis_benchmark(setup, if quick { 10_000 } else { 20_000 }, "-c 1")
            },
            read: read_redis,
        },
        Load {
            name: "GET, 20 clients",
            is_quick: true,
            client: |setup, quick| {
                redis_benchmark(setup, if quick { 50_000 } else { 100_000 }, "-c 20")
            },
            read: read_redis,
        },
        Load {
            name: "GET, 20 clients, 16 at a time",
            is_quick: false,
            client: |setup, _| redis_benchmark(setup, 1_000_000, "-c 20 -P 16"),
            read: read_redis,
        },
    ],
};

fn redis_benchmark(setup: &Setup, count: u32, clients: &str) -> Words {
    let words = format!("-p {} --csv -t get -n {count} {clients}", setup.port());
    Words::new(["redis-benchmark"]).and(&words)
}

fn read_redis(text: &str) -> Option<Report> {
    let line = text.lines().find(|line| line.starts_with("\"GET\""))?;
    let cells: Vec<&str> = line.split(',').map(|cell| cell.trim_matches('"')).collect();
    // Name, rate; then in milliseconds: average, least, p50.
    let value = |at: usize| cells.get(at)?.parse::<f64>().ok();
    Some(Report { rate: value(1)?, time: Some(value(4)? * 1e3) })
}

const MEMCACHED: Program = Program {
    name: "memcached, memcslap",
    package: "memcached libmemcached-tools",
    needs: &["memcached", "memcslap"],
    refuses_root: false,
    unit: "1/s",
    prepare: |_| Ok(()),
    server: |setup| {
        let words = format!("-l 127.0.0.1 -p {} -U 0 -t 1 -u daemon", setup.port());
        Ok(Words::new(["memcached"]).and(&words))
    },
    is_ready: Setup::accepts,
    stop: Signal::TERM,
    loads: &[
        Load {
            name: "get, 1 client",
            is_quick: true,
            client: |setup, quick| memcslap(setup, 1, if quick { 10_000 } else { 20_000 }),
            read: read_memcslap,
        },
        Load {
            name: "get, 10 clients",
            is_quick: false,
            client: |setup, _| memcslap(setup, 10, 10_000),
            read: read_memcslap,
        },
    ],
};

fn memcslap(setup: &Setup, clients: u32, each: u32) -> Words {
    let server = format!("--servers=127.0.0.1:{}", setup.port());
    let load = format!("--concurrency={clients} --execute-number={each} --test=get --tcp-nodelay");
    Words::new(["memcslap".to_owned(), server]).and(&load)
}

fn read_memcslap(text: &str) -> Option<Report> {
    let line = text.lines().find(|line| line.starts_with("Time to get"))?;
    let rate = number(line, "Time to get")? / number(line, "threads:")?;
    Some(Report { rate, time: None })
}

const IPERF3: Program = Program {
    name: "iperf3",
    package: "iperf3",
    needs: &["iperf3"],
    refuses_root: false,
    unit: "MB/s",
    prepare: |_| Ok(()),
    server: |setup| Ok(Words::new(["iperf3"]).and(&format!("-s -B 127.0.0.1 -p {}", setup.port()))),
    // A connection without a test would disturb it.
    is_ready: |setup| {
        let listening = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        listening.contains(&format!("0100007F:{:04X} 00000000:0000 0A", setup.port()))
    },
    stop: Signal::TERM,
    loads: &[
        Load {
            name: "128 KiB writes",
            is_quick: true,
            client: |setup, quick| iperf3(setup, quick, ""),
            read: read_iperf3,
        },
        Load {
            name: "1 KiB writes",
            is_quick: false,
            client: |setup, quick| iperf3(setup, quick, "-l 1K"),
            read: read_iperf3,
        },
    ],
};

fn iperf3(setup: &Setup, quick: bool, more: &str) -> Words {
    let words = format!("-c 127.0.0.1 -p {} -t {} --json {more}", setup.port(), seconds(quick));
    Words::new(["iperf3"]).and(&words)
}

fn read_iperf3(text: &str) -> Option<Report> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64()?;
    Some(Report { rate: bits / 8e6, time: None })
}

const USER: &str = "-U water -h 127.0.0.1";

/// The server refuses to run as root, and its clients have the same user.
const POSTGRES: Program = Program {
    name: "PostgreSQL, pgbench",
    package: "postgresql",
    needs: &["postgres", "initdb", "pgbench", "setpriv"],
    refuses_root: true,
    unit: "1/s",
    prepare: |setup| {
        let words = Words::new([path_of("initdb")]);
        let options = "--auth=trust --username=water --no-sync --no-locale -D";
        setup.make(&words.and(options).and(&data(setup.path())))?;
        Ok(())
    },
    server: |setup| {
        let folder = setup.path().display();
        let words = format!(
            "-c fsync=off -c listen_addresses=127.0.0.1 -p {} -k {folder} -D {}",
            setup.port(),
            data(setup.path())
        );
        Ok(Words::new([path_of("postgres")]).and(&words))
    },
    // The first one fills the tables.
    is_ready: |setup| {
        let words = format!("{USER} -p {} -i -q -s 1 postgres", setup.port());
        setup.accepts() && setup.make(&Words::new([path_of("pgbench")]).and(&words)).is_ok()
    },
    stop: Signal::INT,
    loads: &[
        Load {
            name: "SELECT, 1 client",
            is_quick: true,
            client: |setup, quick| pgbench(setup, quick, "-c 1"),
            read: read_pgbench,
        },
        Load {
            name: "SELECT, 4 clients",
            is_quick: false,
            client: |setup, quick| pgbench(setup, quick, "-c 4"),
            read: read_pgbench,
        },
    ],
};

fn data(folder: &Path) -> String {
    folder.join("data").display().to_string()
}

fn pgbench(setup: &Setup, quick: bool, clients: &str) -> Words {
    let options = format!("-n -S -M prepared -T {} {clients}", seconds(quick));
    let server = format!("{USER} -p {} {options} postgres", setup.port());
    Words::new([path_of("pgbench")]).and(&server)
}

/// Its average stands for the time of half.
fn read_pgbench(text: &str) -> Option<Report> {
    let time = number(text, "latency average =")? * 1e3;
    Some(Report { rate: number(text, "tps =")?, time: Some(time) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_figures_of_redis_benchmark() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\"\n\
                    \"GET\",\"12345.67\",\"0.080\",\"0.056\",\"0.079\",\"0.103\"\n";
        let report = read_redis(text).unwrap();
        assert_eq!((report.rate, report.time), (12345.67, Some(79.0)));
    }

    #[test]
    fn finds_the_figures_of_the_others() {
        let text = "Time to get            5000 keys by    1 threads:     0.500 seconds.\n";
        assert_eq!(read_memcslap(text).unwrap().rate, 10_000.0);
        let text = r#"{"end": {"sum_received": {"bits_per_second": 16000000}}}"#;
        assert_eq!(read_iperf3(text).unwrap().rate, 2.0);
        let text = "latency average = 0.123 ms\ntps = 8123.5 (without initial connection time)\n";
        let report = read_pgbench(text).unwrap();
        assert_eq!((report.rate, report.time), (8123.5, Some(123.0)));
        assert!(read_pgbench("failed").is_none());
    }
}
