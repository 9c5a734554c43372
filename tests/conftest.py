import pytest


@pytest.fixture(params=["reference", "cpu"])
def backend(request):
    """The name of each backend that every machine has."""
    return request.param
