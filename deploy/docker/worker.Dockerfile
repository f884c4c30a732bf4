# syntax=docker/dockerfile:1
# One worker pod: the controller, and target and drafter as Ray actors. Build from the repository root.
ARG BASE=debian:bookworm-20261005-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
FROM ${BASE} AS locks
WORKDIR /locks
COPY requirements/worker.lock.txt deploy/docker/layers.awk ./
RUN awk -f layers.awk worker.lock.txt

FROM ${BASE}
# A compiler and the headers of libc and Python stay: Triton compiles its launcher when a process runs its first kernel.
# The moment whose packages of Debian are taken; empty: those of today.
ARG SNAPSHOT=20261128T000000Z
COPY deploy/docker/packages.sh deploy/docker/worker.packages /etc/paceline/
RUN sh /etc/paceline/packages.sh /etc/paceline/worker.packages "${SNAPSHOT}"
RUN useradd --uid 10001 --user-group --create-home paceline && python3 -m venv /opt/venv
# Large wheels that seldom change have layers of their own, so a push or pull moves what changed.
COPY --from=locks /locks/cuda.txt /etc/paceline/
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /etc/paceline/cuda.txt
COPY --from=locks /locks/torch.txt /etc/paceline/
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /etc/paceline/torch.txt
COPY --from=locks /locks/services.txt /etc/paceline/
# Operators start Ray from a login shell, which has a PATH of its own.
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /etc/paceline/services.txt \
 && ln -s /opt/venv/bin/ray /usr/local/bin/ray
WORKDIR /app
COPY services/__init__.py services/__init__.py
COPY services/common/ services/common/
COPY services/target/ services/target/
COPY services/drafter/ services/drafter/
COPY deploy/__init__.py deploy/__init__.py
COPY deploy/cluster/ deploy/cluster/
# Who starts it cannot write here, and would compile every module again.
RUN /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash .
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50050 50052 9100
ARG VERSION=development
LABEL org.opencontainers.image.title="paceline worker" \
      org.opencontainers.image.description="Target and drafter of paceline, and the controller that places them" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# tini reaps the processes that Ray leaves behind.
ENTRYPOINT ["tini", "--", "python", "-m", "deploy.cluster"]
