//! A peer made of an unmodified rustls with a raw public key, which sends frames made by hand.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::sync::Arc;

use levada_core::{SecretKey, label};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use crate::support::STEP_TIMEOUT;

/// Flags of a DATA frame.
pub const END: u8 = 0x10;
pub const FIN: u8 = 0x20;

/// HELLO of a peer with version 1 and without block framing.
pub const HELLO: &[u8] = &[6, 1, 1, 0];

/// A variable-length integer (RFC 9000 section 16) in its 8-byte form.
fn number(value: u64) -> [u8; 8] {
    (value | 0xc0 << 56).to_be_bytes()
}

fn frame(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![kind];
    numbers.iter().for_each(|value| bytes.extend(number(*value)));
    bytes
}

pub fn data(stream: u64, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame(1 | flags, &[stream, bytes.len() as u64]);
    frame.extend_from_slice(bytes);
    frame
}

/// The header of a DATA frame of `length` bytes, without the bytes.
pub fn data_of_length(stream: u64, length: u64) -> Vec<u8> {
    frame(1, &[stream, length])
}

/// A stream with one whole operation.
pub fn operation(stream: u64, bytes: &[u8]) -> Vec<u8> {
    [data(stream, 0, b""), data(stream, END, bytes)].concat()
}

pub fn window(stream: u64, limit: u64) -> Vec<u8> {
    frame(2, &[stream, limit])
}

pub fn reset(stream: u64) -> Vec<u8> {
    frame(3, &[stream, 7])
}

pub fn ping(token: u64) -> Vec<u8> {
    [&[4][..], &token.to_be_bytes()].concat()
}

pub fn close(reason: &[u8]) -> Vec<u8> {
    let mut frame = frame(7, &[0, reason.len() as u64]);
    frame.extend_from_slice(reason);
    frame
}

/// The client's end of a TLS connection.
pub struct Peer {
    tls: ClientConnection,
    tcp: TcpStream,
    /// Decrypted bytes from the node that were not consumed yet.
    received: Vec<u8>,
}

impl Peer {
    /// A TCP connection, before the handshake.
    pub fn tcp_only(address: &str, key: &SecretKey) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), key)
    }

    /// As [`Self::open`], from this address of loopback.
    pub fn open_from(source: Ipv4Addr, address: &str, key: &SecretKey) -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrV4::new(source, 0)).unwrap();
        connect(&socket, &address.parse::<SocketAddrV4>().unwrap()).unwrap();
        Self::over(TcpStream::from(socket), key).send_hello().unwrap()
    }

    fn over(tcp: TcpStream, key: &SecretKey) -> Self {
        tcp.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        tcp.set_write_timeout(Some(STEP_TIMEOUT)).unwrap();
        let name = ServerName::try_from("node").unwrap();
        let tls = ClientConnection::new(Arc::new(config(key)), name).unwrap();
        Self { tls, tcp, received: Vec::new() }
    }

    /// The next flight of the handshake, which has not been sent.
    pub fn flight(&mut self) -> Vec<u8> {
        let mut flight = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut flight).unwrap();
        }
        flight
    }

    /// A connection after the handshake, before HELLO.
    pub fn connected(address: &str, key: &SecretKey) -> Self {
        let mut peer = Self::tcp_only(address, key);
        peer.complete_handshake().unwrap();
        peer
    }

    fn complete_handshake(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.tcp)?;
        }
        Ok(())
    }

    fn send_hello(mut self) -> io::Result<Self> {
        self.complete_handshake()?;
        self.send(HELLO)?;
        Ok(self)
    }

    /// A connection after the HELLO of the peer.
    pub fn open(address: &str, key: &SecretKey) -> Self {
        Self::tcp_only(address, key).send_hello().unwrap()
    }

    /// Sends frames in one record.
    pub fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        assert!(frames.len() <= 16 << 10, "a record holds whole frames");
        self.tls.writer().write_all(frames)?;
        let flight = self.flight();
        self.tcp.write_all(&flight)
    }

    /// Sends each frame in a record of its own.
    pub fn send_each(&mut self, frames: &[Vec<u8>]) -> io::Result<()> {
        frames.iter().try_for_each(|frame| self.send(frame))
    }

    /// Sends bytes outside of TLS.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tcp.write_all(bytes)
    }

    /// Its socket, so that it can be shut down from outside.
    pub fn socket(&self) -> TcpStream {
        self.tcp.try_clone().unwrap()
    }

    /// Keying material for presenting a capability.
    pub fn exporter(&self) -> [u8; 32] {
        let secret = [0; 32];
        self.tls.export_keying_material(secret, label::EXPORTER.as_bytes(), Some(b"")).unwrap()
    }

    fn read(&mut self) -> io::Result<usize> {
        let length = self.tls.read_tls(&mut self.tcp)?;
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let start = self.received.len();
        self.received.resize(start + state.plaintext_bytes_to_read(), 0);
        if self.received.len() > start {
            self.tls.reader().read_exact(&mut self.received[start..])?;
        }
        Ok(length)
    }

    /// Reads until the node has sent `words`, and discards everything before; false if the node
    /// closes the connection.
    #[track_caller]
    pub fn receives(&mut self, words: &[u8]) -> bool {
        loop {
            if let Some(at) = self.received.windows(words.len()).position(|window| window == words)
            {
                self.received.drain(..at + words.len());
                return true;
            }
            // A part of the words may have arrived.
            let old = self.received.len().saturating_sub(words.len());
            self.received.drain(..old);
            match self.read() {
                Ok(1..) => {}
                Ok(0) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("the node sends nothing")
                }
                Err(_) => return false,
            }
        }
    }

    /// Whether the node answers a PING on this connection.
    #[track_caller]
    pub fn is_served(&mut self) -> bool {
        let token = 0x1234_5678_9abc_def0_u64;
        self.send(&ping(token)).is_ok() && self.receives(&[&[5][..], &token.to_be_bytes()].concat())
    }

    /// Waits until the node closes the connection.
    #[track_caller]
    pub fn expect_close(mut self) {
        assert!(!self.receives(b"text that no node sends"));
    }

    /// Closes its direction, and waits until the node closes the other one.
    #[track_caller]
    pub fn close(self) {
        let _ = self.tcp.shutdown(Shutdown::Write);
        self.expect_close();
    }
}

fn config(key: &SecretKey) -> ClientConfig {
    let provider = CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    };
    let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let pkcs8 = [&prefix[..], key.seed().as_slice()].concat();
    let signer = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).unwrap();
    let public = CertificateDer::from(signer.public_key().unwrap().to_vec());
    let certified = Arc::new(CertifiedKey::new(vec![public], signer));
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyNode))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![b"levada/1".to_vec()];
    config
}

/// Accepts the raw public key of any node. It is not the verifier of `levada_channel::testing`:
/// Cargo would enable that feature in the binary under test too.
#[derive(Debug)]
struct AnyNode;

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
