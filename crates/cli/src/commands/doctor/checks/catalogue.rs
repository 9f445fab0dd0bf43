//! The checks of the catalogue: of its files, and of the engine of one that several nodes share.

use levada_catalogue::store::StoreError;
use levada_config::Config;
use levada_core::shell_word;
use levada_home::Home;
use levada_node::{Overrides, check};

use crate::commands::doctor::node::Node;
use crate::commands::doctor::report::Check;
use crate::output;

/// The files of the catalogue can be used. `None` without a catalogue; a running node has them
/// open.
pub fn catalogue(home: &Home, config: &Config, node: &Node) -> Option<Check> {
    let Node::Absent { .. } = node else { return None };
    let name = "catalogue";
    let folder = levada_node::catalogue::folder(home, config);
    let checked = check::catalogue(home, config, &Overrides::default());
    match checked.and_then(|found| found.map(|database| database.integrity_check()).transpose()) {
        Ok(Some(())) => Some(Check::fine(name, "its database is intact")),
        Ok(None) => None,
        Err(error) => {
            let folder = shell_word(&folder.display().to_string()).into_owned();
            Some(Check::wrong(name, &error, remedy(&error, &folder)))
        }
    }
}

/// The remedy for an error of the catalogue in `folder`, which is written for a shell.
fn remedy(error: &StoreError, folder: &str) -> String {
    let damaged = || {
        format!(
            "keep a copy: `cp -a {folder} {folder}.copy`; then `levada restore FILE` replaces it by that of a backup, or \
             `mv {folder} {folder}.damaged` lets the node begin with an empty catalogue"
        )
    };
    let of_files = || {
        format!(
            "{folder} must be a folder in which this user can read and write all files: `ls -ld {folder}` shows its owner and \
             mode; or name another one as `catalogue.folder` in config.toml"
        )
    };
    match error {
        StoreError::Database(error) => match error {
            levada_node::store::StoreError::File { .. } => of_files(),
            other => super::remedy(other, &damaged()).to_owned(),
        },
        StoreError::Full { .. } => "free space on the disk".to_owned(),
        _ => of_files(),
    }
}

/// The engine is there, and all of its log is applied. `None` for another catalogue, or without a
/// running node.
pub fn engine(node: &Node) -> Option<Check> {
    let Node::Runs(status) = node else { return None };
    let state = output::plain(status["catalogue_engine"].as_str()?);
    let name = "catalogue engine";
    Some(if state.contains("not applied") {
        let remedy = "docs/catalogue-cluster.md, \"Records that are not applied\"";
        Check::wrong(name, state, remedy)
    } else if state.contains("no news") {
        let remedy =
            "see that the servers in `catalogue.store` run and can be reached; reading goes on";
        Check::wrong(name, state, remedy)
    } else {
        Check::fine(name, state)
    })
}
