//! The greatest resident memory of `levada share --foreground` and of a `levada get` while that
//! fetches a part of a large file. Whole programs.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use tempfile::TempDir;

use super::part::memory;
use crate::binary;
use crate::measuring::{Measuring, Outcome};
use crate::program::Program;
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "swarm/memory";
/// The subject.
pub const SUBJECT: &str = "levada";
/// The modes.
const MODES: [&str; 2] = ["direct", "mediated"];
/// A tenth of the file is fetched.
const PART: u64 = 10;
/// Longer than hashing the file, or fetching the part, takes.
const LIMIT: Duration = Duration::from_secs(300);
/// The time between two looks at the file.
const LOOK: Duration = Duration::from_millis(50);

fn conditions(mode: &str, length: u64) -> Params {
    params([("mode", mode.into()), ("bytes", length.into()), ("fetched", (length / PART).into())])
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let length = if options.quick { 1_000_000_000 } else { 10_000_000_000 };
    let mut measuring = Measuring::new(NAME, options, MODES.len())?;
    for mode in MODES {
        let at = conditions(mode, length);
        if measuring.needs(&at, &[SUBJECT.to_owned()]) {
            let levada = binary::levada()?;
            let case = Case::new(SUBJECT, move || Ok(measure(&levada, mode, length)?));
            let cases = vec![case];
            measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
        }
    }
    Ok(measuring.finish())
}

fn measure(levada: &Path, mode: &str, length: u64) -> anyhow::Result<Vec<Measured>> {
    let folder = TempDir::new()?;
    let film = folder.path().join("film");
    write_sparse(&film, length)?;
    let start = |home: &str, words: &[&str]| {
        let home = folder.path().join(home);
        fs::create_dir(&home)?;
        fs::write(
            home.join("config.toml"),
            "listen = '127.0.0.1:0'\nhttp = false\nannounce = false\n",
        )?;
        let child = Testbed::Loopback.spawn_far(levada, |command| {
            command.args(words).env("LEVADA_HOME", &home).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::null());
        })?;
        anyhow::Ok(Program::from(child))
    };
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let sharing = Instant::now();
    let mut share = start("node", &["share", &path(&film)?, "--foreground", "--mode", mode])?;
    let ticket = share.first_line(LIMIT).context("the node prints no ticket")?;
    let hashed = sharing.elapsed();
    let target = folder.path().join("got");
    let output = path(&target)?;
    let mut get = start("peer", &["get", &ticket, "-o", &output, "--listen", "127.0.0.1:0"])?;
    wait_for(&target.with_extension("part"), length / PART, &mut get)?;
    let greatest =
        |program: &Program| Ok::<_, anyhow::Error>(memory(program.id()?, "VmHWM")? as f64);
    let mebibyte = f64::from(1 << 20);
    Ok(vec![
        Measured::new("memory of share", "MiB", greatest(&share)? / mebibyte),
        Measured::new("memory of get", "MiB", greatest(&get)? / mebibyte),
        Measured::new("time until the ticket", "s", hashed.as_secs_f64()),
    ])
}

/// A file that takes hardly any room on the disk: zeros, and some other bytes in every hundredth
/// part.
fn write_sparse(path: &Path, length: u64) -> anyhow::Result<()> {
    let file = File::create(path)?;
    file.set_len(length)?;
    for part in 0..100 {
        file.write_all_at(&super::noise(8), length / 100 * part)?;
    }
    Ok(())
}

/// Waits until so much of the file was written.
fn wait_for(path: &Path, bytes: u64, program: &mut Program) -> anyhow::Result<()> {
    let start = Instant::now();
    let written = || fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    while written() < bytes {
        ensure!(start.elapsed() < LIMIT, "`levada get` takes too long");
        ensure!(program.is_running()?, "`levada get` has ended");
        thread::sleep(LOOK);
    }
    Ok(())
}
