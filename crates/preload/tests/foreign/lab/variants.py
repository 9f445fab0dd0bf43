"""The variants of a case. Each one is compared with the same variant without the library."""

import json
import time
from dataclasses import dataclass, field

from .case import Wrong
from .place import crash_line
from .stats import check_times, read_stats

# Name, and whether the library is in the server and in the client.
PAIRS = {
    "plain": (False, False),
    "both": (True, True),
    "server": (True, False),
    "client": (False, True),
}
EXTRAS = ("large", "reload", "kill-server", "kill-client")
START_SECONDS = 45
STOP_SECONDS = 15
# How long the other end may take to notice a killed program.
NOTICE_SECONDS = 10


@dataclass
class Result:
    """The outcome of one variant: ok, WRONG, HANG, SLOW, EXIT, CRASH, ERROR, n/a or missing."""

    verdict: str = "ok"
    seconds: float = 0.0
    detail: str = ""
    share: float = None
    reasons: dict = field(default_factory=dict)
    facts: list = field(default_factory=list)


class Failed(Exception):
    """Ends a variant with a verdict."""

    def __init__(self, verdict, detail):
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail


def variants_of(case, wants_extras=True):
    """Returns the names of the variants that a case has."""
    names = list(PAIRS)
    if wants_extras:
        names += ["large"] if case.large else []
        names += ["reload"] if case.reload else []
        names += ["kill-server", "kill-client"] if case.traffic else []
    return names


def start_servers(case, place, fast):
    """Starts the servers, and waits until they are ready."""
    running = []
    for at, program in enumerate(case.servers(place)):
        process = place.start(f"server{at}", program, fast)
        end = time.monotonic() + START_SECONDS
        ready = program.ready or (lambda p, port=program.port: p.is_listening(port or p.port))
        while not ready(place):
            code = process.wait(0.02)
            if code is not None:
                raise Failed("EXIT", f"server{at} ended with {code} before it was ready")
            if time.monotonic() > end:
                raise Failed("HANG", f"server{at} was not ready after {START_SECONDS} s")
        running.append((program, process))
    return running


def stop_servers(running):
    """Asks the servers to end. Returns their exit codes."""
    codes = []
    for program, process in reversed(running):
        process.signal(program.stop)
        code = process.wait(STOP_SECONDS)
        if code is None:
            raise Failed("HANG", f"{process.name} did not end within {STOP_SECONDS} s")
        codes.append(code)
    return codes


def diagnose(place):
    """Returns the open connections of fast programs, for the report of a hang."""
    try:
        text = place.shell(place.settings.levada, "fast", "top", "--json", seconds=10)
        rows = [
            {"pid": process["pid"], **row}
            for process in json.loads(text)["processes"]
            for row in process.get("connections", [])
        ]
        return json.dumps(rows)[:3000]
    except Exception as error:  # The diagnosis must not hide the hang.
        return f"no diagnosis: {error}"


def finish_client(place, program, process, seconds):
    """Waits for a client. Returns its exit code and its facts."""
    code = process.wait(seconds)
    if code is None:
        detail = f"{process.name} did not end within {seconds:.0f} s; {diagnose(place)}"
        raise Failed("HANG", detail)
    text = process.text()
    if code < 0 or code >= 128:
        raise Failed("CRASH", f"{process.name} ended with {code}: {process.error_text()[-400:]}")
    if code != 0:
        tail = (text + process.error_text())[-400:]
        raise Failed("EXIT", f"{process.name} ended with {code}: {tail}")
    return f"exit {code}; {program.facts(place, text)}"


def run_pair(case, place, server_fast, client_fast, control, only=None):
    """Runs servers and clients once. `control` is the result without the library."""
    running = start_servers(case, place, server_fast)
    facts, shares, reasons = [], [], {}
    times = []
    for at, program in enumerate(only or case.clients(place)):
        both = server_fast and client_fast
        stats = place.folder / f"stats{at}.json" if both else None
        limit = program.timeout
        if control is not None:
            limit = min(limit, 15 + 10 * control.times[at])
        process = place.start(f"client{at}", program, client_fast, stats)
        facts.append(finish_client(place, program, process, limit))
        times.append(time.monotonic() - process.start)
        if stats:
            read_stats(stats, shares, reasons)
    facts.append(f"servers end with {stop_servers(running)}")
    result = Result(facts=facts, reasons=reasons)
    result.times = times
    if control is not None:
        check_times(result, control)
    ring, late = sum(pair[0] for pair in shares), sum(pair[1] for pair in shares)
    if ring + late:
        result.share = ring / (ring + late)
    return result


def run_reload(case, place, fast, control):
    """Reloads the server twice while a client works."""
    number, make = case.reload
    running = start_servers(case, place, fast)
    program = make(place)
    process = place.start("client-reload", program, fast)
    for _ in range(2):
        if process.wait(0.8) is None:
            running[-1][1].signal(number)
    facts = [finish_client(place, program, process, program.timeout)]
    facts.append(f"servers end with {stop_servers(running)}")
    return Result(facts=facts)


def run_kill_server(case, place, fast, control):
    """Kills the servers during traffic. The client must end."""
    running = start_servers(case, place, fast)
    process = place.start("client-traffic", case.traffic(place), fast)
    code = process.wait(1.0)
    if code is not None:
        raise Failed("n/a", f"the client ended with {code} before the kill")
    for _, server in reversed(running):
        server.kill()
    start = time.monotonic()
    if process.wait(NOTICE_SECONDS) is None:
        verdict = "n/a" if not fast else "HANG"
        detail = f"the client ran on for {NOTICE_SECONDS} s; {diagnose(place)}"
        raise Failed(verdict, detail)
    return Result(detail=f"noticed after {time.monotonic() - start:.2f} s")


def run_kill_client(case, place, fast, control):
    """Kills a client during traffic. The server must close the connection, and go on."""
    running = start_servers(case, place, fast)
    process = place.start("client-traffic", case.traffic(place), fast)
    code = process.wait(1.0)
    if code is not None:
        raise Failed("n/a", f"the client ended with {code} before the kill")
    process.kill()
    start = time.monotonic()
    port = running[-1][0].port or place.port
    while place.open_connections(port):
        if time.monotonic() - start > NOTICE_SECONDS:
            verdict = "n/a" if not fast else "HANG"
            detail = f"the server kept the connection for {NOTICE_SECONDS} s; {diagnose(place)}"
            raise Failed(verdict, detail)
        time.sleep(0.02)
    seconds = time.monotonic() - start
    program = case.clients(place)[0]
    process = place.start("client-after", program, fast)
    limit = 15 + 10 * control.seconds if control else program.timeout
    facts = [finish_client(place, program, process, min(limit, program.timeout))]
    facts.append(f"servers end with {stop_servers(running)}")
    return Result(facts=facts, detail=f"noticed after {seconds:.2f} s")


def run_large(case, place, fast, control):
    return run_pair(case, place, fast, fast, control, only=[case.large(place)])


SPECIAL = {
    "large": run_large,
    "reload": run_reload,
    "kill-server": run_kill_server,
    "kill-client": run_kill_client,
}


def attempt(place, work, control):
    """Runs one variant. Never raises."""
    start = time.monotonic()
    try:
        result = work()
        if control is not None and result.facts != control.facts:
            differing = [pair for pair in zip(control.facts, result.facts) if pair[0] != pair[1]]
            result.verdict, result.detail = "WRONG", f"plain, fast: {differing}"[:1500]
    except Failed as failure:
        result = Result(failure.verdict, detail=failure.detail)
    except Wrong as wrong:
        result = Result("WRONG", detail=str(wrong)[:1500])
    except Exception as error:  # A fault of the case itself.
        result = Result("ERROR", detail=f"{type(error).__name__}: {error}"[:1500])
    result.seconds = time.monotonic() - start
    text = place.log_text()
    line = crash_line(place.server_log())
    if line and (control is None or line not in control.log):
        result.verdict = result.verdict if result.verdict != "ok" else "CRASH"
        result.detail += f"; log: {line}"
    result.log = text
    if result.verdict != "ok":
        result.detail += f"\n{text}" if text else ""
    place.end_processes()
    return result


def repeated(times, work):
    """Does the work again while its result is good. Returns the last result."""
    for turn in range(times):
        result = work()
        if result.verdict != "ok":
            result.detail = f"run {turn + 1} of {times}: {result.detail}"
            break
    return result


def run_case(case, place, wanted, times, report):
    """Runs the wanted variants, `times` times with the library.

    Calls `report(name, result)` after each variant.
    """
    control = None
    for name in wanted:
        if name in PAIRS:
            server_fast, client_fast = PAIRS[name]
            result = repeated(1 if control is None else times, lambda: attempt(
                place, lambda: run_pair(case, place, server_fast, client_fast, control), control
            ))
            if name == "plain":
                control = result
                if result.verdict != "ok":
                    result.verdict = f"plain {result.verdict}"
                    report(name, result)
                    return
        else:
            special = SPECIAL[name]
            plain = attempt(place, lambda: special(case, place, False, None), None)
            result = plain
            if plain.verdict == "ok":
                result = repeated(times, lambda: attempt(
                    place, lambda: special(case, place, True, plain), plain
                ))
            elif plain.verdict != "n/a":
                result.verdict = f"plain {plain.verdict}"
        report(name, result)
