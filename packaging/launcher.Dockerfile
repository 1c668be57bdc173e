# Launcher image: the `hushgram` command with everything that a scheduled release needs. It plans, charges the ledger, submits
# the job to an engine, waits for it, and publishes. Run it as a CronJob, a Cloud Run job, or on any machine with Docker.
#   make wheel
#   docker build -f packaging/launcher.Dockerfile -t REGISTRY/hushgram:0.2.0 .
FROM python:3.11-slim

COPY requirements-runtime.lock dist/hushgram-*.whl /tmp/hushgram/
RUN pip install --no-cache-dir --constraint /tmp/hushgram/requirements-runtime.lock \
        "$(echo /tmp/hushgram/hushgram-*.whl)[aws,gcp,postgres]" \
    && pip check \
    && rm -rf /tmp/hushgram

ENTRYPOINT ["hushgram"]
