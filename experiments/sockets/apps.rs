//! Programs as Debian installs them, with and without fast sockets at either end.

mod nginx;
mod programs;
mod setup;

use std::fmt;

use anyhow::Context;
use levada_harness::{Case, Group, Measured, Options, Params, Row, find, params, ratio_row};

use crate::measuring::Measuring;
use crate::table::{Table, median};
use crate::threshold::Threshold;
pub use nginx::CLOSING as CLOSING_LOAD;
use programs::{Load, PROGRAMS, Program};
use setup::{Setup, Start};

/// The experiment's name in rows.
pub const NAME: &str = "sockets/apps";
const RATE: &str = "rate";
const TIME: &str = "p50";
/// Of the client's connections, the part that the kernel did not know.
const SHARE: &str = "direct connections";

/// Which ends have fast sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Neither,
    Both,
    Server,
    Client,
    /// Both, and connections are made without the kernel.
    Direct,
}

const SUBJECTS: [Ends; 4] = [Ends::Neither, Ends::Both, Ends::Server, Ends::Client];
/// Those of loads with short connections.
const CLOSING: [Ends; 3] = [Ends::Neither, Ends::Both, Ends::Direct];

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Neither => "tcp",
            Self::Both => "fast",
            Self::Server => "fast/server",
            Self::Client => "fast/client",
            Self::Direct => "fast/direct",
        })
    }
}

impl Ends {
    /// Those that a load is measured with.
    fn of(load: &Load) -> &'static [Self] {
        if load.name == CLOSING_LOAD { &CLOSING } else { &SUBJECTS }
    }

    /// How the server, and the client, is started.
    fn starts(self) -> [Start; 2] {
        match self {
            Self::Neither => [Start::Plain; 2],
            Self::Both => [Start::Fast; 2],
            Self::Server => [Start::Fast, Start::Plain],
            Self::Client => [Start::Plain, Start::Fast],
            Self::Direct => [Start::Direct; 2],
        }
    }
}

/// What a client has reported.
struct Report {
    /// Requests, transactions, or bytes in units of 10⁶, per second.
    rate: f64,
    /// The time of half of them, in microseconds.
    time: Option<f64>,
}

/// Measures all programs that are installed, and prints their table.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let groups = PROGRAMS.iter().map(|program| program.loads.len()).sum();
    let mut measuring = Measuring::new(NAME, options, groups)?;
    for program in PROGRAMS {
        let missing = program.needs.iter().find(|needed| !setup::is_installed(needed));
        if let Some(missing) = missing {
            let package = program.package;
            eprintln!(
                "{} is left out: `{missing}` is not installed: apt install {package}",
                program.name
            );
            continue;
        }
        let setup = Setup::new(program)?;
        for load in program.loads.iter().filter(|load| load.is_quick || !options.quick) {
            let at = conditions(program, load);
            let all = Ends::of(load);
            let subjects: Vec<String> = all.iter().map(ToString::to_string).collect();
            if measuring.needs(&at, &subjects) {
                let case = |ends: Ends| {
                    let setup = &setup;
                    let quick = options.quick;
                    Case::new(ends.to_string(), move || {
                        Ok(one(setup, program, load, (ends, quick))?)
                    })
                };
                let cases = all.iter().copied().map(case).collect();
                measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
            }
        }
    }
    measuring.finish().conclude(options, |_| Ok(()), table)
}

fn conditions(program: &Program, load: &Load) -> Params {
    params([("program", program.name.into()), ("load", load.name.into())])
}

/// Starts the server, runs the client once, and ends the server.
fn one(
    setup: &Setup,
    program: &Program,
    load: &Load,
    (ends, quick): (Ends, bool),
) -> anyhow::Result<Vec<Measured>> {
    let [of_server, of_client] = ends.starts();
    let server = setup.start(program, of_server)?;
    let (output, share) = server.run(load, quick, of_client)?;
    let report = (load.read)(&output).with_context(|| format!("no figures in: {output}"))?;
    let time = report.time.map(|time| Measured::new(TIME, "µs", time));
    let share = share.map(|share| Measured::new(SHARE, "%", 100.0 * share));
    let rate = Measured::new(RATE, program.unit, report.rate);
    Ok([rate].into_iter().chain(time).chain(share).collect())
}

/// Rates and times, and what fast sockets change.
pub fn table(rows: &[Row]) -> Table {
    let head = ["program", "load", "unit", "`tcp`", "`fast`", "`fast` ÷ `tcp`"];
    let more = [
        "`fast/server` ÷ `tcp`",
        "`fast/client` ÷ `tcp`",
        "p50, µs: `tcp`, `fast`",
        "`tcp` ÷ `fast`",
        "`fast/direct`",
        "`fast/direct` ÷ `tcp`",
        "direct connections, %",
    ];
    let mut table = Table::new("Programs", head.into_iter().chain(more));
    for program in PROGRAMS {
        for load in program.loads {
            let at = conditions(program, load);
            let row = |ends: Ends, metric| find(rows, &ends.to_string(), metric, &at);
            let Some(plain) = row(Ends::Neither, RATE) else { continue };
            let ratio = |a: Option<&Row>, b: Option<&Row>| {
                let ratio = a.zip(b).and_then(|(a, b)| ratio_row(a, b));
                ratio.map_or(String::new(), |ratio| Threshold::Any.evaluate(&ratio))
            };
            let value = |row: Option<&Row>| row.map_or(String::new(), median);
            let [plain_time, fast_time] = [Ends::Neither, Ends::Both].map(|ends| row(ends, TIME));
            let times = [value(plain_time), value(fast_time)].join(", ");
            let mut line = vec![program.name.into(), load.name.into(), program.unit.into()];
            line.extend([value(Some(plain)), value(row(Ends::Both, RATE))]);
            let against = [Ends::Both, Ends::Server, Ends::Client];
            line.extend(against.map(|ends| ratio(row(ends, RATE), Some(plain))));
            line.push(if plain_time.is_some() { times } else { String::new() });
            line.push(ratio(plain_time, fast_time));
            let direct = row(Ends::Direct, RATE);
            line.extend([value(direct), ratio(direct, Some(plain))]);
            line.push(value(row(Ends::Direct, SHARE)));
            table.lines.push(line);
        }
    }
    table
}
