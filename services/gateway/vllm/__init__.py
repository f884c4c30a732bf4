"""The contract vllm.grpc.engine.VllmEngine, as public gateways speak it; optional.

Messages come from the package smg-grpc-proto. Its gRPC stubs are not imported, because they demand a newer grpcio than
the services pin.
"""

from importlib import import_module
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor


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


def vllm_service() -> ServiceDescriptor:
    """The descriptor of the contract's service.

    Raises:
        MissingPackageError: the package is not installed.
    """
    service: ServiceDescriptor = vllm_pb2().DESCRIPTOR.services_by_name["VllmEngine"]
    return service
