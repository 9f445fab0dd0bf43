//! HTTP through two middleboxes, each party on a host of its own: what each middlebox sees, by its
//! log and by its memory.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use levada_core::{Random, SystemRandom};

use super::scene::{Host, Scene, Up};
use crate::contexts::Service;
use crate::support::{Ran, eventually};

/// Part of a memory that is read at a time, in bytes.
const CHUNK: usize = 1 << 20;
/// The memory of a process that is searched at most, in bytes: far more than a middlebox uses.
const MAX_MEMORY: u64 = 1 << 30;

/// A text that is nowhere else in the memory of this machine's processes.
fn marker(name: &str) -> String {
    let mut random = [0; 12];
    SystemRandom.fill(&mut random).unwrap();
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}-{hex}")
}

/// What the exchange of the test consists of.
struct Markers {
    request_head: String,
    request_body: String,
    response_head: String,
    response_body: String,
}

impl Markers {
    fn new() -> Self {
        Self {
            request_head: marker("question"),
            request_body: marker("parcel"),
            response_head: marker("answer"),
            response_body: marker("content"),
        }
    }

    fn all(&self) -> [&str; 4] {
        [&self.request_head, &self.request_body, &self.response_head, &self.response_body]
    }
}

/// nginx on a host: `/page` is a file; `/exchange` reads the whole request into a file below
/// `body`, and then answers slowly.
fn nginx(host: &Host, markers: &Markers) -> Up {
    let folder = host.home.path().join("nginx");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("page"), "the page").unwrap();
    // At 64 KiB/s this takes longer than any test may.
    let line = format!("{}\n", markers.response_body);
    fs::write(folder.join("slow"), line.repeat((32 << 20) / line.len())).unwrap();
    let at = folder.display();
    let text = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
        events {{}}
        http {{
            access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
            server {{
                listen 127.0.0.1:8401; root {at};
                location /exchange {{
                    client_max_body_size 0; client_body_in_file_only clean;
                    proxy_pass http://127.0.0.1:8402/slow; proxy_method GET; proxy_buffering off;
                    proxy_pass_request_body off; proxy_set_header Content-Length '';
                }}
            }}
            server {{
                listen 127.0.0.1:8402; root {at}; limit_rate 64k; add_header X-Answer {};
            }}
        }}",
        markers.response_head
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).unwrap();
    let args = ["-p", folder.to_str().unwrap(), "-c", file.to_str().unwrap()];
    Up(host.spawn("nginx", &args, Stdio::null))
}

/// Runs curl on a host to its end.
fn curl(host: &Host, args: &[&str]) -> String {
    let fixed = ["--silent", "--max-time", "60", "--noproxy", "*"];
    let child = host.spawn("curl", &[&fixed[..], args].concat(), Stdio::piped);
    Ran::from(child.wait_with_output().unwrap()).stdout
}

/// Starts `levada` on a host, and waits for the address that it prints.
fn service(host: &Host, args: &[&str]) -> Service {
    Service::of(host.spawn(env!("CARGO_BIN_EXE_levada"), args, Stdio::piped))
}

/// The process of `levada` that a [`Child`] of a host stands for: its descendant.
fn levada_below(child: &Child) -> u32 {
    let mut processes = vec![child.id()];
    while let Some(process) = processes.pop() {
        let program = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
        if program == Path::new(env!("CARGO_BIN_EXE_levada")).canonicalize().unwrap() {
            return process;
        }
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        processes.extend(children.unwrap().split_whitespace().map(|id| id.parse::<u32>().unwrap()));
    }
    panic!("there is no levada below {}", child.id());
}

/// Which of `texts` are in the memory that a process can write to: its heaps, stacks and data.
fn found_in_memory(process: u32, texts: &[&str]) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let overlap = texts.iter().map(|text| text.len()).max().unwrap();
    let mut found = Vec::new();
    let mut total = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().unwrap();
        let rights = words.next().unwrap();
        if !rights.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        total += end - start;
        assert!(total < MAX_MEMORY, "{maps}");
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap().min(CHUNK + overlap);
            let mut chunk = vec![0; length];
            // A stack may have shrunk since the list was read.
            if memory.read_exact_at(&mut chunk, at).is_ok() {
                found.extend(texts.iter().filter(|text| contains(&chunk, text)).copied());
            }
            at += CHUNK as u64;
        }
    }
    assert!(total > 0, "{maps}");
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(str::to_owned).collect()
}

/// Skips fast over what cannot be the beginning: a test build searches every byte otherwise.
fn contains(bytes: &[u8], text: &str) -> bool {
    let text = text.as_bytes();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == text[0]) {
        if rest[at..].starts_with(text) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

fn files_contain(folder: &Path, text: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.iter().any(|path| fs::read(path).is_ok_and(|bytes| contains(&bytes, text)))
}

/// curl and `levada http` on one host, two middleboxes, and a node in front of nginx.
struct Parties {
    /// For the lines of the log and the memory.
    middleboxes: [Service; 2],
    http: Service,
    _node: Up,
    _nginx: Up,
}

impl Parties {
    fn start(scene: &Scene, markers: &Markers) -> Self {
        let [client, first, second, well] = scene.hosts.as_slice() else { panic!("four") };
        let nginx = nginx(well, markers);
        let mut text = "name = 'web'\ntype = 'http'\norigin = '127.0.0.1:8401'\n".to_owned();
        for (host, allow) in [(first, "request-head=r"), (second, "response-head=rw")] {
            let identity = host.identity();
            text += &format!("[[middlebox]]\nidentity = '{identity}'\nallow = '{allow}'\n");
        }
        let file = well.home.path().join("web.toml");
        fs::write(&file, text).unwrap();
        let listen = format!("{}:5382", well.address);
        let options =
            format!("--listen {listen} --service {} --allow {}", file.display(), client.identity());
        let node = well.up(&options);
        let [at_first, at_second] = [first, second].map(|host| format!("{}:5390", host.address));
        let change = ["--add-response", "X-Checked: yes"];
        let two = ["middlebox", "--listen", &at_second, "--next", &listen];
        let two = service(second, &[&two[..], &change].concat());
        let one = service(first, &["middlebox", "--listen", &at_first, "--next", &at_second]);
        let vias = [
            format!("{}:request-head=r", one.address),
            format!("{}:response-head=rw", two.address),
        ];
        let target = format!("{}@{listen}/web", well.identity());
        // The client reaches the first middlebox only.
        for host in [second, well] {
            let route = ["route", "add", "prohibit", &format!("{}/32", host.address)];
            let added = client.spawn("ip", &route, Stdio::piped).wait_with_output().unwrap();
            assert!(added.status.success(), "{added:?}");
        }
        let http = service(client, &["http", "--via", &vias[0], "--via", &vias[1], &target]);
        Self { middleboxes: [one, two], http, _node: node, _nginx: nginx }
    }

    fn found(&self, markers: &Markers) -> [Vec<String>; 2] {
        let search =
            |service: &Service| found_in_memory(levada_below(&service.child), &markers.all());
        [search(&self.middleboxes[0]), search(&self.middleboxes[1])]
    }
}

#[test]
fn logs_and_memory_of_two_middleboxes_have_what_each_may_see_and_nothing_else() {
    let scene = Scene::new(&["client", "reader", "writer", "well"]);
    let client = &scene.hosts[0];
    let markers = Markers::new();
    let parties = Parties::start(&scene, &markers);
    let url = &parties.http.address;
    let page = curl(client, &["--include", &format!("{url}page")]);
    assert!(page.contains("x-checked: yes\r\n") && page.ends_with("the page"), "{page}");

    // The request is not over while curl's input is open, so the first middlebox still has its head
    // for the log. nginx has a part of the body, which therefore has passed both middleboxes.
    let received = client.home.path().join("received");
    let head = format!("X-Question: {}", markers.request_head);
    let mut curl = client
        .node
        .spawn("curl", |command| {
            command.args(["--silent", "--noproxy", "*", "--no-buffer", "--header", &head]);
            command.args(["--request", "POST", "--upload-file", "-", "--output"]);
            command.arg(&received).arg(format!("{url}exchange"));
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        })
        .unwrap();
    let mut body = curl.stdin.take().unwrap();
    let curl = Up(curl);
    body.write_all(format!("{}\n", markers.request_body).repeat(4096).as_bytes()).unwrap();
    let uploads = scene.hosts[3].home.path().join("nginx/body");
    eventually("nginx has the request", || files_contain(&uploads, &markers.request_body));
    let none: Vec<String> = Vec::new();
    assert_eq!(parties.found(&markers), [vec![markers.request_head.clone()], none.clone()]);

    // The response is not over while nginx sends it, so the second middlebox still has its head for
    // the log. curl has a part of the body, which therefore has passed both middleboxes.
    drop(body);
    eventually("curl has a part of the response", || {
        fs::read(&received).is_ok_and(|bytes| contains(&bytes, &markers.response_body))
    });
    let [mut one, two] = parties.found(&markers);
    // The head of the request may still be in freed memory of the first middlebox.
    one.retain(|text| *text != markers.request_head);
    assert_eq!([one, two], [none, vec![markers.response_head.clone()]]);
    drop(curl);

    let http = parties.http.log();
    assert!(http.contains("the node cannot be asked directly what it allows"), "{http}");
    let logs = || [0, 1].map(|number| parties.middleboxes[number].log());
    eventually("both logs have what has ended", || {
        let [one, two] = logs();
        one.contains("x-question") && two.contains("response 0:")
    });
    let [one, two] = logs();
    assert!(one.contains("hop 1 of 2 holds request-head=r\n"), "{one}");
    assert!(
        one.contains("request 0: GET /page; request-head ")
            && one.contains("fields accept, user-agent")
    );
    assert!(!one.contains("response") && !one.contains("body"), "{one}");
    assert!(two.contains("hop 2 of 2 holds response-head=rw\n"), "{two}");
    assert!(two.contains("response 0: 200; response-head ") && !two.contains("request"), "{two}");
    assert!(!two.contains("body"), "{two}");
    for text in markers.all() {
        assert!(!one.contains(text) && !two.contains(text), "{one}{two}");
    }
}
