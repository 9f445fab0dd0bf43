//! Large amounts of data through `exec`: unchanged, and in bounded memory at both ends.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::{Home, exclusive, in_full, memory, peak_memory};

/// 1 MiB of pseudo-random bytes, different for each block.
fn block(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

#[test]
fn a_gibibyte_through_cat_returns_unchanged_in_bounded_memory() {
    // Client, node and program keep both cores busy.
    let _alone = exclusive();
    let blocks: u64 = if in_full() { 1024 } else { 64 };
    let home = Home::new();
    let node = home.up("--demo --name well");
    let mut command = home.command(["run", "well/exec", "--", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for number in 0..blocks {
            stdin.write_all(&block(number)).unwrap();
        }
        stdin
    });
    let mut stdout = client.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    for number in 0..blocks {
        stdout.read_exact(&mut buffer).unwrap();
        assert!(buffer == block(number), "block {number} has changed");
    }
    // Measured while both run: the last block has arrived, and the input is still open.
    let stdin = writer.join().unwrap();
    // Without the pages of the binary, of which a test build has many.
    let peaks = [client.id(), node.process()]
        .map(|process| peak_memory(process) - memory(process, "RssFile:"));
    drop(stdin);
    assert_eq!(stdout.read(&mut buffer).unwrap(), 0);
    assert!(client.wait().unwrap().success());
    eprintln!("peak memory of client and node: {peaks:?} KiB");
    assert!(peaks.iter().all(|peak| *peak < 40 * 1024), "{peaks:?} KiB");
}

/// The client ends with the remote program, although its standard input stays open.
#[test]
fn the_client_ends_with_the_program_while_its_input_is_open() {
    let home = Home::new();
    let _node = home.up("--demo --name well");
    let mut command = home.command(["run", "well/exec", "--", "uname", "-s"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let stdin = client.stdin.take();
    let mut output = String::new();
    client.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(output, "Linux\n");
    assert!(client.wait().unwrap().success());
    drop(stdin);
}
