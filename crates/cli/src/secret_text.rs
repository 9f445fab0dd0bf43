//! Arguments that are secrets, such as CAPABILITY: the text itself, `@file`, or `-` for a line of
//! standard input. An argument is visible to other users of the machine, and in the history of the
//! shell.

use crate::failure::{Failure, USAGE};
use levada_capability::Capability;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// More than the longest text of a capability.
const MAX_TEXT: usize = 1024 * 1024;

/// Reads the capability that `argument` denotes.
///
/// # Errors
/// [`Failure`] 2 if the text is no capability, 120 if the file cannot be read.
pub fn read(argument: &str) -> Result<Capability, Failure> {
    Ok(Capability::from_text(read_text(argument, "capability")?.trim())?)
}

/// Reads the secret text that `argument` denotes; errors name it as `what`.
///
/// # Errors
/// [`Failure`] 2 if it is no text, 120 if the file or standard input cannot be read.
pub fn read_text(argument: &str, what: &str) -> Result<Zeroizing<String>, Failure> {
    match argument.strip_prefix('@') {
        Some(file) => from_file(Path::new(file), what),
        None if argument == "-" => from_line(&mut Unbuffered, what),
        None => Ok(Zeroizing::new(argument.to_owned())),
    }
}

fn from_file(path: &Path, what: &str) -> Result<Zeroizing<String>, Failure> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)
        .and_then(|file| file.take(MAX_TEXT as u64).read_to_end(&mut bytes))
        .map_err(Failure::file(&format!("read the {what} from"), path))?;
    text(&bytes, what)
}

/// Reads exactly one line: the rest of standard input belongs to the session.
fn from_line(input: &mut impl Read, what: &str) -> Result<Zeroizing<String>, Failure> {
    let fail = |text: &str| Failure::local(format!("no {what} on standard input: {text}"));
    let mut line = Zeroizing::new(Vec::with_capacity(4096));
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte[0] == b'\n' && !line.is_empty() => break,
            Ok(_) if byte[0] == b'\n' => {}
            Ok(_) if line.len() == MAX_TEXT => return Err(fail("the line is too long")),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(&error.to_string())),
        }
    }
    if line.is_empty() {
        return Err(fail("it is empty"));
    }
    text(&line, what)
}

fn text(bytes: &[u8], what: &str) -> Result<Zeroizing<String>, Failure> {
    let text = std::str::from_utf8(bytes);
    let refused = |_| Failure::new(USAGE, format!("not a {what}: it is not UTF-8 text"));
    let text = text.map_err(refused)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Standard input without the buffer of the standard library, which would read beyond the line.
struct Unbuffered;

impl Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(io::stdin(), buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_line_and_leaves_the_rest() {
        let mut input = "\nlvcap1abc\nrest".as_bytes();
        assert_eq!(from_line(&mut input, "capability").unwrap().as_str(), "lvcap1abc");
        assert_eq!(input, b"rest");
        assert_eq!(from_line(&mut "last".as_bytes(), "capability").unwrap().as_str(), "last");
        assert!(from_line(&mut "\n".as_bytes(), "capability").is_err());
        assert!(from_line(&mut [0xff, 0xfe].as_slice(), "capability").is_err());
    }
}
