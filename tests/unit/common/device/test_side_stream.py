"""Work beside a stream, where there is no second stream: in order, and without a GPU."""

import pytest
import torch

from services.target.device.verify import SideStream


@pytest.mark.parametrize(("device", "shared"), [("cpu", True), ("cpu", False), ("cuda", False)])
def test_work_runs_in_order_where_processes_do_not_share_a_gpu(
    device: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise AssertionError("a second stream")

    monkeypatch.setattr(torch.cuda, "Stream", refused)
    beside, done = SideStream(torch.device(device), shared), []
    with beside.start():
        done.append("beside")
    done.append("after")
    beside.join()
    assert done == ["beside", "after"]


def test_a_shared_gpu_has_a_second_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "Stream", made.append)
    SideStream(torch.device("cuda"), shared=True)
    assert made == [torch.device("cuda")]
