"""The catalogue of one data folder: products and search index, built once per machine and shared read-only by every process.

The first process that needs a catalogue writes it into a cache folder as flat files, all others memory-map it. The cache key is a hash of
the contents of the input files and of everything that changes how they are read. Knows nothing of goals, sessions or pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from envs.webshop.errors import WebShopDataError
from envs.webshop.records import DataFiles, HumanInstruction, Product, Profile, find_files, iter_records, loads, parse_product, read_object
from envs.webshop.search import BM25, Blend, IndexBuilder

FORMAT = "webshop-1"
_HOT_PRODUCTS = 4096
_INDEX_ARRAYS = ("words", "word_ends", "starts", "documents", "frequencies", "lengths", "statistics")
_OWN_ARRAYS = (
    "ends",
    "asins",
    "rank_position",
    "price_low",
    "price_high",
    "category",
    "query",
    "combinations",
    "wanted_weight",
    "human_position",
    "human_index",
)


def cache_root(cache_dir: Path | str | None = None) -> Path:
    """Where catalogues are kept: ``cache_dir``, else ``$FEDAGENT_CACHE``, else ``~/.cache/fedagent``, else a temporary folder."""
    root = Path(cache_dir or os.environ.get("FEDAGENT_CACHE") or "~/.cache/fedagent").expanduser() / "webshop"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    root = Path(tempfile.gettempdir()) / f"fedagent-{os.getuid()}" / "webshop"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _content_hash(path: Path, root: Path) -> str:
    """SHA-256 of a file, remembered by path, size and time of change, so that a large catalogue is not read at every start."""
    stat = path.stat()
    label = hashlib.sha256(f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}".encode()).hexdigest()[:32]
    note = root / "hashes" / label
    with contextlib.suppress(OSError):
        return note.read_text()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    with contextlib.suppress(OSError):
        note.parent.mkdir(exist_ok=True)
        aside = note.with_name(f"{label}.{os.getpid()}")
        aside.write_text(digest.hexdigest())
        aside.replace(note)
    return digest.hexdigest()


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Let one process at a time through; where files cannot be locked everybody passes, and the rename at the end decides."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(stack.enter_context(lock.open("w")), fcntl.LOCK_EX)
        yield


def _place(aside: Path, folder: Path) -> None:
    """Rename a finished catalogue into place, unless another process has put one there meanwhile."""
    with contextlib.suppress(OSError):
        aside.replace(folder)
    if not (folder / "meta.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        aside.replace(folder)


def _write(path: Path, value: npt.NDArray[Any]) -> None:
    np.save(path, np.ascontiguousarray(value), allow_pickle=False)


def _read_arrays(folder: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    return {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)) for name in names}


def _code(names: dict[str, int], name: str) -> int:
    return names.setdefault(name, len(names))


def _encode(product: Product) -> bytes:
    row = [getattr(product, name) for name in Product.__slots__ if name != "human"]
    return json.dumps([*row, [[item.text, item.attributes, item.options] for item in product.human]], separators=(",", ":")).encode()


def _decode(blob: bytes) -> Product:
    *row, human = json.loads(blob)
    fields = dict(zip((name for name in Product.__slots__ if name != "human"), row, strict=True))
    return Product(human=[HumanInstruction(*item) for item in human], **fields)


def _build(files: DataFiles, profile: Profile, num_products: int | None, target: Path) -> None:
    """Read the data files and write the catalogue into the folder ``target``."""
    attributes = read_object(files.attributes)
    human = read_object(files.human) if files.human else {}
    nouns = read_object(files.nouns) if files.nouns else {}
    index = IndexBuilder()
    asins: dict[str, int] = {}
    categories: dict[str, int] = {}
    queries: dict[str, int] = {}
    counts: dict[str, int] = {}
    ends, category, query = array("q"), array("i"), array("i")
    low, high = array("d"), array("d")
    combinations, human_position, human_index = array("q"), array("i"), array("i")
    wanted: list[list[str]] = []
    missing: list[str] = []
    end = 0
    with (target / "products.bin").open("wb") as blob:
        for number, raw in iter_records(files.products):
            if num_products is not None and number >= num_products:
                break
            if isinstance(raw, dict) and isinstance(raw.get("asin"), str) and (raw["asin"] in asins or not loads(raw["asin"], profile)):
                continue
            product = parse_product(raw, number, files, attributes, human, nouns)
            position = asins.setdefault(product.asin, len(asins))
            if product.asin not in attributes and not missing:
                missing.append(product.asin)
            end += blob.write(_encode(product))
            ends.append(end)
            index.add(product.index_text())
            low.append(product.pricing[0])
            high.append(product.pricing[-1] if len(product.pricing) == 2 else float("nan"))
            category.append(_code(categories, product.category))
            query.append(_code(queries, product.query))
            goals = 1
            for values in product.options.values():
                goals *= len(values)
            combinations.append(-1 if product.instruction is None else goals)
            wanted.append(product.instruction_attributes)
            if product.instruction is not None:
                for attribute in product.instruction_attributes:
                    counts[attribute] = counts.get(attribute, 0) + goals
            for place, item in enumerate(product.human):
                if item.attributes:
                    human_position.append(position)
                    human_index.append(place)
    if not asins:
        raise WebShopDataError("the catalogue holds no product", path=files.products)
    names = np.array([asin.encode("utf-8", "surrogatepass") for asin in asins])
    order = np.argsort(names, kind="stable")
    rank = np.empty(len(names), dtype=np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    weight = [sum(1.0 / counts[name] for name in row) / len(row) if row and counts[row[0]] else 0.0 for row in wanted]
    own: dict[str, npt.NDArray[Any]] = {
        "ends": np.asarray(ends),
        "asins": names[order],
        "rank_position": order.astype(np.int32),
        "price_low": np.asarray(low),
        "price_high": np.asarray(high),
        "category": np.asarray(category),
        "query": np.asarray(query),
        "combinations": np.asarray(combinations),
        "wanted_weight": np.asarray(weight, dtype=np.float64),
        "human_position": np.asarray(human_position),
        "human_index": np.asarray(human_index),
    }
    for name, value in {**own, **index.arrays(rank)}.items():
        _write(target / f"{name}.npy", value)
    meta = {"format": FORMAT, "products": len(asins), "bytes": end, "categories": list(categories), "queries": list(queries)}
    (target / "meta.json").write_text(json.dumps({**meta, "without_attributes": missing}))


class Catalogue:
    """Products in file order, with a search index over them. Positions count loaded products from 0."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / "meta.json").read_text())
        self.folder = folder
        self.categories: list[str] = meta["categories"]
        self.queries: list[str] = meta["queries"]
        self.without_attributes: str | None = next(iter(meta["without_attributes"]), None)
        self._blob = np.asarray(np.memmap(folder / "products.bin", dtype=np.uint8, mode="r"))
        arrays = _read_arrays(folder, (*_OWN_ARRAYS, *_INDEX_ARRAYS))
        self._ends, self._asins, self._rank_position = (arrays[name] for name in ("ends", "asins", "rank_position"))
        self.price_low, self.price_high = arrays["price_low"], arrays["price_high"]
        self._category, self._query = arrays["category"], arrays["query"]
        self.combinations, self.wanted_weight = arrays["combinations"], arrays["wanted_weight"]
        self.human_position, self.human_index = arrays["human_position"], arrays["human_index"]
        self.engine = BM25({name: arrays[name] for name in _INDEX_ARRAYS})
        self._hot: OrderedDict[int, Product] = OrderedDict()
        self._id_rank: npt.NDArray[np.int32] | None = None

    @classmethod
    def open(
        cls, data_dir: Path | str, profile: Profile = "fed", num_products: int | None = None, cache_dir: Path | str | None = None
    ) -> Catalogue:
        """The catalogue of a data folder, from the cache or built into it. Raises ``WebShopDataError`` for data that cannot be read."""
        files = find_files(data_dir)
        root = cache_root(cache_dir)
        contents = [f"{path.name}:{_content_hash(path, root)}" for path in files.present()]
        label = "|".join([FORMAT, regex.__version__, profile, str(num_products), *contents])
        folder = root / hashlib.sha256(label.encode()).hexdigest()[:32]
        if not (folder / "meta.json").is_file():
            with _only_one(root / f"{folder.name}.lock"):
                if not (folder / "meta.json").is_file():
                    aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=root))
                    try:
                        _build(files, profile, num_products, aside)
                        _place(aside, folder)
                    finally:
                        shutil.rmtree(aside, ignore_errors=True)
        return cls(folder)

    def __len__(self) -> int:
        return len(self._ends)

    def product(self, position: int) -> Product:
        """The product at ``position``; the most recently used ones are kept decoded."""
        found = self._hot.get(position)
        if found is None:
            start = int(self._ends[position - 1]) if position else 0
            found = self._hot[position] = _decode(self._blob[start : int(self._ends[position])].tobytes())
            if len(self._hot) > _HOT_PRODUCTS:
                self._hot.popitem(last=False)
        else:
            self._hot.move_to_end(position)
        return found

    def position(self, asin: str) -> int:
        """The position of ``asin``. Raises ``KeyError`` when it is not in the catalogue."""
        wanted = asin.encode("utf-8", "surrogatepass")
        place = int(np.searchsorted(self._asins, np.array(wanted))) if wanted else len(self)
        if place == len(self) or self._asins[place] != wanted:
            raise KeyError(asin)
        return int(self._rank_position[place])

    def ranked(self, text: str, k: int, engine: BM25 | Blend | None = None, allowed: npt.NDArray[np.bool_] | None = None) -> list[int]:
        """Positions of the best ``k`` products for a free-text query, best first; by another ``engine`` over the same products, or of
        the ``allowed`` ones alone (a flag per product by ``id_rank``)."""
        return [int(self._rank_position[document]) for document, _ in (engine or self.engine).search(text, k, allowed)]

    def id_rank(self, position: int) -> int:
        """The place of the product at ``position`` in the order of ids, which numbers the documents of an index."""
        if self._id_rank is None:
            self._id_rank = np.empty(len(self), dtype=np.int32)
            self._id_rank[self._rank_position] = np.arange(len(self), dtype=np.int32)
        return int(self._id_rank[position])

    def asin(self, position: int) -> str:
        """The id of the product at ``position``, without decoding the product."""
        return bytes(self._asins[self.id_rank(position)]).decode("utf-8", "surrogatepass")

    def index(self, label: str, text_of: Callable[[Product], str]) -> BM25:
        """A search engine over other texts of the same products, memory-mapped like the catalogue's own and built on first use.

        ``label`` names the texts: it has to change whenever ``text_of`` does.
        """
        name = hashlib.sha256(f"{FORMAT}|{regex.__version__}|{label}".encode()).hexdigest()[:16]
        folder = self.folder.with_name(f"{self.folder.name}-{name}")
        if not (folder / "meta.json").is_file():
            with _only_one(folder.with_name(f"{folder.name}.lock")):
                if not (folder / "meta.json").is_file():
                    aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
                    try:
                        self._write_index(aside, label, text_of)
                        _place(aside, folder)
                    finally:
                        shutil.rmtree(aside, ignore_errors=True)
        return BM25(_read_arrays(folder, _INDEX_ARRAYS))

    def _write_index(self, target: Path, label: str, text_of: Callable[[Product], str]) -> None:
        builder = IndexBuilder()
        for position in range(len(self)):
            builder.add(text_of(self.product(position)))
        rank = np.empty(len(self), dtype=np.int32)
        rank[self._rank_position] = np.arange(len(self), dtype=np.int32)
        for name, value in builder.arrays(rank).items():
            _write(target / f"{name}.npy", value)
        (target / "meta.json").write_text(json.dumps({"format": FORMAT, "texts": label}))

    def in_category(self, name: str) -> list[int]:
        """Positions of the products of a category, in catalogue order."""
        return self._equal(self._category, self.categories, name)

    def with_query(self, name: str) -> list[int]:
        """Positions of the products that were found by this scrape query, in catalogue order."""
        return self._equal(self._query, self.queries, name)

    @staticmethod
    def _equal(codes: npt.NDArray[Any], names: list[str], name: str) -> list[int]:
        return [int(position) for position in np.flatnonzero(codes == names.index(name))] if name in names else []
