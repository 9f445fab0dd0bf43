//! Authority files of X servers. An entry has a family, an address, a display number, the name of a
//! method, and a secret (Xsecurity(7)). Numbers are big-endian, and each text is preceded by its
//! length.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

/// The supported method.
pub(crate) const METHOD: &[u8] = b"MIT-MAGIC-COOKIE-1";
/// Length of its secret, in bytes.
const COOKIE: usize = 16;
/// `FamilyWild`: the entry matches every address.
const FAMILY_WILD: u16 = 0xffff;
/// At most this much of a file is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// The secret for display `number` of this machine in the file `path`.
///
/// # Errors
/// The system's error if the file cannot be read. A file without a matching entry is `Ok(None)`.
pub(crate) fn secret(path: &Path, number: u16) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(find(&bytes, number).map(|secret| Zeroizing::new(secret.to_vec())))
}

/// The content of an authority file with one entry, which matches every display.
pub fn wildcard_authority(secret: &[u8; COOKIE]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(FAMILY_WILD.to_be_bytes().to_vec());
    // An empty address and an empty number match all.
    for field in [&[][..], &[], METHOD, secret] {
        let length = u16::try_from(field.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}

/// The first secret that matches `number`. The address is ignored: it is a host name of this
/// machine, which may be outdated.
fn find(mut bytes: &[u8], number: u16) -> Option<&[u8]> {
    let number = number.to_string();
    loop {
        let (_family, rest) = bytes.split_first_chunk::<2>()?;
        bytes = rest;
        let _address = field(&mut bytes)?;
        let display = field(&mut bytes)?;
        let method = field(&mut bytes)?;
        let secret = field(&mut bytes)?;
        let matches = display.is_empty() || display == number.as_bytes();
        if matches && method == METHOD {
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
    fn finds_the_entry_of_the_display() {
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
    fn a_wildcard_entry_matches_every_display() {
        let bytes = wildcard_authority(&[7; COOKIE]);
        for number in [0, 5, 99] {
            assert_eq!(find(&bytes, number), Some(&[7; COOKIE][..]));
        }
    }
}
