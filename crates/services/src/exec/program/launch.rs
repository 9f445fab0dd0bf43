//! What a program is started with, and its encoding for the supervisor.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::find;
use levada_service::stdio::Window;

/// The longest encoded form, in bytes. The kernel's own limit for arguments and environment is
/// lower (execve(2)).
pub(super) const MAX_ENCODED: usize = 8 * 1024 * 1024;

/// A program, its arguments, its complete environment, its directory and its standard files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub(super) file: PathBuf,
    /// The name that the program sees as its own (`argv[0]`).
    pub(super) name: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) environment: BTreeMap<OsString, OsString>,
    /// The working directory; without one, that of this process.
    pub(super) directory: Option<PathBuf>,
    /// The size of its terminal; without one, it has pipes.
    pub(super) terminal: Option<Window>,
    /// Whether standard input is a pipe; otherwise it is `/dev/null`. A terminal always has input.
    pub(super) input: bool,
}

impl Launch {
    /// Launches `program`: a path, or a name that is looked up in PATH. The environment is empty.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let name = program.as_ref();
        let found = name.to_str().filter(|name| !name.contains('/')).and_then(find);
        Self {
            file: found.unwrap_or_else(|| PathBuf::from(name)),
            name: name.to_owned(),
            args: Vec::new(),
            environment: BTreeMap::new(),
            directory: None,
            terminal: None,
            input: false,
        }
    }

    /// Adds the environment of this process.
    pub fn inherit_environment(&mut self) -> &mut Self {
        self.envs(env::vars_os())
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.args.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.args.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// The arguments, without the program.
    pub fn arguments(&self) -> &[OsString] {
        &self.args
    }

    /// A command for the same program with the same environment, to start it without a supervisor.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.arg0(&self.name).args(&self.args).env_clear().envs(&self.environment);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// Sets an environment variable.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Sets environment variables.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        for (name, value) in variables {
            self.env(name, value);
        }
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.environment.remove(name.as_ref());
        self
    }

    /// Sets the working directory.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets `argv[0]`, by default the program as given to [`Self::new`].
    pub fn name(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.name = name.as_ref().to_owned();
        self
    }

    /// Makes standard input a pipe.
    pub(crate) fn input(&mut self) -> &mut Self {
        self.input = true;
        self
    }

    /// Sets the size of its terminal; `None` for pipes.
    pub(crate) fn terminal(&mut self, window: Option<Window>) -> &mut Self {
        self.terminal = window;
        self
    }

    /// The fields, each followed by a zero byte: no field can contain one (execve(2)).
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        let terminal = self.terminal.map(|window| window.to_string()).unwrap_or_default();
        let count = self.args.len().to_string();
        let head = [self.file.as_os_str(), &self.name, directory.as_os_str()];
        let head = head.into_iter().chain([OsStr::new(&terminal), OsStr::new(&count)]);
        let mut bytes = Vec::new();
        for field in head.chain(self.args.iter().map(OsString::as_os_str)) {
            push(&mut bytes, &[field.as_bytes()])?;
        }
        for (name, value) in &self.environment {
            push(&mut bytes, &[name.as_bytes(), b"=", value.as_bytes()])?;
        }
        if bytes.len() > MAX_ENCODED {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        Ok(bytes)
    }

    /// Decodes what [`Self::encode`] returned, without `input`: standard input is passed as a file.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        Self::parse(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let mut next = || fields.next().map(|field| OsString::from_vec(field.to_vec()));
        let file = next()?;
        let name = next()?;
        let directory = next()?;
        let terminal = next()?.into_string().ok()?;
        let count = next()?.into_string().ok()?;
        let count: usize = count.parse().ok()?;
        // Each argument has one byte at least.
        if count > bytes.len() {
            return None;
        }
        let args = (0..count).map(|_| next()).collect::<Option<_>>()?;
        let mut environment = BTreeMap::new();
        while let Some(variable) = next() {
            let bytes = variable.as_bytes();
            let equals = bytes.iter().skip(1).position(|byte| *byte == b'=')? + 1;
            let name = &bytes[..equals];
            let value = &bytes[equals + 1..];
            environment.insert(OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into());
        }
        Some(Self {
            file: file.into(),
            name,
            args,
            environment,
            directory: Some(PathBuf::from(directory)).filter(|path| !path.as_os_str().is_empty()),
            terminal: if terminal.is_empty() { None } else { Some(terminal.parse().ok()?) },
            input: false,
        })
    }
}

fn push(bytes: &mut Vec<u8>, parts: &[&[u8]]) -> io::Result<()> {
    let start = bytes.len();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    if bytes[start..].contains(&0) {
        let text = "an argument or environment variable contains a zero byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    bytes.push(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_round_trips() {
        let mut launch = Launch::new("sh");
        assert!(launch.file.is_absolute(), "looked up");
        launch.args(["-c", "", "é\n"]).env("A", "x=y").env("B", "").current_dir("/tmp");
        launch.terminal = Some(Window { rows: 3, columns: 4 });
        assert_eq!(Launch::decode(&launch.encode().unwrap()).unwrap(), launch);
        let plain = Launch::new("./not/looked/up");
        assert_eq!(Launch::decode(&plain.encode().unwrap()).unwrap(), plain);
        assert!(Launch::new("sh").arg("a\0b").encode().is_err());
        let long = "x".repeat(MAX_ENCODED);
        assert!(Launch::new("sh").arg(long).encode().is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = Launch::decode(bytes);
        });
    }
}
