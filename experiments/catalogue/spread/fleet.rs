//! Nodes that share a catalogue.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::super::fetch;
use super::super::levada::Levada;
use super::super::objects::{self, Object};
use super::super::server::Server;
use super::engine::Engine;
use crate::testbed::Testbed;

/// The time limit for a publication to be visible on a node.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(60);

/// An engine, and its nodes.
pub struct Fleet {
    /// The first field, so that the nodes end before the engine.
    pub nodes: Vec<Server>,
    /// What they share.
    pub engine: Engine,
}

impl Fleet {
    /// Starts an engine and `count` nodes, with the paper's runtime.
    pub fn start(levada: &Levada, count: usize) -> anyhow::Result<Self> {
        let mut fleet = Self { nodes: Vec::new(), engine: Engine::start()? };
        let home = tempfile::tempdir()?;
        objects::write_folder(&home.path().join("import"))?;
        fleet.add(levada, home)?;
        for _ in 1..count {
            fleet.add(levada, tempfile::tempdir()?)?;
        }
        for node in &fleet.nodes {
            wait_until_visible(node, &Object::Descriptor.path())?;
        }
        Ok(fleet)
    }

    /// Starts one more node, with this home.
    pub fn add(&mut self, levada: &Levada, home: tempfile::TempDir) -> anyhow::Result<()> {
        let configuration = self.engine.configuration();
        self.add_with(levada, home, &configuration)
    }

    /// Starts one more node, with these lines of configuration.
    pub fn add_with(
        &mut self,
        levada: &Levada,
        home: tempfile::TempDir,
        configuration: &str,
    ) -> anyhow::Result<()> {
        let name = format!("node {}", self.nodes.len() + 1);
        let node = levada.start_with(&Testbed::Loopback, &name, home, configuration)?;
        self.nodes.push(node);
        Ok(())
    }
}

/// Whether a node answers `path` with 200.
pub fn is_visible(node: &Server, path: &str) -> anyhow::Result<bool> {
    Ok(fetch::get(&Testbed::Loopback, node.address(), path, None)?.status == 200)
}

/// Waits until it does.
pub fn wait_until_visible(node: &Server, path: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    while !is_visible(node, path)? {
        ensure!(start.elapsed() < VISIBLE_TIMEOUT, "{} does not show {path}", node.name());
        thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}
