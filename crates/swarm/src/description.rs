//! What a coordinator says about its share before anything else.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use levada_session::{Stream, StreamError};
use thiserror::Error;

use crate::ChunkSize;
use crate::content::{ManifestError, check_name};

/// The version of the messages of this crate.
const VERSION: u8 = 1;
/// The flags of a folder, of mediated mode, and of the stream that goes by UDP.
const FOLDER: u8 = 1;
const MEDIATED: u8 = 2;
const CONTROL_BY_UDP: u8 = 4;
const DATA_BY_UDP: u8 = 8;
/// The longest description, in bytes.
const MAX_DESCRIPTION: usize = 3 + 255;

/// The stream of two parties that goes by UDP (QUIC). The other one goes by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpStream {
    /// The stream for control messages.
    Control,
    /// The stream for chunks.
    Data,
}

/// The first message of a coordinator on the control stream (`docs/protocol.md`, "The swarm").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The size of the chunks.
    pub chunk: ChunkSize,
    /// Whether the content begins with a manifest.
    pub is_folder: bool,
    /// Whether chunks pass through the coordinator (mediated mode).
    pub is_mediated: bool,
    /// The stream that goes by UDP where UDP gets through; `None` if both go by TCP.
    pub udp: Option<UdpStream>,
    /// The name of the file or folder: one that every file system can hold, without `/`. It need
    /// not be UTF-8.
    pub name: PathBuf,
}

/// Why there is no description.
#[derive(Debug, Error)]
pub enum DescriptionError {
    /// The coordinator speaks a later version.
    #[error(
        "the node speaks version {0} of the swarm, which this program does not know; update it"
    )]
    Version(u8),
    /// It is malformed.
    #[error("the node sent a malformed description of the share")]
    Malformed,
    /// See [`ManifestError`].
    #[error(transparent)]
    Name(#[from] ManifestError),
    /// See [`StreamError`].
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl Description {
    /// The bytes of the message: version, log2 of the chunk size, flags, name.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.chunk.bytes().ilog2() as u8];
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let udp = match self.udp {
            None => 0,
            Some(UdpStream::Control) => CONTROL_BY_UDP,
            Some(UdpStream::Data) => DATA_BY_UDP,
        };
        out.push(flag(self.is_folder, FOLDER) | flag(self.is_mediated, MEDIATED) | udp);
        out.extend_from_slice(self.name.as_os_str().as_bytes());
        out
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DescriptionError> {
        let &[version, ref rest @ ..] = bytes else { return Err(DescriptionError::Malformed) };
        if version != VERSION {
            return Err(DescriptionError::Version(version));
        }
        let &[log, flags, ref name @ ..] = rest else { return Err(DescriptionError::Malformed) };
        let size = 1_u32.checked_shl(u32::from(log)).ok_or(DescriptionError::Malformed)?;
        let chunk = ChunkSize::new(size).map_err(|_| DescriptionError::Malformed)?;
        let name = PathBuf::from(OsStr::from_bytes(name));
        check_name(&name)?;
        let udp = match flags & !(FOLDER | MEDIATED) {
            0 => None,
            CONTROL_BY_UDP => Some(UdpStream::Control),
            DATA_BY_UDP => Some(UdpStream::Data),
            _ => return Err(DescriptionError::Malformed),
        };
        let is_folder = flags & FOLDER != 0;
        let is_mediated = flags & MEDIATED != 0;
        Ok(Self { chunk, is_folder, is_mediated, udp, name })
    }

    /// Receives the message.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub async fn receive(control: &mut Stream) -> Result<Self, DescriptionError> {
        let bytes = control.receive(MAX_DESCRIPTION).await?.ok_or(StreamError::Finished)?;
        Self::decode(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_encoding() {
        for udp in [None, Some(UdpStream::Control), Some(UdpStream::Data)] {
            for (is_folder, is_mediated) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let name = PathBuf::from(OsStr::from_bytes(b"a film \xe9.mkv"));
                let chunk = ChunkSize::DEFAULT;
                let description = Description { chunk, is_folder, is_mediated, udp, name };
                assert_eq!(Description::decode(&description.encode()).unwrap(), description);
            }
        }
    }

    #[test]
    fn both_streams_by_udp_are_refused() {
        let chunk = ChunkSize::DEFAULT;
        let name = "film".into();
        let udp = Some(UdpStream::Data);
        let description = Description { chunk, is_folder: true, is_mediated: true, udp, name };
        let mut bytes = description.encode();
        assert_eq!(bytes[2], 11);
        bytes[2] |= CONTROL_BY_UDP;
        let refused = Description::decode(&bytes);
        assert!(matches!(refused, Err(DescriptionError::Malformed)), "{refused:?}");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in
            ["", ".", "..", "a/b", "/a", "a\\b", "a\0", "NUL", "com1.mkv", "a.", &"x".repeat(256)]
        {
            let chunk = ChunkSize::DEFAULT;
            let name = name.into();
            let is_folder = false;
            let is_mediated = false;
            let udp = None;
            let description = Description { chunk, is_folder, is_mediated, udp, name };
            assert!(Description::decode(&description.encode()).is_err(), "{description:?}");
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(description) = Description::decode(bytes) {
                assert_eq!(description.encode(), bytes);
            }
        });
    }
}
