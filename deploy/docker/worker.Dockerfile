# syntax=docker/dockerfile:1
# One worker pod: the controller, and target and drafter as Ray actors. Build from the repository root.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS build
WORKDIR /build
COPY requirements/ requirements/
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --require-hashes --requirement requirements/worker.lock.txt

FROM ${BASE}
RUN useradd --uid 10001 --user-group --create-home paceline
# Operators start Ray from a login shell, which has a PATH of its own.
COPY --from=build /opt/venv /opt/venv
RUN ln -s /opt/venv/bin/ray /usr/local/bin/ray
WORKDIR /app
COPY services/__init__.py services/__init__.py
COPY services/common/ services/common/
COPY services/target/ services/target/
COPY services/drafter/ services/drafter/
COPY deploy/__init__.py deploy/__init__.py
COPY deploy/cluster/ deploy/cluster/
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50050 50052 9100
ENTRYPOINT ["python", "-m", "deploy.cluster"]
