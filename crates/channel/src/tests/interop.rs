//! Interoperability of the handshake and the records with an unmodified rustls, in both roles.
//!
//! With `LEVADA_TEST_FULL=1` half a gigabyte goes each way, otherwise 8 MiB.

use levada_core::{Framing, SecretKey};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use super::pair::{Endpoints, key};
use super::raw::{receive_all, take, write};
use crate::testing::{RawKeyVerifier, certified_key};
use crate::tls::Tls;

/// A client with the default provider. It offers another key exchange first, so the server sends a
/// HelloRetryRequest.
fn client(key: &SecretKey, alpn: &[u8]) -> ClientConnection {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let resolver =
        rustls::client::AlwaysResolvesClientRawPublicKeys::new(certified_key(key).unwrap());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(RawKeyVerifier::any())
        .with_client_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![alpn.to_vec()];
    ClientConnection::new(Arc::new(config), ServerName::try_from("peer").unwrap()).unwrap()
}

fn server(key: &SecretKey, alpn: &[u8]) -> ServerConnection {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let resolver =
        rustls::server::AlwaysResolvesServerRawPublicKeys::new(certified_key(key).unwrap());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(RawKeyVerifier::any())
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![alpn.to_vec()];
    ServerConnection::new(Arc::new(config)).unwrap()
}

/// This crate's end of a connection, and rustls' end.
struct Interop {
    ours: Tls,
    theirs: Connection,
    key: SecretKey,
}

impl Interop {
    fn our_client(endpoints: &Endpoints, alpn: &[u8]) -> Self {
        let key = key();
        let ours = Tls::client(&endpoints.client, Some(key.identity())).unwrap();
        let theirs = server(&key, alpn).into();
        Self { ours, theirs, key }
    }

    fn our_server(endpoints: &Endpoints, alpn: &[u8]) -> Self {
        let key = key();
        let theirs = client(&key, alpn).into();
        Self { ours: Tls::server(&endpoints.server).unwrap(), theirs, key }
    }

    fn connect(&mut self) -> Result<(), crate::Error> {
        for _ in 0..4 {
            self.flush_theirs()?;
            let bytes = take(&mut self.ours);
            self.feed(&bytes);
        }
        assert!(self.ours.is_established() && !self.theirs.is_handshaking());
        assert_eq!(self.ours.peer(), Some(self.key.identity()));
        Ok(())
    }

    /// Delivers what rustls has sent to this crate's end.
    fn flush_theirs(&mut self) -> Result<(Vec<u8>, bool), crate::Error> {
        let mut bytes = Vec::new();
        while self.theirs.wants_write() {
            self.theirs.write_tls(&mut bytes).unwrap();
        }
        receive_all(&mut self.ours, &bytes)
    }

    /// Delivers bytes to rustls' end; returns the data in them.
    fn feed(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        while !bytes.is_empty() {
            self.theirs.read_tls(&mut bytes).unwrap();
            let state = self.theirs.process_new_packets().unwrap();
            let start = data.len();
            data.resize(start + state.plaintext_bytes_to_read(), 0);
            self.theirs.reader().read_exact(&mut data[start..]).unwrap();
        }
        data
    }

    fn carry_there(&mut self, data: &[u8]) {
        write(&mut self.ours, data);
        let bytes = take(&mut self.ours);
        assert!(self.feed(&bytes) == data);
    }

    fn carry_here(&mut self, data: &[u8]) {
        let mut got = Vec::new();
        for part in data.chunks(48 << 10) {
            self.theirs.writer().write_all(part).unwrap();
            got.extend(self.flush_theirs().unwrap().0);
        }
        assert!(got == data);
    }
}

fn both_roles(test: impl Fn(Interop)) {
    let endpoints = Endpoints::new();
    for mut interop in
        [Interop::our_client(&endpoints, b"levada/1"), Interop::our_server(&endpoints, b"levada/1")]
    {
        interop.connect().unwrap();
        test(interop);
    }
}

#[test]
fn bulk_data_passes_both_ways_across_key_updates() {
    let full = std::env::var_os("LEVADA_TEST_FULL").is_some();
    let mebibytes = if full { 512 } else { 8 };
    let mut data: Vec<u8> = (0..1 << 20).map(|i: u32| ((i * 31) >> 3) as u8).collect();
    let data = std::cell::RefCell::new(&mut data);
    both_roles(|mut interop| {
        for round in 0..mebibytes {
            let data = &mut **data.borrow_mut();
            data[0] = round as u8;
            interop.carry_there(data);
            interop.carry_here(data);
            if round % 8 == 3 {
                interop.ours.update_key(round % 16 == 3);
            }
            if round % 8 == 5 {
                interop.theirs.refresh_traffic_keys().unwrap();
            }
        }
    });
}

#[test]
fn every_record_size_is_understood() {
    both_roles(|mut interop| {
        for length in 64..=4096 {
            interop.ours.set_framing(Framing::Block(length));
            interop.carry_there(&vec![5; usize::from(length) - 22]);
            interop.carry_there(b"little");
            interop.carry_here(&vec![6; usize::from(length)]);
        }
        interop.ours.update_key(true);
        interop.carry_there(b"after");
        interop.carry_here(b"after");
    });
}

#[test]
fn exporters_agree_also_after_key_updates() {
    both_roles(|mut interop| {
        let agree = |interop: &Interop| {
            for (label, context) in [("EXPORTER-levada-proof", &b""[..]), ("EXPORTER-x", &[7; 300])]
            {
                for len in [1, 32, 48, 200] {
                    let mut ours = vec![0; len];
                    interop.ours.export(label, context, &mut ours).unwrap();
                    let mut theirs = vec![0; len];
                    interop
                        .theirs
                        .export_keying_material(&mut theirs, label.as_bytes(), Some(context))
                        .unwrap();
                    assert_eq!(ours, theirs);
                }
            }
        };
        agree(&interop);
        interop.ours.update_key(true);
        interop.carry_there(b"x");
        interop.carry_here(b"y");
        agree(&interop);
    });
}

#[test]
fn both_sides_close_in_good_order() {
    both_roles(|mut interop| {
        interop.theirs.send_close_notify();
        assert_eq!(interop.flush_theirs(), Ok((vec![], true)));
        interop.ours.close_notify();
        let mut bytes = &take(&mut interop.ours)[..];
        interop.theirs.read_tls(&mut bytes).unwrap();
        assert!(interop.theirs.process_new_packets().unwrap().peer_has_closed());
    });
}

#[test]
fn a_peer_with_another_alpn_protocol_is_refused() {
    let endpoints = Endpoints::new();
    let mut interop = Interop::our_server(&endpoints, b"h2");
    assert!(matches!(interop.connect(), Err(crate::Error::Handshake(_))));
    let mut interop = Interop::our_client(&endpoints, b"levada/2");
    assert!(interop.flush_theirs().is_ok());
    let hello = take(&mut interop.ours);
    interop.theirs.read_tls(&mut &hello[..]).unwrap();
    assert!(interop.theirs.process_new_packets().is_err());
    assert_eq!(interop.flush_theirs(), Err(crate::Error::Alert(120)));
}
