"""The contract vllm.grpc.engine.VllmEngine, as public gateways speak it; optional.

Messages come from the package smg-grpc-proto. Its gRPC stubs are not imported, because they demand a newer grpcio than
the services pin; handlers are made from the method descriptors instead.
"""

from importlib import import_module
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

SERVICE = "vllm.grpc.engine.VllmEngine"


class MissingPackageError(ImportError):
    """The package smg-grpc-proto is not installed."""


def vllm_pb2() -> Any:
    """The module of the contract's messages.

    Raises:
        MissingPackageError: the package is not installed.
    """
    try:
        return import_module("smg_grpc_proto.generated.vllm_engine_pb2")
    except ImportError as error:
        text = f"vllm_engine: pip install --no-deps smg-grpc-proto ({error})"
        raise MissingPackageError(text) from error


def add_vllm_engine(server: grpc.aio.Server, service: object) -> None:
    """Registers every method of the contract that `service` has; the rest is UNIMPLEMENTED."""
    handlers: dict[str, Any] = {}
    for method in vllm_pb2().DESCRIPTOR.services_by_name["VllmEngine"].methods:
        behaviour = getattr(service, method.name, None)
        if behaviour is None:
            continue
        streams = method.server_streaming
        make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        handlers[method.name] = make(
            behaviour,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
