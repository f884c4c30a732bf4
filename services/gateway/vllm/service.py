"""VllmEngine behind the gateway's own authentication, validator, admission and migration."""

import asyncio
import time
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from services.gateway.intake.inlet import Messages
from services.gateway.intake.query import Query
from services.gateway.settings import GatewaySettings
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Context, Streams
from services.gateway.targets.pool import Pool
from services.gateway.tenancy.auth import current_tenant
from services.gateway.vllm import vllm_pb2, vllm_service
from services.gateway.vllm.convert import Encoder, query
from services.gateway.vllm.tokenizer_files import archive, chunks


class VllmEngine:
    """The methods of the contract that make sense here; `add_service` leaves the others unimplemented."""

    def __init__(self, front: RequestFactory, streams: Streams, pool: Pool, settings: GatewaySettings) -> None:
        """Fails at once when the package of the messages is missing."""
        self._pb2 = vllm_pb2()
        self._front = front
        self._streams = streams
        self._pool = pool
        self._settings = settings
        self._folder = front.catalogue.find("").folder.absolute()
        self._began = time.monotonic()
        self._running: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def Generate(self, messages: Messages[Any], context: Context) -> None:
        """Generates for one prompt; tokens only, the caller turns them into text."""
        name: tuple[str, str] | None = None
        encoder = Encoder(self._pb2)
        task = asyncio.current_task()

        async def ask() -> Query:
            nonlocal name
            request = await messages.only()
            name = (current_tenant().name, request.request_id)
            if task is not None:
                self._running[name] = task
            encoder.begin(request)
            return query(request, self._settings.default_max_tokens)

        try:
            await self._streams.serve(ask, context, encoder.messages)
        finally:
            if name is not None and self._running.get(name) is task:
                del self._running[name]

    async def Abort(self, messages: Messages[Any], context: Context) -> Any:
        """Ends running requests of the caller's tenant; unknown ids are no error."""
        request = await messages.only()
        tenant = current_tenant().name
        for request_id in request.request_ids:
            task = self._running.get((tenant, request_id))
            if task is not None:
                task.cancel()
        return self._pb2.AbortResponse()

    async def HealthCheck(self, messages: Messages[Any], context: Context) -> Any:
        """Healthy while a target takes work."""
        await messages.only()
        ready = self._pool.ready
        return self._pb2.HealthCheckResponse(healthy=ready, message="" if ready else "no target is ready")

    async def GetModelInfo(self, messages: Messages[Any], context: Context) -> Any:
        """What is served, and where its tokenizer lies."""
        await messages.only()
        model = await self._front.model("")
        return self._pb2.GetModelInfoResponse(
            model_path=str(self._folder),
            tokenizer_path=str(self._folder),
            is_generation=True,
            max_context_length=model.context_limit,
            max_req_input_len=model.context_limit - 1,
            vocab_size=model.vocab_size,
            served_model_name=model.name,
            eos_token_ids=model.eos_token_ids,
        )

    async def GetTokenizer(self, messages: Messages[Any], context: Context) -> None:
        """The files of the tokenizer and of the chat template, as a zip in chunks."""
        await messages.only()
        chunk = GetMessageClass(vllm_service().methods_by_name["GetTokenizer"].output_type)
        for data, sha256 in chunks(await asyncio.to_thread(archive, self._folder)):
            await context.write(chunk(data=data, sha256=sha256))

    async def GetServerInfo(self, messages: Messages[Any], context: Context) -> Any:
        """That this is a server of this contract."""
        await messages.only()
        return self._pb2.GetServerInfoResponse(
            active_requests=len(self._running),
            uptime_seconds=time.monotonic() - self._began,
            server_type="vllm-grpc",
            data_parallel_size=1,
            max_num_seqs=self._settings.max_requests,
        )

    async def GetLoads(self, messages: Messages[Any], context: Context) -> Any:
        """Requests in hand, as one rank."""
        await messages.only()
        loads = self._pb2.SchedulerLoad(
            num_running_reqs=len(self._running),
            num_total_reqs=len(self._running),
            max_running_requests=self._settings.max_requests,
            utilization=len(self._running) / self._settings.max_requests,
        )
        return self._pb2.GetLoadsResponse(dp_rank_count=1, loads=[loads])
