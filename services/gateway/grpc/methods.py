"""Registers a service whose methods take Messages, by its descriptor."""

from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


def add_service(server: grpc.aio.Server, descriptor: ServiceDescriptor, service: object) -> None:
    """Registers every method that `service` has by a handler of stream arity; the rest is UNIMPLEMENTED."""
    handlers: dict[str, Any] = {}
    for method in descriptor.methods:
        behaviour = getattr(service, method.name, None)
        if behaviour is None:
            continue
        streams = method.server_streaming
        make = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler
        handlers[method.name] = make(
            behaviour,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))
