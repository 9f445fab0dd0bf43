"""Databases."""

import os
from pathlib import Path

from lab.case import Case, Program, digest, expect
from lab.packages import Apt


def mariadb_files(place):
    place.shell("mariadb-install-db", "--no-defaults", f"--datadir={place.folder}/data",
                "--auth-root-authentication-method=normal", "--skip-test-db",
                f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', '')}")
    place.write("init.sql", "CREATE DATABASE IF NOT EXISTS water;\n"
                            "CREATE USER IF NOT EXISTS 'water'@'%';\n"
                            "GRANT ALL ON *.* TO 'water'@'%';\n")


def mariadb(native):
    def servers(place):
        folder = place.folder
        argv = ["mariadbd", "--no-defaults", f"--datadir={folder}/data", f"--port={place.port}",
                f"--socket={folder}/mariadb.sock", f"--pid-file={folder}/mariadb.pid",
                f"--bind-address={place.host}", "--skip-name-resolve",
                f"--init-file={folder}/init.sql", f"--innodb-use-native-aio={native}",
                "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=1G"]
        argv += ["--user=root"] if os.geteuid() == 0 else []
        return [Program(argv)]
    return servers


def mariadb_at(place):
    return ["--no-defaults", "-h", place.host, "-P", place.port, "-u", "water"]


def mariadb_sql(place, sql, facts=lambda _, output: output):
    return Program(["mariadb", *mariadb_at(place), "--max-allowed-packet=1G", "-N", "-r",
                    "water", "-e", sql], facts=facts)


def mariadb_clients(place):
    rows = ("CREATE OR REPLACE TABLE flow AS SELECT seq, REPEAT(MD5(seq), 6) AS text "
            "FROM seq_1_to_40000; SELECT * FROM flow ORDER BY seq")

    def all_rows(_, output):
        lines = output.splitlines()
        expect(len(lines) == 40_000, f"{len(lines)} rows")
        return digest(output.encode())

    def letters(_, output):
        expect(output == "w" * 5_000_000 + "\n", f"{len(output)} characters")
        return ""

    slap = ["mariadb-slap", *mariadb_at(place), "--concurrency=4", "--iterations=2",
            "--auto-generate-sql", "--number-of-queries=2000"]
    return [
        mariadb_sql(place, rows, all_rows),
        mariadb_sql(place, "SELECT REPEAT('w', 5000000)", letters),
        Program(slap, facts=lambda _, output: f"{len(output.splitlines())} lines"),
    ]


def mariadb_case(name, native, note):
    return Case(
        name=name,
        needs=(Apt("mariadbd", "mariadb-server"), Apt("mariadb", "mariadb-client")),
        prepare=mariadb_files,
        servers=mariadb(native),
        clients=mariadb_clients,
        traffic=lambda place: mariadb_sql(
            place, "SELECT MD5(a.seq + b.seq) FROM seq_1_to_100000 a, seq_1_to_100000 b "
                   "LIMIT 1000000000", lambda _, output: ""),
        note=note,
    )


def postgres_bin():
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), default=Path("/usr/lib/postgresql"))


def postgres_files(place):
    data = place.folder / "data"
    init = place.spawn("initdb", [postgres_bin() / "initdb", "--auth=trust", "--username=water",
                                  "--no-sync", "--no-locale", "-D", data])
    expect(init.wait(60) == 0, init.text() + init.error_text())


def postgres(place):
    return [Program([postgres_bin() / "postgres", "-c", "fsync=off", "-c",
                     f"listen_addresses={place.host}", "-p", place.port, "-k", place.folder, "-D",
                     place.folder / "data"], ready=postgres_is_ready, stop=2)]


def postgres_is_ready(place):
    try:
        place.shell(postgres_bin() / "pg_isready", "-h", place.host, "-p", place.port, seconds=10)
    except RuntimeError:
        return False
    return True


def postgres_at(place):
    return ["-U", "water", "-h", place.host, "-p", place.port]


def psql(place, sql, facts=lambda _, output: output):
    return Program([postgres_bin() / "psql", "--no-psqlrc", "-q", "-A", "-t", "-v",
                    "ON_ERROR_STOP=1", *postgres_at(place), "-d", "postgres", "-c", sql],
                   facts=facts)


def postgres_clients(place):
    table = ("DROP TABLE IF EXISTS flow; CREATE TABLE flow AS SELECT n, repeat(md5(n::text), 4) "
             "AS text FROM generate_series(1, 60000) n")
    pgbench = [postgres_bin() / "pgbench", *postgres_at(place)]

    def failed(_, output):
        expect("number of failed transactions: 0 " in output, output)
        return ""

    return [
        psql(place, table),
        psql(place, "COPY (SELECT * FROM flow ORDER BY n) TO STDOUT",
             lambda _, output: digest(output.encode())),
        Program([*pgbench, "-i", "-q", "postgres"]),
        Program([*pgbench, "-n", "-S", "-c", "4", "-j", "2", "-t", "1000", "postgres"],
                facts=failed),
    ]


CASES = [
    mariadb_case("mariadb", "OFF", ""),
    mariadb_case("mariadb-native-aio", "ON", "uses io_uring if the kernel has it"),
    Case(
        name="postgres",
        needs=(Apt("/usr/lib/postgresql", "postgresql"), Apt("setpriv", "util-linux")),
        prepare=postgres_files,
        servers=postgres,
        clients=postgres_clients,
        traffic=lambda place: psql(place, "COPY (SELECT md5(n::text) FROM "
                                          "generate_series(1, 1000000000) n) TO STDOUT"),
        unprivileged=True,
    ),
]
