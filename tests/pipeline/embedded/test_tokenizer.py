"""The tokenizer: one piece per word of the shop, any text through bytes, and the same after saving and loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from envs.webshop import generate, lexicon
from pipeline.embedded import embedded_path
from pipeline.embedded.tokenizer import PHRASES, VOCABULARY, segments, train_tokenizer

PROMPT = (
    "Find me organic tea with size: small, and price lower than 40.00 dollars\nLast: none\n"
    "Page: Back to Search [SEP] Page 1 (Total results: 50) [SEP] Next > [SEP] B0ZUSGONIL [SEP] Acme Organic Tea [SEP] $35.0\nAction: "
)
ODD = "Ünï 你好 \x00 ☂ \t\n  B06Y3VLDFB 100% [x] ]] naïve 12.345 $$19.99$2 'a'  <|im_end|> <pad> a  [SEP]  b [sep] \r\n"


def pieces(tokenizer: Any, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


def test_segments_are_what_stands_between_phrases() -> None:
    assert list(segments(["Page 1 [SEP] Next > [SEP] Red Tea [SEP] $3.0", "click[Red]"])) == ["page 1", "red tea", "$3.0", "red"]


def test_an_unseen_word_after_a_separator_is_learned_without_a_leading_space() -> None:
    tokenizer = train_tokenizer([f"Page: x [SEP] crimson [SEP] {k}" for k in range(50)])
    assert "crimson" in pieces(tokenizer, "y [SEP] crimson")


def test_saving_and_loading_beside_a_model_changes_no_id(shipped_tokenizer: Any, tmp_path: Path) -> None:
    # AutoTokenizer looks at config.json too: some architectures make it replace the tokenizer by another class.
    (tmp_path / "config.json").write_bytes((embedded_path() / "config.json").read_bytes())
    shipped_tokenizer.save_pretrained(str(tmp_path))
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    trained = train_tokenizer([PROMPT] * 5)
    trained.save_pretrained(str(tmp_path / "fresh"))
    (tmp_path / "fresh" / "config.json").write_bytes((embedded_path() / "config.json").read_bytes())
    for text in (PROMPT, ODD, "click[b0zusgonil]"):
        assert loaded.encode(text) == shipped_tokenizer.encode(text)
        assert AutoTokenizer.from_pretrained(str(tmp_path / "fresh")).encode(text) == trained.encode(text)


@pytest.mark.parametrize("text", [PROMPT, ODD, "", "]", " [SEP] ", "a" * 3000, "\ud7ff\U0001f6d2"])
def test_any_text_survives_up_to_case(shipped_tokenizer: Any, text: str) -> None:
    assert shipped_tokenizer.decode(shipped_tokenizer.encode(text)).lower() == text.lower()


def test_the_chat_template_adds_nothing(shipped_tokenizer: Any) -> None:
    message = [{"role": "user", "content": PROMPT}]
    assert shipped_tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False) == PROMPT
    ids = shipped_tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    assert ids == shipped_tokenizer.encode(PROMPT) == shipped_tokenizer.encode(PROMPT, add_special_tokens=False)


def test_every_word_of_the_shop_is_one_piece_and_an_id_is_two(shipped_tokenizer: Any) -> None:
    nouns = [noun for category in lexicon.CATEGORIES for noun in category.nouns[: lexicon.FIRST_NOUNS]]
    words = [*lexicon.ATTRIBUTES, *(word for noun in nouns for word in noun.split())]
    assert [word for word in words if len(shipped_tokenizer.encode(f"x {word}")) != 2] == []
    values = [*lexicon.COLOURS, *lexicon.SIZES, *lexicon.BRANDS, *(f"${price}.0" for price in lexicon.PRICES)]
    assert [value for value in values if len(shipped_tokenizer.encode(value)) != 1] == []
    asins = {item["asin"].lower() for item in generate.generate(400, 9).items}
    assert {len(shipped_tokenizer.encode(f"click[{asin}]")) for asin in asins} == {4}
    assert all(len(shipped_tokenizer.encode(phrase)) == 1 for phrase in PHRASES)


def test_the_stop_token_ends_every_action(shipped_tokenizer: Any) -> None:
    for action in ("click[next >]", "search[organic tea]", "click[b0zusgonil]", "click[x)y]"):
        ids = shipped_tokenizer.encode(action)
        assert ids.count(shipped_tokenizer.eos_token_id) == 1
        assert ids[-1] == shipped_tokenizer.eos_token_id
    assert shipped_tokenizer.eos_token == "]"


def test_the_vocabulary_is_small(shipped_tokenizer: Any) -> None:
    assert len(shipped_tokenizer) <= VOCABULARY
    assert len(shipped_tokenizer.encode(PROMPT)) < 45
