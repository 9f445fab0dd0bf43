//! The handshake: frames, transcripts, shares.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use levada_core::{Digest, SecretKey, label, label::derive, sha256};
use rustls::KeyLog;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
use rustls::crypto::hpke::HpkePrivateKey;

use super::{NAMES, Session, Vectors, stored, whole};
use crate::Direction::{ToClient, ToServer};
use crate::kem::OneTimeKey;
use crate::messages::{self, Bind, BindProof, Hello, Share, Start, put_client_share, put_ready};
use crate::path::alpn;
use crate::schedule::{self, Classes, EndpointSecret, HopSecrets, Resume, Secret};
use crate::{Kem, Path, frame};
use levada_channel::parts::Capture;

/// The first flight: PATH, ClientHello, and what the middleboxes add. Returns L_2 and the one-time
/// key of middlebox 1.
pub(super) fn first_flight(
    out: &mut Vectors,
    keys: &[SecretKey; 3],
    path: &Path,
    kept: &Resume,
) -> (Digest, OneTimeKey) {
    for (name, key) in ["server", "middlebox_1", "middlebox_2"].into_iter().zip(keys) {
        out.put(format!("seed of {name}"), key.seed().as_ref());
    }
    let path_frame = path.encode().unwrap();
    out.put("PATH", &path_frame);
    out.put("second protocol in ALPN", alpn(&path_frame));
    let client_hello = [&[22, 3, 1, 0, 4][..], b"\x01\x00\x00\x00"].concat();
    out.put("ClientHello (stands for one)", &client_hello);
    let l_0 = messages::first_transcript(&path_frame, &client_hello);
    out.put("L_0", l_0);
    let private = [0x4b; 32];
    let public = PrivateKey::from_private_key(&X25519, &private).unwrap();
    let public = public.compute_public_key().unwrap().as_ref().to_vec();
    out.put("KEM private key of middlebox 1", private);
    out.put("KEM public key of middlebox 1", &public);
    let mut hello = Vec::new();
    Hello::signed(&keys[1], 1, &l_0, &public).put(&mut hello);
    out.put("MBHELLO_1", &hello);
    out.put("MBKEY_1", whole(frame::MBKEY, &[&[1], &public]));
    let l_1 = messages::next_transcript(&l_0, &hello);
    out.put("L_1", l_1);
    out.secret("psk of middlebox 2", &kept.psk);
    out.secret("y of middlebox 2", kept.y.as_ref().unwrap());
    let mut hello_2 = Vec::new();
    Hello::resumed(kept, 2, &l_1, [0x4e; 32]).unwrap().put(&mut hello_2);
    out.put("MBHELLO_2", &hello_2);
    let l_2 = messages::next_transcript(&l_1, &hello_2);
    out.put("L_2", l_2);
    out.put("ECHO", whole(frame::ECHO, &[&hello, &hello_2]));
    (l_2, OneTimeKey::X25519 { public, private: HpkePrivateKey::from(private.to_vec()) })
}

/// The server's flight, up to TH2.
pub(super) fn second_flight(
    out: &mut Vectors,
    (keys, path, kept): (&[SecretKey; 3], Path, &Resume),
    (l_2, one_time): (Digest, OneTimeKey),
) -> Session {
    let flight = [&[22, 3, 3, 0, 4][..], b"\x02\x00\x00\x00"].concat();
    out.put("TLS records of the server (stand for them)", &flight);
    let th1 = messages::th1(&l_2, &sha256(&[&flight]));
    out.put("TH1", th1);
    let exporter_secret = [0x45; 48];
    out.put("exporter secret of TLS", exporter_secret);
    let capture = Capture::default();
    capture.log("EXPORTER_SECRET", &[], &exporter_secret);
    let exporter = capture.exporter(TLS13_AES_256_GCM_SHA384.tls13().unwrap()).unwrap();
    let secret = EndpointSecret::new(&exporter, &th1).unwrap();
    out.secret("E", &secret.0);
    let seed = Secret::new([0x5a; 32]);
    out.secret("Z", &seed);
    let classes = Classes::new(&path);
    let mut hops = Vec::new();
    let share = |hop| {
        let halves = secret.halves(&classes, hop, derive::SERVER_HALF);
        Share { a: secret.a(hop), z: schedule::z(&seed, hop), halves }
    };
    for hop in [1, 2] {
        let Share { a, z, halves } = share(hop);
        out.secret(format!("a_{hop}"), &a);
        out.secret(format!("z_{hop}"), &z);
        out.put(format!("server's halves of middlebox {hop}"), &halves[..]);
        hops.push(HopSecrets { a, z: Some(z) });
    }
    let shares = [sealed_share(&share(1), one_time, &th1), {
        let mut sealed = Vec::new();
        share(2).put_resumed(&mut sealed, kept.y.as_ref().unwrap(), 2, &th1).unwrap();
        sealed
    }];
    out.put("SSHARE_1", &shares[0]);
    out.put("SSHARE_2", &shares[1]);
    let hashes: Vec<Digest> = shares.iter().map(|share| sha256(&[share])).collect();
    let covered = Bind::covered(&th1, 1, 2, &hashes);
    let proof = BindProof::Signed(keys[0].sign(label::SERVER_BIND, &covered));
    let bind = Bind { tickets: 2, shares: hashes.clone(), proof }.encode();
    out.put("SBIND", &bind);
    let th2 = messages::th2(&th1, &bind);
    out.put("TH2", th2);
    // As if both middleboxes were resumed.
    let covered = Bind::covered(&th1, 2, 2, &hashes);
    let tag = |key: &Secret| key.derive(derive::BIND, &[]).tag(&[&covered]);
    let y = tag(kept.y.as_ref().unwrap());
    let proof = BindProof::Tagged { hops: vec![y, y], client: tag(&secret.0) };
    out.put("SBIND of form 2", Bind { tickets: 2, shares: hashes, proof }.encode());
    Session { path, classes, secret, th2, hops }
}

/// SSHARE_1: HPKE is not deterministic, so the stored one is taken as long as it opens to the
/// share.
fn sealed_share(share: &Share, one_time: OneTimeKey, th1: &Digest) -> Vec<u8> {
    let public = one_time.public().to_vec();
    if let Some(sealed) = stored().remove("SSHARE_1")
        && let Ok(opened) = Share::open_sealed(Kem::X25519, &one_time, 1, th1, &sealed)
        && opened.a.bytes() == share.a.bytes()
        && opened.z.bytes() == share.z.bytes()
        && opened.halves == share.halves
    {
        return sealed;
    }
    let mut sealed = Vec::new();
    share.put_sealed(&mut sealed, (Kem::X25519, &public), 1, th1).unwrap();
    sealed
}

/// CSHARE, READY, and what a later session needs.
pub(super) fn third_flight(out: &mut Vectors, session: &Session) {
    let Session { classes, secret, th2, hops, .. } = session;
    for (hop, secrets) in (1..).zip(hops) {
        let halves = secret.halves(classes, hop, derive::CLIENT_HALF);
        out.put(format!("client's halves of middlebox {hop}"), &halves[..]);
        let mut share = Vec::new();
        put_client_share(&mut share, &secrets.a, th2, hop, &halves).unwrap();
        out.put(format!("CSHARE_{hop}"), share);
    }
    for (direction, name) in [ToServer, ToClient].into_iter().zip(NAMES) {
        let tag = secret.ready(direction, th2);
        let mut starts = Vec::new();
        if direction == ToClient {
            let aad = [&frame::header(frame::READY, 17 + 2 * messages::START)[..], &tag].concat();
            let start = Start { started: true, realm: [0x52; 16] };
            let seal = |hop: &HopSecrets| start.seal(hop.z.as_ref().unwrap(), th2, &aad).unwrap();
            starts = hops.iter().flat_map(seal).collect();
        }
        let mut ready = Vec::new();
        put_ready(&mut ready, 0, &tag, &starts);
        out.put(format!("READY_0 {name}"), ready);
        for (hop, secrets) in (1..).zip(hops) {
            let mut ready = Vec::new();
            put_ready(&mut ready, hop, &secrets.ready(direction, th2).unwrap(), &[]);
            out.put(format!("READY_{hop} {name}"), ready);
        }
    }
    for (hop, secrets) in (1..).zip(hops) {
        for ticket in 0..2 {
            let Resume { id, psk, y } = secrets.resume(ticket, th2);
            out.put(format!("id of middlebox {hop}, ticket {ticket}"), id);
            out.secret(format!("psk of middlebox {hop}, ticket {ticket}"), &psk);
            out.secret(format!("y of middlebox {hop}, ticket {ticket}"), &y.unwrap());
        }
    }
}
