"""Routing is a pure function of candidates, prompts and a random generator."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from services.gateway.routing.crowd import HOMES, Candidate, Crowd
from services.gateway.routing.router import (
    PREFIX_BLOCK,
    PrefixMemory,
    Router,
    prefix_digests,
    score,
)


def homes(key: bytes, candidates: list[Candidate], count: int = HOMES) -> list[Candidate]:
    return Crowd(candidates).homes(key, count)


def router(seed: int = 1) -> Router:
    return Router(random.Random(seed))


def test_no_candidate_is_no_choice() -> None:
    assert router().choose([], ()) is None


def test_of_two_the_less_loaded_is_chosen() -> None:
    busy, idle = Candidate("a", running=8, slots=8), Candidate("b", running=1, slots=8)
    assert all(router(seed).choose([busy, idle], ()) is idle for seed in range(20))


def test_power_of_two_choices_spreads_and_spares_the_fullest() -> None:
    candidates = [Candidate(f"p{load}", running=load, slots=8) for load in range(4)]
    one = router()
    picks = Counter(one.choose(candidates, ()).pair_id for _ in range(4000))  # type: ignore[union-attr]
    assert picks["p3"] == 0
    assert picks["p0"] > picks["p1"] > picks["p2"] > 0


def test_requests_sent_since_the_last_report_count_as_load() -> None:
    fresh, sent = Candidate("a", slots=8), Candidate("b", slots=8, dispatched=3)
    assert score(fresh) < score(sent)


def test_a_target_that_decodes_plainly_counts_as_fuller() -> None:
    plain, fast = Candidate("a", slots=8, speculating=False), Candidate("b", running=2, slots=8)
    assert router().choose([plain, fast], ()) is fast


def test_output_goes_on_with_equal_numerics_however_full_they_are() -> None:
    equal = Candidate("equal", running=9, slots=8, numerics="x")
    candidates = [Candidate("other", slots=8, numerics="y"), equal, Candidate("third", slots=8, numerics="z")]
    digests = prefix_digests(range(PREFIX_BLOCK), b"")
    for key in ("", "key"):
        assert all(router(seed).choose(candidates, digests, key, numerics="x") is equal for seed in range(20))


def test_without_equal_numerics_output_goes_on_all_the_same() -> None:
    other = Candidate("other", slots=8, numerics="y")
    failed = Candidate("failed", slots=8, numerics="x")
    assert router().choose([other], (), numerics="x") is other
    assert router().choose([other, failed], (), avoid={"failed"}, numerics="x") is other
    assert router().choose([failed], (), avoid={"failed"}, numerics="x") is failed


def test_a_prompt_returns_to_the_target_that_holds_its_beginning() -> None:
    candidates = [Candidate(f"p{index}", slots=8) for index in range(8)]
    one, digests = router(), prefix_digests(range(PREFIX_BLOCK * 4), b"")
    first = one.choose(candidates, digests)
    assert all(one.choose(candidates, digests) is first for _ in range(50))


def test_affinity_is_bounded_by_load() -> None:
    one, digests = router(), prefix_digests(range(PREFIX_BLOCK * 4), b"")
    first = one.choose([Candidate("a", slots=8)], digests)
    assert first is not None
    full = Candidate("a", running=8, waiting=4, slots=8)
    idle = Candidate("b", slots=8)
    assert one.choose([full, idle], digests) is idle


def test_tenants_do_not_share_prefixes() -> None:
    tokens = range(PREFIX_BLOCK * 2)
    assert not set(prefix_digests(tokens, b"one")) & set(prefix_digests(tokens, b"two"))


def test_prompts_share_the_digests_of_what_they_share() -> None:
    one = prefix_digests([1] * PREFIX_BLOCK + [2] * PREFIX_BLOCK, b"")
    two = prefix_digests([1] * PREFIX_BLOCK + [3] * PREFIX_BLOCK, b"")
    assert one[0] == two[0]
    assert one[1] != two[1]
    assert prefix_digests([1] * (PREFIX_BLOCK - 1), b"") == ()


def test_the_memory_of_prefixes_is_bounded_and_forgets_the_oldest() -> None:
    memory = PrefixMemory(3)
    for index in range(5):
        memory.note([bytes([index])], f"p{index}")
    assert len(memory) == 3
    assert memory.find([b"\x00"]) is None
    assert memory.find([b"\x04"]) == ("p4", 1.0)


def test_equal_keys_meet_and_keep_their_target_when_others_come_and_go() -> None:
    candidates = [Candidate(f"p{index}") for index in range(6)]
    met: Counter[str] = Counter()
    for number in range(600):
        key = f"tenant\0{number}"
        (chosen,) = homes(key.encode(), candidates, 1)
        met[chosen.pair_id] += 1
        shuffled = random.Random(number).sample(candidates, 6)
        assert router(number).choose(shuffled, (), key) == chosen
        without_another = [one for one in candidates if one is chosen or one.pair_id != f"p{number % 6}"]
        assert homes(key.encode(), without_another, 1) == [chosen]
    assert max(met.values()) < 1.5 * min(met.values()), "keys spread evenly"


def test_a_key_that_moved_is_found_among_the_pairs_that_are_asked() -> None:
    """Two pairs that come, or two that go, move a key by two places at most."""
    before = [Candidate(f"p{index}") for index in range(40)]
    after = [Candidate(f"new{index}") for index in range(2)] + before
    for number in range(500):
        (held,) = homes(str(number).encode(), before, 1)
        assert held in homes(str(number).encode(), after)


def test_a_chat_finds_its_pair_through_another_gateway_and_after_a_restart() -> None:
    candidates = [Candidate(f"p{index}", slots=8) for index in range(100)]
    for chat in range(50):
        turns = [prefix_digests([chat] * PREFIX_BLOCK * (1 + turn), b"tenant") for turn in range(3)]
        chosen = {one.pair_id for seed, turn in enumerate(turns) if (one := router(seed).choose(candidates, turn))}
        assert len(chosen) == 1


def test_a_home_that_is_full_is_passed_over_for_the_next_one_that_all_agree_on() -> None:
    candidates = [Candidate(f"p{index}", slots=8) for index in range(20)]
    digests = prefix_digests([7] * PREFIX_BLOCK, b"")
    first, second, _ = homes(digests[0], candidates)
    first.running = 16
    assert {router(seed).choose(candidates, digests).pair_id for seed in range(9)} == {second.pair_id}  # type: ignore[union-attr]


def test_revisions_share_new_chats_by_weight_and_chats_keep_theirs() -> None:
    candidates = [Candidate(f"p{index}", revision="old1" if index % 2 else "new2") for index in range(10)]
    candidates += [Candidate("third", revision="unnamed")]
    weights = {"new": 10.0, "old": 90.0}
    shares: Counter[str] = Counter()
    for chat in range(2000):
        turns = [prefix_digests([chat] * PREFIX_BLOCK * turn, b"") for turn in (1, 2)]
        chosen = [Router(random.Random(seed), weights).choose(candidates, turn) for seed, turn in enumerate(turns)]
        revisions = {one.revision for one in chosen if one is not None}
        assert len(revisions) == 1
        shares[revisions.pop()] += 1
    assert abs(shares["new2"] / 2000 - 0.1) < 0.03
    assert set(shares) == {"old1", "new2"}


def canaries(asked: Iterable[tuple[Sequence[bytes], bytes]]) -> float:
    """The share of a canary of a tenth."""
    candidates = [Candidate(f"p{index}", revision="old1" if index % 2 else "new2") for index in range(10)]
    one = Router(random.Random(5), {"new": 10.0, "old": 90.0})
    found = [one.choose(candidates, digests, opening=opening) for digests, opening in asked]
    return sum(chosen is not None and chosen.revision == "new2" for chosen in found) / len(found)


def test_a_canary_has_its_share_of_chats_that_all_begin_with_one_system_prompt() -> None:
    system = [9] * PREFIX_BLOCK * 3
    tokens = [prefix_digests([*system, *[chat] * PREFIX_BLOCK], b"") for chat in range(1000)]
    assert abs(canaries((each, b"") for each in tokens) - 0.1) < 0.03
    short = prefix_digests(system, b"")
    assert abs(canaries((short, chat.to_bytes(8, "little")) for chat in range(1000)) - 0.1) < 0.03


def test_a_canary_has_its_share_of_few_requests_that_are_no_chat() -> None:
    assert abs(canaries(((), b"") for _ in range(64)) - 0.1) < 0.03


def test_short_prompts_are_spread_over_revisions_too_and_a_lone_revision_takes_all() -> None:
    candidates = [Candidate("a", revision="old"), Candidate("b", revision="new")]
    one = Router(random.Random(3), {"old": 1.0, "new": 1.0})
    picks = Counter(one.choose(candidates, ()).pair_id for _ in range(1000))  # type: ignore[union-attr]
    assert 400 < picks["a"] < 600
    assert Router(random.Random(1), {"old": 1.0}).choose(candidates[1:], ()) is candidates[1]


def test_a_pair_to_avoid_is_taken_only_when_alone() -> None:
    candidates = [Candidate("a"), Candidate("b", running=1)]
    one = router()
    assert all(one.choose(candidates, (), avoid={"a"}) is candidates[1] for _ in range(20))
    assert one.choose(candidates[:1], (), avoid={"a"}) is candidates[0]


def test_pairs_of_its_own_come_first_and_others_when_there_are_none() -> None:
    candidates = [
        Candidate("a-0", running=60, slots=64),
        Candidate("a-1", running=60, slots=64),
        Candidate("b-0"),
        Candidate("b-1"),
    ]
    one = Router(random.Random(5), own="a-")
    picks = Counter(one.choose(candidates, ()).pair_id for _ in range(100))  # type: ignore[union-attr]
    assert set(picks) == {"a-0", "a-1"}
    assert one.choose(candidates, (), avoid={"a-0", "a-1"}) in candidates[2:], "what failed a request is no home to it"
    assert one.choose(candidates[2:], ()) in candidates[2:]


def test_a_key_meets_its_pair_wherever_it_is() -> None:
    candidates = [Candidate(f"{host}-{index}") for host in "abc" for index in range(2)]
    for key in ("one", "two", "three", "four"):
        met = {
            Router(random.Random(seed), own=own).choose(candidates, (), key).pair_id  # type: ignore[union-attr]
            for seed, own in enumerate(("", "a-", "b-", "c-"))
        }
        assert len(met) == 1
