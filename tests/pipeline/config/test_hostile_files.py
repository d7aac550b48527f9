"""Files that a hand, an editor or a script spoiled: one message each, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "run: &r\n  self: *r\n", "nested without end"),
        ("a.json", "[" * 100_000, "nested without end"),
        ("a.yaml", "run:\n  seed: 1\nrun:\n  name: b\n", "'run' appears twice, in lines 1 and 3"),
        ("a.json", '{"run": {"seed": 1}, "run": {"seed": 2}}', "'run' appears twice"),
        ("a.toml", "[run]\nseed = 1\n[run]\nseed = 2\n", "malformed"),
        ("a.toml", '"federation.rounds" = 3\n', "write `rounds` in section `federation`"),
    ],
)
def test_spoiled_files(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert words in str(error.value)


def test_what_editors_do_to_good_files_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.TOML").write_bytes(b"\xef\xbb\xbf[run]\r\nseed = 7\r\n")
    (tmp_path / "a.yaml").write_text("run:\n#  seed: 3\nfederation:\n  rounds: 4\n")
    assert load_config(tmp_path / "a.TOML").run.seed == 7
    assert load_config(tmp_path / "a.yaml").federation.rounds == 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model.lora.targets", "[1,2"], "model.lora.targets"),
        (["--run.dir", "\udcff"], "not UTF-8"),
        (["--conf", "x.toml"], "did you mean '--config'"),
        (["--run.name", "."], "run.name"),
        (["--run.name", "-x"], "run.name"),
        (["--run.name", "läden"], '"läden"'),
        (["--learner.zero_stage=3", "--model.adapter=full", "--aggregation.prox_mu=0.1"], "allowed with it: 0, 1, 2"),
    ],
)
def test_spoiled_words(words: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, words)
    assert expected in str(error.value)


def test_a_long_value_is_not_printed_whole() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, ["--federation.rounds", "9" * 4000])
    assert len(str(error.value)) < 250
