"""Message brokers, remote calls, and stores of keys."""

from lab.case import Case, Program, digest, expect
from lab.packages import Apt, Pip

BASH = ["bash", "-c"]
LINES = 3000


def venv(place, name, *arguments):
    return [place.work / "venv/bin/python3", place.source(name), *arguments]


def same(place, output):
    """All digests are compared with those of the run without the library."""
    expect("same" in output and "WRONG" not in output, output[-500:])
    return output


def pair(name, file, needs, note=""):
    """A Python program that is server and client."""
    def client(place, length):
        argv = venv(place, file, "client", place.host, place.port, place.pattern_path, length)
        return Program(argv, facts=same, timeout=120)

    return Case(
        name=name, needs=needs, note=note,
        servers=lambda place: [Program(venv(place, file, "server", place.host, place.port))],
        clients=lambda place: [client(place, 5_000_000)],
        traffic=lambda place: client(place, 100_000_000_000),
        large=lambda place: client(place, place.large_bytes),
    )


def mosquitto(place):
    conf = place.write("mosquitto.conf", f"listener {place.port} {place.host}\n"
                                         "allow_anonymous true\nuser root\n"
                                         "max_queued_messages 0\n")
    return [Program(["mosquitto", "-c", conf])]


def subscribe(place, count, publish, wanted):
    """Subscribes, publishes, and compares what the subscriber has printed."""
    at = f"-h {place.host} -p {place.port} -q 1"
    script = f"""
        set -e
        mosquitto_sub {at} -t levada -C {count} -W 60 -N >got & sub=$!
        sleep 0.4
        {publish.format(at=at)}
        wait $sub
        sha256sum <got
    """

    def facts(_, output):
        expect(output.split()[0] == wanted, f"{output!r} instead of {wanted}")
        return output

    return Program([*BASH, script], facts=facts, timeout=110)


def mosquitto_clients(place):
    lines = [f"line {at} " + "w" * (at * 7 % 900) for at in range(LINES)]
    place.write("lines", "\n".join(lines) + "\n")
    # -N omits the end of line after each message.
    joined = digest("".join(lines).encode())
    content = digest(place.settings.pattern)
    return [
        subscribe(place, LINES, "mosquitto_pub {at} -t levada -l <lines", joined),
        subscribe(place, 1, "mosquitto_pub {at} -t levada -f pattern", content),
    ]


def mosquitto_traffic(place):
    script = (f"yes water | mosquitto_pub -h {place.host} -p {place.port} -t levada -l")
    return Program([*BASH, script])


def mosquitto_large(place):
    wanted = place.huge_file("huge")
    # A message has at most 256 MB.
    parts = 1 + place.large_bytes // 200_000_000
    publish = f"split -n {parts} huge part.; for part in part.*; do "
    publish += "mosquitto_pub {at} -t levada -f $part; done"
    return subscribe(place, parts, publish, wanted)


def redis_cli(place, *arguments, stdin=None):
    return Program(["redis-cli", "-h", place.host, "-p", place.port, *arguments], stdin=stdin)


def redis_clients(place):
    wanted = digest(place.settings.pattern)

    def facts(_, output):
        expect(output.split()[0] == wanted, output)
        return output

    # redis-cli adds an end of line.
    get = f"redis-cli -h {place.host} -p {place.port} GET key | head -c -1 | sha256sum"
    load = ["redis-benchmark", "-h", place.host, "-p", place.port, "-n", "20000", "-c", "20",
            "-d", "300", "-t", "set,get,lrange_100", "--csv"]
    return [
        redis_cli(place, "-x", "SET", "key", stdin=place.pattern_path),
        Program([*BASH, get], facts=facts),
        redis_cli(place, "-r", "300", "INCR", "count"),
        Program(load, facts=lambda _, output: f"{len(output.splitlines())} lines"),
    ]


def redis_traffic(place):
    return Program(["redis-benchmark", "-h", place.host, "-p", place.port, "-l", "-q", "-t",
                    "set,get", "-n", "50000"])


REDIS = Case(
    name="redis",
    needs=(Apt("redis-server", "redis-server"), Apt("redis-benchmark", "redis-tools")),
    servers=lambda place: [Program(["redis-server", "--port", place.port, "--bind", place.host,
                                    "--save", "", "--dir", place.folder])],
    clients=redis_clients,
    traffic=redis_traffic,
    short=True,
)

NATS = Case(
    name="nats",
    needs=(Apt("nats-server", "nats-server"), Pip("nats-py", "nats")),
    servers=lambda place: [Program(["nats-server", "-a", place.host, "-p", place.port])],
    clients=lambda place: [Program(venv(place, "nats_echo.py", place.host, place.port,
                                        place.pattern_path, 2_000_000), facts=same)],
    large=lambda place: Program(venv(place, "nats_echo.py", place.host, place.port,
                                     place.pattern_path, place.large_bytes), facts=same,
                                timeout=120),
    note="the server is a Go program: on TCP",
)

CASES = [
    Case(
        name="mosquitto",
        needs=(Apt("mosquitto", "mosquitto"), Apt("mosquitto_sub", "mosquitto-clients")),
        servers=mosquitto,
        clients=mosquitto_clients,
        traffic=mosquitto_traffic,
        large=mosquitto_large,
        short=True,
    ),
    REDIS,
    NATS,
    pair("zeromq", "zeromq.py", (Pip("pyzmq", "zmq"),)),
    pair("grpc", "grpc_echo.py", (Pip("grpcio", "grpc"),)),
]
