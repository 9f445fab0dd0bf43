//! The services and objects that this home has seen, in a file: for completions, and to tell a shell
//! from another service. Nothing else depends on the file, which may be removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use levada_core::wire::Service;
use levada_core::{Identity, check_name};
use levada_home::{Home, write_private};
use serde::{Deserialize, Serialize};

const FILE: &str = "seen.json";
/// The maximum number of nodes; those that were seen last are kept.
const MAX_NODES: usize = 64;
/// The maximum number of services of one node.
const MAX_SERVICES: usize = 64;
/// The maximum number of objects.
const MAX_OBJECTS: usize = 1000;
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The node that was seen last is the first.
    nodes: Vec<SeenNode>,
    objects: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SeenNode {
    identity: String,
    services: Vec<SeenService>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SeenService {
    name: String,
    kind: String,
}

impl Seen {
    /// Reads the file of `home`; one that cannot be read is empty.
    pub fn read(home: &Home) -> Self {
        let path = path(home);
        let fits = fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_FILE);
        let text = if fits { fs::read(path).ok() } else { None };
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The services of a node, with their types.
    pub fn services(&self, node: &Identity) -> Vec<(&str, &str)> {
        let node = node.to_string();
        let found = self.nodes.iter().find(|one| one.identity == node);
        let services = found.into_iter().flat_map(|one| &one.services);
        services.map(|one| (one.name.as_str(), one.kind.as_str())).collect()
    }

    /// The objects of catalogues, as TYPE/NAME.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().map(String::as_str)
    }

    fn set_services(&mut self, node: &Identity, services: &[Service]) {
        let identity = node.to_string();
        self.nodes.retain(|one| one.identity != identity);
        let services = services.iter().filter(|one| check_name(&one.name).is_ok());
        let services = services.map(|one| SeenService {
            name: one.name.clone(),
            kind: one.r#type.chars().take(MAX_SERVICES).collect(),
        });
        let services = services.take(MAX_SERVICES).collect();
        self.nodes.insert(0, SeenNode { identity, services });
        self.nodes.truncate(MAX_NODES);
    }
}

/// Stores all services of nodes.
pub fn note_services<'a>(
    home: &Home,
    nodes: impl IntoIterator<Item = (&'a Identity, &'a [Service])>,
) {
    let mut seen = Seen::read(home);
    let before = seen.clone();
    for (node, services) in nodes {
        let known = seen.services(node);
        let is_same = services.len() == known.len()
            && services.iter().zip(known).all(|(new, old)| (&*new.name, &*new.r#type) == old);
        if !is_same {
            seen.set_services(node, services);
        }
    }
    write(home, &before, &seen);
}

/// Stores objects of a catalogue, as TYPE/NAME.
pub fn note_objects(home: &Home, objects: impl IntoIterator<Item = String>) {
    let mut seen = Seen::read(home);
    let before = seen.clone();
    for object in objects {
        if seen.objects.len() < MAX_OBJECTS {
            seen.objects.insert(object);
        }
    }
    write(home, &before, &seen);
}

/// Writes a change. Without the file, completions only have fewer names, so that an error is
/// ignored.
fn write(home: &Home, before: &Seen, seen: &Seen) {
    if before == seen {
        return;
    }
    if let Ok(text) = serde_json::to_vec(seen) {
        let _ = write_private(&path(home), &text, true);
    }
}

fn path(home: &Home) -> PathBuf {
    home.state_folder().join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, kind: &str) -> Service {
        Service { name: name.into(), r#type: kind.into(), ..Service::default() }
    }

    #[test]
    fn services_and_objects_are_kept_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        let node = Identity::from_bytes([1; 32]);
        let services = [service("sh", "shell"), service("bad name", "echo")];
        note_services(&home, [(&node, &services[..])]);
        note_objects(&home, ["hyperty/A".to_owned()]);
        let seen = Seen::read(&home);
        assert_eq!(seen.services(&node), [("sh", "shell")]);
        assert_eq!(seen.objects().collect::<Vec<_>>(), ["hyperty/A"]);
        note_services(&home, [(&node, &[][..])]);
        assert!(Seen::read(&home).services(&node).is_empty());
        fs::write(path(&home), "garbage").unwrap();
        assert_eq!(Seen::read(&home), Seen::default());
    }

    #[test]
    fn the_number_of_nodes_is_bounded() {
        let mut seen = Seen::default();
        for byte in 0..200 {
            seen.set_services(&Identity::from_bytes([byte; 32]), &[service("a", "echo")]);
        }
        assert_eq!(seen.nodes.len(), MAX_NODES);
        assert_eq!(seen.services(&Identity::from_bytes([199; 32])), [("a", "echo")]);
    }
}
