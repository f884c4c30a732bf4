"""GET /v1/models and /v1/models/{model}: what is served."""

import time

from services.gateway.http.schema.replies import ModelList, ModelReply
from services.gateway.http.server.exchange import Exchange, encoded
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.targets.messages import Model
from services.gateway.tenancy.auth import current_tenant

PREFIX = "/v1/models/"


class Models:
    """All models, as a list or one by one of its names."""

    def __init__(self, front: RequestFactory) -> None:
        """Models are told to have been made when the gateway began."""
        self._front = front
        self._created = int(time.time())

    async def list(self, exchange: Exchange) -> None:
        """All names of the models that targets have told of.

        Raises:
            PacelineError: NO_TARGET, no target has told yet what it serves.
        """
        told = await self._front.models()
        named = [(model, name) for model, aliases in told for name in dict.fromkeys((model.name, *aliases))]
        reply: ModelList = {"object": "list", "data": [self._described(*one) for one in named]}
        await exchange.reply(encoded(reply))

    async def retrieve(self, exchange: Exchange) -> None:
        """The model that the path names.

        Raises:
            PacelineError: UNKNOWN_MODEL or NO_TARGET.
        """
        name = exchange.path.removeprefix(PREFIX)
        await exchange.reply(encoded(self._described(await self._front.model(name), name)))

    def _described(self, model: Model, name: str) -> ModelReply:
        return {
            "id": name,
            "root": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "paceline",
            "max_model_len": model.context_limit,
            "paceline": {
                "revision": model.revision,
                "dtype": model.dtype,
                "proposer": model.proposer,
                "max_draft": model.max_draft,
                "vocab_size": model.vocab_size,
                "limits": self._front.limits(current_tenant()),
            },
        }
