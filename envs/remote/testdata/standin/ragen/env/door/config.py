from dataclasses import dataclass
from typing import Dict, Optional


@dataclass
class DoorConfig:
    action_lookup: Optional[Dict[int, str]] = None
