"""InferenceService: the gateway's own contract; protobuf at the edge."""

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2
from services.gateway import convert
from services.gateway.front import Front
from services.gateway.streams import Context, Streams


class InferenceService(inference_pb2_grpc.InferenceServiceServicer):
    """The clients' edge."""

    def __init__(self, front: Front, streams: Streams, default_max_tokens: int) -> None:
        """The default counts for requests that give no max_tokens."""
        self._front = front
        self._streams = streams
        self._default_max_tokens = default_max_tokens

    async def Generate(self, request: inference_pb2.GenerateRequest, context: Context) -> None:  # type: ignore[override]
        """Generates text for one prompt and streams it."""
        await self._streams.serve(lambda: convert.query(request, self._default_max_tokens), context, convert.messages)

    async def GetModel(
        self, request: inference_pb2.GetModelRequest, context: Context
    ) -> inference_pb2.GetModelResponse:
        """Describes the served model and every limit."""
        model = await self._front.model(request.model)
        return inference_pb2.GetModelResponse(model=convert.model_info(model, self._front.limits()))

    async def Tokenize(
        self, request: inference_pb2.TokenizeRequest, context: Context
    ) -> inference_pb2.TokenizeResponse:
        """Turns a prompt into token ids as Generate would; takes a place inside, for its work."""
        prompt = convert.prompt(request.prompt)
        with self._streams.admitted(0):
            ids = await self._front.tokens(prompt, await self._front.model(request.model))
        return inference_pb2.TokenizeResponse(tokens=types_pb2.TokenIds(ids=ids))
