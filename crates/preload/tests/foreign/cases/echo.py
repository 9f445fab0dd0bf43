"""Echo servers and clients in many languages, all with the same arguments.

`server HOST PORT` echoes each connection to its end.
`client HOST PORT FILE BYTES CONNECTIONS` sends the file repeatedly, up to BYTES, on each
connection: 20 small messages with their answers, then a stream in both directions. It ends its
stream, reads to the end, and prints `CONNECTION BYTES SHA256` for each connection.
"""

from lab.case import Case, Program, expect, repeated_digest
from lab.packages import Apt, Go, Maven, Pip, Rust

ENDLESS = 100_000_000_000
SMALL = 3_000_000
PYTHON = Apt("/usr/bin/python3", "python3")


def client(place, argv, length, connections, form="sha", port=None):
    """A client that must receive `length` bytes on each connection."""

    def facts(_, output):
        same = repeated_digest(place.settings.pattern, length) if form == "sha" else "same"
        wanted = [f"{at} {length} {same}" for at in range(connections)]
        got = output.split("\n")[:-1]
        expect(got == wanted, f"the client printed {output[:400]!r} instead of {wanted}")
        return output

    arguments = [place.host, port or place.port, place.pattern_path, length, connections]
    return Program([*argv, "client", *arguments], facts=facts, timeout=120)


def echo(name, argv, needs=(), connections=4, form="sha", server=None, small=SMALL, times=1,
         **more):
    """A case with a program that is server and client. `argv` takes the place.

    The first client runs `times` times.

    A program that makes its own system calls may hide a fault of its peer. So each one also
    exchanges bytes with a program in Python.
    """
    def large(place):
        return client(place, argv(place), place.large_bytes, 1, form)

    more.setdefault("large", large)
    serve = server or argv
    other = python("echo_asyncio.py")
    second = lambda place: place.named_port("python")  # noqa: E731
    return Case(
        name=name,
        needs=(PYTHON, *needs),
        servers=lambda place: [
            Program([*other(place), "server", place.host, second(place)], port=second(place)),
            Program([*serve(place), "server", place.host, place.port]),
        ],
        clients=lambda place: [
            *[client(place, argv(place), small, connections, form)] * times,
            client(place, argv(place), 100_000, 1, form),
            client(place, other(place), small, 2),
            client(place, argv(place), small, 2, form, second(place)),
        ],
        traffic=lambda place: client(place, argv(place), ENDLESS, 2, form),
        **more,
    )


def python(file, *options):
    def argv(place):
        venv = place.work / "venv/bin/python3"
        return [venv if options or "gevent" in file else "/usr/bin/python3",
                place.source(file), *options]
    return argv


def rust(name):
    return echo(name, lambda place: [place.work / "rust/release" / name], [Rust(name)])


def go(name, cgo, note):
    needs = [Apt("go", "golang-go"), Go(name, cgo)]
    return echo(name, lambda place: [place.work / "go" / name], needs, note=note)


def compiled(compiler, *flags, source="echo.c", binary="echo", libraries=()):
    def prepare(place):
        place.shell(compiler, "-O1", "-Wall", "-pthread", *flags, "-o", place.folder / binary,
                    place.source(source), *libraries)
    return prepare


def c_program(place):
    return [place.folder / "echo"]


def with_server(name, *libraries):
    """The client is echo.c; the server is a program that can only serve."""
    def prepare(place):
        compiled("gcc")(place)
        compiled("gcc", source=f"{name}.c", binary=name, libraries=libraries)(place)
    return {"prepare": prepare, "server": lambda place: [place.folder / name]}


def java(main, *jars):
    def prepare(place):
        path = ":".join(str(place.work / "java" / jar / "*") for jar in jars)
        classpath = ["-cp", path] if path else []
        place.shell("javac", *classpath, "-d", place.folder / "classes",
                    place.source("java/EchoClient.java"), place.source(f"java/{main}.java"))

    def argv(place):
        path = [place.folder / "classes", *(place.work / "java" / jar / "*" for jar in jars)]
        return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", ":".join(map(str, path)), main]
    return prepare, argv


def java_case(name, main, *jars):
    prepare, argv = java(main, *jars)
    needs = [Apt("javac", "openjdk-17-jdk-headless")]
    needs += [Apt("mvn", "maven")] if jars else []
    return echo(name, argv, needs + [Maven(jar) for jar in jars], prepare=prepare)


def erlang_prepare(place):
    place.shell("erlc", "-o", place.folder, place.source("foreign_echo.erl"))


def erlang(place):
    return ["erl", "-noshell", "-noinput", "-pa", place.folder, "-run", "foreign_echo", "main",
            "-extra"]


CC = Apt("gcc", "gcc")
CASES = [
    rust("tokio-echo"),
    rust("mio-echo"),
    rust("smol-echo"),
    go("go-cgo", True, "Go makes its own system calls: on TCP"),
    go("go-static", False, "linked statically: on TCP"),
    java_case("java-nio", "NioEcho"),
    java_case("java-netty", "NettyEcho", "netty"),
    echo("node-net", lambda place: ["node", place.source("echo.js")], [Apt("node", "nodejs")]),
    echo("asyncio", python("echo_asyncio.py"), [PYTHON], short=True),
    echo("uvloop", python("echo_asyncio.py", "uvloop"), [PYTHON, Pip("uvloop", "uvloop")]),
    echo("gevent", python("echo_gevent.py"), [PYTHON, Pip("gevent", "gevent")]),
    echo("php-sockets", lambda place: ["php", place.source("echo.php")],
         [Apt("php", "php-cli")], small=500_000, large=None,
         short=True),
    echo("ruby-socket", lambda place: ["ruby", place.source("echo.rb")], [Apt("ruby", "ruby")]),
    echo("erlang", erlang, [Apt("erlc", "erlang-base")], prepare=erlang_prepare, times=6),
    echo("c-threads", c_program, [CC], form="same", prepare=compiled("gcc"), short=True),
    echo("c-poll", c_program, [CC], form="same", prepare=compiled("gcc", "-DPOLLING"),
         short=True),
    echo("c-address-sanitizer", c_program, [CC], form="same",
         prepare=compiled("gcc", "-g", "-fsanitize=address,undefined"), short=True),
    echo("c-thread-sanitizer", c_program, [CC], form="same",
         prepare=compiled("gcc", "-g", "-fsanitize=thread"), small=500_000),
    echo("c-musl", c_program, [Apt("musl-gcc", "musl-tools")], form="same",
         prepare=compiled("musl-gcc"), short=True),
    echo("c-io-uring", c_program, [CC, Apt("/usr/include/liburing.h", "liburing-dev")],
         form="same", **with_server("uring", "-luring")),
    echo("c-oneshot", c_program, [CC], form="same", connections=6, small=200_000, times=20,
         **with_server("oneshot"), short=True),
]
