from .config import ShopEnvConfig


class ShopEnv:
    """Takes any text, as WebShop does."""

    def __init__(self, config=None):
        self.config = config or ShopEnvConfig()

    def reset(self, seed=None, mode="train", **kwargs):
        self.wanted, self.told = self.config.goods[seed % len(self.config.goods)], f"{mode}: Find {{}}."
        self.told = self.told.format(self.wanted)
        return None  # the manager asks render()

    def step(self, action):
        bought = action == f"click[{self.wanted}]"
        self.told = "\x1b[32mbought\x1b[0m" if bought else f"no {action}"
        valid = action.startswith(("click[", "search["))
        return None, self.config.price * bought, bought, {
            "success": bought, "action_is_valid": valid, "action_is_effective": bought, "end_of_page": 0, "query": action}

    def render(self, mode=None):
        return self.told

    def close(self):
        pass
