//! The network settings that are pinned in every node, so that results do not depend on the host's
//! and can be recorded.

use std::path::PathBuf;

use crate::{LabError, Node, Options};

/// The settings that nodes copy from the host: names below `/proc/sys/net`.
const FROM_HOST: &[&str] = &[
    "ipv4/tcp_congestion_control",
    "ipv4/tcp_wmem",
    "ipv4/tcp_rmem",
    "ipv4/tcp_slow_start_after_idle",
];

/// The settings of every lab: forwarding, no cached TCP metrics, no reverse-path filter, and no
/// IPv6, whose control packets would take part in the losses.
const FIXED: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
];

/// Names and values for the nodes of a lab, read in the host's namespace.
pub(crate) fn settings(options: &Options) -> Result<Vec<(String, String)>, LabError> {
    let mut settings = Vec::new();
    for name in FROM_HOST {
        let value = std::fs::read_to_string(path(name))
            .map_err(LabError::system(format!("read {name}")))?;
        set(&mut settings, name, value.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    for (name, value) in FIXED.iter().filter(|(name, _)| path(name).exists()) {
        set(&mut settings, name, (*value).to_owned());
    }
    if let Some(congestion) = &options.congestion {
        set(&mut settings, "ipv4/tcp_congestion_control", congestion.clone());
    }
    for (name, sizes) in [("ipv4/tcp_wmem", options.tcp_wmem), ("ipv4/tcp_rmem", options.tcp_rmem)]
    {
        if let Some([least, default, most]) = sizes {
            set(&mut settings, name, format!("{least} {default} {most}"));
        }
    }
    for (name, value) in &options.sysctls {
        set(&mut settings, name, value.clone());
    }
    Ok(settings)
}

/// Writes the settings in the node's namespace.
pub(crate) fn pin(node: &Node, settings: &[(String, String)]) -> Result<(), LabError> {
    node.run(|| {
        for (name, value) in settings {
            let what = format!("set {name} to {value:?} (is it available here? see /proc/sys/net)");
            std::fs::write(path(name), value).map_err(LabError::system(what))?;
        }
        Ok(())
    })?
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(name)
}

fn set(settings: &mut Vec<(String, String)>, name: &str, value: String) {
    match settings.iter_mut().find(|(known, _)| known == name) {
        Some(setting) => setting.1 = value,
        None => settings.push((name.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_replace_the_settings_of_the_host() {
        let options = Options {
            congestion: Some("cubic".into()),
            tcp_wmem: Some([1, 2, 3]),
            sysctls: vec![("ipv4/tcp_sack".into(), "0".into())],
            ..Options::default()
        };
        let settings = settings(&options).unwrap();
        let value = |name: &str| {
            let mut found = settings.iter().filter(|(known, _)| known == name);
            let value = found.next().unwrap().1.clone();
            assert!(found.next().is_none(), "{name} is set once");
            value
        };
        assert_eq!(value("ipv4/tcp_congestion_control"), "cubic");
        assert_eq!(value("ipv4/tcp_wmem"), "1 2 3");
        assert_eq!(value("ipv4/tcp_rmem").split(' ').count(), 3);
        assert_eq!(value("ipv4/tcp_sack"), "0");
    }
}
