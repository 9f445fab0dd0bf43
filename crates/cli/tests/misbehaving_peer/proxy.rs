//! A proxy that repeats, reorders or replays the records of a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Victim;
use crate::support::{Home, Ran};

/// What the proxy does to one encrypted record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attack {
    Nothing,
    Repeat,
    /// Sends it after the record that follows it.
    Swap,
    /// Sends the first encrypted record of its direction again, before it.
    Replay,
}

#[test]
fn repeated_reordered_and_replayed_records_are_detected() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let (ran, whole, _) = through(&home, &victim, Attack::Nothing, (0, 0));
    let honest = ran.ok();
    assert!(whole.iter().all(|records| *records > 1), "{whole:?}");
    for direction in [0, 1] {
        for at in 0..whole[direction] {
            for attack in [Attack::Repeat, Attack::Swap, Attack::Replay] {
                let (ran, _, played) = through(&home, &victim, attack, (direction, at));
                let failed = [121, 122, 123].contains(&ran.code);
                // An attack on the last records may come too late: then the answer is right.
                let right = ran.code == 0 && ran.stdout.trim_end().len() == honest.len();
                let late = !played || at >= 2;
                assert!(
                    failed || (right && late),
                    "{attack:?} of record {at} of {whole:?}, direction {direction}: {ran:?}"
                );
            }
        }
    }
    victim.assert_recovered("attacks on records");
}

/// Runs `clock` through a proxy with one attack: the result, the number of encrypted records in
/// each direction, and whether the attack took place.
fn through(
    home: &Home,
    victim: &Victim<'_>,
    attack: Attack,
    place: (usize, usize),
) -> (Ran, [usize; 2], bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let address = victim.address.clone();
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let played = Arc::new(AtomicBool::new(false));
    let counters = counts.clone();
    let occasion = played.clone();
    let forwarder = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let node = TcpStream::connect(address).unwrap();
        let ways = [(client.try_clone().unwrap(), node.try_clone().unwrap()), (node, client)];
        let threads = ways.into_iter().enumerate().map(|(way, (from, to))| {
            let counters = counters.clone();
            let occasion = occasion.clone();
            let at = (place.0 == way && attack != Attack::Nothing).then_some(place.1);
            thread::spawn(move || forward(from, to, (attack, at), &counters[way], &occasion))
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    let ran = home.args(["run", &format!("{}@{proxy}/clock", home.identity())]);
    forwarder.join().unwrap();
    (ran, [0, 1].map(|way| counts[way].load(Ordering::SeqCst)), played.load(Ordering::SeqCst))
}

fn forward(
    mut from: TcpStream,
    to: TcpStream,
    (attack, at): (Attack, Option<usize>),
    count: &AtomicUsize,
    played: &AtomicBool,
) {
    let to = Arc::new(Mutex::new(to));
    let mut first = None;
    let mut held: Option<Arc<Mutex<Option<Vec<u8>>>>> = None;
    while let Some(record) = read_record(&mut from) {
        let send = |bytes: &[u8]| to.lock().unwrap().write_all(bytes).is_ok();
        if record[0] != 23 {
            send(&record);
            continue;
        }
        let number = count.fetch_add(1, Ordering::SeqCst);
        let first = first.get_or_insert_with(|| record.clone());
        match attack {
            Attack::Repeat if at == Some(number) => {
                played.store(true, Ordering::SeqCst);
                send(&[&record[..], &record].concat())
            }
            Attack::Replay if at == Some(number) && number > 0 => {
                played.store(true, Ordering::SeqCst);
                send(&[&first[..], &record].concat())
            }
            Attack::Swap if at == Some(number) => {
                let place = Arc::new(Mutex::new(Some(record)));
                held = Some(place.clone());
                // The next record may depend on an answer to this one: after 200 ms it is sent all
                // the same.
                let to = to.clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(200));
                    let mut to = to.lock().unwrap();
                    place.lock().unwrap().take().map(|record| to.write_all(&record))
                });
                true
            }
            _ => {
                let late = held.take().and_then(|place| place.lock().unwrap().take());
                played.fetch_or(late.is_some(), Ordering::SeqCst);
                send(&[record, late.unwrap_or_default()].concat())
            }
        };
    }
    if let Some(late) = held.and_then(|place| place.lock().unwrap().take()) {
        let _ = to.lock().unwrap().write_all(&late);
    }
    let _ = to.lock().unwrap().shutdown(Shutdown::Write);
}

fn read_record(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut record = vec![0; 5];
    from.read_exact(&mut record).ok()?;
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    record.resize(5 + length, 0);
    from.read_exact(&mut record[5..]).ok()?;
    Some(record)
}
