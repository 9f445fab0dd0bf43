//! The text of the unit.

use std::ffi::{OsStr, OsString};

use super::target::Target;
use crate::failure::Failure;

/// The first line of a unit that this program has written.
pub const MARK: &str =
    "# Written by `levada service install`; `levada service remove` removes it.\n";
/// The second line, if `install` has made the user of the node.
const MADE_USER: &str = "# With it, the user `levada` was made.\n";

/// The unit of the machine, as packages have it.
const SYSTEM: &str = include_str!("../../../../../pkg/levada.service");
/// The program in [`SYSTEM`].
const SYSTEM_PROGRAM: &str = "/usr/local/bin/levada";
/// Returns the unit for `target`.
///
/// # Errors
/// [`Failure`] 120 for a path that a unit cannot have.
pub fn text(target: &Target, made_user: bool) -> Result<String, Failure> {
    let made_user = if made_user { MADE_USER } else { "" };
    let program = quoted(target.program.as_os_str())?.replace('$', "$$");
    let unit = match target.is_system {
        true => SYSTEM.replace(SYSTEM_PROGRAM, &program),
        false => of_user(&program, &environment(target)?),
    };
    Ok(format!("{MARK}{made_user}{unit}"))
}

/// The unit of a user. It has none of the restrictions of [`SYSTEM`]: the programs that the node
/// runs may do what its user may do.
fn of_user(program: &str, environment: &str) -> String {
    format!(
        "\
[Unit]
Description=Levada node
Documentation=man:levada(1)

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} up
ExecReload=/bin/kill -HUP $MAINPID
{environment}UMask=0077
LimitNOFILE=16384
Restart=on-failure
RestartSec=2
# The node ends the programs of its sessions; systemd kills processes that remain.
KillMode=mixed
# The node makes a control group below its own for each program, so that all its processes end with
# the session.
Delegate=yes

[Install]
WantedBy=default.target
"
    )
}

/// The lines of a unit that set the variables of `target`.
fn environment(target: &Target) -> Result<String, Failure> {
    let mut lines = String::new();
    for (name, path) in &target.variables {
        let mut assignment = OsString::from(format!("{name}="));
        assignment.push(path);
        lines.push_str(&format!("Environment={}\n", quoted(&assignment)?));
    }
    Ok(lines)
}

/// Returns true if `install` has made the user of the node of this unit.
pub fn made_user(unit: &str) -> bool {
    unit.lines().nth(1) == Some(MADE_USER.trim_end())
}

/// A word of a unit: in quotes if it has spaces, quotes or backslashes (systemd.syntax(7)), with
/// `%` doubled (systemd.unit(5)).
fn quoted(word: &OsStr) -> Result<String, Failure> {
    let text = word.to_str().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| {
        Failure::local(format_args!("a unit of systemd cannot have {}", word.display()))
    })?;
    let text = text.replace('%', "%%");
    if !text.contains([' ', '"', '\'', '\\']) {
        return Ok(text);
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(is_system: bool, program: &str) -> Target {
        let variables = match is_system {
            true => Vec::new(),
            false => vec![("LEVADA_HOME", "/a home".into())],
        };
        Target { is_system, unit_file: "/u".into(), program: program.into(), variables }
    }

    #[test]
    fn the_unit_of_the_machine_is_that_of_packages_with_the_path_of_the_program() {
        let unit = text(&target(true, "/opt/levada/bin/levada"), false).unwrap();
        let packaged = unit.strip_prefix(MARK).unwrap();
        assert_eq!(packaged.replace("/opt/levada/bin/levada", SYSTEM_PROGRAM), SYSTEM);
        assert!(!packaged.contains(SYSTEM_PROGRAM));
        assert!(!made_user(&unit) && made_user(&text(&target(true, "/l"), true).unwrap()));
    }

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        let unit = text(&target(false, r#"/a b/100%/"$x\levada"#), false).unwrap();
        assert!(unit.contains("\nExecStart=\"/a b/100%%/\\\"$$x\\\\levada\" up\n"), "{unit}");
        assert!(unit.contains("\nEnvironment=\"LEVADA_HOME=/a home\"\nUMask="), "{unit}");
        assert!(text(&target(false, "/a\nb"), false).is_err());
    }
}
