"""InferenceService: the gateway's own contract; protobuf at the edge."""

from collections.abc import Coroutine
from typing import Any

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.gateway.grpc import answers, listings, questions
from services.gateway.intake.inlet import Messages
from services.gateway.intake.query import Query, prompt_cost
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Context, Streams
from services.gateway.targets.status import StatusBoard
from services.gateway.tenancy.auth import ANYBODY, current_tenant


class InferenceService:
    """The clients' edge; see `add_service`."""

    def __init__(self, front: RequestFactory, streams: Streams, board: StatusBoard, default_max_tokens: int) -> None:
        """The default counts for requests that give no max_tokens."""
        self._front = front
        self._streams = streams
        self._board = board
        self._default_max_tokens = default_max_tokens

    def Generate(
        self, messages: Messages[inference_pb2.GenerateRequest], context: Context
    ) -> Coroutine[Any, Any, None]:
        """Generates text for one prompt and streams it."""

        async def ask() -> Query:
            return questions.query(await messages.only(), self._default_max_tokens)

        return self._streams.serve(ask, context, answers.messages)

    async def GenerateWhole(
        self, messages: Messages[inference_pb2.GenerateWholeRequest], context: Context
    ) -> inference_pb2.GenerateWholeResponse:
        """Generates text for one prompt and answers once, when it has ended."""

        async def ask() -> Query:
            return questions.query((await messages.only()).request, self._default_max_tokens)

        whole = answers.Whole(context)
        await self._streams.serve(ask, whole, answers.messages)
        return whole.message()

    async def GetModel(
        self, messages: Messages[inference_pb2.GetModelRequest], context: Context
    ) -> inference_pb2.GetModelResponse:
        """Describes a served model and every limit."""
        request = await messages.only()
        model = await self._front.model(request.model)
        return inference_pb2.GetModelResponse(model=listings.model_info(model, self._front.limits(current_tenant())))

    async def ListModels(
        self, messages: Messages[inference_pb2.ListModelsRequest], context: Context
    ) -> inference_pb2.ListModelsResponse:
        """Describes every served model, each with its limits."""
        await messages.only()
        return listings.served_models(await self._front.models(), self._front.limits(current_tenant()))

    async def Tokenize(
        self, messages: Messages[inference_pb2.TokenizeRequest], context: Context
    ) -> inference_pb2.TokenizeResponse:
        """Turns a prompt into token ids as Generate would, and counts as it does."""
        with self._streams.entrance.admitted() as ticket:
            request = await messages.only()
            prompt = questions.prompt(request.prompt)
            ticket.queue(prompt_cost(prompt))
            ids = await self._front.tokens(prompt, await self._front.model(request.model), current_tenant())
        return inference_pb2.TokenizeResponse(tokens=types_pb2.TokenIds(ids=ids))

    async def GetStatus(
        self, messages: Messages[inference_pb2.GetStatusRequest], context: Context
    ) -> inference_pb2.GetStatusResponse:
        """Tells how busy the pairs are; tenants learn totals only."""
        await messages.only()
        found = await self._board.look()
        details = current_tenant() is ANYBODY
        return listings.status(found, self._front.served, self._front.names, details)
