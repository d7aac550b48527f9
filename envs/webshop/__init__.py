"""WebShop: search a product catalogue, choose, configure and buy what an instruction asks for. Pure Python and numpy, no Java."""

from __future__ import annotations

from envs.webshop.env import ShopEnv
from envs.webshop.errors import WebShopDataError
from envs.webshop.shop import WebShop

__all__ = ["ShopEnv", "WebShop", "WebShopDataError"]
