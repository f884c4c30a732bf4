# syntax=docker/dockerfile:1
# The gateway without torch. Build from the repository root.
ARG BASE=debian:bookworm-20261005-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
FROM ${BASE}
# The moment whose packages of Debian are taken; empty: those of today.
ARG SNAPSHOT=20261128T000000Z
COPY deploy/docker/packages.sh deploy/docker/gateway.packages /etc/paceline/
RUN sh /etc/paceline/packages.sh /etc/paceline/gateway.packages "${SNAPSHOT}"
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
# Who starts it cannot write here, and would compile every module again.
RUN /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash .
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50051 50052 9100
ARG VERSION=development
LABEL org.opencontainers.image.title="paceline gateway" \
      org.opencontainers.image.description="The client edge of paceline" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
ENTRYPOINT ["tini", "--", "python", "-m", "services.gateway"]
