//! Verdaccio, a registry of npm packages, with the paper's runtime as one of them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::objects::{Bodies, Object};
use super::super::server::{Server, Start};
use crate::binary;
use crate::program::{Side, free_address};
use crate::testbed::Testbed;

/// Its name in rows.
pub const NAME: &str = "verdaccio";
/// The variable that names the program, if it is not in `PATH`.
const PROGRAM: &str = "LEVADA_VERDACCIO";
/// Its configuration: everyone may read, and nothing is fetched from elsewhere.
const CONFIGURATION: &str = "storage: ./storage
auth: { htpasswd: { file: ./htpasswd } }
uplinks: {}
packages: { '**': { access: $all } }
web: { enable: false }
log: { type: stdout, format: json, level: error }
";
/// The file of the package's content.
const ARCHIVE: &str = "runtime-1.0.0.tgz";

/// Starts it on the servers' core, if it is installed.
pub fn start(testbed: &Testbed) -> anyhow::Result<Option<Server>> {
    let Some(program) = program() else { return Ok(None) };
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_owned();
    let address = free_address(testbed, Side::Far)?;
    fs::write(path.join("config.yaml"), CONFIGURATION)?;
    write_package(&path.join("storage"))?;
    let start = Start {
        name: NAME.to_owned(),
        folder,
        address,
        ready: "/-/ping".to_owned(),
        all_cores: false,
        program: program.into_os_string(),
        configure: Box::new(move |command| {
            command.arg("--config").arg(path.join("config.yaml"));
            command.args(["--listen", &address.to_string()]);
        }),
    };
    Server::start(testbed, start).map(Some)
}

/// The path of its URL of an object: the manifest of a version, which has the descriptor as its
/// description, and the archive.
pub fn path(object: Object) -> String {
    match object {
        Object::Descriptor => "/runtime/1.0.0".to_owned(),
        Object::Package => format!("/runtime/-/{ARCHIVE}"),
    }
}

/// Writes the package into its storage, as publishing does.
fn write_package(storage: &Path) -> anyhow::Result<()> {
    let bodies = Bodies::without_digests();
    let folder = storage.join("runtime");
    let description = String::from_utf8_lossy(bodies.body(Object::Descriptor));
    // It serves archives without a look at their content or digest.
    let digest = "0".repeat(40);
    let time = "2026-01-01T00:00:00.000Z";
    let manifest = json!({
        "name": "runtime", "version": "1.0.0", "description": description,
        "dist": { "shasum": digest, "tarball": format!("http://localhost{}", path(Object::Package)) },
    });
    let package = json!({
        "name": "runtime", "versions": { "1.0.0": manifest }, "dist-tags": { "latest": "1.0.0" },
        "time": { "created": time, "modified": time, "1.0.0": time },
        "users": {}, "_uplinks": {}, "_distfiles": {}, "_rev": "1-0", "_id": "runtime", "readme": "",
        "_attachments": { ARCHIVE: { "shasum": digest, "version": "1.0.0" } },
    });
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("package.json"), package.to_string())?;
    fs::write(folder.join(ARCHIVE), bodies.body(Object::Package))?;
    let all = json!({ "list": ["runtime"], "secret": "0".repeat(64) });
    Ok(fs::write(storage.join(".verdaccio-db.json"), all.to_string())?)
}

/// The named program, or that of `PATH`.
fn program() -> Option<PathBuf> {
    env::var_os(PROGRAM).map(PathBuf::from).or_else(|| binary::find("verdaccio", []))
}
