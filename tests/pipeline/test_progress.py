from __future__ import annotations

import io

import pytest

from pipeline.progress import Progress, duration, rate, short

PLAN = {"rounds": 15, "episodes_per_round": 512}
ROUND = {
    "kind": "round",
    "round": 3,
    "success": 0.4125,
    "clients": ["a", "b"],
    "failed": [],
    "episodes": 512,
    "tokens": 160_000,
    "seconds": 16.0,
}
START = {"kind": "evaluation", "round": 0, "success": 0.25, "success_low": 0.204, "success_high": 0.302, "n": 300, "mode": "sampled"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_event_is_one_plain_line() -> None:
    stream = io.StringIO()
    with Progress(PLAN, stream, Clock(), environ={}) as progress:
        progress.phase("starting engines")
        progress.evaluation(START)
        progress.phase("round 3: training 2 clients")
        progress.episodes(100, 1000)
        progress.round(ROUND)
        progress.warn("something long " * 20)
        progress.close("report: runs/demo/report.html")
    assert stream.getvalue().splitlines() == [
        "starting engines ...",
        "held-out before training: 25.0% [20.4, 30.2] sampled, 300 tasks",
        "round  3/15  success 41.2%  2/2 clients  512 episodes  10.0k tok/s  16 s",
        "warning: " + "something long " * 20,
        "report: runs/demo/report.html",
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_log_that_stands_still_says_what_it_waits_for() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(PLAN, stream, clock, environ={}) as progress:
        clock.now = 1.0
        progress.round(ROUND)
        progress.phase("round 4: training")
        clock.now = 30.0
        progress.phase("evaluating")
        progress.phase("evaluating")
    assert "training" not in stream.getvalue()
    assert stream.getvalue().count("evaluating ...") == 1


def test_failed_clients_are_named() -> None:
    stream = io.StringIO()
    with Progress(PLAN, stream, Clock(), environ={}) as progress:
        progress.round({**ROUND, "failed": [{"client": "c003", "error": "boom", "attempts": 2}]})
    assert "1/2 clients" in stream.getvalue()
    assert "warning: round 3: client c003 failed: boom" in stream.getvalue()


def test_a_terminal_shows_rounds_episodes_speed_eta_and_success_in_80_columns() -> None:
    stream, clock = Terminal(), Clock()
    with Progress(PLAN, stream, clock, environ={"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}) as progress:
        progress.evaluation(START)
        progress.round({**ROUND, "round": 1})
        progress.evaluation({**START, "round": 1, "success": 0.5, "success_low": 0.44, "success_high": 0.56})
        clock.now = 20.0
        progress.phase("round 2: training 4 clients")
        progress.episodes(256, 80_000)
        console = progress._console
        with console.capture() as shown:
            console.print(progress._render())
    text = shown.get()
    # 1.45 of 15 rounds took 20 s, so 13.55 take 187 s.
    for part in ("round 2/15", "20 s elapsed, 3:07 left", "round 2: training 4 clients", "episodes 256/512", "4.0k tok/s"):
        assert part in text
    for part in ("training success 41.2%", "held-out 50.0% [44.0, 56.0]", "start 25.0%"):
        assert part in text
    plain = io.StringIO()
    with Progress(PLAN, plain, clock, environ={"COLUMNS": "80"}) as narrow:
        narrow.round({**ROUND, "round": 15, "clients": list("abcd")})
    assert max(len(line) for line in plain.getvalue().splitlines()) <= 80
    assert "\x1b" in stream.getvalue()


@pytest.mark.parametrize(
    ("environ", "live", "colored"), [({"TERM": "dumb"}, False, False), ({"TERM": "xterm", "NO_COLOR": "1"}, True, False)]
)
def test_dumb_terminals_and_no_color_are_respected(environ: dict[str, str], live: bool, colored: bool) -> None:
    stream = Terminal()
    with Progress(PLAN, stream, Clock(), environ=environ) as progress:
        assert (progress._live is not None) == live
        progress.warn("careful")
    assert "warning: careful" in stream.getvalue()
    assert ("\x1b[33m" in stream.getvalue()) == colored


def test_closing_twice_and_records_without_numbers_are_fine() -> None:
    stream = io.StringIO()
    with Progress({}, stream, Clock(), environ={}) as progress:
        progress.round({"kind": "round", "round": 1, "success": None})
        progress.evaluation({"kind": "evaluation", "round": 1, "world": "lookalike"})
        progress.close("done")
        progress.close("done")
    assert stream.getvalue().count("done") == 1
    assert "held-out after round 1 in lookalike: --" in stream.getvalue()


def test_where_worlds_differ_the_mean_over_clients_in_their_own_comes_last() -> None:
    stream = io.StringIO()
    homes = {"c000": "rank:invert", "c001": "rank:shuffle", "c002": "rank:shuffle", "c003": "default"}
    with Progress({"homes": homes, "worlds": ["rank:invert", "rank:shuffle"]}, stream, Clock(), environ={}) as progress:
        for world, success in (("default", 0.8), ("rank:invert", 0.02), ("rank:shuffle", 0.4)):
            progress.evaluation({"kind": "evaluation", "round": 2, "world": world, "success": success, "mode": "sampled", "n": 100})
        progress.evaluation({"kind": "evaluation", "round": 2, "world": "rank:shuffle", "client": "c001", "success": 0.9})
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("held-out after round 2 in the unperturbed world: 80.0%")
    # (0.02 + 2 x 0.4 + 0.8) / 4
    assert lines[-1] == "held-out after round 2, mean over 4 clients in their own worlds: 40.5%, worst world rank:invert: 2.0%"
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.84, "0.8 s"), (42.4, "42 s"), (59.6, "1:00"), (185, "3:05"), (7385, "2:03:05"), (9.97, "10 s")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (999.9, "1.0k"), (12_345, "12.3k"), (160_000, "160k"), (4.1e6, "4.1M"), (3e9, "3.0G")]
)
def test_short(value: float, text: str) -> None:
    assert short(value) == text


def test_rate_without_an_interval() -> None:
    assert rate({"success": 0.5}) == "50.0%"
    assert rate({}) == "--"
