import pytest

from tests.train.data import TinyData, make_data


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> TinyData:
    return make_data(tmp_path_factory.mktemp("tiny_data"))
