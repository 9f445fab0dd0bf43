//! nginx: the rival of a catalogue, and the load balancer of several.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;

use super::objects::{Bodies, Object};
use super::server::{Server, Start};
use crate::binary;
use crate::program::{Side, free_address};
use crate::testbed::Testbed;

/// Its name in rows.
pub const NAME: &str = "nginx";
/// Its configuration as a server of the bodies that a catalogue answers.
const FILES: &str = include_str!("nginx.conf");
/// Its configuration as a load balancer of catalogues.
const BALANCER: &str = include_str!("balancer.conf");
/// Debian's folder of system administration programs.
const SBIN: &str = "/usr/sbin";

/// Serves `bodies` as files.
pub fn files(testbed: &Testbed, bodies: &Bodies) -> anyhow::Result<Server> {
    let folder = tempfile::tempdir()?;
    bodies.write(&folder.path().join("files"))?;
    let server = start(testbed, NAME, folder, FILES)?;
    bodies.check(testbed, server.address()).context("check the files of nginx")?;
    Ok(server)
}

/// Which catalogue gets a request.
#[derive(Clone, Copy)]
pub enum Balance {
    /// Each in turn.
    InTurn,
    /// The one with the fewest that are not answered yet, as in `pkg/nginx-catalogue.conf`.
    FewestOpen,
}

/// Balances requests over catalogues.
pub fn balancer(
    testbed: &Testbed,
    catalogues: &[SocketAddr],
    balance: Balance,
) -> anyhow::Result<Server> {
    let folder = tempfile::tempdir()?;
    let line = |address: &SocketAddr| format!("server {address} fail_timeout=1s;\n");
    let servers: String = catalogues.iter().map(line).collect();
    let method = match balance {
        Balance::InTurn => "",
        Balance::FewestOpen => "least_conn;\n",
    };
    fs::write(folder.path().join("upstream.conf"), method.to_owned() + &servers)?;
    start(testbed, "balancer", folder, BALANCER)
}

fn start(
    testbed: &Testbed,
    name: &str,
    folder: tempfile::TempDir,
    configuration: &str,
) -> anyhow::Result<Server> {
    let address = free_address(testbed, Side::Far)?;
    let path = folder.path().to_owned();
    fs::write(path.join("nginx.conf"), configuration)?;
    fs::write(path.join("listen.conf"), format!("listen {address} backlog=4096;\n"))?;
    let start = Start {
        name: name.to_owned(),
        folder,
        address,
        ready: Object::Descriptor.path(),
        all_cores: false,
        program: program()?.into_os_string(),
        configure: Box::new(move |command| {
            command.arg("-p").arg(&path).arg("-c").arg(path.join("nginx.conf"));
            command.args(["-e", "stderr"]);
        }),
    };
    Server::start(testbed, start)
}

/// Debian's nginx.
fn program() -> anyhow::Result<PathBuf> {
    binary::find("nginx", [PathBuf::from(SBIN)]).context(
        "nginx is not installed: install the Debian package nginx-light, or leave it out \
         (`--subject levada`)",
    )
}
