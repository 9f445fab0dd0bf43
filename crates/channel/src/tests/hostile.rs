//! A peer that completes the handshake and then violates the protocol, and handshakes that are
//! modified in transit.

use std::time::Instant;

use super::pair::{Endpoints, record_lengths};
use super::raw::{Raw, receive_all, take};
use crate::frame::{BULK, END, FIN, Frame};
use crate::record::DATA;
use crate::{Connection, Error, Event, Options, Read, StreamError};

const OPEN: Frame<'_> = Frame::Data { stream: 1, flags: BULK, bytes: &[] };

fn data(flags: u8, bytes: &[u8]) -> Frame<'_> {
    Frame::Data { stream: 1, flags, bytes }
}

/// The server accepts these frames except the last, which it refuses.
fn refused(frames: &[Frame<'_>]) {
    let mut raw = Raw::new();
    let (last, first) = frames.split_last().unwrap();
    raw.frames(first).unwrap();
    raw.answer();
    let error = raw.frames(std::slice::from_ref(last)).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{last:?}: {error:?}");
    // It sends CLOSE with the reason, and stays dead.
    let (_, answer) = raw.answer();
    match Frame::take(&mut answer.as_slice()) {
        Ok(Frame::Close { code: 1, reason }) => assert_eq!(reason, error.to_string()),
        other => panic!("{other:?}"),
    }
    assert_eq!(raw.frames(&[Frame::Ping([0; 8])]), Err(error.clone()));
    assert_eq!(raw.server.handle_timeout(raw.now), Err(error));
    assert!(!raw.server.wants_transmit() && raw.server.timeout().is_none());
}

#[test]
fn frames_out_of_place_are_refused() {
    refused(&[Frame::Hello { min: 1, max: 1, block: 0 }]);
    refused(&[data(END, b"not open")]);
    refused(&[data(END, b"")]);
    refused(&[data(FIN, b"")]);
    refused(&[data(BULK, b"bytes")]);
    refused(&[Frame::Data { stream: 0, flags: 0, bytes: b"" }]);
    refused(&[Frame::Data { stream: 3, flags: 0, bytes: b"" }]);
    refused(&[Frame::Data { stream: 2, flags: 0, bytes: b"" }]);
    refused(&[OPEN, OPEN]);
    refused(&[OPEN, data(0, b"")]);
    refused(&[OPEN, data(FIN, b"part")]);
    refused(&[OPEN, data(0, b"part"), data(FIN, b"")]);
    refused(&[OPEN, data(FIN, b""), data(END, b"more")]);
    refused(&[OPEN, data(FIN, b""), data(FIN, b"")]);
    refused(&[Frame::Window { stream: 1, limit: 1 << 30 }]);
    refused(&[Frame::Window { stream: 2, limit: 1 << 30 }]);
    refused(&[Frame::Reset { stream: 1, code: 0 }]);
    refused(&[Frame::Reset { stream: 0, code: 0 }]);
    refused(&[Frame::Pong([0; 8])]);
}

#[test]
fn hello_must_come_first_and_be_valid() {
    let hello = |min, max, block| {
        let mut raw = Raw::silent(Options::default());
        let result = raw.frames(&[Frame::Hello { min, max, block }]);
        (result, raw.answer().1)
    };
    assert!(hello(1, 9, 64).0.is_ok());
    assert!(hello(0, 1, 4096).0.is_ok());
    assert!(hello(4, 9, 0).0.is_ok());
    for (min, max) in [(5, 9), (0, 0), (9, 1)] {
        let (result, answer) = hello(min, max, 0);
        assert_eq!(result, Err(Error::Version { min, max }));
        assert!(matches!(Frame::take(&mut answer.as_slice()), Ok(Frame::Close { code: 3, .. })));
    }
    for block in [1, 63, 4097, 65_536 + 64] {
        assert!(matches!(hello(1, 1, block).0, Err(Error::Protocol(_))));
    }
    let mut raw = Raw::silent(Options::default());
    assert!(matches!(raw.frames(&[OPEN]), Err(Error::Protocol(_))));
    // HELLO was not received, so the server sends no CLOSE frame.
    assert_eq!(raw.answer().1, b"");
}

#[test]
fn the_highest_version_in_common_is_used() {
    for (min, max, spoken) in [(0, 1, 1), (1, 1, 1), (1, 2, 2), (2, 9, 4), (3, 3, 3)] {
        let mut raw = Raw::silent(Options::default());
        assert_eq!(raw.server.version(), 1);
        raw.frames(&[Frame::Hello { min, max, block: 0 }]).unwrap();
        assert_eq!(raw.server.version(), spoken, "{min} to {max}");
    }
}

#[test]
fn the_server_sends_no_record_before_hello() {
    let mut raw = Raw::silent(Options::default());
    raw.tls.update_key(true);
    let mut bytes = take(&mut raw.tls);
    raw.server.receive(raw.now, &mut bytes).unwrap();
    assert!(!raw.server.wants_transmit());
    assert_eq!(raw.answer().0, b"");
    // The update that the client requested is due until then.
    raw.frames(&[Frame::Hello { min: 1, max: 1, block: 512 }]).unwrap();
    let (bytes, _) = raw.answer();
    assert_eq!(record_lengths(&bytes), [512, 512]);

    let mut raw = Raw::silent(Options::default());
    assert!(raw.record(DATA, &[0xff]).is_err());
    assert_eq!(raw.answer().0, b"");
    let mut raw = Raw::silent(Options::default());
    let mut forged = [&[23, 3, 3, 0, 40][..], &[7; 40]].concat();
    assert_eq!(raw.server.receive(raw.now, &mut forged), Err(Error::Forged));
    assert_eq!(raw.answer().0, b"");
    let mut raw = Raw::silent(Options::default());
    raw.server.close(0, "not now");
    assert_eq!(raw.answer().0, b"");
}

#[test]
fn a_server_without_a_common_version_closes_with_that_code() {
    let endpoints = Endpoints::new();
    let now = Instant::now();
    let expected = Some(endpoints.server_key.identity());
    let mut client =
        Connection::client(&endpoints.client, expected, Options::default(), now).unwrap();
    let mut server = crate::tls::Tls::server(&endpoints.server).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..2 {
        client.transmit(now, &mut bytes);
        receive_all(&mut server, &bytes).unwrap();
        bytes = take(&mut server);
        client.receive(now, &mut bytes).unwrap();
    }
    let mut close = Vec::new();
    Frame::Close { code: 3, reason: "too old" }.put(&mut close);
    server.put_record(DATA, &close);
    client.receive(now, &mut take(&mut server)).unwrap();
    assert_eq!(client.poll_event(), Some(Event::Connected));
    assert!(matches!(client.poll_event(), Some(Event::Closed(close)) if close.code == 3));
}

#[test]
fn more_data_than_the_credit_of_the_stream_is_refused() {
    let mut raw = Raw::new();
    raw.frames(&[OPEN]).unwrap();
    let cost = 8 + 16_000;
    let mut sent = 0;
    let error = loop {
        match raw.frames(&[data(END, &[0; 16_000])]) {
            Ok(()) => sent += cost,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Protocol(_)));
    assert!(sent <= 256 << 10 && sent + cost > 256 << 10, "{sent}");
}

#[test]
fn more_data_than_the_credit_of_the_connection_is_refused() {
    let mut raw = Raw::new();
    let mut sent = 0;
    let error = 'all: loop {
        for stream in (1..).step_by(2) {
            raw.frames(&[Frame::Data { stream, flags: BULK, bytes: &[] }]).unwrap();
            for _ in 0..15 {
                if let Err(error) =
                    raw.frames(&[Frame::Data { stream, flags: END, bytes: &[0; 16_000] }])
                {
                    break 'all error;
                }
                sent += 16_000;
            }
        }
    };
    assert!(matches!(error, Error::Protocol(_)));
    assert!(sent <= 16 << 20, "{sent}");
}

#[test]
fn too_many_streams_are_refused() {
    let mut raw = Raw::new();
    for at in 0..256 {
        raw.frames(&[Frame::Data { stream: 2 * at + 1, flags: 0, bytes: &[] }]).unwrap();
    }
    let result = raw.frames(&[Frame::Data { stream: 513, flags: 0, bytes: &[] }]);
    assert!(matches!(result, Err(Error::Protocol(_))));
}

/// Opens streams, and calls `each` after each, until the server reports a flood; returns the last
/// stream.
fn flood(mut each: impl FnMut(&mut Raw, u64) -> Result<(), Error>) -> u64 {
    let mut raw = Raw::new();
    for stream in (1..).step_by(2) {
        let open = Frame::Data { stream, flags: 0, bytes: &[] };
        match raw.frames(&[open]).and_then(|()| each(&mut raw, stream)) {
            Ok(()) => assert!(stream < 100_000, "the server has no limit"),
            Err(error) => {
                assert!(matches!(error, Error::Flood(_)), "{error:?}");
                return stream;
            }
        }
    }
    unreachable!()
}

#[test]
fn streams_opened_and_reset_without_end_are_a_flood() {
    // The server's owner does not accept streams.
    flood(|raw, stream| raw.frames(&[Frame::Reset { stream, code: 0 }]));
    // The owner refuses each stream, and the peer does not read the resets.
    flood(|raw, _| {
        let id = raw.accept();
        raw.server.forget(id);
        Ok(())
    });
    flood(|raw, stream| {
        let id = raw.accept();
        raw.server.finish(id).unwrap();
        raw.frames(&[Frame::Data { stream, flags: FIN, bytes: &[] }])?;
        raw.server.forget(id);
        Ok(())
    });
}

#[test]
fn floods_of_control_frames_take_no_memory() {
    let mut raw = Raw::new();
    raw.frames(&[OPEN]).unwrap();
    raw.answer();
    for number in 0..5000u64 {
        raw.frames(&[
            Frame::Ping(number.to_be_bytes()),
            Frame::Window { stream: 0, limit: number },
            Frame::Window { stream: 1, limit: number },
        ])
        .unwrap();
        raw.tls.update_key(true);
    }
    let (bytes, frames) = raw.answer();
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
    assert_eq!(Frame::take(&mut frames.as_slice()), Ok(Frame::Pong(4999u64.to_be_bytes())));
}

#[test]
fn late_frames_for_a_forgotten_stream_are_ignored() {
    let mut raw = Raw::new();
    raw.frames(&[OPEN, data(END, b"one")]).unwrap();
    let id = raw.accept();
    raw.server.reset(id, 5);
    raw.frames(&[data(END, b"two")]).unwrap();
    raw.server.forget(id);
    for _ in 0..200 {
        raw.frames(&[data(END, &[0; 16_000])]).unwrap();
    }
    raw.frames(&[
        data(FIN, b""),
        Frame::Reset { stream: 1, code: 1 },
        Frame::Window { stream: 1, limit: 9 },
    ])
    .unwrap();
    assert_eq!(raw.server.write(id, b"x", true), Err(StreamError::Unknown));
}

#[test]
fn frames_after_a_close_are_ignored() {
    let mut raw = Raw::new();
    raw.frames(&[OPEN, data(END, b"whole")]).unwrap();
    let id = raw.accept();
    raw.frames(&[Frame::Close { code: 9, reason: "bye" }]).unwrap();
    raw.frames(&[data(END, b"late")]).unwrap();
    assert_eq!(raw.server.read(id, &mut [0; 9]), Ok(Read::Data { len: 5, end: true }));
    assert_eq!(raw.server.read(id, &mut [0; 9]), Err(StreamError::Closed));
    assert_eq!(raw.server.receive_end(raw.now), Ok(()));
}

#[test]
fn a_forged_record_ends_the_connection_with_an_alert() {
    let mut raw = Raw::new();
    raw.answer();
    let mut record = [23, 3, 3, 0, 40].to_vec();
    record.extend([7; 40]);
    assert_eq!(raw.server.receive(raw.now, &mut record), Err(Error::Forged));
    raw.server.transmit(raw.now, &mut record);
    assert_eq!(receive_all(&mut raw.tls, &record), Err(Error::Alert(20)));
}

#[test]
fn arbitrary_frames_never_panic() {
    type Step = (u8, u8, u64, Vec<u8>);
    bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
        let mut raw = Raw::new();
        for (kind, stream, number, bytes) in steps {
            let stream = u64::from(stream % 8);
            let mut token = [0; 8];
            token[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
            let number = number >> 2;
            let result = match kind % 11 {
                0..=2 => raw.frames(&[Frame::Data { stream, flags: kind & 0x70, bytes }]),
                3 => raw.frames(&[Frame::Window { stream, limit: number }]),
                4 => raw.frames(&[Frame::Reset { stream, code: number }]),
                5 => raw.frames(&[Frame::Ping(token)]),
                6 => raw.frames(&[Frame::Pong(token)]),
                7 => raw.record(*kind, bytes),
                8 => raw.record(DATA, bytes),
                _ => raw.frames(&[Frame::Data { stream: 1, flags: END, bytes }]),
            };
            serve(&mut raw.server, *kind);
            if result.is_err() {
                break;
            }
        }
        raw.server.transmit(raw.now, &mut Vec::new());
    });
}

/// An owner that echoes, and then resets, forgets or finishes the stream depending on `action`.
fn serve(server: &mut Connection, action: u8) {
    while let Some(event) = server.poll_event() {
        let Event::Readable(id) = event else { continue };
        let mut buf = [0; 64];
        while let Ok(Read::Data { len, end }) = server.read(id, &mut buf) {
            let _ = server.write(id, &buf[..len], end);
        }
        match action >> 5 {
            0 => server.reset(id, 1),
            1 => server.forget(id),
            2 => drop(server.finish(id)),
            _ => {}
        }
    }
}

/// Runs a handshake in which one bit of a flight is changed. Returns whether both ends completed
/// it; None if the flight is shorter.
fn tampered(endpoints: &Endpoints, flight: usize, at: usize, bit: u8) -> Option<bool> {
    let now = Instant::now();
    let expected = Some(endpoints.server_key.identity());
    let mut ends = [
        Connection::client(&endpoints.client, expected, Options::default(), now).unwrap(),
        Connection::server(&endpoints.server, Options::default(), now).unwrap(),
    ];
    for step in 0..4 {
        let mut bytes = Vec::new();
        ends[step % 2].transmit(now, &mut bytes);
        if step == flight {
            *bytes.get_mut(at)? ^= bit;
        }
        if ends[1 - step % 2].receive(now, &mut bytes).is_err() {
            return Some(false);
        }
    }
    let known = [endpoints.server_key.identity(), endpoints.client_key.identity()];
    let completed = ends.iter().all(|end| end.peer_framing().is_some());
    if completed {
        assert_eq!(ends.each_ref().map(Connection::peer), known.map(Some));
    }
    Some(completed)
}

#[test]
fn a_handshake_with_a_flipped_bit_fails() {
    let mut endpoints = Endpoints::new();
    for flight in 0..3 {
        let mut completed = Vec::new();
        for at in (0..).step_by(3) {
            // Without new endpoints a resumption would follow a successful handshake.
            if at % 300 == 0 {
                endpoints = Endpoints::new();
            }
            match tampered(&endpoints, flight, at, 1 << (at % 8)) {
                None => break,
                Some(true) => completed.push(at),
                Some(false) => {}
            }
        }
        // Only the record version of plaintext records has no meaning (RFC 8446 section 5.1).
        assert!(completed.len() < 4, "flight {flight} was accepted with changes at {completed:?}");
    }
}
