"""Raw data files -> products: finding the files of a data folder, streaming them, and the rules by which one raw record becomes a product.

Knows nothing of search, goals, prices drawn at random or pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, TypeAlias

from envs.webshop.errors import WebShopDataError

Profile: TypeAlias = Literal["fed", "up"]

PRODUCT_NAMES = ("items_shuffle_1000.json", "items_shuffle.json")
ATTRIBUTE_NAMES = ("items_ins_v2_1000.json", "items_ins_v2.json")
HUMAN_NAMES = ("items_human_ins.json", "items_human_ins_1000.json")
NOUN_NAME = "title_nouns.json"

_CHUNK = 1 << 20
_MAX_RECORD = 1 << 24


@dataclass(frozen=True)
class DataFiles:
    """The files of one data folder. ``human`` and ``nouns`` are optional."""

    products: Path
    attributes: Path
    human: Path | None
    nouns: Path | None

    def present(self) -> list[Path]:
        """The files that exist, in a fixed order."""
        return [path for path in (self.products, self.attributes, self.human, self.nouns) if path is not None]


def find_files(data_dir: Path | str) -> DataFiles:
    """Locate the catalogue, attribute, human-instruction and noun files of ``data_dir``.

    Of two catalogues the 1000-product one is taken, as in the original's defaults. Raises ``WebShopDataError`` naming what is missing.
    """
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise WebShopDataError(
            "this data folder does not exist", path=folder, hint="Point it at a folder with items_shuffle*.json and items_ins_v2*.json"
        )

    def first(names: tuple[str, ...]) -> Path | None:
        return next((folder / name for name in names if (folder / name).is_file()), None)

    products = first(PRODUCT_NAMES)
    if products is None:
        raise WebShopDataError(f"no catalogue here (looked for {', '.join(PRODUCT_NAMES)})", path=folder)
    small = products.name.endswith("_1000.json")
    attributes = first(ATTRIBUTE_NAMES if small else ATTRIBUTE_NAMES[::-1])
    if attributes is None:
        raise WebShopDataError(f"no attribute file here (looked for {', '.join(ATTRIBUTE_NAMES)})", path=folder)
    nouns = folder / NOUN_NAME
    return DataFiles(products, attributes, first(HUMAN_NAMES), nouns if nouns.is_file() else None)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object. Raises ``WebShopDataError`` for anything else."""
    try:
        with path.open(encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise WebShopDataError(
            f"not readable as JSON ({error})", path=path, hint="The file may be truncated: fetch or write it again"
        ) from error
    if not isinstance(value, dict):
        raise WebShopDataError(f"expected an object keyed by asin, found {type(value).__name__}", path=path)
    return value


def iter_records(path: Path) -> Iterator[tuple[int, Any]]:
    """``(index, record)`` for each element of a JSON array, without holding the file in memory.

    Raises ``WebShopDataError`` naming the record at which the file stops being such an array.
    """
    decoder = json.JSONDecoder()
    index = 0
    try:
        with path.open(encoding="utf-8") as file:
            buffer = file.read(_CHUNK).lstrip()
            if not buffer.startswith("["):
                raise WebShopDataError("expected a JSON array of products", path=path)
            buffer, ended, separated = buffer[1:], False, True
            while True:
                buffer = buffer.lstrip()
                if buffer[:1] == "]" and (not separated or not index):
                    return
                if not separated and buffer[:1] == ",":
                    buffer, separated = buffer[1:], True
                    continue
                problem = "the file ends before its closing bracket"
                if separated and buffer:
                    try:
                        record, end = decoder.raw_decode(buffer)
                        # a number at the end of what was read so far may go on
                        if ended or buffer[end : end + 2].strip():
                            yield index, record
                            buffer, index, separated = buffer[end:], index + 1, False
                            continue
                    except json.JSONDecodeError as error:
                        problem = f"not valid JSON ({error.msg})"
                if ended or len(buffer) > _MAX_RECORD or (buffer and not separated):
                    raise WebShopDataError(problem, path=path, record=index, hint="The file may be truncated: fetch or write it again")
                more = file.read(max(_CHUNK, len(buffer)))
                ended = not more
                buffer += more
    except (OSError, UnicodeDecodeError) as error:
        raise WebShopDataError(f"not readable ({error})", path=path, record=index) from error


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """One instruction written by a person, with what it asks for."""

    text: str
    attributes: list[str]
    options: list[str]


@dataclass(frozen=True, slots=True)
class Product:
    """A product as the shop shows it. ``pricing`` has one or two values (dollars); ``nouns`` is None where no list was given."""

    asin: str
    title: str
    description: str
    bullets: list[str]
    pricing: list[float]
    price_tag: str
    options: dict[str, list[str]]
    attributes: list[str]
    category: str
    query: str
    product_category: str
    instruction: str | None
    instruction_attributes: list[str]
    human: list[HumanInstruction]
    nouns: list[str] | None

    def index_text(self) -> str:
        """What the search engine indexes."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.title, self.description, self.bullets[0] if self.bullets else "", options)).lower()


def loads(asin: str, profile: Profile) -> bool:
    """Whether a record with this id is loaded at all."""
    return asin != "nan" and (len(asin) <= 10 or (profile == "fed" and asin.startswith("LK_")))


class _Record:
    """One raw record, with field access that names the record in its errors."""

    def __init__(self, raw: Any, path: Path, index: int) -> None:
        self.raw, self.path, self.index = raw, path, index
        self.asin = raw.get("asin") if isinstance(raw, dict) and isinstance(raw.get("asin"), str) else None

    def error(self, problem: str, hint: str = "") -> WebShopDataError:
        return WebShopDataError(problem, path=self.path, record=self.index, asin=self.asin, hint=hint)

    def text(self, field: str) -> str:
        if not isinstance(self.raw, dict):
            raise self.error(f"expected an object, found {type(self.raw).__name__}")
        if field not in self.raw:
            raise self.error(f"field {field!r} is missing")
        value = self.raw[field]
        if not isinstance(value, str):
            raise self.error(f"field {field!r} should be a text, found {type(value).__name__}")
        return value


def texts(value: Any) -> bool:
    """Whether ``value`` is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _pricing(record: _Record) -> tuple[list[float], str]:
    raw = record.raw.get("pricing")
    if not raw:
        return [100.0], "$100.0"
    if not isinstance(raw, str):
        raise record.error(f"field 'pricing' should be a text such as '$9.99$14.50', found {type(raw).__name__}")
    try:
        values = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in raw.split("$")[1:]]
    except InvalidOperation:
        raise record.error(f"field 'pricing' has a part that is no number: {raw!r}") from None
    if not values:
        raise record.error(f"field 'pricing' has no '$': {raw!r}", "Write it as '$9.99' or '$9.99$14.50', or leave it empty")
    if len(values) == 1:
        return values, f"${values[0]}"
    return values[:2], f"${values[0]} to ${values[1]}"


def _options(record: _Record) -> dict[str, list[str]]:
    raw = record.raw.get("customization_options", ...)
    if raw is ...:
        raise record.error("field 'customization_options' is missing")
    if not raw:
        return {}
    if not isinstance(raw, dict):
        raise record.error(f"field 'customization_options' should be an object or empty, found {type(raw).__name__}")
    options: dict[str, list[str]] = {}
    for name, contents in raw.items():
        if contents is None:
            continue
        if not isinstance(contents, list) or not all(isinstance(item, dict) and isinstance(item.get("value"), str) for item in contents):
            raise record.error(f"option {name!r} should be a list of objects with a text 'value'")
        options[name.lower()] = [item["value"].strip().replace("/", " | ").lower() for item in contents]
    return options


def parse_human(path: Path, asin: str, raw: Any) -> list[HumanInstruction]:
    """The human instructions of one product."""
    out = []
    for item in raw if isinstance(raw, list) else [None]:
        if not isinstance(item, dict) or not isinstance(item.get("instruction"), str):
            raise WebShopDataError("expected a list of objects with a text 'instruction'", path=path, asin=asin)
        attributes, options = item.get("instruction_attributes"), item.get("instruction_options")
        if not texts(attributes) or not texts(options):
            raise WebShopDataError("'instruction_attributes' and 'instruction_options' should be lists of texts", path=path, asin=asin)
        assert isinstance(attributes, list)
        assert isinstance(options, list)
        out.append(HumanInstruction(item["instruction"], attributes, options))
    return out


def _attributes(files: DataFiles, asin: str, entry: Any) -> tuple[list[str], str | None, list[str]]:
    if entry is None:
        return ["DUMMY_ATTR"], None, []
    if not isinstance(entry, dict):
        raise WebShopDataError(f"expected an object, found {type(entry).__name__}", path=files.attributes, asin=asin)
    attributes, instruction, wanted = entry.get("attributes", ["DUMMY_ATTR"]), entry.get("instruction"), entry.get("instruction_attributes")
    if not texts(attributes):
        raise WebShopDataError("'attributes' should be a list of texts", path=files.attributes, asin=asin)
    if instruction is None:
        return attributes, None, []
    if not isinstance(instruction, str) or not texts(wanted) or not wanted:
        raise WebShopDataError(
            "an 'instruction' needs to be a text with a non-empty list 'instruction_attributes'", path=files.attributes, asin=asin
        )
    return attributes, instruction, wanted


def parse_product(
    raw: Any, index: int, files: DataFiles, attributes: Mapping[str, Any], human: Mapping[str, Any], nouns: Mapping[str, Any]
) -> Product:
    """One raw record as a product. Raises ``WebShopDataError`` naming file, record and field."""
    record = _Record(raw, files.products, index)
    asin = record.text("asin")
    title = record.text("name")
    pricing, price_tag = _pricing(record)
    bullets = record.raw.get("small_description", ...)
    bullets = [bullets] if isinstance(bullets, str) else bullets
    if bullets is ... or not texts(bullets):
        raise record.error("field 'small_description' should be a text or a list of texts")
    images = record.raw.get("images")
    if not isinstance(images, list) or not images:
        raise record.error("field 'images' should be a list with at least one entry")
    own, instruction, wanted = _attributes(files, asin, attributes.get(asin))
    found = nouns.get(asin)
    if found is not None and not texts(found):
        raise WebShopDataError("expected a list of texts", path=files.nouns, asin=asin)
    return Product(
        asin=asin,
        title=title,
        description=record.text("full_description"),
        bullets=bullets,
        pricing=pricing,
        price_tag=price_tag,
        options=_options(record),
        attributes=own,
        category=record.text("category"),
        query=record.text("query").lower().strip(),
        product_category=record.text("product_category"),
        instruction=instruction,
        instruction_attributes=wanted,
        human=parse_human(files.human, asin, human[asin]) if files.human is not None and asin in human else [],
        nouns=found,
    )
