//! The messages of the handshake (`docs/protocol.md`, "Handshake with middleboxes"), and its
//! transcript.

mod bind;
mod hello;
mod ready;
mod share;

use levada_core::{Digest, sha256};

use super::ContextError;
pub(crate) use bind::{Bind, BindProof};
pub(crate) use hello::{Hello, HelloProof, each_hello};
use levada_channel::parts::HEADER;
pub(crate) use ready::{START, Start, check_ready, put_ready};
pub(crate) use share::{Share, open_client_share, put_client_share};

/// The most tickets that a server may send.
pub(crate) const MAX_TICKETS: u8 = 8;

/// L_0: the frames PATH and ClientHello.
pub(crate) fn first_transcript(path: &[u8], client_hello: &[u8]) -> Digest {
    sha256(&[path, client_hello])
}

/// L_i, from L_{i-1} and the whole frame MBHELLO_i.
pub(crate) fn next_transcript(before: &Digest, hello: &[u8]) -> Digest {
    sha256(&[before, hello])
}

/// TH1: L_n and the hash of all TLS records of the server before ECHO.
pub(crate) fn th1(l: &Digest, flight: &Digest) -> Digest {
    sha256(&[l, flight])
}

/// TH2: TH1 and the whole frame SBIND.
pub(crate) fn th2(th1: &Digest, bind: &[u8]) -> Digest {
    sha256(&[th1, bind])
}

/// The header and body of a whole frame.
pub(crate) fn split(whole: &[u8]) -> Result<([u8; HEADER], &[u8]), ContextError> {
    let (header, body) =
        whole.split_first_chunk().ok_or(ContextError::Malformed("a short frame"))?;
    Ok((*header, body))
}

/// The error for an ALERT with this body.
pub(crate) fn alert(body: &[u8]) -> ContextError {
    match *body {
        [code, hop] => ContextError::Alert { code, hop },
        _ => ContextError::Malformed("an ALERT"),
    }
}
