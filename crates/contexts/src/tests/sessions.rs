//! Sessions in which every party keeps to the protocol.

use super::chain::{Chain, KEMS, Parties, data_of, events};
use crate::Right::{None as No, Read, Write};
use crate::{Action, Direction, PathConnection, PathEvent, Piece, Received, frame};

#[test]
fn a_session_with_two_middleboxes_opens_and_carries_an_exchange() {
    for kem in KEMS {
        let mut parties = Parties::new(&[&[Read, No], &[No, Write], &[No, No]]);
        parties.path.kem = kem;
        let mut chain = Chain::new(&parties);
        chain.open();
        chain.client.write(1, b"head").unwrap();
        chain.client.end(1).unwrap();
        chain.client.write(3, b"secret").unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.server));
        let expected = [(1, b"head".to_vec(), 0, true), (3, b"secret".to_vec(), 0, true)];
        assert_eq!((&data[..], exchanges), (&expected[..], 1));
        chain.server.write(2, b"answer").unwrap();
        chain.server.finish().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.client));
        assert_eq!((&data[..], exchanges), (&[(2, b"answer".to_vec(), 0, true)][..], 1));
        let seen = chain.seen.iter().map(|seen| seen.lock().unwrap().clone()).collect::<Vec<_>>();
        assert_eq!(seen[0], [(Direction::ToServer, 1, b"head".to_vec(), true)]);
        assert_eq!(seen[1], [(Direction::ToClient, 2, b"answer".to_vec(), true)]);
        for end in [&mut chain.client, &mut chain.server] {
            end.close().unwrap();
        }
        chain.run().unwrap();
        for end in [&mut chain.client, &mut chain.server] {
            assert_eq!(events(end).last(), Some(&PathEvent::Closed));
            end.receive_end().unwrap();
        }
    }
}

#[test]
fn a_writer_changes_what_it_may_and_the_receiver_learns_who_did() {
    let parties = Parties::new(&[&[Write, Read], &[No, Write]]);
    let upper = |piece: &Piece<'_>| Action::Replace(piece.data.to_ascii_uppercase());
    let longer = |piece: &Piece<'_>| match piece.context {
        2 => Action::Replace(piece.data.repeat(3)),
        _ => Action::Pass,
    };
    let mut chain = Chain::with(&parties, vec![Box::new(upper), Box::new(longer)]);
    chain.open();
    let body = vec![b'x'; 40_000];
    chain.client.write(1, b"head").unwrap();
    chain.client.end(1).unwrap();
    chain.client.write(2, &body).unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    let (data, exchanges) = data_of(&events(&mut chain.server));
    let expected = [(1, b"HEAD".to_vec(), 1, true), (2, body.repeat(3), 2, true)];
    assert!(data == expected);
    assert_eq!(exchanges, 1);
    let seen = chain.seen[1].lock().unwrap();
    assert_eq!(seen[0], (Direction::ToServer, 1, b"HEAD".to_vec(), true));
}

#[test]
fn a_resumed_session_needs_no_public_key_of_middleboxes_and_a_lost_id_is_no_harm() {
    let parties = Parties::new(&[&[Read, Write]]);
    let resumed = |chain: &mut Chain| {
        chain.run().unwrap();
        let bound = events(&mut chain.client).into_iter().next();
        matches!(bound, Some(PathEvent::Bound { resumed: true, .. }))
    };
    let mut chain = Chain::new(&parties);
    chain.open();
    let full = chain.client_link;
    for _ in 0..2 {
        let mut chain = Chain::new(&parties);
        chain.open();
        assert!(chain.client_link[1] < full[1], "{:?} {full:?}", chain.client_link);
        chain.client.write(1, b"again").unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
        let (data, _) = data_of(&events(&mut chain.server));
        assert_eq!(data, [(1, b"again".to_vec(), 0, true)]);
    }
    let mut parties = parties;
    // A middlebox that has forgotten everything answers with its signature.
    parties.hops[0].tickets =
        std::sync::Arc::new(crate::HopTickets::new(std::time::Duration::ZERO));
    let mut chain = Chain::new(&parties);
    assert!(resumed(&mut chain));
}

#[test]
fn long_messages_and_many_exchanges_arrive_in_order() {
    let parties = Parties::new(&[&[Read], &[No]]);
    let mut chain = Chain::new(&parties);
    chain.open();
    for round in 0..50u32 {
        let body = vec![round as u8; 1 + round as usize * 7001];
        chain.client.write(1, &round.to_be_bytes()).unwrap();
        chain.client.end(1).unwrap();
        chain.client.flush().unwrap();
        chain.client.write(2, &body).unwrap();
        chain.client.flush().unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.server));
        let expected = [(1, round.to_be_bytes().to_vec(), 0, true), (2, body, 0, true)];
        assert!(data == expected, "round {round}");
        assert_eq!(exchanges, 1);
        chain.server.write(2, b"done").unwrap();
        chain.server.finish().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.client));
        assert_eq!((&data[..], exchanges), (&[(2, b"done".to_vec(), 0, true)][..], 1));
    }
}

#[test]
fn the_end_of_a_message_arrives_before_another_has_data() {
    for second in [&b"data"[..], b""] {
        let mut chain = Chain::new(&Parties::new(&[&[Read], &[No]]));
        chain.open();
        chain.client.write(1, b"head").unwrap();
        chain.client.end(1).unwrap();
        chain.client.begin(2).unwrap();
        chain.client.flush().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.server));
        assert_eq!((&data[0], exchanges), (&(1, b"head".to_vec(), 0, true), 0));
        chain.client.begin(2).unwrap();
        chain.client.write(2, second).unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.server));
        assert_eq!((data, exchanges), (vec![(2, second.to_vec(), 0, true)], 1));
    }
}

#[test]
fn long_bodies_cross_a_path_on_which_no_middlebox_may_write() {
    let parties = Parties::new(&[&[Read, No], &[No, No]]);
    let mut chain = Chain::new(&parties);
    chain.open();
    let body: Vec<u8> = (0..2_500_000u32).map(|number| number as u8).collect();
    chain.client.write(1, &body).unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert!(data_of(&events(&mut chain.server)).0 == [(1, body.clone(), 0, true)]);
    chain.server.write(2, &body).unwrap();
    chain.server.finish().unwrap();
    chain.run().unwrap();
    assert!(data_of(&events(&mut chain.client)).0 == [(2, body, 0, true)]);
}

#[test]
fn messages_of_context_0_may_come_within_an_exchange_and_be_long() {
    let parties = Parties::new(&[&[Read], &[No]]);
    let mut chain = Chain::new(&parties);
    chain.open();
    let long = vec![5; 100_000];
    chain.client.write(1, b"head").unwrap();
    chain.client.end(1).unwrap();
    chain.client.control(&long).unwrap();
    chain.client.control(b"").unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    let events = events(&mut chain.server);
    assert_eq!(data_of(&events), (vec![(1, b"head".to_vec(), 0, true)], 1));
    let control = events.into_iter().filter_map(|event| match event {
        PathEvent::Received(Received::Control(bytes)) => Some(bytes),
        _ => None,
    });
    assert!(control.collect::<Vec<_>>() == [long, Vec::new()]);
}

#[test]
fn debug_output_shows_lengths_and_no_data() {
    let data = b"secret".to_vec();
    let received = [
        Received::Data { context: 1, data: data.clone(), origin: 0, end: true },
        Received::Control(data.clone()),
        Received::Error(data.clone()),
    ];
    let mut shown: Vec<String> = received.iter().map(|one| format!("{one:?}")).collect();
    let piece =
        Piece { direction: Direction::ToServer, context: 1, data: &data, end: true, origin: 0 };
    shown.push(format!("{piece:?}"));
    shown.push(format!("{:?}", Action::Replace(data.clone())));
    for text in shown {
        assert!(text.contains("6 B") && !text.contains("115"), "{text}");
    }
}

#[test]
fn an_error_names_the_frame_its_context_and_the_neighbour() {
    let mut chain = Chain::new(&Parties::new(&[&[Read, Read]]));
    chain.open();
    let record = [frame::RECORD, 9, 0x80, 0, 0];
    let at_middlebox = |chain: &mut Chain, relay: usize, direction| {
        let found = chain.relays[relay].receive(direction, &mut record.clone(), chain.now);
        found.unwrap_err().to_string()
    };
    let rule = "malformed: a record of an unknown context (RECORD in context 9 from ";
    assert_eq!(at_middlebox(&mut chain, 0, Direction::ToServer), format!("{rule}the client)"));
    assert_eq!(at_middlebox(&mut chain, 1, Direction::ToClient), format!("{rule}the server)"));
    for (end, hop) in [(&mut chain.client, 1), (&mut chain.server, 2)] {
        let error = end.receive(&mut record.clone(), chain.now).unwrap_err();
        assert_eq!(error.to_string(), format!("{rule}middlebox {hop})"));
    }
    let mut server = PathConnection::server(Parties::new(&[&[Read]]).server, chain.now);
    let error = server.receive(&mut [frame::PATH, 3, 3, 0, 1, 9], chain.now).unwrap_err();
    assert_eq!(error.to_string(), "malformed: a PATH of another version (PATH from the client)");
}
