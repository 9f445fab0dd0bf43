//! Programs that the preloaded library cannot be loaded into: `levada fast` and the library look at
//! the file before each exec(3).
//!
//! Source: System V ABI, chapters 4 and 5 (ELF-64 object files, program loading).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::pread;

/// Bytes that are read from the start of a file: its headers, and mostly the name of the linker.
const HEAD: usize = 1024;
/// Bytes of a path in a file.
const MAX_PATH: usize = 255;
/// Program headers, and entries of the dynamic section, that are looked at.
const MAX_HEADERS: usize = 64;
const MAX_DYNAMIC: usize = 256;
/// Scripts whose interpreter is a script: as many as the kernel follows.
const MAX_SCRIPTS: usize = 5;

/// The dynamic linker of glibc on x86-64.
const LINKER: &[u8] = b"ld-linux-x86-64.so.2";
/// Libraries that end the program unless they are loaded first.
const FIRST: [&[u8]; 4] = [b"libasan.so", b"libtsan.so", b"liblsan.so", b"libhwasan.so"];

/// Why a program must run without the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// Its dynamic linker is that of another libc, such as musl.
    OtherLinker,
    /// It is a program for another processor, such as one of 32 bits.
    OtherProcessor,
    /// It has a sanitizer in a shared library, which must be loaded first.
    Sanitizer,
}

impl Misfit {
    /// The reason for people.
    pub fn reason(self) -> &'static str {
        match self {
            Self::OtherLinker => "its dynamic linker is not that of glibc for x86-64",
            Self::OtherProcessor => "it is not a program for x86-64",
            Self::Sanitizer => "it has a sanitizer, whose library must be loaded first",
        }
    }
}

/// Looks at a program, and for a script at its interpreter. `None` if the library can be loaded, or
/// does no harm: static programs ignore it. Also `None` if the file cannot be read.
pub fn misfit(program: &Path) -> Option<Misfit> {
    let mut program = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        match examine(&File::open(&program).ok()?)? {
            Found::Misfit(misfit) => return Some(misfit),
            Found::Script(interpreter) => program = interpreter,
        }
    }
    None
}

/// As [`misfit`], for an open file.
pub fn misfit_of_file(program: impl AsFd) -> Option<Misfit> {
    match examine(program)? {
        Found::Misfit(misfit) => Some(misfit),
        Found::Script(interpreter) => misfit(&interpreter),
    }
}

enum Found {
    Misfit(Misfit),
    Script(PathBuf),
}

fn examine(file: impl AsFd) -> Option<Found> {
    let file = Bytes { file: file.as_fd(), head: [0; HEAD], length: 0 }.filled()?;
    let head = &file.head[..file.length];
    if let Some(line) = head.strip_prefix(b"#!") {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let line = line.split(|byte| *byte == b'\n').next()?;
        let path = line.split(is_blank).find(|word| !word.is_empty())?;
        return Some(Found::Script(OsStr::from_bytes(path).into()));
    }
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    // ELFCLASS64, ELFDATA2LSB, EM_X86_64.
    if head.get(4..6)? != [2, 1] || number(head, 18, 2)? != 62 {
        return Some(Found::Misfit(Misfit::OtherProcessor));
    }
    Elf::read(&file)?.misfit().map(Found::Misfit)
}

/// A file, of which the first bytes are in memory.
struct Bytes<'a> {
    file: rustix::fd::BorrowedFd<'a>,
    head: [u8; HEAD],
    length: usize,
}

impl Bytes<'_> {
    fn filled(mut self) -> Option<Self> {
        self.length = pread(self.file, &mut self.head, 0).ok()?;
        Some(self)
    }

    /// Fills `buffer` with what is at `offset`, as far as the file reaches; returns its length.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let at = usize::try_from(offset).ok()?;
        match self.head[..self.length].get(at..at.checked_add(buffer.len())?) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Some(buffer.len())
            }
            None => pread(self.file, buffer, offset).ok(),
        }
    }

    fn starts_with(&self, offset: u64, name: &[u8]) -> bool {
        let mut bytes = [0; 32];
        let length = self.read(offset, &mut bytes).unwrap_or(0);
        bytes[..length].starts_with(name)
    }
}

/// A number of `size` bytes in little-endian order.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// A part of the file, and where it is in memory.
#[derive(Clone, Copy, Default)]
struct Part {
    offset: u64,
    address: u64,
    length: u64,
}

struct Elf<'a> {
    file: &'a Bytes<'a>,
    linker: Option<Part>,
    dynamic: Option<Part>,
    loaded: [Part; MAX_HEADERS],
}

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

impl<'a> Elf<'a> {
    fn read(file: &'a Bytes<'a>) -> Option<Self> {
        let head = &file.head;
        let start = number(head, 32, 8)?;
        let size = number(head, 54, 2)?;
        let count = number(head, 56, 2)?;
        let mut elf =
            Self { file, linker: None, dynamic: None, loaded: [Part::default(); MAX_HEADERS] };
        for at in 0..MAX_HEADERS.min(usize::try_from(count).ok()?) {
            let mut header = [0; 56];
            let offset = start.checked_add(at as u64 * size)?;
            if file.read(offset, &mut header)? < header.len() {
                return None;
            }
            let part = Part {
                offset: number(&header, 8, 8)?,
                address: number(&header, 16, 8)?,
                length: number(&header, 32, 8)?,
            };
            match number(&header, 0, 4)? {
                PT_LOAD => elf.loaded[at] = part,
                PT_DYNAMIC => elf.dynamic = Some(part),
                PT_INTERP => elf.linker = Some(part),
                _ => {}
            }
        }
        Some(elf)
    }

    fn misfit(&self) -> Option<Misfit> {
        // Without one, it is linked statically.
        let linker = self.linker?;
        let mut path = [0; MAX_PATH];
        let length = self.file.read(linker.offset, &mut path)?;
        let path = path[..length].split(|byte| *byte == 0).next()?;
        if path.rsplit(|byte| *byte == b'/').next()? != LINKER {
            return Some(Misfit::OtherLinker);
        }
        self.has_sanitizer().filter(|has| *has).map(|_| Misfit::Sanitizer)
    }

    fn has_sanitizer(&self) -> Option<bool> {
        let dynamic = self.dynamic?;
        let mut entries = [0; 16 * MAX_DYNAMIC];
        let length = entries.len().min(usize::try_from(dynamic.length).ok()?);
        let length = self.file.read(dynamic.offset, &mut entries[..length])?;
        let entries = entries[..length].chunks_exact(16);
        let all = || {
            let of = |entry| Some((number(entry, 0, 8)?, number(entry, 8, 8)?));
            entries.clone().map_while(of).take_while(|(tag, _)| *tag != 0)
        };
        let (_, strings) = all().find(|(tag, _)| *tag == DT_STRTAB)?;
        let strings = self.offset_of(strings)?;
        let mut needed = all().filter(|(tag, _)| *tag == DT_NEEDED);
        Some(needed.any(|(_, name)| {
            let at = strings.saturating_add(name);
            FIRST.iter().any(|library| self.file.starts_with(at, library))
        }))
    }

    /// Where in the file the byte is that will be at an address.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |part: &&Part| {
            address.checked_sub(part.address).is_some_and(|offset| offset < part.length)
        };
        let part = self.loaded.iter().find(holds)?;
        part.offset.checked_add(address - part.address)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile();
        file.write_all(bytes).unwrap();
        file
    }

    fn tempfile() -> File {
        let file = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        file.into()
    }

    #[test]
    fn programs_of_this_machine_fit() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(misfit(&own), None);
        assert_eq!(misfit(Path::new("/bin/sh")), None);
        assert_eq!(misfit(Path::new("/does/not/exist")), None);
        assert_eq!(misfit_of_file(file(b"#! /bin/sh -e\n")), None);
        assert_eq!(misfit_of_file(file(b"plain text")), None);
    }

    #[test]
    fn programs_with_another_linker_or_processor_do_not_fit() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let at = own.windows(LINKER.len()).position(|bytes| bytes == LINKER).unwrap();
        let mut musl = own.clone();
        musl[at..at + 7].copy_from_slice(b"ld-musl");
        assert_eq!(misfit_of_file(file(&musl)), Some(Misfit::OtherLinker));
        let mut other = own.clone();
        other[4] = 1;
        assert_eq!(misfit_of_file(file(&other)), Some(Misfit::OtherProcessor));
        let needed = own.windows(9).position(|bytes| bytes == b"libc.so.6").unwrap();
        let mut sanitized = own;
        sanitized[needed - 1..needed + 10].copy_from_slice(b"\0libasan.so");
        assert_eq!(misfit_of_file(file(&sanitized)), Some(Misfit::Sanitizer));
    }

    #[test]
    fn any_bytes_are_examined() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let head = own[..4096].to_vec();
        bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
            let mut bytes = head.clone();
            for (at, byte) in changes {
                bytes[usize::from(*at) % 512] = *byte;
            }
            let _ = misfit_of_file(file(&bytes));
        });
    }
}
