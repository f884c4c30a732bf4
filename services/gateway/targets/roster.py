"""Which targets take work, by model: kept by events, each at the same cost however many targets there are."""

from collections.abc import Collection, Mapping

from services.gateway.routing.crowd import Candidate, Crowd, Fleet
from services.gateway.targets.link import Link
from services.gateway.targets.messages import Model

NOBODY = Fleet()


class Roster:
    """Candidates and the links that lead to them. Of two links to one pair the first leads."""

    def __init__(self, own: str) -> None:
        """Starts empty; ids of pairs beside this gateway begin with `own`."""
        self._own = own
        self._fleets: dict[str, Fleet] = {}
        self._seen: dict[Link, Candidate] = {}
        self._leading: dict[str, list[Link]] = {}
        self._heard: dict[Link, tuple[str, str]] = {}
        self._hearing: dict[tuple[str, str], list[Link]] = {}
        self._answering: dict[str, Crowd[Link]] = {}
        self.counting: Crowd[Link] = Crowd()
        self._models: dict[str, Model] = {}
        self._served = ""

    @property
    def ready(self) -> int:
        """Pairs that take work."""
        return len(self._leading)

    @property
    def present(self) -> Collection[str]:
        """Models that some target of takes work."""
        return self._fleets.keys()

    @property
    def served(self) -> str:
        """Name of a model that is served; it stays while a target of it takes work, and where none takes any."""
        if self._served not in self._fleets:
            self._served = next(iter(self._fleets), self._served)
        return self._served

    @property
    def models(self) -> Mapping[str, Model]:
        """Models by name, as one of their targets describes it now, or did last."""
        for name, fleet in self._fleets.items():
            described = self.leading(fleet.all.members[0].pair_id).model
            if described is not None:
                self._models[name] = described
        return self._models

    def fleet(self, model: str) -> Fleet:
        """Candidates of a model."""
        return self._fleets.get(model, NOBODY)

    def leading(self, pair_id: str) -> Link:
        """The link to a candidate's pair."""
        return self._leading[pair_id][0]

    def answering(self, model: str) -> Crowd[Link]:
        """Links with a session with a target of a model, also those that drain or have left the list."""
        return self._answering.get(model, Crowd())

    def look(self, link: Link) -> str | None:
        """Takes in what became of a link; the model whose candidates that changed."""
        self._listen(link)
        now, before = link.candidate(), self._seen.get(link)
        if now is before:
            return None
        if before is not None:
            self._drop(link, before)
        if now is not None:
            self._add(link, now)
        for pair_id in {one.pair_id for one in (before, now) if one is not None}:
            self._count(pair_id)
        return now.model if now is not None else before.model if before is not None else None

    def _add(self, link: Link, candidate: Candidate) -> None:
        self._seen[link] = candidate
        links = self._leading.setdefault(candidate.pair_id, [])
        links.append(link)
        if links[0] is link:
            self._fleets.setdefault(candidate.model, Fleet(own=self._own)).add(candidate)

    def _drop(self, link: Link, candidate: Candidate) -> None:
        del self._seen[link]
        links = self._leading[candidate.pair_id]
        led = links[0] is link
        links.remove(link)
        if led:
            fleet = self._fleets[candidate.model]
            fleet.discard(candidate)
            if not fleet.all:
                del self._fleets[candidate.model]
        if not links:
            del self._leading[candidate.pair_id]
        elif led:
            following = self._seen[links[0]]
            self._fleets.setdefault(following.model, Fleet(own=self._own)).add(following)

    def _count(self, pair_id: str) -> None:
        """Keeps the links to targets that count tenants, each by the pair that it leads to."""
        leading = self._leading.get(pair_id)
        if leading and leading[0].counts:
            self.counting.add(leading[0])
        else:
            self.counting.discard(pair_id)

    def _listen(self, link: Link) -> None:
        """Keeps the links that can be asked, by the id and the model that their session stated."""
        now = (link.model.name, link.pair_id) if link.model is not None else None
        before = self._heard.get(link)
        if now == before:
            return
        if before is not None:
            del self._heard[link]
            self._hearing[before].remove(link)
            self._hear(*before)
        if now is not None:
            self._heard[link] = now
            self._hearing.setdefault(now, []).append(link)
            self._hear(*now)

    def _hear(self, model: str, pair_id: str) -> None:
        """Keeps one of the links to a pair."""
        crowd, links = self._answering.setdefault(model, Crowd()), self._hearing[model, pair_id]
        crowd.discard(pair_id)
        there = next((one for one in links if one.pair_id == pair_id), None)  # not one that was lost a moment ago
        if there is not None:
            crowd.add(there)
        if not links:
            del self._hearing[model, pair_id]
