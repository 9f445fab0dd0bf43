//! Files with the keys to X servers: entries of a family, an address, a display number, the name of a
//! method, and its secret (Xsecurity(7)). Numbers are big-endian, and each text has its length in front.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

/// The one method that is used.
pub(crate) const METHOD: &[u8] = b"MIT-MAGIC-COOKIE-1";
/// The length of its secret, in bytes.
const COOKIE: usize = 16;
/// An entry of this family fits every address.
const WILD: u16 = 0xffff;
/// Larger files are not read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// The secret for display `number` of this machine in the file `path`.
///
/// # Errors
/// What the system says; no secret for that display is none.
pub(crate) fn secret(path: &Path, number: u16) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(find(&bytes, number).map(|secret| Zeroizing::new(secret.to_vec())))
}

/// The content of a file with one entry, which fits every display.
pub fn for_every_display(secret: &[u8; COOKIE]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(WILD.to_be_bytes().to_vec());
    // No address and no number: they fit all.
    for field in [&[][..], &[], METHOD, secret] {
        let length = u16::try_from(field.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}

/// The first secret that fits `number`: the addresses are names of this machine, more than one of which
/// may be out of date.
fn find(mut bytes: &[u8], number: u16) -> Option<&[u8]> {
    let wanted = number.to_string();
    loop {
        let (_family, rest) = bytes.split_first_chunk::<2>()?;
        bytes = rest;
        let _address = field(&mut bytes)?;
        let display = field(&mut bytes)?;
        let method = field(&mut bytes)?;
        let secret = field(&mut bytes)?;
        let fits = display.is_empty() || display == wanted.as_bytes();
        if fits && method == METHOD {
            return Some(secret);
        }
    }
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (field, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    *bytes = rest;
    Some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_files_never_panic() {
        bolero::check!().with_type::<(Vec<u8>, u16)>().for_each(|(bytes, number)| {
            find(bytes, *number);
        });
    }

    #[test]
    fn the_entry_of_the_display_is_found() {
        let entry = |family: u16, number: &str, method: &[u8], secret: &[u8]| {
            let mut bytes = family.to_be_bytes().to_vec();
            for field in [&b"host"[..], number.as_bytes(), method, secret] {
                bytes.extend_from_slice(&u16::try_from(field.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(field);
            }
            bytes
        };
        let file = [
            entry(256, "0", METHOD, b"zero"),
            entry(256, "12", b"XDM-AUTHORIZATION-1", b"other"),
            entry(256, "12", METHOD, b"twelve"),
        ]
        .concat();
        assert_eq!(find(&file, 0), Some(&b"zero"[..]));
        assert_eq!(find(&file, 12), Some(&b"twelve"[..]));
        assert_eq!(find(&file, 1), None);
        assert_eq!(find(&file[..file.len() - 1], 12), None);
    }

    #[test]
    fn one_entry_can_fit_every_display() {
        let bytes = for_every_display(&[7; COOKIE]);
        for number in [0, 5, 99] {
            assert_eq!(find(&bytes, number), Some(&[7; COOKIE][..]));
        }
    }
}
