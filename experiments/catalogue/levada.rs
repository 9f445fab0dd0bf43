//! The start of a catalogue of this workspace: its command line and paths.
//!
//! Each catalogue has its own home (`LEVADA_HOME`), is filled by `levada catalogue import FOLDER`,
//! and then runs as `levada catalogue serve --http A:P --listen A:0` on one core, with one thread
//! (`TOKIO_WORKER_THREADS`).

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::objects;
use super::server::{Server, Start};
use crate::program::{Side, free_address};
use crate::testbed::Testbed;

/// Its name in rows.
pub const NAME: &str = "levada";
/// Its configuration: no announcement on the network.
const CONFIG: &str = "announce = false\n";
/// The path of its metrics.
pub const METRICS: &str = "/metrics";
/// The path that it answers with 200 when it is ready.
const READY: &str = "/readyz";

/// The `levada` binary.
pub struct Levada {
    binary: PathBuf,
    /// Whether catalogues run on all cores, with as many threads as they like.
    all_cores: bool,
}

impl Levada {
    /// See [`binary`].
    pub fn find(given: Option<&Path>, needed: bool) -> anyhow::Result<Self> {
        Ok(Self { binary: binary(given, needed)?, all_cores: false })
    }

    /// The same, with catalogues on all cores, as many threads as they like.
    pub fn on_all_cores(&self) -> Self {
        Self { binary: self.binary.clone(), all_cores: true }
    }

    /// Starts a catalogue with the paper's runtime.
    pub fn serve(&self, testbed: &Testbed, name: &str) -> anyhow::Result<Server> {
        let home = tempfile::tempdir()?;
        objects::write_folder(&home.path().join("import"))?;
        self.start(testbed, name, home)
    }

    /// Starts a catalogue with the content of `import` in this home, or an empty one if there is no
    /// such folder.
    pub fn start(
        &self,
        testbed: &Testbed,
        name: &str,
        home: tempfile::TempDir,
    ) -> anyhow::Result<Server> {
        self.start_with(testbed, name, home, "")
    }

    /// The same, with more lines of configuration.
    pub fn start_with(
        &self,
        testbed: &Testbed,
        name: &str,
        home: tempfile::TempDir,
        more: &str,
    ) -> anyhow::Result<Server> {
        fs::write(home.path().join("config.toml"), CONFIG.to_owned() + more)?;
        let folder = home.path().join("import");
        if folder.exists() {
            let mut import = Command::new(&self.binary);
            import.args(["catalogue", "import"]).arg(&folder);
            import.env("LEVADA_HOME", home.path()).stdin(Stdio::null());
            let done = import.output().with_context(|| format!("run {import:?}"))?;
            let error = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "{import:?} ended with {}: {error}", done.status);
        }
        let address = free_address(testbed, Side::Far)?;
        let http = address.to_string();
        let listen = SocketAddr::new(address.ip(), 0).to_string();
        let path = home.path().to_owned();
        let all_cores = self.all_cores;
        let start = Start {
            name: name.to_owned(),
            folder: home,
            address,
            ready: READY.to_owned(),
            program: self.binary.clone().into_os_string(),
            all_cores,
            configure: Box::new(move |command| {
                command.args(["catalogue", "serve", "--http", &http, "--listen", &listen]);
                command.env("LEVADA_HOME", &path);
                if !all_cores {
                    command.env("TOKIO_WORKER_THREADS", "1");
                }
            }),
        };
        Server::start(testbed, start)
    }
}

/// The given binary, or else that of this workspace, which is built with this program's profile if
/// `needed`.
pub fn binary(given: Option<&Path>, needed: bool) -> anyhow::Result<PathBuf> {
    if let Some(binary) = given {
        ensure!(binary.is_file(), "{} is no file", binary.display());
        return Ok(std::path::absolute(binary)?);
    }
    let own = env::current_exe()?;
    let profile = own.parent().context("this program is in no folder")?;
    let target = profile.parent().context("this program is in no target folder")?;
    let binary = profile.join("levada");
    if !needed {
        return Ok(binary);
    }
    ensure!(
        ["dist", "release", "debug"].iter().any(|name| profile.ends_with(name)),
        "{} is no target folder of cargo, to build `levada` in; give one with --levada FILE",
        profile.display()
    );
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package", "levada-cli", "--bin", "levada"]);
    build.arg("--target-dir").arg(target);
    if let Some(name) = ["dist", "release"].iter().find(|name| profile.ends_with(name)) {
        build.args(["--profile", name]);
    }
    let built = build.status().with_context(|| format!("run {build:?}"))?;
    ensure!(built.success(), "`levada` could not be built; give one with --levada FILE");
    Ok(binary)
}

/// The line of [`METRICS`] with the number of public data schemas.
pub fn count_of_schemas(count: usize) -> String {
    format!("levada_catalogue_objects{{kind=\"dataschema\"}} {count}")
}

/// The path of a search for these words.
pub fn search(words: &str) -> String {
    format!("/v1/search?q={words}&limit=20")
}
