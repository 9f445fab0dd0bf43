"""One file to many by libtorrent, for comparison: `torrent.py SETTINGS seed FILE TORRENT ADDRESS`, `torrent.py SETTINGS get TORRENT FOLDER ADDRESS PEER…`.

SETTINGS: `default`, or `tuned` as its manual advises for seeding. The seed writes TORRENT when it listens; `get` connects to every PEER, writes FOLDER/done once it has all, and goes on uploading.
"""

import os
import sys
import time

import libtorrent as lt

PORT = 6881
# Manual, "tuning libtorrent": "high performance seeding", "scalability" and "peers".
TUNED = {
    "choking_algorithm": int(lt.choking_algorithm_t.fixed_slots_choker),
    "unchoke_slots_limit": -1,
    "send_buffer_watermark": 3 * 1024 * 1024,
    "send_buffer_watermark_factor": 150,
    "send_buffer_low_watermark": 1024 * 1024,
    "max_out_request_queue": 1500,
    "max_allowed_in_request_queue": 2000,
    "seed_choking_algorithm": int(lt.seed_choking_algorithm_t.fastest_upload),
    "mixed_mode_algorithm": int(lt.bandwidth_mixed_algo_t.prefer_tcp),
    "allow_multiple_connections_per_ip": True,
}


def session(address, settings):
    return lt.session((TUNED if settings == "tuned" else {}) | {
        "listen_interfaces": f"{address}:{PORT}",
        "enable_dht": False,
        "enable_lsd": False,
        "enable_upnp": False,
        "enable_natpmp": False,
        # All links have one rate: TCP is what the others use, too.
        "enable_outgoing_utp": False,
        "enable_incoming_utp": False,
    })


def seed(settings, path, torrent, address):
    storage = lt.file_storage()
    lt.add_files(storage, path)
    made = lt.create_torrent(storage)
    lt.set_piece_hashes(made, os.path.dirname(path))
    running = session(address, settings)
    info = lt.torrent_info(lt.bdecode(lt.bencode(made.generate())))
    handle = running.add_torrent({"ti": info, "save_path": os.path.dirname(path)})
    while not handle.status().is_seeding:
        time.sleep(0.05)
    if settings == "tuned":
        handle.set_flags(lt.torrent_flags.super_seeding)
    with open(torrent + ".new", "wb") as file:
        file.write(lt.bencode(made.generate()))
    os.rename(torrent + ".new", torrent)
    return running, handle


def get(settings, torrent, folder, address, peers):
    running = session(address, settings)
    handle = running.add_torrent({"ti": lt.torrent_info(torrent), "save_path": folder})
    for peer in peers:
        handle.connect_peer((peer, PORT))
    while not handle.status().is_seeding:
        time.sleep(0.005)
    open(os.path.join(folder, "done"), "wb").close()
    return running, handle


def main():
    settings, command = sys.argv[1:3]
    if command == "seed":
        kept = seed(settings, *sys.argv[3:6])
    else:
        kept = get(settings, sys.argv[3], sys.argv[4], sys.argv[5], sys.argv[6:])
    # Ends with the process that has started it.
    time.sleep(600)
    del kept


main()
