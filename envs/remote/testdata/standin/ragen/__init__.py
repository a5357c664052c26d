"""A package laid out like RAGEN's, with two environments in its manner."""

import os

if os.environ.get("WITHOUT_VERL"):
    import a_module_that_is_not_installed  # noqa: F401
