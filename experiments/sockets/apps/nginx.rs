//! nginx, and wrk as its client.

use std::fs;

use rustix::process::Signal;

use super::Report;
use super::programs::{Load, Program, number, seconds};
use super::setup::{Setup, Words};

const LARGE: usize = 1_000_000;

/// One worker: its client has the other core.
pub const NGINX: Program = Program {
    name: "nginx, wrk",
    package: "nginx-light wrk",
    needs: &["nginx", "wrk"],
    refuses_root: false,
    unit: "1/s",
    prepare: |setup| {
        fs::create_dir(setup.path().join("www"))?;
        fs::write(setup.path().join("www/small"), "fresh water\n")?;
        Ok(fs::write(setup.path().join("www/large"), vec![b'w'; LARGE])?)
    },
    server: |setup| nginx(setup, "worker_processes 1;"),
    is_ready: Setup::accepts,
    stop: Signal::TERM,
    loads: &[
        Load {
            name: "12 B, 1 connection",
            is_quick: true,
            client: |setup, quick| wrk(setup, quick, 1, "small"),
            read: read_wrk,
        },
        Load {
            name: "12 B, 20 connections",
            is_quick: true,
            client: |setup, quick| wrk(setup, quick, 20, "small"),
            read: read_wrk,
        },
        Load { name: CLOSING, is_quick: true, client: wrk_closing, read: read_wrk },
        Load {
            name: "1 MB, 20 connections",
            is_quick: false,
            client: |setup, quick| wrk(setup, quick, 20, "large"),
            read: read_wrk,
        },
    ],
};

/// A master that forks its worker shares the listener with it, and connections to such listeners
/// may be the kernel's.
pub const NGINX_ALONE: Program = Program {
    name: "nginx in one process, wrk",
    server: |setup| nginx(setup, "master_process off;"),
    loads: &[Load { name: CLOSING, is_quick: false, client: wrk_closing, read: read_wrk }],
    ..NGINX
};

/// The load whose connections end after one answer.
pub const CLOSING: &str = "12 B, 20 connections, `Connection: close`";

fn wrk_closing(setup: &Setup, quick: bool) -> Words {
    let words = wrk(setup, quick, 20, "small");
    words.and_one("--header").and_one("Connection: close")
}

/// The command, after its configuration is written.
fn nginx(setup: &Setup, first: &str) -> anyhow::Result<Words> {
    let folder = setup.path().display();
    let port = setup.port();
    let configuration = format!(
        "{first}\ndaemon off;\npid {folder}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 200; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  open_file_cache max=100;\n  keepalive_requests 10000000;\n  \
         client_body_temp_path {folder}/body;\n  proxy_temp_path {folder}/proxy;\n  \
         fastcgi_temp_path {folder}/fastcgi;\n  uwsgi_temp_path {folder}/uwsgi;\n  \
         scgi_temp_path {folder}/scgi;\n  \
         server {{ listen 127.0.0.1:{port}; root {folder}/www; }}\n}}\n"
    );
    let path = setup.path().join("nginx.conf");
    fs::write(&path, configuration)?;
    Ok(Words::new(["nginx", "-e", "stderr", "-p"]).and(&format!("{folder} -c {}", path.display())))
}

fn wrk(setup: &Setup, quick: bool, connections: u32, file: &str) -> Words {
    let seconds = seconds(quick);
    let port = setup.port();
    let words =
        format!("-t1 -c{connections} -d{seconds}s --latency http://127.0.0.1:{port}/{file}");
    Words::new(["wrk"]).and(&words)
}

/// None if answers were errors.
fn read_wrk(text: &str) -> Option<Report> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    let line = text.lines().find_map(|line| line.trim().strip_prefix("50%"))?.trim();
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (time, unit) =
        units.iter().find_map(|(unit, size)| Some((line.strip_suffix(unit)?, size)))?;
    let time = time.parse::<f64>().ok()? * unit;
    Some(Report { rate: number(text, "Requests/sec:")?, time: Some(time) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_figures_of_wrk() {
        let text = "  Latency Distribution\n     50%   85.00us\n     75%    1.20ms\n\
                    Requests/sec:  11234.50\nTransfer/sec:      2.9MB";
        let report = read_wrk(text).unwrap();
        assert_eq!((report.rate, report.time), (11234.5, Some(85.0)));
        let slow = read_wrk(&text.replace("85.00us", "1.50ms")).unwrap();
        assert_eq!(slow.time, Some(1500.0));
        assert!(read_wrk(&format!("{text}\n  Non-2xx or 3xx responses: 3")).is_none());
    }
}
