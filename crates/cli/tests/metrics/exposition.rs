//! A strict reader of OpenMetrics text: what it accepts, Prometheus accepts.

use std::collections::{BTreeMap, BTreeSet};

use regex_lite::Regex;

/// The labels of a sample by name.
pub type Labels = BTreeMap<String, String>;

/// One line with a value.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

/// A metric with its samples.
#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

/// Reads a whole text.
///
/// # Panics
/// The text breaks a rule of OpenMetrics 1.0.
pub fn read(text: &str) -> Vec<Family> {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
    let mut families: Vec<Family> = Vec::new();
    let mut help: Option<String> = None;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').expect(line);
            assert!(help.is_none() && !text.is_empty(), "{line}");
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(help.take().as_deref(), Some(name), "HELP is before TYPE: {line}");
            let is_new = families.iter().all(|family| family.name != name);
            assert!(is_new, "one block for each metric: {line}");
            let name = name.to_owned();
            families.push(Family { name, kind: kind.to_owned(), samples: Vec::new() });
        } else {
            assert!(help.is_none(), "TYPE follows HELP: {line}");
            families.last_mut().expect(line).samples.push(sample(line));
        }
    }
    families.iter().for_each(check);
    families
}

fn sample(line: &str) -> Sample {
    let form = Regex::new(r"^([a-z_][a-z0-9_]*)(?:\{(.+)\})? (\S+)$").unwrap();
    let found = form.captures(line).unwrap_or_else(|| panic!("no sample: {line:?}"));
    let labels = found.get(2).map(|labels| labels_of(labels.as_str())).unwrap_or_default();
    let value = found[3].parse().unwrap_or_else(|_| panic!("no number: {line}"));
    Sample { name: found[1].to_owned(), labels, value }
}

/// The labels between braces, with `\\`, `\"` and `\n` as the only escapes.
fn labels_of(text: &str) -> Labels {
    let form = Regex::new(r#"^([a-z_][a-z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)"#).unwrap();
    let mut labels = Labels::new();
    let mut rest = text;
    while !rest.is_empty() {
        let found = form.captures(rest).unwrap_or_else(|| panic!("no label: {rest}"));
        let value = found[2].replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\");
        assert!(labels.insert(found[1].to_owned(), value).is_none(), "twice: {text}");
        rest = &rest[found[0].len()..];
    }
    assert!(!text.ends_with(','), "{text}");
    labels
}

fn check(family: &Family) {
    let name = family.name.as_str();
    assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}");
    let suffixes: &[&str] = match family.kind.as_str() {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_sum", "_count"],
        kind => panic!("{name} is a {kind}"),
    };
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let suffix = sample.name.strip_prefix(name).unwrap_or_else(|| panic!("{sample:?}"));
        assert!(suffixes.contains(&suffix), "{name}: {sample:?}");
        assert!(seen.insert((&sample.name, &sample.labels)), "{sample:?} is there twice");
        let is_counted = family.kind != "gauge";
        assert!(!is_counted || sample.value >= 0.0, "{sample:?}");
    }
    if family.kind == "histogram" {
        check_histogram(family);
    }
}

/// The buckets of each series are cumulative, and the last one is infinite and equal to the count.
fn check_histogram(family: &Family) {
    let named = |suffix: &str| {
        let name = format!("{}{suffix}", family.name);
        family.samples.iter().filter(move |sample| sample.name == name)
    };
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for bucket in named("_bucket") {
        let mut labels = bucket.labels.clone();
        let bound = labels.remove("le").unwrap().parse().unwrap();
        series.entry(labels).or_default().push((bound, bucket.value));
    }
    assert_eq!(named("_count").count(), series.len(), "{}", family.name);
    assert_eq!(named("_sum").count(), series.len(), "{}", family.name);
    for count in named("_count") {
        let buckets = &series[&count.labels];
        let ascend = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(ascend), "{count:?}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count.value)), "{count:?}");
    }
}
