import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def runtime_folder(tmp_path_factory):
    """A place for the runtime files of the labs of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path_factory.mktemp("rt")))
        yield
