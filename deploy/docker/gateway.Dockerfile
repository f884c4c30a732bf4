# syntax=docker/dockerfile:1
# The gateway without torch. Build from the repository root.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS build
WORKDIR /build
COPY requirements/ requirements/
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --require-hashes --requirement requirements/gateway.lock.txt

FROM ${BASE}
RUN useradd --uid 10001 --user-group --create-home paceline
COPY --from=build /opt/venv /opt/venv
WORKDIR /app
COPY services/__init__.py services/__init__.py
COPY services/common/ services/common/
COPY services/gateway/ services/gateway/
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50051 50052 9100
ENTRYPOINT ["python", "-m", "services.gateway"]
