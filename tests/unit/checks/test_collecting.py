"""While tests run the garbage collector is on, and what was collected is none of its business."""

import gc


def test_the_collector_is_on_again_and_leaves_out_what_was_collected() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
