//! `levada service`: makes systemd run the node of this home.

mod manager;
mod target;
mod unit;

use std::fs;
use std::io::ErrorKind;

use clap::{Args, Subcommand};
use levada_client::control::{self, Request};
use levada_home::Home;

use crate::failure::{Failure, Outcome, USAGE};
use crate::output::note;
use manager::Manager;
use target::Target;

/// Make systemd start the node of this home
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada service install                 a node of this user
  sudo levada service install --system   a node of the machine, as the user `levada`
  levada service remove")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a unit, and start it now and at each boot or login
    ///
    /// A second call renews the unit, for example after the program was moved. A unit that was
    /// written by other means is never replaced.
    #[command(after_help = "Example:
  levada service install")]
    Install(Whose),

    /// Stop the node, and remove what `install` has made; data is kept
    #[command(after_help = "Example:
  levada service remove")]
    Remove(Whose),
}

/// The systemd that runs the node.
#[derive(Debug, Args)]
struct Whose {
    /// The systemd of this user; the unit is in ~/.config/systemd/user. The default, except for
    /// root
    #[arg(long)]
    user: bool,

    /// The systemd of the machine; the unit is in /etc/systemd/system. The node has its home in
    /// /var/lib/levada, and runs as the user `levada`, which is made if it does not exist
    #[arg(long, conflicts_with = "user")]
    system: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    match arguments.action {
        Action::Install(whose) => install(&whose.target()?).await,
        Action::Remove(whose) => remove(&whose.target()?),
    }
}

impl Whose {
    fn target(&self) -> Result<Target, Failure> {
        if self.system {
            return Target::of_machine();
        }
        if !self.user && rustix::process::geteuid().is_root() {
            return Err(Failure::new(
                USAGE,
                "root names one: --system for a node of the machine, --user for one of root's own",
            ));
        }
        Target::of_user()
    }
}

async fn install(target: &Target) -> Outcome {
    let file = &target.unit_file;
    target.check_packaged()?;
    let before = read_own(target)?;
    let made_user = target.make_user()? || before.as_deref().is_some_and(unit::made_user);
    let unit = unit::text(target, made_user)?;
    let is_changed = before.as_deref() != Some(unit.as_str());
    if is_changed {
        write(target, &unit)?;
        note(format_args!("wrote {}", file.display()));
    }
    let manager = Manager::of(target);
    if let Err(reason) = manager.reload() {
        note(format_args!("note: systemd cannot be reached here: {reason}"));
        note(format_args!("When it runs: {}", manager.commands_to_start()));
        return Ok(0);
    }
    manager.enable()?;
    refuse_second_node(target, &manager).await?;
    manager.start(is_changed)?;
    note(format_args!("the node runs, and starts {}", target.starts_at()));
    Ok(0)
}

fn remove(target: &Target) -> Outcome {
    let Some(unit) = read_own(target)? else {
        note(format_args!(
            "`levada service install` has written no {}",
            target.unit_file.display()
        ));
        return Ok(0);
    };
    let manager = Manager::of(target);
    let is_reachable = manager.reload().is_ok();
    if is_reachable {
        manager.disable()?;
    }
    fs::remove_file(&target.unit_file).map_err(Failure::file("remove", &target.unit_file))?;
    note(format_args!("removed {}", target.unit_file.display()));
    if is_reachable {
        // Its list of units still has the removed one.
        manager.reload().map_err(Failure::local)?;
    }
    if unit::made_user(&unit) {
        target.remove_user()?;
    }
    Ok(0)
}

/// Reads the unit if `install` has written it; `None` if there is no file.
fn read_own(target: &Target) -> Result<Option<String>, Failure> {
    let file = &target.unit_file;
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file("read", file)(error)),
    };
    if !text.starts_with(unit::MARK) {
        let file = file.display();
        return Err(Failure::local(format_args!(
            "{file} was not written by `levada service install`, which leaves it as it is: remove \
             it first, or start it with systemctl"
        )));
    }
    Ok(Some(text))
}

/// Writes the unit, readable by all. A crash leaves the old file or the new one.
fn write(target: &Target, unit: &str) -> Result<(), Failure> {
    let file = &target.unit_file;
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(Failure::file("make the folder", folder))?;
    let new = file.with_extension("service.new");
    fs::write(&new, unit).map_err(Failure::file("write", &new))?;
    fs::rename(&new, file).map_err(Failure::file("write", file))
}

/// Refuses to start a second node of this home: systemd did not start the one that runs.
async fn refuse_second_node(target: &Target, manager: &Manager) -> Result<(), Failure> {
    if target.is_system || manager.is_active() {
        return Ok(());
    }
    match control::call(&Home::find()?, &Request::Status).await {
        Ok(status) => Err(Failure::local(format_args!(
            "a node of this home runs already (process {}); stop it with `levada stop`, and then: {}",
            status["process"],
            manager.commands_to_start()
        ))),
        Err(_) => Ok(()),
    }
}
