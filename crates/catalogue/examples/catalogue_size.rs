//! Fills a store with COUNT descriptors, all with a package, and measures start-up including the
//! index, search and memory. Prints one JSON object per line.
//!
//! `cargo run --release -p levada-catalogue --example catalogue_size -- [COUNT [FOLDER]]`; COUNT is
//! 100000 by default, and a FOLDER with a store of that size is not filled again.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use levada_catalogue::index::{Index, Options};
use levada_catalogue::model::{Draft, Kind, Package, Version};
use levada_catalogue::store::Store;
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_core::{UnixTime, sha256};
use serde_json::json;

/// The words of which descriptors consist, apart from rare and unique ones.
const COMMON: [&str; 12] = [
    "audio",
    "video",
    "chat",
    "observer",
    "reporter",
    "browser",
    "context",
    "presence",
    "location",
    "connector",
    "sensor",
    "group",
];
/// The number of distinct rare words.
const RARE: u64 = 5000;
/// The package of every descriptor.
const CODE: &[u8] = b"export default {};";
/// The number of measured searches.
const SEARCHES: u64 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let temporary = tempfile::tempdir()?;
    let folder = args.next().map_or_else(|| temporary.path().join("catalogue"), PathBuf::from);
    fill(&folder, count)?;

    let before = resident()?;
    let since = Instant::now();
    let store = EmbeddedStore::open(&folder)?;
    report("open", "ms", millis(since.elapsed()), count);
    let index = Index::load(&store, Options::default())?;
    report("open and index", "ms", millis(since.elapsed()), count);
    let grown = resident()?.saturating_sub(before);
    let mut versions = 0_u64;
    let mut bytes = 0_u64;
    store.each(&mut |it| {
        versions += 1;
        bytes += it.descriptor.len() as u64;
    })?;
    assert!(versions >= count, "{versions} versions");
    report("bytes of a descriptor", "B", bytes as f64 / versions as f64, count);
    let beyond = grown.saturating_sub(bytes) as f64 / versions as f64;
    report("memory per descriptor beyond its text", "B", beyond, count);

    search(&store, count)?;
    let after = resident()?.saturating_sub(before + bytes) as f64 / versions as f64;
    report("the same after searching", "B", after, count);
    drop(index);
    let since = Instant::now();
    store.verify(&mut |finding| eprintln!("{finding}"))?;
    report("verify", "ms", millis(since.elapsed()), count);
    Ok(())
}

fn fill(folder: &std::path::Path, count: u64) -> Result<(), Box<dyn Error>> {
    let store = EmbeddedStore::open(folder)?;
    if store.revision()? >= count {
        return Ok(());
    }
    let since = Instant::now();
    store.add_blobs(&[CODE])?;
    for first in (0..count).step_by(1000) {
        let drafts: Result<Vec<Draft>, _> = (first..count.min(first + 1000)).map(draft).collect();
        store.publish_all(&drafts?, None, UnixTime(1_700_000_000))?;
    }
    report("fill", "1/s", count as f64 / since.elapsed().as_secs_f64(), count);
    Ok(())
}

/// A descriptor about as long as those of reTHINK's catalogue.
fn draft(n: u64) -> Result<Draft, Box<dyn Error>> {
    let kind = Kind::ALL[usize::try_from(n)? % Kind::ALL.len()];
    let word = |at: u64| COMMON[usize::try_from(mix(n * 8 + at) % 12).unwrap_or(0)];
    let text: Vec<&str> = (0..8).map(word).collect();
    let name = format!("{}{}{n}", capital(word(0)), capital(word(1)));
    let descriptor = json!({
        "cguid": format!("{:016x}{:016x}", mix(n), mix(n + 1)),
        "version": format!("1.{}", n % 20),
        "objectName": name,
        "description": format!("{} for rare{} and unique{n}", text.join(" "), mix(n) % RARE),
        "sourcePackageURL": format!("/sourcepackage/{name}"),
        "language": "javascript",
        "hypertyType": [word(2)],
        "runtimeType": "browser",
        "type": "communication",
        "hypertyCapabilities": { "mic": true, "camera": true, "sensor": false, "webrtc": true },
        "protocolCapabilities": { "http": true, "https": true, "ws": true, "wss": true },
        "dataObjects": [format!("hyperty-catalogue://catalogue.example/.well-known/dataschema/{name}")],
    });
    Ok(Draft {
        key: format!("{}/{name}", kind.as_str()).parse()?,
        version: Version::new(1, n % 20, 0),
        descriptor: serde_json::to_vec(&descriptor)?,
        package: Some(Package {
            digest: sha256(&[CODE]),
            length: CODE.len() as u64,
            media_type: "text/javascript".to_owned(),
            description: serde_json::to_vec(&json!({ "sourceCodeClassname": name }))?,
        }),
        signatures: Vec::new(),
    })
}

/// Measures each kind of query, and all of them together.
fn search(store: &EmbeddedStore, count: u64) -> Result<(), Box<dyn Error>> {
    let mut all = Histogram::<u64>::new(3)?;
    type MakeQuery = fn(u64, u64) -> (String, Option<Kind>);
    let queries: [(&str, MakeQuery); 10] = [
        ("one common word", |n, _| (COMMON[(n % 12) as usize].to_owned(), None)),
        ("two common words", |n, _| {
            (format!("{} {}", COMMON[(n % 12) as usize], COMMON[(n / 12 % 12) as usize]), None)
        }),
        ("three letters", |n, _| (COMMON[(n % 12) as usize][..3].to_owned(), None)),
        ("two letters", |n, _| (COMMON[(n % 12) as usize][..2].to_owned(), None)),
        ("a word of all", |_, _| ("sourcepackage".to_owned(), None)),
        ("the beginning of a word of all", |n, _| {
            ("sourcepackage"[..2 + (n % 11) as usize].to_owned(), None)
        }),
        ("a rare word", |n, _| (format!("rare{}", n % RARE), None)),
        ("a common and a rare word", |n, _| {
            (format!("{} rare{}", COMMON[(n % 12) as usize], n % RARE), None)
        }),
        ("a unique word of a kind", |n, count| {
            (format!("unique{}", n % count), Some(Kind::ALL[(n % 6) as usize]))
        }),
        ("no hit", |n, _| (format!("nothing{n}"), None)),
    ];
    let count_each = SEARCHES / queries.len() as u64;
    for (name, make) in queries {
        let mut times = Histogram::<u64>::new(3)?;
        for n in 0..count_each {
            let (query, kind) = make(mix(n), count);
            let since = Instant::now();
            store.search(&query, kind, None, 50)?;
            times.record(u64::try_from(since.elapsed().as_nanos())?)?;
        }
        quantiles(&format!("search, {name}"), &times, count);
        all.add(&times)?;
    }
    quantiles("search", &all, count);
    Ok(())
}

fn quantiles(what: &str, times: &Histogram<u64>, count: u64) {
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let value = times.value_at_quantile(quantile) as f64 / 1e6;
        report(&format!("{what}, {name}"), "ms", value, count);
    }
}

fn report(metric: &str, unit: &str, value: f64, count: u64) {
    println!("{}", json!({ "descriptors": count, "metric": metric, "unit": unit, "value": value }));
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// The resident memory of this process, in bytes.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// SplitMix64's finalizer: pseudo-random numbers that are the same in every run.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
