"""Seeded bugs of rounds of nodes: whose child a row is, what it sees, and what the accepted path leaves behind."""

from tests.mutants.mutation import Mutant

ACCEPT = "services.common.kernels.accept.reference"
PROCESSORS = "services.common.kernels.accept.processors"
READ = "services.common.kernels.nodes"
VERIFY = "services.target.device.verify"
WIDTH = "services.target.scheduling.width.node_acceptance"
COUNTS = "services.target.scheduling.width.acceptance"
CHOICE = "services.common.kernels.choose_nodes"
_KERNELS = "tests/kernels/test_nodes.py::"
_LOSSLESS = "tests/lossless/test_nodes.py::"
_ACCEPTANCE = "tests/unit/target/scheduling/test_node_acceptance.py::"
SWEEP = f"{_LOSSLESS}test_trees_say_nothing_else_than_plain_decoding"
TREES = f"{_KERNELS}test_a_thousand_random_trees_equal_plain_decoding"
BEST = "tests/unit/common/model/test_nodes.py::test_nodes_are_those_whose_paths_are_likeliest_and_come_in_that_order"

NODES = (
    Mutant(
        "a-node-follows-the-row-before-its-parent",
        READ,
        "ancestors.append(ancestors[parent] | 1 << row)",
        "ancestors.append(ancestors[max(parent - 1, 0)] | 1 << row)",
        SWEEP,
    ),
    Mutant(
        "a-node-sees-its-siblings",
        READ,
        "ancestors.append(ancestors[parent] | 1 << row)",
        "ancestors.append((2 << row) - 1)",
        SWEEP,
    ),
    Mutant(
        "the-next-row-is-kept-instead-of-the-accepted-one",
        READ,
        "for place_E in (path[row_E, depth_E], depth_E)",
        "for place_E in (path[row_E, depth_E] - 1, depth_E)",
        SWEEP,
    ),
    Mutant(
        "what-a-path-has-left-stays-in-node-order", VERIFY, "if self.result.path_BW is not None:", "if False:", SWEEP
    ),
    Mutant(
        "nodes-draw-with-the-noise-of-their-row",
        VERIFY,
        "index_BW = index_BW.gather(1, self._nodes.depths_BW)",
        "pass",
        SWEEP,
    ),
    Mutant(
        "a-node-without-a-place-is-accepted",
        READ,
        "drafts[~held_BK] = ABSENT",
        "pass",
        f"{_KERNELS}test_a_node_without_a_place_is_absent",
    ),
    Mutant(
        "a-parent-may-stand-behind-its-node",
        READ,
        "(parents > np.arange(count))",
        "(parents > count)",
        f"{_KERNELS}test_a_tree_whose_parent_stands_behind_its_node_has_no_drafts",
    ),
    Mutant(
        "the-walk-goes-to-any-child",
        READ,
        "if good and parent == path[-1]:",
        "if good:",
        TREES,
    ),
    Mutant(
        "penalties-count-the-rows-before",
        PROCESSORS,
        "counts_BWV[lines_B, parents_BK[:, row - 1]]",
        "counts_BWV[lines_B, row - 1]",
        TREES,
    ),
    Mutant(
        "masks-hold-for-a-tree-that-has-changed",
        ACCEPT,
        "right_BK[index, path] &=",
        "_ =",
        f"{_KERNELS}test_a_tree_that_changed_since_its_masks_were_made_is_not_accepted",
    ),
    Mutant(
        "a-small-tree-is-credited-with-what-a-larger-one-accepted",
        COUNTS,
        "self.matched[row - 1] += units[bisect_left(sizes, row)]",
        "self.matched[0] += units[bisect_left(sizes, row)]",
        f"{_ACCEPTANCE}test_a_round_tells_what_every_smaller_tree_would_have_accepted",
    ),
    Mutant(
        "trees-of-any-request-are-worth-the-same",
        WIDTH,
        "chance = (scale * theirs + before",
        "chance = (theirs + before",
        f"{_ACCEPTANCE}test_what_chains_accept_now_scales_what_trees_accepted",
    ),
    Mutant(
        "a-tree-is-priced-as-a-chain",
        "services.target.core.width",
        "return isinstance(other, Tree) and int(self) == int(other)",
        "return int(self) == other",
        "tests/unit/target/scheduling/test_trees_priced.py::test_trees_that_do_not_pay_cost_nothing",
    ),
    Mutant("a-child-scores-without-its-path", CHOICE, "first = score - values", "first = -values", BEST),
)
