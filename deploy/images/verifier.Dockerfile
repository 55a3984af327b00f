# Only what the verifier needs; built from the root of the project.
FROM python:3.12-slim-bookworm AS build
WORKDIR /app
COPY requirements/verifier.txt requirements.txt
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.txt
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY services/__init__.py services/__init__.py
COPY services/verifier services/verifier
RUN /venv/bin/python -c 'from services.verifier.jail.binaries import build_all; build_all()'

FROM python:3.12-slim-bookworm
# nsjail needs libnl; the jail runs the system's own interpreter; its init is compiled here and the compiler left out.
RUN apt-get update && apt-get install -y --no-install-recommends libnl-route-3-200 python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY --from=build /venv /venv
COPY schemas schemas
COPY domains domains
COPY services/__init__.py services/__init__.py
COPY services/runtime services/runtime
COPY services/verifier services/verifier
COPY --from=build /app/services/verifier/jail/build services/verifier/jail/build
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["python", "-m", "services.verifier"]
