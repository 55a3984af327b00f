# Only what the sampler needs; built from the root of the project.
FROM python:3.12-slim-bookworm AS build
WORKDIR /app
COPY requirements/sampler.txt requirements.txt
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.txt

FROM python:3.12-slim-bookworm
# Compiled kernels of the engine need a C++ compiler at run time.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY --from=build /venv /venv
COPY schemas schemas
COPY domains domains
COPY services/__init__.py services/__init__.py
COPY services/runtime services/runtime
COPY services/sampler services/sampler
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
ENTRYPOINT ["python", "-m", "services.sampler"]
