import os
import tempfile

import pytest

from euler_ir.cache import FOLDER_VARIABLE


def pytest_configure(config):
    """One cache a session, shared by the processes of `-n`: the user's own is neither read nor written."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="euler_ir_cache_")
        os.environ[FOLDER_VARIABLE] = folder.name
        config.add_cleanup(folder.cleanup)


@pytest.fixture(params=["reference", "cpu"])
def backend(request):
    """The name of each backend that every machine has."""
    return request.param
