//! Something on the way that repeats, reorders or replays the records of a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Victim;
use crate::support::{Home, Ran};

/// What is done to one encrypted record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trick {
    Nothing,
    Repeat,
    /// It goes behind the one that follows it.
    Swap,
    /// The first encrypted record of its direction goes in its place once more.
    Replay,
}

#[test]
fn repeated_reordered_and_replayed_records_are_noticed() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let (ran, whole, _) = through(&home, &victim, Trick::Nothing, (0, 0));
    let honest = ran.ok();
    assert!(whole.iter().all(|records| *records > 1), "{whole:?}");
    for direction in [0, 1] {
        for at in 0..whole[direction] {
            for trick in [Trick::Repeat, Trick::Swap, Trick::Replay] {
                let (ran, _, played) = through(&home, &victim, trick, (direction, at));
                let failed = [121, 122, 123].contains(&ran.code);
                // What happens to the last records may come too late to matter: the answer is right then.
                let right = ran.code == 0 && ran.stdout.trim_end().len() == honest.len();
                let late = !played || at >= 2;
                assert!(
                    failed || (right && late),
                    "{trick:?} of record {at} of {whole:?}, direction {direction}: {ran:?}"
                );
            }
        }
    }
    victim.is_well("tricks with records");
}

/// Runs `clock` through a proxy with one trick; also how many encrypted records went each way, and
/// whether there was an occasion for the trick.
fn through(
    home: &Home,
    victim: &Victim<'_>,
    trick: Trick,
    place: (usize, usize),
) -> (Ran, [usize; 2], bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let address = victim.address.clone();
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let played = Arc::new(AtomicBool::new(false));
    let (counters, occasion) = (counts.clone(), played.clone());
    let forwarder = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let node = TcpStream::connect(address).unwrap();
        let ways = [(client.try_clone().unwrap(), node.try_clone().unwrap()), (node, client)];
        let threads = ways.into_iter().enumerate().map(|(way, (from, to))| {
            let (counters, occasion) = (counters.clone(), occasion.clone());
            let at = (place.0 == way && trick != Trick::Nothing).then_some(place.1);
            thread::spawn(move || forward(from, to, (trick, at), &counters[way], &occasion))
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
    (trick, at): (Trick, Option<usize>),
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
        match trick {
            Trick::Repeat if at == Some(number) => {
                played.store(true, Ordering::SeqCst);
                send(&[&record[..], &record].concat())
            }
            Trick::Replay if at == Some(number) && number > 0 => {
                played.store(true, Ordering::SeqCst);
                send(&[&first[..], &record].concat())
            }
            Trick::Swap if at == Some(number) => {
                let place = Arc::new(Mutex::new(Some(record)));
                held = Some(place.clone());
                // The one behind it may wait for an answer to it.
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
