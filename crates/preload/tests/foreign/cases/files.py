"""Programs that move files and streams: rsync, ssh, socat, ncat, stunnel, git, fetchers."""

import os
import signal
from pathlib import Path

from lab.case import Case, Program, digest, expect, file_digest, repeated_digest
from lab.packages import Apt, Npm, Rust
from lab.web import (
    CURL, NGINX, backend, counted, curl, h2load, nginx, prepare_backend, prepare_nginx, url,
)

BASH = ["bash", "-o", "pipefail", "-c"]


def piped(place, script, wanted, timeout=110):
    """A shell script that must print the digest as its first word."""
    def facts(_, output):
        expect(output.split()[:1] == [wanted], f"{output[:300]!r} instead of {wanted}")
        return output

    return Program([*BASH, script], facts=facts, timeout=timeout)


def tree_digest(folder):
    """Returns the digest of all names and contents below a folder."""
    lines = [f"{path.relative_to(folder)} {file_digest(path)}"
             for path in sorted(folder.rglob("*")) if path.is_file()]
    return digest("\n".join(lines).encode()) + f" {len(lines)}"


def make_tree(place, folder, change=0):
    """Writes 150 files of many sizes; `change` makes them differ a little."""
    pattern = place.settings.pattern
    for at in range(150):
        path = folder / str(at % 7) / f"file{at}"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = bytearray(pattern[at:at + at * at * 11])
        content[:change] = b"#" * min(change, len(content))
        path.write_bytes(content)
    (folder / "whole").write_bytes(pattern * 3)


def prepare_rsync(place):
    make_tree(place, place.folder / "module")
    (place.folder / "upload").mkdir()
    modules = "".join(
        f"[{name}]\npath = {place.folder / name}\nread only = false\nuse chroot = false\n"
        for name in ("module", "upload"))
    owner = "uid = 0\ngid = 0\n" if os.geteuid() == 0 else ""
    place.write("rsyncd.conf", owner + modules)


def rsync(place):
    return [Program(["rsync", "--daemon", "--no-detach", f"--config={place.folder}/rsyncd.conf",
                     f"--address={place.host}", f"--port={place.port}"], stop=signal.SIGTERM)]


def rsync_clients(place):
    at = f"rsync://{place.host}:{place.port}"
    wanted = tree_digest(place.folder / "module")
    got, up = place.folder / "got", place.folder / "upload"

    def fetched(_, output):
        expect(tree_digest(got) == wanted, "the fetched files differ")
        return output

    def sent(_, output):
        expect(tree_digest(up) == tree_digest(place.folder / "changed"), "the upload differs")
        return output

    make_tree(place, place.folder / "changed", change=3)
    return [
        Program([*BASH, f"rm -rf {got} && rsync -a {at}/module/ {got}/"], facts=fetched),
        # Files with the same names but other contents: the protocol sends the differences.
        Program([*BASH, f"rm -rf {up}/* && cp -r {place.folder}/module/. {up}/ && "
                        f"rsync -a --ignore-times changed/ {at}/upload/"], facts=sent),
    ]


def rsync_large(place):
    wanted = place.huge_file("module/huge")
    return piped(place, f"rsync rsync://{place.host}:{place.port}/module/huge huge.got && "
                        "sha256sum <huge.got && rm huge.got", wanted)


def rsync_traffic(place):
    (place.folder / "module/endless").touch()
    os.truncate(place.folder / "module/endless", 20_000_000_000)
    return Program(["rsync", "--bwlimit=20000", f"rsync://{place.host}:{place.port}/module/endless",
                    place.folder / "endless.got"])


def prepare_ssh(place):
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "user"):
        place.shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place.folder / name)
    place.write("sshd.conf", f"""
ListenAddress {place.host}:{place.port}
HostKey {place.folder}/host
AuthorizedKeysFile {place.folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
""")


def ssh_options(place):
    return (f"-F none -i {place.folder}/user -o StrictHostKeyChecking=no -o BatchMode=yes "
            f"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR")


def ssh_clients(place):
    ssh = f"ssh {ssh_options(place)} -p {place.port} {place.host}"
    both = digest(place.settings.pattern)
    return [piped(place, f"{ssh} cat <pattern | sha256sum", both),
            piped(place, f"{ssh} 'cat {place.pattern_path}; exit 3' | sha256sum; "
                         "echo ${PIPESTATUS[0]}", both)]


def ssh_large(place):
    wanted = place.huge_file("huge")
    return piped(place, f"scp -q {ssh_options(place)} -P {place.port} "
                        f"{place.host}:{place.folder}/huge huge.got && "
                        "sha256sum <huge.got && rm huge.got", wanted)


def socat_clients(place):
    to = f"TCP:{place.host}:{place.port}"
    wanted = repeated_digest(place.settings.pattern, 3_000_009)
    return [piped(place, f"cat pattern pattern pattern | socat -t 20 - {to} | sha256sum", wanted)]


def endless_pipe(command):
    def traffic(place):
        line = command.format(host=place.host, port=place.port)
        return Program([*BASH, f"yes water | {line} >/dev/null"])
    return traffic


def socat(name, address, **more):
    """`address` is what socat connects with each connection."""
    def servers(place):
        listen = f"TCP-LISTEN:{place.port},bind={place.host},fork,reuseaddr"
        return [Program(["socat", "-t", "20", listen, address])]

    return Case(name=name, needs=(Apt("socat", "socat"),), servers=servers, clients=socat_clients,
                traffic=endless_pipe("socat -t 20 - TCP:{host}:{port}"), **more)


def ncat_clients(place):
    wanted = repeated_digest(place.settings.pattern, 2_000_006)
    at = f"{place.host} {place.port}"
    return [piped(place, f"ncat --recv-only {at} | sha256sum", wanted),
            piped(place, f"nc.openbsd -d {at} | sha256sum", wanted)]


def prepare_stunnel(place):
    prepare_backend(place)
    place.shell("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                "-subj", "/CN=levada", "-keyout", "key.pem", "-out", "certificate.pem")
    place.write("stunnel.conf", f"""
foreground = yes
pid =
cert = {place.folder}/certificate.pem
key = {place.folder}/key.pem
[web]
accept = {place.host}:{place.port}
connect = {place.host}:{place.named_port("backend")}
""")


def prepare_git(place):
    make_tree(place, place.folder / "source")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "-C",
           place.folder / "source"]
    place.shell(*git, "init", "-q")
    place.shell(*git, "add", ".")
    place.shell(*git, "commit", "-q", "-m", "files")


def git_clients(place):
    script = (f"rm -rf clone && git clone -q git://{place.host}:{place.port}/source clone && "
              "sha256sum <clone/whole && git -C clone fsck --full")
    return [piped(place, script, digest(place.settings.pattern * 3))]


def git(place):
    return [Program(["git", "daemon", "--export-all", "--reuseaddr",
                     f"--base-path={place.folder}", f"--listen={place.host}",
                     f"--port={place.port}"], env={
                         "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
                         "GIT_CONFIG_VALUE_0": "*"})]


def fetchers(place):
    """Programs that fetch files from nginx."""
    wanted = digest(place.settings.pattern * 5)
    twice = repeated_digest(place.settings.pattern, 10_000_030)
    file = url(place, "large")
    aria = (f"rm -f aria.got && aria2c -q --no-conf -x4 -s4 -k1M -d {place.folder} -o aria.got "
            f"{file} && sha256sum <aria.got")
    wget = f"wget2 -q --no-config --max-threads=1 -O - {file} {file}?again | sha256sum"
    return [
        h2load(place),
        piped(place, wget, twice),
        piped(place, aria, wanted),
    ]


def npm_fetcher(place):
    load = place.work / "npm/node_modules/autocannon/autocannon.js"
    return [counted(place, ["node", load, "-c", "8", "-d", "2", "--json", url(place, "large")],
                    '"non2xx":0', '"errors":0', '"timeouts":0')]


def rust_fetcher(place):
    argv = [place.work / "rust/release/reqwest-client", url(place, "large"), "5", "4"]
    wanted = repeated_digest(place.settings.pattern, 25_000_075)

    def facts(_, output):
        lines = [f"{at} 25000075 {wanted}" for at in range(4)]
        expect(output.split("\n")[:-1] == lines, output)
        return output

    return [Program(argv, facts=facts)]


def from_nginx(name, clients, *needs, **more):
    return Case(name=name, needs=(NGINX, *needs), prepare=prepare_nginx,
                servers=lambda place: [nginx(place)], clients=clients, **more)


CASES = [
    Case(name="rsync", needs=(Apt("rsync", "rsync"),), prepare=prepare_rsync, servers=rsync,
         clients=rsync_clients, traffic=rsync_traffic, large=rsync_large, short=True),
    Case(name="ssh", needs=(Apt("sshd", "openssh-server"), Apt("ssh", "openssh-client")),
         prepare=prepare_ssh, clients=ssh_clients, large=ssh_large,
         servers=lambda place: [Program(["/usr/sbin/sshd", "-D", "-e", "-f",
                                         place.folder / "sshd.conf"])],
         traffic=lambda place: Program(
             [*BASH, f"ssh {ssh_options(place)} -p {place.port} {place.host} yes >/dev/null"])),
    socat("socat", "EXEC:cat", short=True),
    socat("socat-nofork", "EXEC:cat,nofork", note="socat hands the connection to cat"),
    Case(name="ncat", needs=(Apt("ncat", "ncat"), Apt("nc.openbsd", "netcat-openbsd")),
         servers=lambda place: [Program(["ncat", "-k", "-l", "--sh-exec", "cat pattern pattern",
                                         place.host, place.port])],
         clients=ncat_clients, short=True),
    Case(name="stunnel", needs=(Apt("stunnel4", "stunnel4"), NGINX, CURL),
         prepare=prepare_stunnel,
         servers=lambda place: [backend(place),
                                Program(["stunnel4", place.folder / "stunnel.conf"])],
         clients=lambda place: [curl(place, scheme="https")]),
    Case(name="git-daemon", needs=(Apt("git", "git"),), prepare=prepare_git, servers=git,
         clients=git_clients),
    from_nginx("fetchers", fetchers, Apt("h2load", "nghttp2-client"), Apt("wget2", "wget2"),
               Apt("aria2c", "aria2")),
    from_nginx("autocannon", npm_fetcher, Npm("autocannon"), Apt("node", "nodejs")),
    from_nginx("reqwest", rust_fetcher, Rust("reqwest-client")),
]
