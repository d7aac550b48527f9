"""Stage dynamics, families ``checkout``, ``navigation`` and ``selection``: the same pages, but a click does something else.

Owns which control works as which, and the value that a click on an option sets. Which products are affected is drawn by product. Knows
nothing of sessions or prices.
"""

from __future__ import annotations

from envs.webshop import pages
from envs.webshop.pages import Page
from envs.webshop.records import Product
from envs.webshop.variants.draws import affected
from envs.webshop.variants.families import CONTROLS

BUY, BACK, PREVIOUS, NEXT = (text.lower() for text in (pages.BUY, pages.BACK, pages.PREVIOUS, pages.NEXT))
TEXTS: dict[str, str] = {control: control.replace("_", " ") for control in CONTROLS}
"""Control -> its text on the page, in lower case."""
OTHERS = ("fee", "neutral")


class PlainClicks:
    """Every control does what it says. The other rules change what they name."""

    def __init__(self, severity: float = 1.0) -> None:
        self._severity = severity

    def landing(self, page: Page, clicked: str, asin: str | None) -> tuple[str, bool]:
        """As ``envs.webshop.env.Clicks``."""
        return clicked, False

    def chosen(self, product: Product, name: str, value: str) -> str:
        """As ``envs.webshop.env.Clicks``."""
        return value

    def to_land_on(self, page: Page, wanted: str, asin: str | None) -> str | None:
        """What to click on a page for it to work as ``wanted`` and without a fee; None where nothing does."""
        candidates = [wanted, *(target for target in page.targets if target != wanted)]
        return next(
            (target for target in candidates if target in page.targets and self.landing(page, target, asin) == (wanted, False)), None
        )

    def to_choose(self, product: Product, name: str, value: str) -> str | None:
        """What to click for option ``name`` to become ``value``; None where nothing does."""
        candidates = (value, *product.options[name])
        return next((click for click in candidates if self.chosen(product, name, click) == value), None)

    def _affected(self, asin: str | None) -> bool:
        return asin is not None and affected(self._severity, "clicks", asin)


class Checkout(PlainClicks):
    """On the pages of affected products ``control`` completes the purchase.

    The other controls of the four either complete it too, with a fee above every budget (``others = "fee"``), or do no harm
    (``"neutral"``: Buy Now is exchanged with ``control``).
    """

    def __init__(self, control: str, severity: float, others: str) -> None:
        super().__init__(severity)
        if others not in OTHERS:
            raise ValueError(f"option others = {others!r} of the checkout: choose one of {', '.join(OTHERS)}")
        self._buys, self._fee = TEXTS[control], others == "fee"

    def landing(self, page: Page, clicked: str, asin: str | None) -> tuple[str, bool]:
        """As ``envs.webshop.env.Clicks``."""
        if BUY not in page.targets or clicked not in TEXTS.values() or not self._affected(asin):
            return clicked, False
        if clicked == self._buys:
            return BUY, False
        if self._fee:
            return BUY, True
        return (self._buys if clicked == BUY else clicked), False


class Navigation(PlainClicks):
    """Two controls for moving about are exchanged: on result pages Next and Back to Search (``next_back``), or on the pages of products
    Prev and Back to Search (``prev_back``)."""

    def __init__(self, member: str, severity: float) -> None:
        super().__init__(severity)
        self._pair = {"next_back": (NEXT, BACK), "prev_back": (PREVIOUS, BACK)}.get(member)
        self._on_results = member == "next_back"

    def landing(self, page: Page, clicked: str, asin: str | None) -> tuple[str, bool]:
        """As ``envs.webshop.env.Clicks``."""
        if self._pair is None or clicked not in self._pair or (NEXT in page.targets) != self._on_results:
            return clicked, False
        rows = [target for target, what in page.targets.items() if what.kind is pages.Kind.LINK]
        place = (rows[0] if rows else "no rows") if self._on_results else asin
        if not self._affected(place):
            return clicked, False
        return self._pair[1 - self._pair.index(clicked)], False


class Selection(PlainClicks):
    """A click on an option value sets the ``next`` or ``previous`` value of that option, around the end."""

    def __init__(self, member: str, severity: float) -> None:
        super().__init__(severity)
        self._step = {"next": 1, "previous": -1}.get(member, 0)

    def chosen(self, product: Product, name: str, value: str) -> str:
        """As ``envs.webshop.env.Clicks``."""
        values = next((values for option, values in product.options.items() if option == name), [])
        if not self._step or value not in values or not self._affected(product.asin):
            return value
        return values[(values.index(value) + self._step) % len(values)]
