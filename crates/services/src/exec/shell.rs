//! `shell`: the login shell of the node's user, on a terminal. Its clients can do everything that
//! this user can.

use std::env;
use std::ffi::OsString;
use std::fs;

use levada_core::Params;
use levada_service::stdio::Window;
use levada_service::{Over, Prepared, Refused, Service};
use rustix::process::getuid;

use super::options::TERM;
use super::policy::{DUMB, PTY, Plan, is_term_key, parse_term, parse_window};
use super::pump;
use crate::exec::program::Launch;

/// The file of accounts, see passwd(5).
const ACCOUNTS: &str = "/etc/passwd";
/// The shell of an account without one, and of one that is not in the file.
const SHELL: &str = "/bin/sh";
/// Environment variables that the shell inherits from the node.
const INHERITED: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR"];

/// The service of type `shell`.
pub(crate) struct Shell;

/// The account of a user, as a login shell needs it.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    name: OsString,
    home: OsString,
    shell: OsString,
}

impl Service for Shell {
    fn category(&self) -> &'static str {
        "execution"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (PTY, "the size of the terminal: rows, a space, columns; required"),
            ("env.TERM", "the kind of the terminal"),
        ]
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let (window, term) = parse(params)?;
        let term = term.to_owned();
        Ok(Prepared::stream(move |_, stream| async move {
            pump::run(&plan(window, &term, &Account::own()), stream).await
        }))
    }
}

/// The size and the kind of the terminal. The size must be in the request: a later link cannot add
/// it, because the terminal would not be the client's.
fn parse(params: &Params) -> Result<(Window, &str), Refused> {
    let mut window = None;
    let mut term = DUMB;
    for (key, value) in params.iter() {
        match key {
            Params::FRAMING => {}
            Params::ARGS if params.args()?.is_none_or(|args| args.is_empty()) => {}
            Params::ARGS => return Err(Refused::Arguments),
            PTY => window = Some(parse_window(value)?),
            _ if is_term_key(key) => term = parse_term(key, value)?,
            _ => return Err(Refused::Unknown(key.to_owned())),
        }
    }
    Ok((window.ok_or_else(no_terminal)?, term))
}

/// The account's login shell on a terminal.
fn plan(window: Window, term: &str, account: &Account) -> Plan {
    let program = account.shell.to_string_lossy().into_owned();
    // A name that begins with `-` makes it a login shell.
    let name = format!("-{}", program.rsplit('/').next().unwrap_or_default());
    let mut launch = Launch::new(&account.shell);
    launch.name(name).input().terminal(Some(window)).current_dir(&account.home);
    launch.envs(INHERITED.iter().filter_map(|name| Some((name, env::var_os(name)?))));
    launch.env("HOME", &account.home).env("SHELL", &account.shell).env(TERM, term);
    launch.env("USER", &account.name).env("LOGNAME", &account.name);
    Plan { program, launch }
}

fn no_terminal() -> Refused {
    Refused::NotAccepted("this service needs a terminal (`--pty`)".to_owned())
}

impl Account {
    /// The account of this process's user. For an account that is not in the file, for example of
    /// LDAP, the environment is used.
    fn own() -> Self {
        let accounts = fs::read_to_string(ACCOUNTS).unwrap_or_default();
        Self::find(&accounts, getuid().as_raw()).unwrap_or_else(|| {
            let or = |name: &str, other: &str| env::var_os(name).unwrap_or_else(|| other.into());
            Self { name: or("USER", ""), home: or("HOME", "/"), shell: or("SHELL", SHELL) }
        })
    }

    fn find(accounts: &str, user: u32) -> Option<Self> {
        accounts.lines().find_map(|line| {
            let [name, _, id, _, _, home, shell] = line.split(':').collect::<Vec<_>>()[..] else {
                return None;
            };
            let shell = if shell.is_empty() { SHELL } else { shell };
            let account = Self { name: name.into(), home: home.into(), shell: shell.into() };
            (id.parse() == Ok(user)).then_some(account)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_service::testing::params;

    #[test]
    fn an_account_is_found_by_its_user_id() {
        let accounts = "root:x:0:0:root:/root:/bin/bash\nbroken\na:x:7:7::/srv/a:\n";
        let account = |name: &str, home: &str, shell: &str| Account {
            name: name.into(),
            home: home.into(),
            shell: shell.into(),
        };
        assert_eq!(Account::find(accounts, 0), Some(account("root", "/root", "/bin/bash")));
        assert_eq!(Account::find(accounts, 7), Some(account("a", "/srv/a", SHELL)));
        assert_eq!(Account::find(accounts, 8), None);
        assert!(!Account::own().shell.is_empty());
    }

    #[test]
    fn a_shell_accepts_a_terminal_and_nothing_else() {
        let check = |pairs: &[(&str, &[u8])]| Shell.check(&params(pairs));
        let pty: (&str, &[u8]) = ("pty", b"24 80");
        assert_eq!(check(&[pty, ("env.TERM", b"xterm")]), Ok(()));
        assert_eq!(check(&[]), Err(no_terminal()));
        assert_eq!(check(&[("pty", b"x")]), Err(Refused::Malformed("pty".into())));
        assert_eq!(
            check(&[pty, ("args", &levada_core::encode_list(&["ls"]))]),
            Err(Refused::Arguments)
        );
        assert_eq!(check(&[pty, ("env.PATH", b"x")]), Err(Refused::Unknown("env.PATH".into())));
        let wrong = Err(Refused::Malformed("env.TERM".into()));
        assert_eq!(check(&[pty, ("env.TERM", b"a b")]), wrong);
    }
}
