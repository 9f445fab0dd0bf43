//! A share with ten peers, each on a host of its own: one is killed, and one passes wrong bytes on.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use super::scene::{Scene, Up};
use crate::support::eventually;
use crate::support::forward::noise;

const LENGTH: usize = 8_000_000;

#[test]
fn ten_peers_fetch_a_file_although_one_is_killed_and_one_is_hostile() {
    let names = ["well", "eve", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"];
    let scene = Scene::new(&names);
    let (well, peers) = scene.hosts.split_first().unwrap();
    let _node = well.up("--name well --no-announce");
    let film = well.home.path().join("film");
    fs::write(&film, noise(1, LENGTH)).unwrap();
    let path = film.to_str().unwrap();
    // The node alone would need a minute for all of them.
    let ticket = well.args(&["share", path, "--chunk", "16Ki", "--upload-limit", "1M"]).ok();
    let target = |peer: usize| peers[peer].home.path().join("film");
    let get = |peer: usize, seed: &str| {
        let output = target(peer);
        let words = ["get", &ticket, "-o", output.to_str().unwrap(), "--seed", seed];
        Up(peers[peer].spawn(env!("CARGO_BIN_EXE_levada"), &words, Stdio::null))
    };
    // Eve has all of it, and then passes other bytes on.
    let _eve = get(0, "10m");
    eventually("eve has it", || target(0).exists());
    let altered = fs::File::options().write(true).open(target(0)).unwrap();
    altered.write_all_at(&noise(2, LENGTH), 0).unwrap();
    let mut running: Vec<Up> = (1..peers.len()).map(|peer| get(peer, "10m")).collect();
    let part = target(1).with_file_name("film.part");
    eventually("the first begins", || part.exists());
    drop(running.remove(0));
    for peer in 2..peers.len() {
        eventually("a peer has it", || target(peer).exists());
        assert!(fs::read(target(peer)).unwrap() == fs::read(&film).unwrap(), "{peer}");
    }
    let eve = peers[0].identity();
    eventually("eve is expelled", || {
        let status = well.home.json("swarm status 1");
        status["served"]["expelled"] == serde_json::json!([eve])
    });
    assert!(!target(1).exists());
}
