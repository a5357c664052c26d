class DoorEnv:
    """Names its actions when it is reset, as RAGEN's bandit does."""

    def __init__(self, config):
        self.config = config

    def reset(self, seed=None):
        self.config.action_lookup = {1: "Red", 2: "Blue"} if seed % 2 else {1: "Blue", 2: "Red"}

    def step(self, action):
        assert action in self.config.action_lookup
        return "", float(action == 2), True, {"success": action == 2}

    def render(self):
        return "Two doors."

    def close(self):
        pass
