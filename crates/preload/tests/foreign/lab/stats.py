"""What the clients of a variant report: their times, and the numbers of `levada fast --stats`."""

import json

# A client is slow if it takes so much longer than five times as long.
SLOW_SECONDS = 3


def check_times(result, control):
    """A client that sleeps for seconds without a reason has missed a wake-up."""
    for at, (before, after) in enumerate(zip(control.times, result.times)):
        if after > SLOW_SECONDS + 5 * before:
            result.verdict = "SLOW"
            result.detail += f"client{at} took {after:.1f} s instead of {before:.1f} s; "


def read_stats(path, shares, reasons):
    """Adds the numbers of one client."""
    try:
        stats = json.loads(path.read_text())
    except (OSError, ValueError):
        return
    traffic = stats["traffic"]
    shares.append((traffic["ring_in"] + traffic["ring_out"], traffic["tcp_after_trigger"]))
    counts = dict(stats["closed"]["reasons"], ring=stats["closed"]["upgraded"])
    for process in stats["processes"]:
        for connection in process.get("connections", []):
            word = connection.get("reason") or f"open-{connection['mode']}"
            counts[word] = counts.get(word, 0) + 1
    for word, count in counts.items():
        if count:
            reasons[word] = reasons.get(word, 0) + count
