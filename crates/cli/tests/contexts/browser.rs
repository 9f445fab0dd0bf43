//! A page of many parts in a browser, through `levada http`: headless Chromium, controlled by
//! `browser.mjs`, and nginx.
//!
//! Needs Debian's `chromium`, `node` and `nginx`, and `LEVADA_PLAYWRIGHT`: a folder in which
//! `npm install playwright-core` was run. `scripts/test --all` provides them.

use std::fmt::Write;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Service;
use crate::support::{Home, Watchdog, eventually, own_loopback};

/// Parts of each kind: style sheets, scripts, pictures.
const PARTS: [(&str, usize); 3] = [("css", 30), ("js", 30), ("svg", 40)];

/// nginx with the page, and a log with a line for each request.
struct Origin {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Origin {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_page(folder.path());
        let address = format!("{}:8401", own_loopback());
        let at = folder.path().display();
        let text = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
            events {{}}
            http {{
                types {{ text/html html; text/css css; text/javascript js; image/svg+xml svg; }}
                log_format parts '$status $request_uri'; access_log {at}/requests.log parts;
                server {{ listen {address}; root {at}; }}
            }}"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(folder.path()).arg("-c").arg(&file);
        let child = nginx.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let origin = Self { child, address, folder };
        eventually("nginx listens", || TcpStream::connect(&origin.address).is_ok());
        origin
    }

    /// The requests so far, a status and a path each.
    fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("requests.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page that counts which of its parts have arrived: `browser.mjs` reads the counts.
fn write_page(folder: &Path) {
    let [(_, css), (_, js), (_, svg)] = PARTS;
    let mut page = "<!doctype html><title>parts</title><link rel=icon href=data:,>\n".to_owned();
    for number in 0..css {
        writeln!(page, "<link rel=stylesheet href=part{number}.css>").unwrap();
        let rule = format!(":root {{ --part{number}: arrived }}\n{}", filler(number));
        fs::write(folder.join(format!("part{number}.css")), rule).unwrap();
    }
    page += "<script>window.scripts = 0</script>\n";
    for number in 0..js {
        writeln!(page, "<script src=part{number}.js></script>").unwrap();
        let script = format!("window.scripts += 1;\n{}", filler(number));
        fs::write(folder.join(format!("part{number}.js")), script).unwrap();
    }
    for number in 0..svg {
        writeln!(page, "<img src=part{number}.svg>").unwrap();
        let picture = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>";
        let text = format!("{picture}<!--{}-->", "x".repeat(number * 700));
        fs::write(folder.join(format!("part{number}.svg")), text).unwrap();
    }
    fs::write(folder.join("index.html"), page).unwrap();
}

/// Parts have different lengths, up to some records.
fn filler(number: usize) -> String {
    format!("/* {} */\n", "x".repeat(number * 1500))
}

/// Loads the page with the field `field` in every answer, or without it, and counts its parts in
/// the browser and at the origin.
fn load(url: &str, origin: &Origin, field: Option<&str>) {
    let before = origin.requests().len();
    let playwright = std::env::var_os("LEVADA_PLAYWRIGHT")
        .expect("LEVADA_PLAYWRIGHT is not set: run scripts/test --all");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/contexts/browser.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(url).env("LEVADA_PLAYWRIGHT", playwright);
    command.args(PARTS.map(|(_, count)| count.to_string())).args(field);
    let mut browser = command.stdin(Stdio::null()).spawn().expect("node is not installed");
    let watchdog = Watchdog::over(browser.id());
    let status = browser.wait().unwrap();
    drop(watchdog);
    assert!(status.success());
    let requests = || origin.requests()[before..].to_vec();
    let total = 1 + PARTS.iter().map(|(_, count)| count).sum::<usize>();
    // nginx writes its line when the answer has left.
    eventually("the origin has all requests", || requests().len() >= total);
    let mut seen = requests();
    seen.sort();
    let paths = PARTS.iter().flat_map(|(kind, count)| {
        (0..*count).map(move |number| format!("200 /part{number}.{kind}"))
    });
    let mut expected: Vec<String> = paths.chain(["200 /".to_owned()]).collect();
    expected.sort();
    assert_eq!(seen, expected, "each part was requested once");
}

#[test]
fn a_browser_loads_a_page_of_a_hundred_parts() {
    let origin = Origin::start();
    let [client, office, well] = [Home::new(), Home::new(), Home::new()];
    let file = well.path().join("web.toml");
    let identity = office.identity();
    let text = format!(
        "name = 'web'\ntype = 'http'\norigin = '{}'\n\
         [[middlebox]]\nidentity = '{identity}'\nallow = 'request-head=r,response-head=rw'\n",
        origin.address
    );
    fs::write(&file, text).unwrap();
    // With the default limits of sessions.
    let node = well.up(&format!("--service {} --allow {}", file.display(), client.identity()));
    let at = node.address();
    let add = ["middlebox", "--next", &at, "--add-response", "X-Checked: yes"];
    let middlebox = Service::start(&office, &add);
    let via = format!("{}:request-head=r,response-head=rw", middlebox.address);
    let target = format!("{}@{at}/web", well.identity());
    let through = Service::start(&client, &["http", "--via", &via, &target]);
    load(&through.address, &origin, Some("x-checked"));
    let sessions = well.json("sessions")["sessions"].take();
    let count = sessions.as_array().unwrap().len();
    assert!((1..=6).contains(&count), "{count} sessions");
    let direct = Service::start(&client, &["http", &target]);
    load(&direct.address, &origin, None);
    for log in [node.log(), through.log(), direct.log()] {
        assert!(!log.contains("limits."), "{log}");
    }
}
