//! The policy of `exec`: checks a session's parameters against the options, and makes a launch of
//! what they ask for.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use levada_core::{Params, listed, shell_word};
use levada_service::stdio::Window;
use levada_service::{DefinitionError, Refused};

use super::options::{AllowedCommand, Options, TERM};
use crate::exec::program::{Launch, find};

/// The parameter that asks for a terminal; its value is a [`Window`] as text.
pub(super) const PTY: &str = "pty";
/// Parameters with this prefix set the environment variable whose name follows.
const ENVIRONMENT: &str = "env.";
/// Its value if the client sends none: a terminal without capabilities, see terminfo(5).
pub(super) const DUMB: &str = "dumb";
/// The longest name of a kind of terminal, in bytes.
const MAX_TERM: usize = 64;
/// The maximum number of programs that a refusal lists.
const MAX_LISTED: usize = 8;

/// The options, with the file of each program.
pub(super) struct Policy {
    commands: Vec<Command>,
    environment: BTreeMap<String, String>,
    inherited: Vec<String>,
    from_client: Vec<String>,
    directory: Option<PathBuf>,
    pty: bool,
    audit_arguments: bool,
}

struct Command {
    allowed: AllowedCommand,
    /// `None` if it was not installed when the node started; then each start looks for it again.
    path: Option<PathBuf>,
}

/// The checked parameters of a session.
#[derive(Debug)]
pub(super) struct Request {
    program: Program,
    setting: Setting,
}

/// An allowed program.
#[derive(Debug)]
struct Program {
    name: String,
    args: Vec<String>,
    /// Its file, if it was installed when the node started.
    path: Option<PathBuf>,
}

/// What a program gets besides its arguments.
#[derive(Debug, Default)]
struct Setting {
    window: Option<Window>,
    /// The kind of the client's terminal, unless `client_environment` lists `TERM`.
    term: Option<String>,
    /// Environment variables of the client.
    variables: Vec<(String, String)>,
}

/// A program that may be started, with everything that it gets.
#[derive(Debug)]
pub(super) struct Plan {
    /// The program as the parameters name it.
    pub(super) program: String,
    /// Its file, arguments, environment, directory and terminal.
    pub(super) launch: Launch,
}

impl Policy {
    /// Looks up the programs.
    pub(super) fn new(options: Options) -> Self {
        let look_up = |allowed: AllowedCommand| Command { path: find(&allowed.program), allowed };
        Self {
            commands: options.command.into_iter().map(look_up).collect(),
            environment: options.environment,
            inherited: options.inherit_environment,
            from_client: options.client_environment,
            directory: options.directory,
            pty: options.pty,
            audit_arguments: options.audit_arguments,
        }
    }

    /// What the service called `name` lacks on this machine: programs, and its directory.
    pub(super) fn missing(&self, name: &str) -> Vec<DefinitionError> {
        let name = || name.to_owned();
        let programs = self.commands.iter().filter(|command| command.path.is_none());
        let program = |command: &Command| command.allowed.program.clone();
        let mut missing: Vec<_> = programs
            .map(|command| DefinitionError::Program { name: name(), program: program(command) })
            .collect();
        let directory = self.directory.as_ref().filter(|path| !path.is_dir()).cloned();
        missing.extend(
            directory.map(|directory| DefinitionError::Directory { name: name(), directory }),
        );
        missing
    }

    /// The program for the audit log. Its arguments may be confidential, so they are part of it only
    /// if the options ask for them.
    pub(super) fn summary(&self, params: &Params) -> Option<String> {
        let mut args = params.args().ok()??;
        if !self.audit_arguments {
            args.truncate(1);
        }
        let words: Vec<_> = args.iter().map(|word| shell_word(word)).collect();
        if words.is_empty() { None } else { Some(words.join(" ")) }
    }

    /// Checks the parameters that are present, see [`levada_service::Service::check`].
    pub(super) fn check(&self, params: &Params) -> Result<(), Refused> {
        self.parse(params).map(drop)
    }

    /// What complete parameters ask for.
    pub(super) fn request(&self, params: &Params) -> Result<Request, Refused> {
        let (program, setting) = self.parse(params)?;
        Ok(Request { program: program.ok_or_else(no_program)?, setting })
    }

    /// The program to start; refused if this machine lacks it or the directory.
    pub(super) fn plan(&self, request: Request) -> Result<Plan, Refused> {
        let Request { program: Program { name, args, path }, setting } = request;
        let path = path.or_else(|| find(&name));
        let path = path.ok_or_else(|| {
            Refused::NotAccepted(format!("the program {name:?} is not installed on this machine"))
        })?;
        if let Some(directory) = self.directory.as_ref().filter(|path| !path.is_dir()) {
            let directory = directory.display().to_string();
            let text = format!("the directory {directory:?} does not exist on this machine");
            return Err(Refused::NotAccepted(text));
        }
        let Setting { window, term, variables } = setting;
        let mut environment = self.node_environment();
        environment.extend(variables.into_iter().map(|(key, value)| (key, value.into())));
        if window.is_some() {
            // The configuration's value takes precedence over the client's.
            let term = term.map_or_else(|| DUMB.into(), OsString::from);
            environment.entry(TERM.to_owned()).or_insert(term);
        }
        let mut launch = Launch::new(path);
        launch.name(&name).args(args).envs(environment).input().terminal(window);
        if let Some(directory) = &self.directory {
            launch.current_dir(directory);
        }
        Ok(Plan { program: name, launch })
    }

    fn parse(&self, params: &Params) -> Result<(Option<Program>, Setting), Refused> {
        let mut program = None;
        let mut setting = Setting::default();
        for (key, value) in params.iter() {
            match key {
                // The node checks it.
                Params::FRAMING => {}
                Params::ARGS => program = Some(self.program(params.args()?.unwrap_or_default())?),
                PTY => setting.window = Some(self.window(value)?),
                _ if self.is_terminal_kind(params, key) => {
                    setting.term = Some(parse_term(key, value)?.to_owned());
                }
                _ => {
                    let (name, value) = self.variable(key, value)?;
                    setting.variables.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        Ok((program, setting))
    }

    /// The program by the first command that allows `args`, or the reason why the last one for that
    /// program does not.
    fn program(&self, mut args: Vec<String>) -> Result<Program, Refused> {
        if args.is_empty() {
            return Err(no_program());
        }
        let name = args.remove(0);
        let mut refused = None;
        for command in self.commands.iter().filter(|command| command.allowed.program == name) {
            match command.allowed.check(&args) {
                Ok(()) => return Ok(Program { name, args, path: command.path.clone() }),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(refused.unwrap_or_else(|| self.not_allowed(&name)))
    }

    /// The programs that are allowed, in the order of the definition.
    pub(super) fn programs(&self) -> Vec<&str> {
        let programs = self.commands.iter().map(|command| command.allowed.program.as_str());
        let mut programs: Vec<&str> = programs.collect();
        programs.dedup();
        programs
    }

    /// The refusal of a program, with those that are allowed.
    fn not_allowed(&self, name: &str) -> Refused {
        let allowed = listed(&self.programs(), MAX_LISTED);
        Refused::NotAccepted(format!("the program {name:?} is not allowed, only {allowed}"))
    }

    /// Whether `key` is the kind of the client's terminal, which a session with a terminal may
    /// always have.
    fn is_terminal_kind(&self, params: &Params, key: &str) -> bool {
        params.value(PTY).is_some()
            && is_term_key(key)
            && !self.from_client.iter().any(|allowed| allowed == TERM)
    }

    fn window(&self, value: &[u8]) -> Result<Window, Refused> {
        if !self.pty {
            let text = "this service does not allow a terminal";
            return Err(Refused::NotAccepted(text.to_owned()));
        }
        parse_window(value)
    }

    fn variable<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<(&'a str, &'a str), Refused> {
        let unknown = || Refused::Unknown(key.to_owned());
        let name = key.strip_prefix(ENVIRONMENT).ok_or_else(unknown)?;
        if !self.from_client.iter().any(|allowed| allowed == name) {
            let text = format!("the environment variable {name:?} may not be set");
            return Err(Refused::NotAccepted(text));
        }
        if name == TERM {
            return Ok((name, parse_term(key, value)?));
        }
        match str::from_utf8(value) {
            Ok(value) if !value.contains('\0') => Ok((name, value)),
            _ => Err(Refused::Malformed(key.to_owned())),
        }
    }

    /// The environment without the client's variables: first the inherited ones, then those of the
    /// configuration.
    fn node_environment(&self) -> BTreeMap<String, OsString> {
        let mut environment = BTreeMap::new();
        for name in &self.inherited {
            if let Some(value) = env::var_os(name) {
                environment.insert(name.clone(), value);
            }
        }
        for (name, value) in &self.environment {
            environment.insert(name.clone(), value.into());
        }
        environment
    }
}

fn no_program() -> Refused {
    Refused::NotAccepted("no program is named".to_owned())
}

/// Whether `text` can be the kind of a terminal: a name as in terminfo(5), not a path.
pub fn is_term(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-+_.".contains(&byte);
    (1..=MAX_TERM).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('.')
}

/// Whether `key` is the parameter with the kind of the terminal.
pub(super) fn is_term_key(key: &str) -> bool {
    key.strip_prefix(ENVIRONMENT) == Some(TERM)
}

/// The kind of a terminal in the parameter `key`.
pub(super) fn parse_term<'a>(key: &str, value: &'a [u8]) -> Result<&'a str, Refused> {
    let text = str::from_utf8(value).ok().filter(|text| is_term(text));
    text.ok_or_else(|| Refused::Malformed(key.to_owned()))
}

/// The size of a terminal in the parameter [`PTY`].
pub(super) fn parse_window(value: &[u8]) -> Result<Window, Refused> {
    let text = str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| Refused::Malformed(PTY.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::encode_list;
    use levada_service::testing::params;

    fn not_settable(name: &str) -> Refused {
        Refused::NotAccepted(format!("the environment variable {name:?} may not be set"))
    }

    fn policy(text: &str) -> Policy {
        Policy::new(toml::from_str(text).unwrap())
    }

    /// As the service does.
    fn prepare(policy: &Policy, params: &Params) -> Result<Plan, Refused> {
        policy.plan(policy.request(params)?)
    }

    /// Whether `cat` with the pattern allows these arguments.
    fn allows(pattern: &str, args: &[&str]) -> bool {
        let policy = policy(&format!("[[command]]\nprogram = 'cat'\nargs = '''{pattern}'''"));
        check(&policy, &[&["cat"], args].concat()).is_ok()
    }

    fn check(policy: &Policy, args: &[&str]) -> Result<(), Refused> {
        policy.request(&params(&[("args", &encode_list(args))])).map(drop)
    }

    #[test]
    fn a_pattern_must_match_each_argument_completely() {
        assert!(allows(".*", &[]));
        assert!(allows(".*", &["", "-a", "--", "é b"]));
        assert!(allows("a|ab", &["ab", "a"]));
        assert!(!allows("a|b", &["ab"]));
        assert!(!allows("a", &["a", "b"]));
        assert!(!allows("a", &["ba"]));
        assert!(!allows(".+", &[""]));
        assert!(!allows("[a-z]+", &["--"]));
        assert!(!allows("[^-].*", &["--", "x"]));
    }

    #[test]
    fn a_newline_bypasses_no_pattern() {
        assert!(!allows(".*", &["a\nb"]));
        assert!(!allows("a", &["a\n"]));
        assert!(!allows("a$", &["a\n"]));
        assert!(!allows("(?m)^a$", &["a\nb"]));
        assert!(!allows("(?m)^a$", &["b\na"]));
        assert!(allows("(?s).*", &["a\nb"]));
        assert!(!allows("(?s).*", &["a\0b"]));
    }

    #[test]
    fn only_commands_of_the_configuration_run() {
        let policy = policy(
            "[[command]]\nprogram = 'cat'\n[[command]]\nprogram = 'date'\nargs = '-u'\nmax_args = 1\n\
             [[command]]\nprogram = 'date'\nargs = '\\+.*'",
        );
        assert_eq!(check(&policy, &["cat"]), Ok(()));
        assert_eq!(check(&policy, &["date", "-u"]), Ok(()));
        assert_eq!(check(&policy, &["date", "+%s", "+%s"]), Ok(()));
        let refused = |args: &[&str]| check(&policy, args).unwrap_err().to_string();
        assert_eq!(refused(&["cat", ""]), "\"cat\" takes at most 0 arguments");
        // The reason of the last command for this program.
        for args in [["date", "-u", "-u"], ["date", "-u", "+%s"]] {
            assert_eq!(refused(&args), "the argument \"-u\" is not allowed for \"date\"");
        }
        for program in ["/bin/cat", "Cat", "cat ", "", "sh", "./cat", "cat\0"] {
            let text = format!("the program {program:?} is not allowed, only ");
            assert!(refused(&[program]).starts_with(&text), "{program}");
        }
        assert_eq!(refused(&[]), "no program is named");
    }

    #[test]
    fn a_refusal_is_one_line() {
        let policy = policy("[[command]]\nprogram = 'date'");
        for args in [&["a\nb\x1b"][..], &["date", "a\nb\x1b"]] {
            let refused = check(&policy, args).unwrap_err().to_string();
            assert!(!refused.contains(char::is_control), "{refused}");
        }
    }

    #[test]
    fn at_most_64_arguments_by_default() {
        assert!(allows("a", &["a"; 64]));
        assert!(!allows("a", &["a"; 65]));
    }

    #[test]
    fn a_missing_program_is_refused_only_at_the_start() {
        let policy = policy("[[command]]\nprogram = 'cat'");
        assert_eq!(policy.check(&Params::new()), Ok(()));
        assert_eq!(policy.request(&Params::new()).err(), Some(no_program()));
        let framed = params(&[("framing", b"block:512"), ("args", &encode_list(&["cat"]))]);
        assert!(policy.request(&framed).is_ok());
        let other = params(&[("priority", b"1")]);
        assert_eq!(policy.check(&other), Err(Refused::Unknown("priority".into())));
        let cut = params(&[("args", &[0, 0, 0, 9])]);
        assert_eq!(policy.check(&cut), Err(Refused::Malformed("args".into())));
    }

    #[test]
    fn a_terminal_is_accepted_where_it_is_allowed() {
        let text = "[[command]]\nprogram = 'cat'";
        let sized = params(&[("pty", b"24 80")]);
        assert_eq!(policy(text).check(&sized), Ok(()));
        let refused = policy(&format!("pty = false\n{text}")).check(&sized).unwrap_err();
        assert_eq!(refused.to_string(), "this service does not allow a terminal");
        let wrong = params(&[("pty", b"24")]);
        assert_eq!(policy(text).check(&wrong), Err(Refused::Malformed("pty".into())));
    }

    #[test]
    fn a_client_sets_only_allowed_variables() {
        let policy = policy("client_environment = ['A']\n[[command]]\nprogram = 'cat'");
        let set = |key, value: &[u8]| policy.check(&params(&[(key, value)]));
        assert_eq!(set("env.A", b"x=y"), Ok(()));
        for (key, name) in [("env.TERM", "TERM"), ("env.", ""), ("env.A=B", "A=B")] {
            assert_eq!(set(key, b"x"), Err(not_settable(name)));
        }
        assert_eq!(set("env.A", b"x\0"), Err(Refused::Malformed("env.A".into())));
        assert_eq!(set("env.A", b"\xff"), Err(Refused::Malformed("env.A".into())));
    }

    #[test]
    fn the_environment_has_inherited_configured_and_client_variables() {
        let policy = policy(
            "client_environment = ['A', 'TERM']\ninherit_environment = ['PATH', 'NOT_SET_ANYWHERE']\n\
             directory = '/'\n[environment]\nA = 'ours'\nB = 'ours'\n[[command]]\nprogram = 'cat'",
        );
        let args = encode_list(&["cat"]);
        let plan = prepare(&policy, &params(&[("args", &args), ("env.A", b"theirs")])).unwrap();
        let path = env::var_os("PATH").unwrap();
        let expected: [(&str, OsString); 3] =
            [("A", "theirs".into()), ("B", "ours".into()), ("PATH", path.clone())];
        let mut launch = Launch::new(find("cat").unwrap());
        launch.name("cat").envs(expected).input().current_dir("/");
        assert_eq!((plan.program.as_str(), plan.launch), ("cat", launch));
        let plan = prepare(&policy, &params(&[("args", &args), ("pty", b"1 2")])).unwrap();
        let mut launch = Launch::new(find("cat").unwrap());
        launch.name("cat").envs([("A", "ours"), ("B", "ours"), ("TERM", "dumb")]);
        launch.env("PATH", path).input().terminal(Some(Window { rows: 1, columns: 2 }));
        assert_eq!(plan.launch, *launch.current_dir("/"));
    }

    #[test]
    fn a_program_gets_the_kind_of_its_terminal() {
        let text =
            "client_environment = ['A']\ninherit_environment = []\n[[command]]\nprogram = 'cat'";
        let args = encode_list(&["cat"]);
        let term = |text: &str, value: &[u8], more: &[(&str, &[u8])]| {
            let pairs = [&[("args", args.as_slice()), ("env.TERM", value)], more].concat();
            prepare(&policy(text), &params(&pairs)).map(|plan| plan.launch)
        };
        let with = |term: &str| {
            let mut launch = Launch::new(find("cat").unwrap());
            launch.name("cat").input().terminal(Some(Window { rows: 1, columns: 2 }));
            launch.env(TERM, term).clone()
        };
        let pty: &[(&str, &[u8])] = &[("pty", b"1 2")];
        assert_eq!(term(text, b"xterm-256color", pty), Ok(with("xterm-256color")));
        // Without a terminal it is an ordinary variable.
        assert_eq!(term(text, b"xterm", &[]), Err(not_settable("TERM")));
        let long = [b'x'; MAX_TERM + 1];
        for wrong in [&b""[..], b"a b", b"../x", b"a/b", b"x\x1b[", b"\xff", &long] {
            assert_eq!(term(text, wrong, pty), Err(Refused::Malformed("env.TERM".into())));
        }
        let ours = format!("environment = {{ TERM = 'vt100' }}\n{text}");
        assert_eq!(term(&ours, b"xterm", pty), Ok(with("vt100")));
    }

    #[test]
    fn missing_programs_and_directories_are_reported_and_may_be_installed_later() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let directory = folder.path().join("directory");
        let text = format!(
            "directory = '{}'\n[[command]]\nprogram = 'cat'\n[[command]]\nprogram = '{}'",
            directory.display(),
            program.display()
        );
        let policy = policy(&text);
        let missing = |policy: &Policy| -> Vec<String> {
            policy.missing("test").iter().map(ToString::to_string).collect()
        };
        let [first, second] = &missing(&policy)[..] else { panic!("{:?}", missing(&policy)) };
        assert!(first.contains("/program`") && second.contains("/directory`"), "{first} {second}");
        let plan = |args: &[&str]| {
            prepare(&policy, &params(&[("args", &encode_list(args))])).map(|plan| plan.program)
        };
        let named = [program.to_str().unwrap()];
        let refused = |args: &[&str]| plan(args).unwrap_err().to_string();
        let text = format!("the program {:?} is not installed on this machine", named[0]);
        assert_eq!(refused(&named), text);
        let text = format!("the directory {directory:?} does not exist on this machine");
        assert_eq!(refused(&["cat"]), text);
        std::fs::create_dir(&directory).unwrap();
        std::fs::copy("/bin/true", &program).unwrap();
        assert_eq!((plan(&named), plan(&["cat"])), (Ok(named[0].into()), Ok("cat".into())));
    }
}
