"""One file to many by libtorrent, for comparison: `torrent.py seed FILE TORRENT ADDRESS`, `torrent.py get TORRENT FOLDER ADDRESS PEER…`.

The seed writes TORRENT when it listens; `get` connects to every PEER, writes FOLDER/done once it has all, and goes on uploading.
"""

import os
import sys
import time

import libtorrent as lt

PORT = 6881


def session(address):
    return lt.session({
        "listen_interfaces": f"{address}:{PORT}",
        "enable_dht": False,
        "enable_lsd": False,
        "enable_upnp": False,
        "enable_natpmp": False,
        # All links have one rate: TCP is what the others use, too.
        "enable_outgoing_utp": False,
        "enable_incoming_utp": False,
    })


def seed(path, torrent, address):
    storage = lt.file_storage()
    lt.add_files(storage, path)
    made = lt.create_torrent(storage)
    lt.set_piece_hashes(made, os.path.dirname(path))
    running = session(address)
    info = lt.torrent_info(lt.bdecode(lt.bencode(made.generate())))
    handle = running.add_torrent({"ti": info, "save_path": os.path.dirname(path)})
    while not handle.status().is_seeding:
        time.sleep(0.05)
    with open(torrent + ".new", "wb") as file:
        file.write(lt.bencode(made.generate()))
    os.rename(torrent + ".new", torrent)
    return running, handle


def get(torrent, folder, address, peers):
    running = session(address)
    handle = running.add_torrent({"ti": lt.torrent_info(torrent), "save_path": folder})
    for peer in peers:
        handle.connect_peer((peer, PORT))
    while not handle.status().is_seeding:
        time.sleep(0.005)
    open(os.path.join(folder, "done"), "wb").close()
    return running, handle


def main():
    if sys.argv[1] == "seed":
        kept = seed(*sys.argv[2:5])
    else:
        kept = get(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    # Ends with the process that has started it.
    time.sleep(600)
    del kept


main()
