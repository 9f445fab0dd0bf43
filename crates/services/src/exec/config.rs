//! What may be run: the options of the type `exec`, and what they make of a session's parameters.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use levada_core::Params;
use levada_service::stdio::Window;
use levada_service::{DefinitionError, Refused, definition_options};
use regex_lite::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::exec::program::{Launch, find};

/// The parameter that asks for a terminal; its value is a [`Window`] as text.
pub(super) const PTY: &str = "pty";
/// Parameters with this prefix set the environment variable whose name follows.
pub(super) const ENVIRONMENT: &str = "env.";
/// The environment variable that names the kind of a terminal.
pub const TERM: &str = "TERM";
/// Its value if the client says nothing: a terminal that can do nothing.
const DUMB: &str = "dumb";
/// The longest name of a kind of terminal, in bytes.
const MAX_TERM: usize = 64;

definition_options! {
    /// The options of a definition of type `exec`.
    pub(crate) struct Options {
        #[serde(deserialize_with = "commands")]
        command: Vec<Allowed>,
        #[serde(default, deserialize_with = "environment")]
        environment: BTreeMap<String, String>,
        #[serde(default = "inherited", deserialize_with = "names")]
        inherit_environment: Vec<String>,
        #[serde(default = "from_client", deserialize_with = "names")]
        client_environment: Vec<String>,
        #[serde(default, deserialize_with = "directory")]
        directory: Option<PathBuf>,
        #[serde(default = "yes")]
        pty: bool,
    }
}

/// One `[[command]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    #[serde(deserialize_with = "program")]
    program: String,
    args: Option<Pattern>,
    #[serde(default = "max_args")]
    max_args: usize,
}

/// A regular expression that an argument must match from its first to its last character.
struct Pattern(Regex);

/// The options, with every program found.
pub(super) struct Policy {
    commands: Vec<Command>,
    environment: BTreeMap<String, String>,
    inherited: Vec<String>,
    from_client: Vec<String>,
    directory: Option<PathBuf>,
    pty: bool,
}

struct Command {
    allowed: Allowed,
    /// Not there when the node started: it is looked for again at each start.
    path: Option<PathBuf>,
}

/// A program to start, just as it is allowed to run.
#[derive(Debug)]
pub(super) struct Plan {
    /// The program as the parameters name it.
    pub(super) program: String,
    /// Its file, its arguments and all else that it gets.
    pub(super) launch: Launch,
}

impl Policy {
    /// Finds the programs.
    pub(super) fn new(options: Options) -> Self {
        let look_up = |allowed: Allowed| Command { path: find(&allowed.program), allowed };
        Self {
            commands: options.command.into_iter().map(look_up).collect(),
            environment: options.environment,
            inherited: options.inherit_environment,
            from_client: options.client_environment,
            directory: options.directory,
            pty: options.pty,
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

    /// See [`levada_service::Service::check`].
    pub(super) fn check(&self, params: &Params, complete: bool) -> Result<(), Refused> {
        for (key, value) in params.iter() {
            match key {
                // Checked by the node.
                Params::FRAMING => {}
                Params::ARGS => drop(self.command(&params.args()?.unwrap_or_default())?),
                PTY => drop(self.window(value)?),
                _ if self.is_of_terminal(params, key) => check_term(key, value)?,
                _ => drop(self.variable(key, value)?),
            }
        }
        if complete && params.value(Params::ARGS).is_none() {
            return Err(Refused::NoProgram);
        }
        Ok(())
    }

    /// What to start for complete parameters.
    pub(super) fn plan(&self, params: &Params) -> Result<Plan, Refused> {
        self.check(params, true)?;
        let mut args = params.args()?.unwrap_or_default();
        let path = self.command(&args)?.path.clone();
        let program = args.remove(0);
        let path = path.or_else(|| find(&program));
        let path = path.ok_or_else(|| Refused::NotHere(program.clone()))?;
        if let Some(directory) = self.directory.as_ref().filter(|path| !path.is_dir()) {
            return Err(Refused::Directory(directory.display().to_string()));
        }
        let window = params.value(PTY).map(|value| self.window(value)).transpose()?;
        let mut environment = self.own_environment();
        for (key, value) in params.iter().filter(|(key, _)| key.starts_with(ENVIRONMENT)) {
            if self.is_of_terminal(params, key) {
                // What the configuration says of it holds, unless clients may set it.
                let term = String::from_utf8_lossy(value).into_owned();
                environment.entry(TERM.to_owned()).or_insert(term.into());
                continue;
            }
            let (name, value) = self.variable(key, value)?;
            environment.insert(name.to_owned(), value.into());
        }
        if window.is_some() {
            environment.entry(TERM.to_owned()).or_insert(DUMB.into());
        }
        let mut launch = Launch::new(path);
        launch.name(&program).args(args).envs(environment).input().terminal(window);
        if let Some(directory) = &self.directory {
            launch.current_dir(directory);
        }
        Ok(Plan { program, launch })
    }

    /// The first command that allows `args`, or why the last one of that name does not.
    fn command(&self, args: &[String]) -> Result<&Command, Refused> {
        let (program, args) = args.split_first().ok_or(Refused::NoProgram)?;
        let mut refused = Refused::Program(program.clone());
        for command in self.commands.iter().filter(|command| command.allowed.program == *program) {
            match command.allowed.check(args) {
                Ok(()) => return Ok(command),
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// Whether `key` says of what kind the client's terminal is, which a program on a terminal is always told.
    fn is_of_terminal(&self, params: &Params, key: &str) -> bool {
        params.value(PTY).is_some()
            && key.strip_prefix(ENVIRONMENT) == Some(TERM)
            && !self.from_client.iter().any(|allowed| allowed == TERM)
    }

    fn window(&self, value: &[u8]) -> Result<Window, Refused> {
        if !self.pty {
            return Err(Refused::Pty);
        }
        let text = str::from_utf8(value).ok();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| Refused::Malformed(PTY.to_owned()))
    }

    fn variable<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<(&'a str, &'a str), Refused> {
        let unknown = || Refused::Unknown(key.to_owned());
        let name = key.strip_prefix(ENVIRONMENT).ok_or_else(unknown)?;
        if !self.from_client.iter().any(|allowed| allowed == name) {
            return Err(Refused::Environment(name.to_owned()));
        }
        if name == TERM {
            check_term(key, value)?;
        }
        match str::from_utf8(value) {
            Ok(value) if !value.contains('\0') => Ok((name, value)),
            _ => Err(Refused::Malformed(key.to_owned())),
        }
    }

    /// The environment without the client's part: inherited first, then what the configuration sets.
    fn own_environment(&self) -> BTreeMap<String, OsString> {
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

/// Whether `text` can be the kind of a terminal: a name, as terminfo(5) has them, and no path.
pub fn is_term(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-+_.".contains(&byte);
    (1..=MAX_TERM).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('.')
}

pub(super) fn check_term(key: &str, value: &[u8]) -> Result<(), Refused> {
    let is_term = str::from_utf8(value).is_ok_and(is_term);
    if is_term { Ok(()) } else { Err(Refused::Malformed(key.to_owned())) }
}

impl Allowed {
    fn check(&self, args: &[String]) -> Result<(), Refused> {
        if args.len() > self.limit() {
            return Err(Refused::TooMany { program: self.program.clone(), limit: self.limit() });
        }
        let Some(argument) = args.iter().find(|argument| !self.allows(argument)) else {
            return Ok(());
        };
        let (program, argument) = (self.program.clone(), argument.clone());
        Err(Refused::Argument { program, argument })
    }

    fn limit(&self) -> usize {
        if self.args.is_some() { self.max_args } else { 0 }
    }

    /// No program can be given a zero byte, whatever the pattern says.
    fn allows(&self, argument: &str) -> bool {
        !argument.contains('\0')
            && self.args.as_ref().is_some_and(|pattern| pattern.0.is_match(argument))
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // By itself first: `a)|(b` would be a valid expression in the group, and not anchored.
        Regex::new(&text).map_err(D::Error::custom)?;
        Regex::new(&format!(r"\A(?:{text})\z")).map(Self).map_err(D::Error::custom)
    }
}

fn program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let program = String::deserialize(deserializer)?;
    let relative = program.contains('/') && !program.starts_with('/');
    if program.is_empty() || relative || program.contains('\0') {
        return Err(D::Error::custom("a program is a name without `/`, or an absolute path"));
    }
    Ok(program)
}

fn commands<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Allowed>, D::Error> {
    let commands = Vec::deserialize(deserializer)?;
    if commands.is_empty() {
        return Err(D::Error::custom("at least one command must be allowed"));
    }
    Ok(commands)
}

fn environment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let variables = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (name, value) in &variables {
        check_name::<D::Error>(name)?;
        if value.contains('\0') {
            return Err(D::Error::custom(format_args!("the value of `{name}` has a zero byte")));
        }
    }
    Ok(variables)
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    names.iter().try_for_each(|name| check_name(name))?;
    Ok(names)
}

fn check_name<E: serde::de::Error>(name: &str) -> Result<(), E> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(E::custom("an environment variable's name is not empty and has no `=`"));
    }
    Ok(())
}

fn directory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let directory = PathBuf::deserialize(deserializer)?;
    if !directory.is_absolute() {
        return Err(D::Error::custom("a directory is an absolute path"));
    }
    Ok(Some(directory))
}

fn inherited() -> Vec<String> {
    ["PATH", "HOME", "LANG", "USER"].map(str::to_owned).to_vec()
}

fn from_client() -> Vec<String> {
    vec![TERM.to_owned()]
}

fn max_args() -> usize {
    64
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::encode_list;
    use levada_service::testing::params;

    fn policy(text: &str) -> Policy {
        Policy::new(toml::from_str(text).unwrap())
    }

    fn wrong(text: &str) -> String {
        toml::from_str::<Options>(text).err().unwrap().message().to_owned()
    }

    /// Whether `cat` with the pattern allows these arguments.
    fn allows(pattern: &str, args: &[&str]) -> bool {
        let policy = policy(&format!("[[command]]\nprogram = 'cat'\nargs = '''{pattern}'''"));
        check(&policy, &[&["cat"], args].concat()).is_ok()
    }

    fn check(policy: &Policy, args: &[&str]) -> Result<(), Refused> {
        policy.check(&params(&[("args", &encode_list(args))]), true)
    }

    #[test]
    fn a_pattern_holds_for_each_argument_from_end_to_end() {
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
    fn a_newline_slips_through_no_pattern() {
        assert!(!allows(".*", &["a\nb"]));
        assert!(!allows("a", &["a\n"]));
        assert!(!allows("a$", &["a\n"]));
        assert!(!allows("(?m)^a$", &["a\nb"]));
        assert!(!allows("(?m)^a$", &["b\na"]));
        assert!(allows("(?s).*", &["a\nb"]));
        assert!(!allows("(?s).*", &["a\0b"]));
    }

    #[test]
    fn patterns_that_would_lose_their_anchors_are_refused() {
        for pattern in ["a)|(?:.*", "(", "(?x)a # "] {
            let text = format!("[[command]]\nprogram = 'cat'\nargs = '{pattern}'");
            assert!(toml::from_str::<Options>(&text).is_err(), "{pattern}");
        }
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
        assert!(matches!(check(&policy, &["cat", ""]), Err(Refused::TooMany { limit: 0, .. })));
        assert!(matches!(check(&policy, &["date", "-u", "-u"]), Err(Refused::Argument { .. })));
        assert!(matches!(check(&policy, &["date", "-u", "+%s"]), Err(Refused::Argument { .. })));
        for program in ["/bin/cat", "Cat", "cat ", "", "sh", "./cat", "cat\0"] {
            assert_eq!(check(&policy, &[program]), Err(Refused::Program(program.into())));
        }
        assert_eq!(check(&policy, &[]), Err(Refused::NoProgram));
    }

    #[test]
    fn at_most_64_arguments_unless_told_otherwise() {
        assert!(allows("a", &["a"; 64]));
        assert!(!allows("a", &["a"; 65]));
    }

    #[test]
    fn what_is_missing_is_asked_for_only_in_the_end() {
        let policy = policy("[[command]]\nprogram = 'cat'");
        assert_eq!(policy.check(&Params::new(), false), Ok(()));
        assert_eq!(policy.check(&Params::new(), true), Err(Refused::NoProgram));
        let framed = params(&[("framing", b"block:512"), ("args", &encode_list(&["cat"]))]);
        assert_eq!(policy.check(&framed, true), Ok(()));
        let other = params(&[("priority", b"1")]);
        assert_eq!(policy.check(&other, false), Err(Refused::Unknown("priority".into())));
        let cut = params(&[("args", &[0, 0, 0, 9])]);
        assert_eq!(policy.check(&cut, false), Err(Refused::Malformed("args".into())));
    }

    #[test]
    fn a_terminal_is_given_where_it_is_allowed() {
        let text = "[[command]]\nprogram = 'cat'";
        let sized = params(&[("pty", b"24 80")]);
        assert_eq!(policy(text).check(&sized, false), Ok(()));
        assert_eq!(policy(&format!("pty = false\n{text}")).check(&sized, false), Err(Refused::Pty));
        let wrong = params(&[("pty", b"24")]);
        assert_eq!(policy(text).check(&wrong, false), Err(Refused::Malformed("pty".into())));
    }

    #[test]
    fn a_client_sets_only_the_variables_it_may() {
        let policy = policy("client_environment = ['A']\n[[command]]\nprogram = 'cat'");
        let set = |key, value: &[u8]| policy.check(&params(&[(key, value)]), false);
        assert_eq!(set("env.A", b"x=y"), Ok(()));
        assert_eq!(set("env.TERM", b"x"), Err(Refused::Environment("TERM".into())));
        assert_eq!(set("env.", b"x"), Err(Refused::Environment(String::new())));
        assert_eq!(set("env.A=B", b"x"), Err(Refused::Environment("A=B".into())));
        assert_eq!(set("env.A", b"x\0"), Err(Refused::Malformed("env.A".into())));
        assert_eq!(set("env.A", b"\xff"), Err(Refused::Malformed("env.A".into())));
    }

    #[test]
    fn the_environment_is_made_of_three_parts() {
        let policy = policy(
            "client_environment = ['A', 'TERM']\ninherit_environment = ['PATH', 'NOT_SET_ANYWHERE']\n\
             directory = '/'\n[environment]\nA = 'ours'\nB = 'ours'\n[[command]]\nprogram = 'cat'",
        );
        let args = encode_list(&["cat"]);
        let plan = policy.plan(&params(&[("args", &args), ("env.A", b"theirs")])).unwrap();
        let path = env::var_os("PATH").unwrap();
        let expected: [(&str, OsString); 3] =
            [("A", "theirs".into()), ("B", "ours".into()), ("PATH", path.clone())];
        let mut launch = Launch::new(find("cat").unwrap());
        launch.name("cat").envs(expected).input().current_dir("/");
        assert_eq!((plan.program.as_str(), plan.launch), ("cat", launch));
        let plan = policy.plan(&params(&[("args", &args), ("pty", b"1 2")])).unwrap();
        let mut launch = Launch::new(find("cat").unwrap());
        launch.name("cat").envs([("A", "ours"), ("B", "ours"), ("TERM", "dumb")]);
        launch.env("PATH", path).input().terminal(Some(Window { rows: 1, columns: 2 }));
        assert_eq!(plan.launch, *launch.current_dir("/"));
    }

    #[test]
    fn a_terminal_is_told_of_what_kind_it_is() {
        let text =
            "client_environment = ['A']\ninherit_environment = []\n[[command]]\nprogram = 'cat'";
        let args = encode_list(&["cat"]);
        let term = |text: &str, value: &[u8], more: &[(&str, &[u8])]| {
            let pairs = [&[("args", args.as_slice()), ("env.TERM", value)], more].concat();
            policy(text).plan(&params(&pairs)).map(|plan| plan.launch)
        };
        let with = |term: &str| {
            let mut launch = Launch::new(find("cat").unwrap());
            launch.name("cat").input().terminal(Some(Window { rows: 1, columns: 2 }));
            launch.env(TERM, term).clone()
        };
        let pty: &[(&str, &[u8])] = &[("pty", b"1 2")];
        assert_eq!(term(text, b"xterm-256color", pty), Ok(with("xterm-256color")));
        // Without a terminal it is a variable as others are.
        assert_eq!(term(text, b"xterm", &[]), Err(Refused::Environment("TERM".into())));
        let long = [b'x'; MAX_TERM + 1];
        for wrong in [&b""[..], b"a b", b"../x", b"a/b", b"x\x1b[", b"\xff", &long] {
            assert_eq!(term(text, wrong, pty), Err(Refused::Malformed("env.TERM".into())));
        }
        let ours = format!("environment = {{ TERM = 'vt100' }}\n{text}");
        assert_eq!(term(&ours, b"xterm", pty), Ok(with("vt100")));
    }

    #[test]
    fn wrong_options_are_refused() {
        assert!(wrong("").contains("missing field `command`"));
        assert!(wrong("command = []").contains("at least one"));
        assert!(wrong("[[command]]\nprogram = 'bin/cat'").contains("absolute path"));
        assert!(wrong("[[command]]\nprogram = ''").contains("absolute path"));
        assert!(wrong("directory = 'tmp'\n[[command]]\nprogram = 'cat'").contains("absolute"));
        assert!(wrong("inherit_environment = ['A=B']\n[[command]]\nprogram = 'cat'").contains('='));
        assert!(
            wrong("[environment]\n'' = 'B'\n[[command]]\nprogram = 'cat'").contains("not empty")
        );
    }

    #[test]
    fn what_is_not_on_this_machine_is_told_and_may_come() {
        let folder = tempfile::tempdir().unwrap();
        let (program, directory) = (folder.path().join("program"), folder.path().join("directory"));
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
            policy.plan(&params(&[("args", &encode_list(args))])).map(|plan| plan.program)
        };
        let named = [program.to_str().unwrap()];
        assert_eq!(plan(&named), Err(Refused::NotHere(named[0].into())));
        assert_eq!(plan(&["cat"]), Err(Refused::Directory(directory.display().to_string())));
        std::fs::create_dir(&directory).unwrap();
        std::fs::copy("/bin/true", &program).unwrap();
        assert_eq!((plan(&named), plan(&["cat"])), (Ok(named[0].into()), Ok("cat".into())));
    }
}
