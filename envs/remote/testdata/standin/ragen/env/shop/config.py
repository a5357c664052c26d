from dataclasses import dataclass, field
from typing import List


@dataclass
class ShopEnvConfig:
    goods: List[str] = field(default_factory=lambda: ["nothing"])
    price: float = 1.0
