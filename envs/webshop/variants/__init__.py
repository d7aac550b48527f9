"""Perturbed forms of the shop, by stage: content (``split``, ``lookalike``), encoding and matching (``fields``), rendering (``ranks``) and
dynamics (``clicks``)."""

from __future__ import annotations

from envs.webshop.variants.build import Variants
from envs.webshop.variants.families import FAMILIES, hint
from envs.webshop.variants.view import VariantShop

__all__ = ["FAMILIES", "VariantShop", "Variants", "hint"]
