//! The kernel's work for a message over TCP, by the functions in which perf(1) finds it.

use std::process::{Command, Stdio};
use std::{env, thread};

use anyhow::{Context, ensure};
use levada_harness::pin;

use super::exchange::{MESSAGE, receive_exactly};
use super::peer::use_all_cores;
use super::subject::Subject;

/// The time between two samples of a running thread, in nanoseconds.
const PERIOD: f64 = 50_000.0;

/// A part of the work, and the beginnings of the names of its functions.
type Part = (&'static str, &'static [&'static str]);

/// A sample belongs to the first function from the innermost one on that is named here.
const PARTS: [Part; 5] = [
    (
        "buffers",
        &[
            "__alloc_skb",
            "alloc_skb",
            "tcp_stream_alloc_skb",
            "kmem_cache",
            "__kmalloc",
            "kmalloc",
            "kfree",
            "__kfree_skb",
            "skb_release",
            "skb_clone",
            "__skb_clone",
            "consume_skb",
            "napi_consume_skb",
            "skb_attempt_defer_free",
            "skb_free",
            "sk_free",
            "sock_wfree",
            "tcp_wfree",
            "sk_stream_alloc",
        ],
    ),
    // Of the lines with their own measurements: waking, sleeping, copying.
    (
        "",
        &[
            "sock_def_readable",
            "__wake_up",
            "try_to_wake_up",
            "ttwu",
            "schedule",
            "__schedule",
            "wait_woken",
            "sk_wait_data",
            "_copy",
            "copy_",
            "__copy",
            "skb_copy",
            "rep_movs",
            "simple_copy",
        ],
    ),
    ("transport", &["tcp_", "__tcp_", "bbr_", "inet_send", "inet_recv", "sk_reset_timer"]),
    (
        "packet handling",
        &[
            "ip_",
            "__ip_",
            "ipv4_",
            "inet_gso",
            "nf_",
            "dev_",
            "__dev_",
            "netif_",
            "__netif_",
            "loopback_",
            "process_backlog",
            "enqueue_to_backlog",
            "__napi",
            "net_rx_action",
            "handle_softirqs",
            "do_softirq",
            "__do_softirq",
            "validate_xmit",
            "eth_",
            "sch_",
            "skb_network",
            "fib_",
            "raw_local",
            "dst_",
        ],
    ),
    ("", &["do_syscall", "entry_SYSCALL", "__x64_sys", "__sys_", "sock_"]),
];

/// The time of each part for one message, in nanoseconds; nothing without perf(1).
pub fn kernel(quick: bool) -> anyhow::Result<Vec<(&'static str, f64)>> {
    if crate::binary::find("perf", []).is_none() {
        eprintln!("the parts of a packet are left out: `perf` is not installed");
        return Ok(Vec::new());
    }
    let trips: u32 = if quick { 10_000 } else { 50_000 };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("samples");
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "--event", "cpu-clock", "--count", &PERIOD.to_string()]);
    record.args(["--call-graph", "fp", "--output"]).arg(&file).arg("--");
    record.arg(env::current_exe()?).args(["sockets", "exchange", &trips.to_string()]);
    let status = record.stdout(Stdio::null()).status().context("run perf")?;
    ensure!(status.success(), "perf record ended with {status}");
    let mut script = Command::new("perf");
    script.arg("script").arg("--input").arg(&file).args(["--fields", "ip,sym"]);
    let output = script.stderr(Stdio::null()).output().context("run perf")?;
    ensure!(output.status.success(), "perf script ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(sums(&text, 2.0 * f64::from(trips)))
}

/// The times of the parts that have a name, for one of `messages`.
fn sums(text: &str, messages: f64) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    for (name, _) in PARTS.iter().filter(|(name, _)| !name.is_empty()) {
        let is_part = |stack: &&str| part_of(stack) == Some(*name);
        let count = text.split("\n\n").filter(is_part).count();
        sums.push((*name, count as f64 * PERIOD / messages));
    }
    sums
}

/// The part that a stack belongs to; its innermost function is in its first line.
fn part_of(stack: &str) -> Option<&'static str> {
    let mut functions = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
    let part = |function: &str| {
        let begins = |(_, names): &&Part| names.iter().any(|name| function.starts_with(name));
        PARTS.iter().find(begins).map(|(name, _)| *name)
    };
    functions.find_map(part)
}

/// Exchanges messages over TCP between two threads, each with a core of its own.
pub fn exchange(trips: u32) -> anyhow::Result<()> {
    use_all_cores()?;
    let [mut near, mut far] = Subject::Tcp.connect()?;
    let echo = thread::spawn(move || {
        pin(1)?;
        let mut message = [0; MESSAGE];
        while receive_exactly(&mut *far, &mut message)? {
            far.send(&message)?;
        }
        anyhow::Ok(())
    });
    pin(0)?;
    let mut message = [7; MESSAGE];
    for _ in 0..trips {
        near.send(&message)?;
        ensure!(receive_exactly(&mut *near, &mut message)?, "the other end has ended");
    }
    near.finish()?;
    echo.join().ok().context("the other end panicked")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_for_its_innermost_part() {
        let text = "  ffff1 _raw_spin_lock\n  ffff2 tcp_v4_rcv\n  ffff3 ip_rcv\n\n\
                    \x20 ffff1 try_to_wake_up\n  ffff2 tcp_data_ready\n\n\
                    \x20 ffff1 __alloc_skb\n  ffff2 tcp_sendmsg\n\n  7f00 [unknown]\n";
        let expected = [("buffers", PERIOD), ("transport", PERIOD), ("packet handling", 0.0)];
        assert_eq!(sums(text, 1.0), expected);
    }
}
