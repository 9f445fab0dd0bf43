"""The parts of cases with a web server: its files, its clients, and nginx."""

from .case import Case, Program, digest, expect, file_digest
from .packages import Apt

SMALL = b"fresh water\n"
CURL, WRK = Apt("curl", "curl"), Apt("wrk", "wrk")
NGINX = Apt("nginx", "nginx-light")
NAMES = ("small", "large", "small", "none", "large", "small")


def web_files(place):
    folder = place.folder / "www"
    folder.mkdir()
    (folder / "small").write_bytes(SMALL)
    (folder / "large").write_bytes(place.settings.pattern * 5)


def url(place, name="", port=None, scheme="http"):
    return f"{scheme}://{place.host}:{port or place.port}/{name}"


def curl(place, port=None, scheme="http"):
    """Six requests on one connection."""
    argv = ["curl", "-sS", "-k", "--http1.1", "--max-time", "60", "--write-out", "%{http_code} "]
    paths = [place.folder / f"got{at}" for at in range(len(NAMES))]
    for path, name in zip(paths, NAMES):
        argv += ["-o", path, url(place, name, port, scheme)]

    def facts(_, output):
        expect(output.strip() == "200 200 200 404 200 200", f"curl printed {output!r}")
        for path, name in zip(paths, NAMES):
            wanted = {"small": SMALL, "large": place.settings.pattern * 5}.get(name)
            if wanted is not None:
                expect(file_digest(path) == digest(wanted), f"{path.name} ({name}) differs")
        return output

    return Program(argv, facts=facts)


def keep(place, seconds, *names):
    """A client with kept connections."""
    paths = [f"/{name}" for name in names or ("small", "large")]
    source = place.source("http_client.py")

    def facts(_, output):
        wanted = {"/small": digest(SMALL), "/large": digest(place.settings.pattern * 5)}
        for line in output.splitlines():
            path, *got = line.split()
            expect(got == ["200", wanted[path]], line)
        return output

    argv = ["/usr/bin/python3", source, place.host, place.port, seconds, *paths]
    return Program(argv, facts=facts, timeout=seconds + 70)


def large(place):
    """Fetches a file of `large_bytes`."""
    wanted = place.huge_file("www/huge")
    path = place.folder / "got-huge"

    def facts(_, output):
        expect(file_digest(path) == wanted, "huge differs")
        return output

    # The second request is after the second exchange.
    argv = ["curl", "-sS", "--max-time", "110"]
    for name in ("small", "small", "huge"):
        argv += ["-o", path, url(place, name)]
    return Program(argv, facts=facts, timeout=120)


def wrk(place, name="small", seconds=1):
    def facts(_, output):
        good = "requests in" in output and "Socket errors" not in output
        expect(good and "Non-2xx" not in output, output[-600:])
        return ""

    return Program(["wrk", "-t2", "-c10", "-d", f"{seconds}", "--timeout", "20s",
                    url(place, name)], facts=facts)


def counted(place, argv, *needles):
    """A load generator that must print some texts."""
    def facts(_, output):
        flat = " ".join(output.split())
        expect(all(needle in flat for needle in needles), output[-800:])
        return ""

    return Program(argv, facts=facts)


def ab(place, name="small"):
    argv = ["ab", "-k", "-q", "-n", "2000", "-c", "10", url(place, name)]
    return counted(place, argv, "Complete requests: 2000", "Failed requests: 0")


def h2load(place):
    argv = ["h2load", "--h1", "-n", "2000", "-c", "10", "-t", "1", url(place, "small")]
    return counted(place, argv, "2000 succeeded, 0 failed, 0 errored")


def web(name, servers, needs=(), prepare=web_files, load=(wrk,), **more):
    """A case with a server that serves the folder `www`."""
    more.setdefault("large", large)
    return Case(
        name=name,
        needs=(CURL, *needs),
        prepare=prepare,
        servers=servers,
        clients=lambda place: [curl(place), keep(place, 0.4), *(make(place) for make in load)],
        traffic=lambda place: keep(place, 1000),
        **more,
    )


def nginx_conf(place, name, port, more=""):
    folder = place.folder
    temporary = "".join(f"  {kind}_temp_path {folder}/{name}-{kind};\n"
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    place.write(f"{name}.conf", f"""
worker_processes 2;
daemon off;
pid {folder}/{name}.pid;
error_log stderr;
events {{ worker_connections 200; }}
http {{
  access_log off;
  sendfile on;
  keepalive_requests 100000;
{temporary}
  server {{ listen {place.host}:{port}; root {folder}/www; {more} }}
}}
""")


def nginx(place, name="nginx", port=None):
    conf = place.folder / f"{name}.conf"
    return Program(["nginx", "-e", "stderr", "-p", place.folder, "-c", conf], port=port)


def prepare_nginx(place):
    web_files(place)
    nginx_conf(place, "nginx", place.port)


def prepare_backend(place):
    """nginx as the server behind a proxy."""
    web_files(place)
    nginx_conf(place, "backend", place.named_port("backend"))


def backend(place):
    return nginx(place, "backend", place.named_port("backend"))
