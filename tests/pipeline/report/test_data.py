from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.report.data import read_report
from tests.pipeline.report.synthetic import evaluation, records, round_record, write, write_run


def test_the_headline_is_the_first_and_the_last_held_out_evaluation(tmp_path: Path) -> None:
    data = read_report(write_run(tmp_path, episodes=False))
    assert data.sampled is not None
    assert data.greedy is not None
    assert (data.sampled.first.successes, data.sampled.first.n, data.sampled.last.round) == (75, 300, 15)
    assert (data.greedy.first.value, data.greedy.last.value) == (0.3, 0.87)
    low, high = data.sampled.interval
    assert low < data.sampled.last.value - data.sampled.first.value < high
    assert data.missing == []
    assert (data.rounds_done, data.rounds_planned) == (15, 15)


def test_totals_are_sums_over_rounds_and_none_where_nothing_was_recorded(tmp_path: Path) -> None:
    data = read_report(write_run(tmp_path, episodes=False))
    assert data.totals["episodes"] == 15 * 512
    assert data.totals["bytes_up"] == 15 * 4 * 812_000
    assert data.totals["seconds"] == 262.0
    assert data.totals["heldout_episodes"] == 6 * 300
    bare = read_report(write(tmp_path / "bare", {"kind": "start"}, {"kind": "round", "round": 1}))
    assert bare.totals["tokens"] is None


def test_a_resumed_run_counts_the_wall_clock_of_every_session(tmp_path: Path) -> None:
    killed = [
        {"kind": "start", "time": "2026-11-02T12:00:00+00:00"},
        {"kind": "round", "round": 1, "seconds": 10.0, "time": "2026-11-02T12:00:11+00:00"},
    ]
    resumed = [
        {"kind": "start", "resumed_from": 1, "time": "2026-11-02T13:00:00+00:00"},
        {"kind": "round", "round": 2, "seconds": 12.0, "time": "2026-11-02T13:00:13+00:00"},
        {"kind": "end", "status": "finished", "seconds": 15.0, "time": "2026-11-02T13:00:16+00:00"},
    ]
    # The killed session counts up to its last record, the other one as it says itself.
    data = read_report(write(tmp_path, *killed, *resumed))
    assert data.totals["seconds"] == 11.0 + 15.0
    assert data.totals["round_seconds"] == 22.0


def test_clients_and_failures_are_counted(tmp_path: Path) -> None:
    data = read_report(write_run(tmp_path, episodes=False))
    lines = {c.client: c for c in data.clients}
    assert sum(c.visits for c in data.clients) == 15 * 4 - 1
    assert (lines["c005"].failures, lines["c000"].failures) == (1, 0)
    assert lines["c005"].episodes == lines["c005"].visits * 128
    (failure,) = data.failures
    assert (failure.round, failure.client, failure.attempts, failure.traceback) == (4, "c005", 2, "failures/round-0004-c005.txt")


def test_a_signal_that_rounds_lack_is_the_mean_of_the_clients_by_episodes(tmp_path: Path) -> None:
    clients = [{"kind": "client", "round": 1, "client": c, "kl": kl, "episodes": n} for c, kl, n in (("a", 0.1, 30), ("b", 0.5, 10))]
    data = read_report(write(tmp_path, {"kind": "start"}, *clients, {"kind": "round", "round": 1, "entropy": 1.5}))
    values = {chart.id: chart.series[0].points[0].y for chart, _ in data.signals}
    assert values == {"signal-kl": pytest.approx(0.2), "signal-entropy": 1.5}


def test_other_worlds_and_clients_own_results_do_not_enter_the_headline(tmp_path: Path) -> None:
    lines = [
        {"kind": "start"},
        evaluation(0, 60),
        evaluation(1, 90),
        evaluation(1, 30, world="lookalike"),
        evaluation(1, 120, client="c001"),
    ]
    data = read_report(write(tmp_path, *lines))
    assert data.sampled is not None
    assert data.sampled.last.successes == 90
    assert [(line.world, line.rates[-1].successes) for line in data.worlds.lines] == [("lookalike", 30)]
    (client,) = data.clients
    assert client.own is not None
    assert client.own.successes == 120


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    data = read_report(write_run(tmp_path / "a", rounds=3, end=False, episodes=False))
    text = " ".join(data.missing)
    assert "has not finished" in text
    assert "UTC" in text
    assert "3 of 15 rounds" in text
    assert "newest held-out evaluation is after round 0, not after round 3" in text
    stopped = read_report(write(tmp_path / "b", {"kind": "start"}, round_record(1, []), {"kind": "end", "status": "stopped"}))
    assert "The run ended as stopped." in stopped.missing
    assert "There is no held-out evaluation yet." in stopped.missing
    late = read_report(write(tmp_path / "c", {"kind": "start"}, evaluation(5, 60)))
    assert any("taken after round 5" in m for m in late.missing)


def test_a_torn_line_is_left_out_and_told(tmp_path: Path) -> None:
    write_run(tmp_path, episodes=False)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    data = read_report(tmp_path)
    assert any("incomplete" in m for m in data.missing)
    assert data.rounds_done == 15


def test_folders_without_a_run_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is it a run folder"):
        read_report(tmp_path)
    with pytest.raises(DataError, match="give the run folder"):
        read_report(tmp_path / "nowhere")
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match="try again once it has"):
        read_report(tmp_path)


def test_every_prefix_of_a_log_can_be_reported(tmp_path: Path) -> None:
    from pipeline.report.page import render

    lines = records(rounds=5, end=False)
    for length in range(1, len(lines) + 1):
        folder = tmp_path / str(length)
        assert "<main>" in render(read_report(write(folder, *lines[:length])))
