use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;

use super::*;
use crate::records::RECORDS;

fn file(length: usize) -> OwnedFd {
    let file = memfd_create("records", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, length as u64).unwrap();
    put(&file, 0, &[MAGIC]);
    file
}

fn put(file: &OwnedFd, at: usize, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(pwrite(file, &bytes, at as u64), Ok(bytes.len()));
}

/// The words of a record: mode and reason share the first.
fn record(mode: u32, reason: u32, port: u64, traffic: [u64; 9]) -> Vec<u64> {
    let mut first = [0; 8];
    first[..4].copy_from_slice(&mode.to_ne_bytes());
    first[4..].copy_from_slice(&reason.to_ne_bytes());
    let mapped = 0xffff_7f00_0001;
    let addresses = if port == 0 { [0; 6] } else { [0, mapped, port, 0, 1, port + 1] };
    [&[u64::from_ne_bytes(first)], &addresses[..], &traffic[..]].concat()
}

#[test]
fn reads_what_a_process_has_written() {
    let file = file(LENGTH);
    put(&file, 8, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    put(&file, 88, &[10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    put(&file, 184, &[6]);
    put(&file, HEADER + STRIDE, &record(3, 0, 80, [20, 0, 0, 0, 0, 0, 5, 0, 27]));
    put(&file, HEADER + 2 * STRIDE, &record(0, 3, 81, [9; 9]));
    put(&file, HEADER + (RECORDS - 1) * STRIDE, &record(4, 7, 0, [0; 9]));

    let snapshot = Snapshot::read(&file).unwrap();
    assert_eq!(snapshot.closed.traffic.ring_in, 1);
    assert_eq!(snapshot.closed.traffic.wakeups, 9);
    assert_eq!(snapshot.closed.traffic.messages, 6 + 7);
    assert_eq!((snapshot.closed.upgraded, snapshot.closed.direct), (10, 6));
    assert_eq!(snapshot.closed.reasons, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    let [ring, last] = snapshot.connections[..] else { panic!("{snapshot:?}") };
    assert_eq!((ring.mode, ring.reason), (Mode::Ring, Reason::None));
    assert_eq!(ring.local, Some("127.0.0.1:80".parse().unwrap()));
    assert_eq!(ring.remote, Some("[::1]:81".parse().unwrap()));
    assert_eq!((last.mode, last.reason, last.local), (Mode::Kernel, Reason::Handed, None));
    let sum = snapshot.traffic();
    assert_eq!((sum.ring_in, sum.ring(), sum.tcp(), sum.wakeups), (21, 23, 7, 36));
    assert_eq!(sum.messages, 6 + 7 + 5);
}

#[test]
fn addresses_are_read_as_they_were_noted() {
    let words = [const { AtomicU64::new(0) }; 3];
    for text in ["127.0.0.1:80", "[2001:db8::1]:443"] {
        Record::set_address(&words, text.parse().unwrap());
        let plain = words.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(address_of(plain), Record::address(&words));
        assert_eq!(address_of(plain).to_string(), text);
    }
}

#[test]
fn other_files_are_refused() {
    let refused = |file: OwnedFd| match Snapshot::read(file) {
        Err(SnapshotError::NotRecords(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(file(100)), "another length");
    assert_eq!(refused(file(LENGTH + 1)), "another length");
    let other = file(LENGTH);
    put(&other, 0, &[7]);
    assert_eq!(refused(other), "other first bytes");
    for (mode, reason, why) in [(5, 0, "an unknown mode"), (1, 10, "an unknown reason")] {
        let file = file(LENGTH);
        put(&file, HEADER, &record(mode, reason, 80, [0; 9]));
        assert_eq!(refused(file), why);
    }
    assert!(Snapshot::read(std::io::pipe().unwrap().0).is_err());
}

#[test]
fn any_bytes_are_read_or_refused() {
    bolero::check!().for_each(|bytes| {
        let mut record = [0; STRIDE];
        let length = bytes.len().min(STRIDE);
        record[..length].copy_from_slice(&bytes[..length]);
        if let Ok(Some(connection)) = Connection::decode(&record) {
            assert!(connection.mode != Mode::Free);
        }
        let mut header = [0; size_of::<Totals>()];
        let length = bytes.len().min(header.len());
        header[..length].copy_from_slice(&bytes[..length]);
        assert_eq!(Closed::decode(&header).is_ok(), header[..8] == MAGIC.to_ne_bytes());
    });
}
