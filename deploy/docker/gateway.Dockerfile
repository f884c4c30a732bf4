# syntax=docker/dockerfile:1
# The gateway without torch. Build from the repository root.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
COPY deploy/docker/gateway.packages /etc/paceline/
RUN apt-get update \
 && xargs --arg-file=/etc/paceline/gateway.packages apt-get install --yes --no-install-recommends \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --create-home paceline && python3 -m venv /opt/venv
COPY requirements/gateway.lock.txt /etc/paceline/
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /etc/paceline/gateway.lock.txt
WORKDIR /app
COPY services/__init__.py services/__init__.py
COPY services/common/__init__.py services/common/__init__.py
COPY services/common/gguf/ services/common/gguf/
COPY services/common/metrics/ services/common/metrics/
COPY services/common/pb/ services/common/pb/
COPY services/common/request/ services/common/request/
COPY services/common/serving/ services/common/serving/
COPY services/gateway/ services/gateway/
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50051 50052 9100
ARG VERSION=development
LABEL org.opencontainers.image.title="paceline gateway" \
      org.opencontainers.image.description="The client edge of paceline" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
ENTRYPOINT ["tini", "--", "python", "-m", "services.gateway"]
