from .door.config import DoorConfig
from .door.env import DoorEnv
from .shop.config import ShopEnvConfig
from .shop.env import ShopEnv

REGISTERED_ENVS = {"shop": ShopEnv, "door": DoorEnv}
REGISTERED_ENV_CONFIGS = {"shop": ShopEnvConfig, "door": DoorConfig}
